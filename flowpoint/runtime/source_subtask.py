"""A subtask that reads its splits and starts every barrier.

One read is under way at a time and is never cancelled while the job runs. A barrier may come while it waits: a
reader's position says what its finished reads have *returned*, so the snapshot is right as long as a finished read is
processed before the next barrier, which the loop guarantees by looking at it first.

Splits are opened when their turn comes: another one is opened only when those open have nothing to give just now. End
of input is state: a finished subtask goes on passing barriers (rule 10).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from flowpoint.errors import FlowPointError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import Barrier
from flowpoint.model.manifest import SubtaskState
from flowpoint.runtime.contracts import END, ConnectorContext, Source, SourceReader, Split
from flowpoint.runtime.parts import Captured, check_json
from flowpoint.runtime.subtask import Subtask, SubtaskParts

IDLE_SECONDS = 0.01
OPEN_READERS_MAX = 16


@dataclass(slots=True)
class SplitState:
    """One split of this subtask: where it stands, and its reader while it is open."""

    split: Split
    position: Any
    ended: bool
    reader: SourceReader | None = None

    def to_data(self, uid: str) -> dict[str, Any]:
        """As it stands in a snapshot."""
        position = self.position if self.reader is None else self.reader.position()
        check_json(position, f"the position of split '{self.split.id}' of source '{uid}'")
        return {"id": self.split.id, "data": self.split.data, "position": position, "ended": self.ended}


@dataclass(slots=True)
class SourcePart:
    """The splits of one source in one subtask."""

    uid: str
    source: Source
    context: ConnectorContext
    splits: list[SplitState] = field(default_factory=list)

    async def capture(self, barrier: Barrier) -> Captured:
        """Where every split stands now."""
        state = SubtaskState(splits=tuple(split.to_data(self.uid) for split in self.splits))

        async def write() -> SubtaskState:
            return state

        return write

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """The same: positions stand in the manifest."""
        return await self.capture(barrier)


class SourceSubtask(Subtask):
    """Reads, emits barriers on request, halts and resumes."""

    def __init__(self, built: SubtaskParts, part: SourcePart, batch_size: int) -> None:
        super().__init__(built)
        self._part = part
        self._batch_size = batch_size
        self._triggers: deque[Barrier] = deque()
        self._unopened = deque(split for split in part.splits if not split.ended)
        self._open: deque[SplitState] = deque()
        self._reading: asyncio.Task[Any] | None = None
        self._halted = False
        self._empty_in_a_row = 0

    # ------------------------------------------------------------------ control

    def trigger(self, message: messages.Trigger) -> None:
        """Emit the barrier of a checkpoint as soon as what is in hand has been processed."""
        barrier = Barrier(message.checkpoint, message.kind, message.halt, message.final, message.savepoint)
        self._triggers.append(barrier)
        self.wakeup.set()

    def resume(self) -> None:
        """A stop did not come about: go on reading."""
        self._halted = False
        self.wakeup.set()

    def abort(self, checkpoint: int) -> None:
        """Forget a barrier that has not been emitted yet."""
        self._triggers = deque(barrier for barrier in self._triggers if barrier.checkpoint != checkpoint)

    # ------------------------------------------------------------------ the loop

    async def loop(self) -> None:
        """Process what was read, then barriers, then start the next read; wait for the first of what may happen."""
        try:
            while True:
                # A read that ends after a halting barrier stays where it is: its records are not in that snapshot.
                if self._reading is not None and self._reading.done() and not self._halted:
                    await self._take_read()
                elif self._triggers:
                    await self._emit_barrier(self._triggers.popleft())
                elif not self._outputs.writable:
                    await self._wait_for_credit()
                elif self._may_read():
                    await self._start_read()
                elif not self.is_ended and not self._halted and self._reading is None:
                    await self.end_input()
                else:
                    await self.fire_timers()
                    await self._wait()
        finally:
            await self._close_readers()

    def _may_read(self) -> bool:
        return self._reading is None and not self._halted and not self.is_ended and bool(self._open or self._unopened)

    async def _wait_for_credit(self) -> None:
        """Wait for credit or a trigger: barriers need no credit."""
        begun = self._now()
        await self._wait()
        self.counters.blocked += self._now() - begun

    async def _emit_barrier(self, barrier: Barrier) -> None:
        if barrier.halt:
            self._halted = True
        await self.snapshot(barrier)

    # ------------------------------------------------------------------ reading

    async def _start_read(self) -> None:
        if not self._open:
            await self._open_next()
        split = self._open[0]
        assert split.reader is not None
        self._reading = asyncio.create_task(self._read(split.reader), name=f"read {self._part.uid} {split.split.id}")
        self._reading.add_done_callback(lambda _: self.wakeup.set())

    async def _read(self, reader: SourceReader) -> Any:
        # No more than one slice, so that a barrier waits for no more than that.
        return await reader.read(min(self._slice, self._batch_size))

    async def _open_next(self) -> None:
        split = self._unopened.popleft()
        try:
            split.reader = await self._part.source.open(split.split, split.position, self._part.context)
        except FlowPointError as error:
            error.operator = error.operator or self._part.uid
            raise
        self._open.append(split)

    async def _take_read(self) -> None:
        """Process what a read has returned."""
        assert self._reading is not None
        reading, self._reading = self._reading, None
        split = self._open[0]
        try:
            values = reading.result()
        except FlowPointError as error:
            error.operator = error.operator or self._part.uid
            raise
        if values is END:
            await self._end_split(split)
        elif not isinstance(values, list):
            shown = f"{type(values).__name__}; it must return a list, or END"
            raise UserCodeError(f"source '{self._part.uid}' split '{split.split.id}': read() returned {shown}")
        elif values:
            self._empty_in_a_row = 0
            await self.process(values)
            self._open.rotate(-1)
        else:
            await self._look_elsewhere()
        await self.fire_timers()

    async def _end_split(self, split: SplitState) -> None:
        assert split.reader is not None
        split.position = split.reader.position()
        split.ended = True
        self._open.popleft()
        reader, split.reader = split.reader, None
        await reader.close()

    async def _look_elsewhere(self) -> None:
        """Nothing in this split now: try another one, and pause when none of them has anything."""
        self._empty_in_a_row += 1
        self._open.rotate(-1)
        if self._unopened and len(self._open) < OPEN_READERS_MAX:
            await self._open_next()
            self._open.rotate(1)
        elif self._empty_in_a_row >= len(self._open):
            self._empty_in_a_row = 0
            pause = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.wakeup.set)
            if not self._triggers:
                await self._wait()
            pause.cancel()

    async def _close_readers(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for split in self._open:
            if split.reader is not None:
                await split.reader.close()
