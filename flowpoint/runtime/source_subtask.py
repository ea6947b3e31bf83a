"""A subtask that reads its splits and starts every barrier.

One read is under way at a time and is never cancelled while the job runs. A barrier may come while it waits: a
reader's position says what its finished reads have *returned*, so the snapshot is right as long as a finished read is
processed before the next barrier, which the loop guarantees by looking at it first. Only after a halting barrier is a
finished read left where it is; positions are then no longer asked for, since they would cover it.

A barrier never waits for credit (rule 13): what a read has returned is processed without it, and that is all that may
overshoot. Opening a split is part of its first read, so a slow one keeps no barrier waiting either.

Splits are opened when their turn comes: another one is opened only when those open have nothing to give just now. End
of input is state: a finished subtask goes on passing barriers (rule 10).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from flowpoint.errors import TransientError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import Barrier, Batch
from flowpoint.model.manifest import SubtaskState
from flowpoint.model.texts import with_article
from flowpoint.runtime.connector_forms import full_reader, settled
from flowpoint.runtime.contracts import END, ConnectorContext, Source, SourceReader, Split
from flowpoint.runtime.failures import naming, shorten
from flowpoint.runtime.json_data import checked_json
from flowpoint.runtime.parts import Captured
from flowpoint.runtime.subtask import Subtask
from flowpoint.runtime.subtask_parts import SubtaskParts

IDLE_SECONDS: Final = 0.01
OPEN_READERS_MAX: Final = 128
SLICES_PER_READ: Final = 8
"""A barrier waits for what one read has returned: no longer than these slices take."""


@dataclass(slots=True)
class SplitState:
    """One split of this subtask: where it stands, and its reader while it is open.

    position: what a snapshot says. has_read: `reader` has returned something since it was opened.
    """

    split: Split
    position: Any
    ended: bool
    reader: SourceReader | None = None
    has_read: bool = False

    def to_data(self) -> dict[str, Any]:
        """As it stands in a snapshot."""
        return {"id": self.split.id, "data": self.split.data, "position": self.position, "ended": self.ended}


@dataclass(slots=True)
class SourcePart:
    """The splits of one source in one subtask."""

    uid: str
    source: Source
    context: ConnectorContext
    splits: list[SplitState] = field(default_factory=list)

    async def read(self, split: SplitState, n: int) -> Any:
        """Read from a split, which is opened first when it is not."""
        if split.reader is None:
            with naming(self.uid, f"open() of split '{split.split.id}'"):
                opened: SourceReader = await settled(self.source.open(split.split, split.position, self.context))
                split.reader = full_reader(opened)
        with naming(self.uid, f"read() of split '{split.split.id}'"):
            return await split.reader.read(n)

    def note_positions(self) -> None:
        """Ask the readers where they stand. Everything they have returned must have been processed."""
        for split in self.splits:
            self.note_position(split)

    def note_position(self, split: SplitState) -> None:
        """Ask one reader where it stands, if it has moved since it was opened."""
        if split.reader is not None and split.has_read:
            with naming(self.uid, f"position() of split '{split.split.id}'"):
                what = f"the position of split '{split.split.id}' of source '{self.uid}'"
                split.position = checked_json(split.reader.position(), what)

    async def put_away(self, split: SplitState) -> None:
        """Note where a split stands and close its reader."""
        self.note_position(split)
        reader, split.reader, split.has_read = split.reader, None, False
        if reader is not None:
            with naming(self.uid, f"close() of split '{split.split.id}'"):
                await reader.close()

    async def capture(self, barrier: Barrier) -> Captured:
        """Where every split stands, as of the last `note_positions`."""
        return Captured.of(SubtaskState(splits=tuple(split.to_data() for split in self.splits)))

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """The same: positions stand in the manifest."""
        return await self.capture(barrier)

    async def close(self) -> None:
        """Close every reader; the first error is raised when all are closed."""
        failure: Exception | None = None
        for split in self.splits:
            reader, split.reader = split.reader, None
            if reader is not None:
                try:
                    await reader.close()
                except Exception as error:  # noqa: BLE001  raised below
                    failure = failure or error
        if failure is not None:
            raise failure


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
        self._is_halted = False
        self._is_drained = False
        self._empty_in_a_row = 0
        self._pause: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ control

    def trigger(self, message: messages.Trigger) -> None:
        """Emit the barrier of a checkpoint as soon as what is in hand has been processed."""
        if self.is_restoring:
            return  # `decline_restoring` has said so
        self._triggers.append(
            Barrier(
                message.checkpoint,
                kind=message.kind,
                halt=message.halt,
                final=message.final,
                savepoint=message.savepoint,
                drain=message.drain,
                triggered=message.triggered,
            )
        )
        self.wakeup.set()

    def resume(self) -> None:
        """A stop did not come about: go on reading. After a drain, time has ended, and only a new attempt can."""
        self._is_halted = False
        self.wakeup.set()

    def abort(self, checkpoint: int) -> None:
        """Forget a barrier that has not been emitted yet, and the savepoint that it asked for when it has."""
        super().abort(checkpoint)
        self._triggers = deque(barrier for barrier in self._triggers if barrier.checkpoint != checkpoint)

    # ------------------------------------------------------------------ the loop

    async def loop(self) -> None:
        """Process what was read, then barriers, then start the next read; wait for the first of what may happen."""
        while True:
            if self._is_drained and not self._is_halted:
                raise TransientError(
                    f"source '{self._part.uid}' cannot go on: a stop with --drain has ended its event time and did not"
                    " come about; going on from the last checkpoint"
                )
            # A read that ends after a halting barrier stays where it is: its records are not in that snapshot.
            if self._reading is not None and self._reading.done() and not self._is_halted:
                await self._take_read(self._reading)
            elif self._triggers:
                await self._emit_barrier(self._triggers.popleft())
            elif self._is_halted or self.is_ended:
                await self._wait()
            elif not self._outputs.writable:
                await self._wait_for_credit()
            elif self._may_read():
                self._start_read()
            elif self._is_exhausted():
                await self.end_input()
            else:
                await self.fire_timers()
                await self._starve()

    def _has_input(self) -> bool:
        return self._reading is not None and self._reading.done()

    def _may_read(self) -> bool:
        return self._reading is None and self._pause is None and bool(self._open or self._unopened)

    def _is_exhausted(self) -> bool:
        return self._reading is None and not self._open and not self._unopened

    async def _wait_for_credit(self) -> None:
        """Wait for credit or a trigger: barriers need no credit."""
        self.counters.blocked.start(self._now())
        await self._wait()
        self.counters.blocked.stop(self._now())

    async def _wait_for_room(self) -> None:
        """Do not wait: a barrier may be due, and what is in hand must be through before it."""

    async def _emit_barrier(self, barrier: Barrier) -> None:
        if not self._is_halted:
            self._part.note_positions()
        self._is_halted = self._is_halted or barrier.halt
        self._is_drained = self._is_drained or barrier.drain
        await self.snapshot(barrier)

    # ------------------------------------------------------------------ reading

    def _start_read(self) -> None:
        if not self._open:
            self._open.append(self._unopened.popleft())
        split = self._open[0]
        step = self._read(split, min(self._slice.records * SLICES_PER_READ, self._batch_size))
        self._reading = asyncio.create_task(step, name=f"read {self._part.uid} {split.split.id}")
        self._reading.add_done_callback(lambda _: self.wakeup.set())

    async def _read(self, split: SplitState, n: int) -> Any:
        try:
            return await self._part.read(split, n)
        finally:
            self._end_copy()

    async def _take_read(self, reading: asyncio.Task[Any]) -> None:
        """Process what a read has returned."""
        self._reading = None
        split = self._open[0]
        if reading.cancelled():
            raise self._odd(split, "cancelled itself")
        values = reading.result()
        split.has_read = True
        if values is END:
            self._open.popleft()
            split.ended = True
            await self._part.put_away(split)
        elif not isinstance(values, list):
            raise self._odd(
                split, f"returned {shorten(values)}, {with_article(type(values).__name__)}, where a list or END belongs"
            )
        elif values:
            self._empty_in_a_row = 0
            await self.process(Batch(values))
            self._open.rotate(-1)
        else:
            await self._look_elsewhere()
        await self.fire_timers()

    def _odd(self, split: SplitState, what: str) -> UserCodeError:
        error = UserCodeError(f"source '{self._part.uid}': read() of split '{split.split.id}' {what}")
        error.operator = self._part.uid
        return error

    async def _look_elsewhere(self) -> None:
        """Nothing in this split now: go on to another one, and pause when none of them has anything."""
        self._empty_in_a_row += 1
        idle = self._open.popleft()
        if self._unopened:
            next_one = self._unopened.popleft()
            if len(self._open) + 1 < OPEN_READERS_MAX:
                self._open.append(idle)
            else:
                await self._part.put_away(idle)
                self._unopened.append(idle)
            self._open.appendleft(next_one)
        else:
            self._open.append(idle)
        if self._empty_in_a_row >= len(self._open) + len(self._unopened):
            self._empty_in_a_row = 0
            self._pause = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self.wakeup.set()

    async def close(self) -> None:
        """Let go of everything; a read that is under way is cancelled."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            # Whatever it ends with: nobody needs it any more.
            await asyncio.gather(reading, return_exceptions=True)
        await super().close()
