"""What is pending in a stored checkpoint: the nodes that would run next, and what tasks have written already.

`pending_nodes` names the nodes as the framework would find them: a channel that triggers a node is newer than what the
node has seen. `move_tasks` gives the writes of tasks the ids and paths that the tasks have after nodes were renamed or
their edges changed, so that a task that finished is not run again and an interrupt is found under the id it will have.

Invariant: a write is never given to another task than the one that made it; where that cannot be known (a call inside a
renamed node, an interrupt inside a renamed sub-graph), the checkpoint is refused.
Not here: the hashes themselves (`tasks.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from flowpoint.agents.graph_shape import BRANCH, GraphShape, join_parts
from flowpoint.agents.stored import PendingWrite, Stored
from flowpoint.agents.tasks import (
    NULL_TASK_ID,
    CallPath,
    HandlerPath,
    NodePath,
    SendPath,
    TaskHash,
    interrupt_id,
    parse_path,
)
from flowpoint.errors import SchemaError

__all__ = ["move_tasks", "pending_nodes"]

_ANSWERS_MAX: Final = 256


def pending_nodes(stored: Stored) -> Iterator[tuple[str, str]]:
    """The nodes that would run next, each with the channel or Send that says so."""
    for channel, value in stored.channels.items():
        if channel.startswith(BRANCH):
            node = channel[len(BRANCH) :]
        elif (joined := join_parts(channel)) is not None:
            starts, node = joined
            arrived = value[0] if isinstance(value, (tuple, list)) and value else value
            if not isinstance(arrived, (set, frozenset)) or arrived != set(starts):
                continue
        else:
            continue
        if _is_newer(stored, channel, node):
            yield node, channel
    for send in _sends(stored):
        yield send.node, "a Send"


def _is_newer(stored: Stored, channel: str, node: str) -> bool:
    seen = stored.versions_seen.get(node, {}).get(channel)
    version = stored.channel_versions.get(channel)
    return seen is None or (version is not None and version > seen)


def _sends(stored: Stored) -> list[Send]:
    waiting = stored.channels.get(TASKS, ())
    if isinstance(waiting, tuple) and len(waiting) == 2 and isinstance(waiting[1], list):
        waiting = waiting[1]
    return [send for send in waiting if isinstance(send, Send)]


def move_tasks(stored: Stored, shape: GraphShape, renamed: Mapping[int | None, Mapping[str, str]]) -> None:
    """Give pending writes the ids and paths of the tasks as the code now names them.

    Args:
        stored: after its migrations, apart from ids and paths of tasks.
        shape: of its graph.
        renamed: for each version that writes have, the names of nodes at that version to those of now. What has
            another version was written by today's code, and lies under the right ids already.

    Raises:
        SchemaError: a task cannot be followed to its new name.
    """
    step = stored.metadata.get("step")
    if not stored.pending_writes or not isinstance(step, int):
        return
    hashes = TaskHash(stored.checkpoint_id, stored.checkpoint_ns, step + 1, stored.layout)
    movers = {version: _Mover(stored, shape, names, hashes) for version, names in renamed.items()}
    moved = [
        movers[write.version].moved(write) if write.version in movers else write for write in stored.pending_writes
    ]
    # As the framework applies writes: by path, and then by id.
    stored.pending_writes = sorted(_without_replaced(moved), key=lambda write: (write.task_path, write.task_id))


def _without_replaced(writes: list[PendingWrite]) -> list[PendingWrite]:
    """Of the special writes of a task only the last counts: that under its new id, if there are two now."""
    last: dict[tuple[str, str], PendingWrite] = {}
    for write in sorted(writes, key=lambda write: -1 if write.version is None else write.version):
        if write.channel in WRITES_IDX_MAP:
            last[write.task_id, write.channel] = write
    return [write for write in writes if last.get((write.task_id, write.channel), write) is write]


class _Mover:
    """Follows the tasks of one checkpoint, from the names that nodes had at one version."""

    def __init__(self, stored: Stored, shape: GraphShape, renamed: Mapping[str, str], hashes: TaskHash) -> None:
        self._stored = stored
        self._shape = shape
        self._renamed = renamed
        self._old_names = {new: old for old, new in renamed.items()}
        self._hashes = hashes
        self._sends = _sends(stored)
        self._moves: dict[tuple[str, str], tuple[str, str]] = {}
        self._namespaces: dict[tuple[str, str], tuple[str, str, str]] = {}

    def moved(self, write: PendingWrite) -> PendingWrite:
        """A write under the id and path that its task has now."""
        if not write.task_path or write.task_id == NULL_TASK_ID:
            return write
        task = (write.task_id, write.task_path)
        if task not in self._moves:
            self._moves[task] = id, path = self._move(*task)
            if (id, path) != task:
                self._stored.note(f"what task {task[0]} ({task[1]}) wrote belongs to task {id} ({path}) now")
        return self._with_interrupts(write, *self._moves[task])

    def _move(self, id: str, path: str) -> tuple[str, str]:
        match parse_path(path):
            case NodePath(node):
                return self._moved_node(id, path, node)
            case SendPath(index) if index < len(self._sends):
                node = self._sends[index].node
                old = self._old_names.get(node, node)
                # Nothing but the name of its node decides about the id of a Send.
                moved = self._hashes.of_send(node, index) if old != node else id
                self._remember(id, path, old, self._hashes, moved, node, self._hashes)
                return moved, path
            case HandlerPath(node):
                return self._moved_handler(id, path, node)
            case CallPath(caller):
                self._refuse_moved_caller(path, caller)
        return id, path

    def _moved_node(self, id: str, path: str, old: str) -> tuple[str, str]:
        node = self._renamed.get(old, old)
        triggers = self._shape.triggers.get(node)
        if triggers is None:
            return id, path
        moved = self._hashes.of_node(node, triggers)
        self._remember(id, path, old, self._hashes, moved, node, self._hashes)
        return moved, str(NodePath(node))

    def _moved_handler(self, id: str, path: str, old: str) -> tuple[str, str]:
        node = self._renamed.get(old, old)
        handler = self._shape.handlers.get(node)
        failed_before = [
            write.task_id for write in self._stored.pending_writes if write.task_path == str(NodePath(old))
        ]
        if handler is None or node not in self._shape.triggers or not failed_before:
            return id, path
        failed = self._hashes.of_node(node, self._shape.triggers[node])
        hashes = self._hashes.below(node, failed)
        moved = hashes.of_handler(handler, failed)
        before = self._hashes.below(old, failed_before[0])
        self._remember(id, path, self._old_names.get(handler, handler), before, moved, handler, hashes)
        return moved, str(HandlerPath(node))

    def _remember(self, id: str, path: str, old: str, before: TaskHash, moved: str, node: str, after: TaskHash) -> None:
        """Keep what the ids of the interrupts of a task are made of: its namespace before and now."""
        self._namespaces[id, path] = (old, f"{before.namespace(old)}:{id}", f"{after.namespace(node)}:{moved}")

    def _refuse_moved_caller(self, path: str, caller: str) -> None:
        parsed = parse_path(caller)
        while isinstance(parsed, CallPath):
            parsed = parse_path(parsed.caller)
        if isinstance(parsed, NodePath) and parsed.node in self._renamed:
            raise SchemaError(
                f"{self._stored.where()}: cannot rename node {parsed.node!r}: it is pending and the call {path!r} inside "
                "of it has finished, which would be made again; let the thread finish this step with the old code first"
            )

    def _with_interrupts(self, write: PendingWrite, id: str, path: str) -> PendingWrite:
        """The write under its new task, with the interrupts in it under their new ids."""
        moved = write._replace(task_id=id, task_path=path)
        names = self._namespaces.get((write.task_id, write.task_path))
        if write.channel != INTERRUPT or names is None or id == write.task_id:
            return moved
        found = write.value if isinstance(write.value, (list, tuple)) else (write.value,)
        values = [self._moved_interrupt(interrupt, *names) for interrupt in found]
        return moved._replace(value=type(write.value)(values) if found is write.value else values[0])

    def _moved_interrupt(self, interrupt: Any, node: str, old_ns: str, new_ns: str) -> Any:
        if not isinstance(interrupt, Interrupt):
            return interrupt
        for answered in range(_ANSWERS_MAX):
            if interrupt.id == interrupt_id(old_ns, answered):
                return dataclasses.replace(interrupt, id=interrupt_id(new_ns, answered))
        raise SchemaError(
            f"{self._stored.where()}: cannot follow the interrupt {interrupt.id} to the new name of node {node!r}: it "
            "is inside a sub-graph, whose checkpoints lie under the old name; answer it with the old code first"
        )
