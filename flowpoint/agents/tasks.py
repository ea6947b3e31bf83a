"""The ids and paths that LangGraph gives to tasks and interrupts, for what is pending when a node is renamed.

A pending write lies under the id of its task, and the id is a hash of the checkpoint, the step, the name of the node
and the channels that trigger it. Under a new name the task has another id: what it wrote has to move there, or a task
that has finished runs again, and an interrupt is not found.

These are private to the framework. `tests/unit/agents/test_tasks.py` compares each with what the framework does.

    path of a node            ~__pregel_pull, NODE
    path of a Send            ~__pregel_push, INDEX, 0000000000
    path of a call            ~__pregel_push, PATH OF THE CALLER, INDEX, 0000000001
    path of an error handler  ~__pregel_pull, NODE, node_error_handler, 0000000000
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Final

from xxhash import xxh3_128_hexdigest

__all__ = ["NULL_TASK_ID", "CallPath", "HandlerPath", "NodePath", "SendPath", "TaskHash", "interrupt_id", "parse_path"]

NULL_TASK_ID: Final = "00000000-0000-0000-0000-000000000000"
_PULL: Final = "__pregel_pull"
_PUSH: Final = "__pregel_push"
_HANDLER: Final = "node_error_handler"
_HANDLER_SUFFIX: Final = f", {_HANDLER}, 0000000000"
_SEND: Final = re.compile(rf"~{_PUSH}, (\d{{10}}), 0000000000")
_CALL: Final = re.compile(rf"~{_PUSH}, (~.*), (\d{{10}}), 0000000001", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodePath:
    """A task that channels trigger."""

    node: str

    def __str__(self) -> str:
        return f"~{_PULL}, {self.node}"


@dataclass(frozen=True, slots=True)
class HandlerPath:
    """The error handler of a node that failed."""

    node: str

    def __str__(self) -> str:
        return f"~{_PULL}, {self.node}{_HANDLER_SUFFIX}"


@dataclass(frozen=True, slots=True)
class SendPath:
    """A task that a Send started; `index` is its place among the Sends of the step."""

    index: int

    def __str__(self) -> str:
        return f"~{_PUSH}, {self.index:010d}, 0000000000"


@dataclass(frozen=True, slots=True)
class CallPath:
    """A `@task` that is called inside another task, whose path is `caller`."""

    caller: str


def parse_path(text: str) -> NodePath | HandlerPath | SendPath | CallPath | None:
    """What a stored task path means; None for one of no known form."""
    if send := _SEND.fullmatch(text):
        return SendPath(int(send[1]))
    if call := _CALL.fullmatch(text):
        return CallPath(call[1])
    if text.startswith(f"~{_PULL}, "):
        node = text[len(_PULL) + 3 :]
        return HandlerPath(node.removesuffix(_HANDLER_SUFFIX)) if node.endswith(_HANDLER_SUFFIX) else NodePath(node)
    return None


@dataclass(frozen=True, slots=True)
class TaskHash:
    """Makes the ids of the tasks that follow one checkpoint.

    step: of the tasks, which is that of the checkpoint plus one.
    """

    checkpoint_id: str
    checkpoint_ns: str
    step: int
    layout: int = 4

    def of_node(self, node: str, triggers: tuple[str, ...]) -> str:
        """The id of a task that channels trigger."""
        return self._id(node, _PULL, *sorted(triggers))

    def of_send(self, node: str, index: int) -> str:
        """The id of a task that a Send started."""
        return self._id(node, _PUSH, str(index))

    def below(self, node: str, task_id: str) -> TaskHash:
        """For tasks that run inside a task, as the handler of its error does."""
        return replace(self, checkpoint_ns=f"{self.namespace(node)}:{task_id}")

    def of_handler(self, handler: str, failed_task_id: str) -> str:
        """The id of the error handler for a task; of the hash `below` that task."""
        return self._id(handler, _PUSH, _HANDLER, failed_task_id)

    def namespace(self, node: str) -> str:
        """The namespace of a task without its id."""
        return f"{self.checkpoint_ns}|{node}" if self.checkpoint_ns else node

    def _id(self, node: str, *parts: str) -> str:
        head = bytes.fromhex(self.checkpoint_id.replace("-", ""))
        data = head + "".join((self.namespace(node), str(self.step), node, *parts)).encode()
        # Checkpoints of the very first layout had ids of another hash.
        digest = xxh3_128_hexdigest(data) if self.layout > 1 else hashlib.sha1(data, usedforsecurity=False).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def interrupt_id(task_ns: str, answered: int) -> str:
    """The id of the interrupt that a task meets after so many answers; `task_ns` is its namespace with its id."""
    return xxh3_128_hexdigest((f"{task_ns}|{answered}" if answered else task_ns).encode())
