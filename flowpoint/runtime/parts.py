"""What each operator of a subtask puts into a snapshot: keyed state, source positions, sink committables.

`capture` is the short part that runs between two batches; `write` makes it durable beside the stream and returns the
`SubtaskState` for the manifest. Writes of one part happen in the order of their captures.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from flowpoint.errors import BadRecordError
from flowpoint.model.elements import Barrier
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.runtime.contracts import ConnectorContext, Sink, SinkWriter
from flowpoint.state.backend import Backend, Frozen

T = TypeVar("T")
Captured = Callable[[], Awaitable[SubtaskState]]


class Part(Protocol):
    """One operator's share of a snapshot."""

    uid: str

    async def capture(self, barrier: Barrier) -> Captured:
        """Freeze what belongs before the barrier; returns the step that makes it durable."""


WriteState = Callable[[str, Frozen], Coroutine[Any, Any, list[StateFile]]]


@dataclass(slots=True)
class KeyedPart:
    """Keyed state of one operator. `files` is the chain that a snapshot names: a base, then what changed since.

    `must_be_full`: the state was put together from several old subtasks, so the next snapshot starts a new chain.
    """

    uid: str
    backend: Backend
    groups: tuple[int, int]
    write_state: WriteState
    incremental: bool = True
    files: tuple[StateFile, ...] = ()
    must_be_full: bool = False

    async def capture(self, barrier: Barrier) -> Captured:
        """Swap the changed entries out."""
        return self.freeze()

    def freeze(self) -> Captured:
        """The same without a barrier: changed entries have outgrown memory and go out early, into the next snapshot."""
        frozen = self.backend.freeze(full=self.must_be_full or not self.incremental)
        self.must_be_full = False
        states = self.backend.schemas()

        async def write() -> SubtaskState:
            try:
                files = await self.write_state(self.uid, frozen)
            except BaseException:
                frozen.failed()
                raise
            kept = () if frozen.full else self.files[: len(self.files) - frozen.replaces]
            self.files = (*kept, *files)
            frozen.durable()
            return SubtaskState(files=self.files, groups=self.groups, states=states)

        return write


def check_json(value: Any, what: str) -> Any:
    """`value`, if JSON carries it unchanged. Raises BadRecordError saying what to return instead."""
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError) as error:
        raise BadRecordError(f"{what} is not JSON data ({error}); use None, bool, int, str, lists and dicts") from error
    if not same:
        raise BadRecordError(f"{what} does not survive JSON (saw {value!r}); use None, bool, int, str, lists and dicts")
    return value


async def finish(step: Coroutine[Any, Any, T]) -> T:
    """Run a step to its end even when the caller is cancelled meanwhile; the cancellation follows afterwards."""
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        # Whether it came about does not matter any more: whoever cancelled does the step again from durable state.
        task.exception()
        raise


@dataclass(slots=True)
class SinkPart:
    """A sink: what was prepared and not yet confirmed is state (rule 7), oldest first."""

    uid: str
    sink: Sink
    context: ConnectorContext
    writer: SinkWriter | None = None
    uncommitted: list[dict[str, Any]] = field(default_factory=list)

    async def capture(self, barrier: Barrier) -> Captured:
        """Prepare what was written since the last barrier."""
        assert self.writer is not None
        data = await self.writer.prepare(barrier.checkpoint)
        if data is not None:
            check_json(data, f"the committable of sink '{self.uid}'")
            self.uncommitted.append({"checkpoint": barrier.checkpoint, "data": data})
        state = SubtaskState(committables=tuple(self.uncommitted))

        async def write() -> SubtaskState:
            return state

        return write

    async def commit(self, checkpoint: int) -> None:
        """Commit everything up to and including `checkpoint`, in order. Confirmed ones leave the state."""
        while self.uncommitted and self.uncommitted[0]["checkpoint"] <= checkpoint:
            await finish(self.sink.commit(self.uncommitted[0]["data"], self.context))
            del self.uncommitted[0]
