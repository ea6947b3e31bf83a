"""A key for the effects of a node that is the same when the node runs again after a crash, and no other time.

Nodes run at least once: a crash between an effect and the checkpoint that follows runs the node again. A receiver that
remembers keys (a payment service, a table with a unique column) makes the effect once.

The key is made of what stays the same when a step is repeated: the thread, the caller's number of the run
(`configurable["request_id"]`), the path of the graph, the steps of the graphs above, the step, and the path of the
task. Not of the ids of tasks or checkpoints, which differ when a run is resumed from an earlier checkpoint.

A sub-graph counts its steps from the beginning at every visit. What tells two visits apart is the step of the graph
above, which its checkpoint id carries, and among several Sends of one step the index, which the task id was made of.

Not here: making an effect happen once without the receiver's help; nobody can.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from flowpoint.agents.graph_shape import BRANCH
from flowpoint.agents.tasks import TaskHash
from flowpoint.errors import UsageError

__all__ = ["idempotency_key"]

_SENDS_MAX: Final = 4096
_CLOCK_SEQ: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-([0-9a-f]{4})-[0-9a-f]{12}")


def idempotency_key(config: Mapping[str, Any], *names: str | int) -> str:
    """A key for an effect of the node that was called with `config`.

    Args:
        config: the RunnableConfig that the node was given.
        names: what tells several effects of one node apart.

    Raises:
        UsageError: the run has no `request_id` or no `thread_id`, or the config is not that of a node.

    Example:
        def pay(state, config: RunnableConfig):
            charge(state["amount"], key=idempotency_key(config))
    """
    place, about = config.get("configurable", {}), config.get("metadata", {})
    request = place.get("request_id")
    if type(request) not in (str, int) or request == "":
        raise UsageError(
            f"cannot make an idempotency key: configurable['request_id'] is {request!r}; give every run a number or text "
            "of its own, the same when it is resumed: "
            f"invoke(input, {{'configurable': {{'thread_id': ..., 'request_id': ...}}}})"
        )
    step, path, thread = about.get("langgraph_step"), about.get("langgraph_path"), place.get("thread_id")
    if step is None or path is None or thread is None:
        raise UsageError(
            "cannot make an idempotency key: this is not the config of a node in a thread; take "
            "`config: RunnableConfig` as a parameter of the node, compile the graph with a checkpointer and run it with a "
            "thread_id"
        )
    parts = [str(thread), request, _path_of_graphs(place, about), step, _plain(path), list(names)]
    return hashlib.sha256(msgpack.packb(parts)).hexdigest()[:32]


def _path_of_graphs(place: Mapping[str, Any], about: Mapping[str, Any]) -> list[list[Any]]:
    """For each graph above the node's own: the node it was called in, at which step, and by which Send if by one."""
    ids: Mapping[str, str] = place.get("checkpoint_map", {})
    parts = str(about.get("langgraph_checkpoint_ns", "")).split("|")
    graphs: list[list[Any]] = []
    for depth, part in enumerate(parts[:-1]):
        above = "|".join(parts[:depth])
        node, _, task_id = part.partition(":")
        checkpoint_id = ids.get(above)
        if checkpoint_id is None:
            graphs.append([node])
            continue
        step = _step_after(checkpoint_id)
        graphs.append([node, step, _send_index(TaskHash(checkpoint_id, above, step), node, task_id)])
    return graphs


def _step_after(checkpoint_id: str) -> int:
    """The step that follows a checkpoint; LangGraph puts the number of its step into the id."""
    found = _CLOCK_SEQ.fullmatch(checkpoint_id)
    if found is None:
        raise UsageError(f"cannot make an idempotency key: the checkpoint id {checkpoint_id!r} is not one of LangGraph")
    return ((int(found[1], 16) & 0x3FFF) + 1) & 0x3FFF


def _send_index(hashes: TaskHash, node: str, task_id: str) -> int:
    """Which Send of its step started a task; -1 if an edge did."""
    if task_id == hashes.of_node(node, (f"{BRANCH}{node}",)):
        return -1
    return next((index for index in range(_SENDS_MAX) if task_id == hashes.of_send(node, index)), -1)


def _plain(path: Any) -> Any:
    """A task path as lists; of a call inside a task, which names its caller's path."""
    return [_plain(part) for part in path] if isinstance(path, (tuple, list)) else path
