"""What waits to be handed to nodes by `Send`, when a migration touches keys of the state.

The argument of a Send is private to its node. Where the node reads the state itself, the keys of the argument are those
of the state, and follow the migration. Where the node has an input of its own, a key may have a name of the state by
chance: that cannot be known, so it is refused, unless a `ConvertSend` says what to do.

Not here: names of nodes and ids of tasks (`migrations.RenameNode`, `pending.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Send

from flowpoint.agents.migrations import Convert, Drop, Migration, Rename, converted, with_sends
from flowpoint.agents.stored import Stored
from flowpoint.errors import SchemaError

__all__ = ["follow"]


def follow(
    stored: Stored, step: Migration, reads_state: Callable[[str], bool], is_converted: Callable[[str], bool]
) -> None:
    """Do to the arguments of waiting Sends what a step has done to the state.

    Args:
        stored: after the step.
        step: of the graph that the checkpoint belongs to.
        reads_state: whether the input of a node, by its name at this point, is the state.
        is_converted: whether a `ConvertSend` after the step takes care of what is sent to a node.

    Raises:
        SchemaError: a key of an argument may or may not be the one that the step is about.
    """
    if not isinstance(step, (Rename, Drop, Convert)):
        return
    key = step.old if isinstance(step, Rename) else step.channel

    def followed(send: Send) -> Send:
        if not isinstance(send.arg, dict) or key not in send.arg:
            return send
        if reads_state(send.node):
            return Send(send.node, _migrated(stored, step, send.arg), timeout=send.timeout)
        if is_converted(send.node):
            return send
        raise SchemaError(
            f"{stored.where()}: cannot apply {step} while a Send to node {send.node!r} is pending: its argument has a "
            f"key {key!r}, and the input of the node is its own, so that they may or may not be the same; add a "
            f"ConvertSend({send.node!r}, ...) after it, or let the thread finish this step with the old code first"
        )

    if TASKS in stored.channels:
        stored.channels[TASKS] = with_sends(followed, stored.channels[TASKS])
    stored.pending_writes = [
        write._replace(value=with_sends(followed, write.value)) if write.channel == TASKS else write
        for write in stored.pending_writes
    ]


def _migrated(stored: Stored, step: Rename | Drop | Convert, arg: dict[Any, Any]) -> dict[Any, Any]:
    match step:
        case Rename(old, new):
            return {new if name == old else name: value for name, value in arg.items()}
        case Drop(channel):
            return {name: value for name, value in arg.items() if name != channel}
        case Convert(channel, fn):
            return {**arg, channel: converted(stored, channel, fn, arg[channel])}
