"""One subtask: the loop that moves records, and what both kinds of subtask do at a barrier.

`Subtask` owns the pipeline, the outputs and the parts that go into snapshots. `processing_subtask.py` reads from an
input gate under the alignment machine, `source_subtask.py` from source readers. Inside one subtask everything runs in
one coroutine, so a snapshot sees no half-processed batch; writing snapshots (`captures.py`) and committing sinks run
beside it, each in order. A batch is processed slice by slice (`slices.py`).

Event time: after every slice the watermarks made in the chain, and for every watermark that comes in that one, go
through the pipeline; what they make fire is delivered before the watermark is sent on.

Invariants: a barrier goes to all outputs in one step, after everything that was processed before it; a commit comes only
after `Complete`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from flowpoint.errors import BadRecordError, UserCodeError
from flowpoint.model.elements import END_OF_INPUT, WATERMARK_MAX, WATERMARK_MIN, Barrier, Batch
from flowpoint.runtime.alarm import Alarm
from flowpoint.runtime.answers import Answers
from flowpoint.runtime.captures import Capture, Captures
from flowpoint.runtime.channel_state import Recording
from flowpoint.runtime.closing import close_quietly, finish
from flowpoint.runtime.failures import engine_class
from flowpoint.runtime.merging import merge
from flowpoint.runtime.parts import Captured, KeyedPart, SinkPart
from flowpoint.runtime.slices import SliceSize, cut
from flowpoint.runtime.subtask_parts import Counters, SubtaskParts

Duty: TypeAlias = Callable[[], Awaitable[None]]
"""Something a subtask does for ever. A function, not its coroutine: one that never gets its turn is not even begun."""

SPILLS_MAX: Final = 2
"""Early writes of one subtask that may be under way: changed state waits in memory until it is written."""

IDLE_STEPS: Final = 4
"""Waiting is counted in this many steps per idle timeout: one step, however long it took, is not yet idleness."""


class Subtask:
    """What sources and processing subtasks share."""

    def __init__(self, built: SubtaskParts) -> None:
        self.id = built.id
        self.attempt = built.attempt
        self.counters = built.counters
        self.wakeup = built.wakeup
        self._pipeline = built.pipeline
        self._outputs = built.outputs
        self._parts = built.parts
        self._clock_ms = built.clock_ms
        self._log = built.log
        self._end_copy = built.end_copy
        self._slice = SliceSize(built.slice_max)
        self._sink = next((part for part in built.parts if isinstance(part, SinkPart)), None)
        self._keyed = [part for part in built.parts if isinstance(part, KeyedPart)]
        self._answers = Answers(built.attempt, built.id, built.called, built.report)
        self._has_recordings = built.write_channels is not None
        self._captures = Captures(self._answers, self._sink, built.write_channels, built.wakeup.set, built.log)
        self._commits: asyncio.Queue[int] = asyncio.Queue()
        self._restored = deque(built.restored)
        self._declined_restoring = 0
        self._held = 0.0
        self._alarm = Alarm(built.wakeup, built.clock_ms)
        self._watermark_sent = WATERMARK_MIN
        self._is_idle_sent = False
        self._starved = 0.0
        timeouts = [a.idle_timeout for _, a in self._pipeline.assigners if a.idle_timeout is not None]
        self._idle_step = min(timeouts) / IDLE_STEPS if timeouts else None
        self._is_closed = False
        self.is_ended = False

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Run until cancelled. Raises an ExceptionGroup with what failed."""
        try:
            async with asyncio.TaskGroup() as group:
                self._begin_duty(group, "snapshots", self._captures.run)
                if self._has_recordings:
                    self._begin_duty(group, "channel state", self._captures.run_recordings)
                if self._sink is not None:
                    self._begin_duty(group, "commits", partial(self._run_commits, self._sink))
                self._begin_duty(group, "loop", self._begin)
        finally:
            # To its end: a subtask that has failed may be cancelled while it closes.
            await finish(self.close())

    def _begin_duty(self, group: asyncio.TaskGroup, name: str, duty: Duty) -> None:
        group.create_task(self._for_ever(duty), name=f"{name} {self.id}")

    async def _for_ever(self, duty: Duty) -> None:
        """Do a duty that has no end. A `CancelledError` that nobody asked for would end it unnoticed."""
        try:
            await duty()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            text = "a source, sink or function of this subtask has cancelled its caller; let it raise another exception"
            raise UserCodeError(text) from error
        finally:
            self._end_copy()

    async def _begin(self) -> None:
        # Receivers without a watermark of their own are told the restored one.
        self._send_watermark()
        await self._take_restored()
        await self.loop()

    async def _take_restored(self) -> None:
        """Take in what was under way in the restored checkpoint, before anything new (rule 16)."""
        while self._restored:
            restored = self._restored[0]
            await self._wait_between()
            await self.process(restored.batch, restored.port, self._pipeline.entry(restored.uid))
            self._restored.popleft()

    async def _wait_between(self) -> None:
        """Wait for room where a snapshot may be taken: between what has been taken in and what is not yet."""
        await self._wait_for_room()

    @property
    def commits(self) -> bool:
        """Whether a sink is in it, which tells of each commit."""
        return self._sink is not None

    @property
    def is_restoring(self) -> bool:
        """Whether records of the restored checkpoint are still to be taken in: no snapshot may be taken until then."""
        return bool(self._restored)

    def decline_restoring(self, checkpoint: int) -> None:
        """Say at once that this checkpoint cannot be, rather than let it expire (rule 16)."""
        if checkpoint > self._declined_restoring:
            self._declined_restoring = checkpoint
            self.abort(checkpoint)
            reason = "it still takes in the records that were under way in the restored checkpoint; try again later"
            self._answers.decline(checkpoint, reason, restoring=True)

    async def loop(self) -> None:
        """Move records until cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of everything, once. What fails meanwhile is only logged: why the subtask ended is what matters."""
        if self._is_closed:
            return
        self._is_closed = True
        self._alarm.set(None)
        self._outputs.close()
        self._pipeline.close()
        for closing in [*(process.close for _, process in self._pipeline.processes), *(p.close for p in self._parts)]:
            await close_quietly(closing, f"subtask {self._answers.called}", self._log)

    def statistics(self) -> Counters:
        """The numbers as they are now."""
        self.counters.records_out = self._records_made
        watermark = self._pipeline.watermark
        self.counters.watermark = watermark if WATERMARK_MIN < watermark < WATERMARK_MAX else None
        return self.counters

    # ------------------------------------------------------------------ records

    async def process(self, batch: Batch, port: int = 0, first: int = 0) -> None:
        """Take a batch through the pipeline into sink and outputs, slice by slice.

        Args:
            port: which input of the first operator it came from.
            first: the stage it enters at.
        """
        count = len(batch)
        self.counters.records_in += count
        start = 0
        while start < count:
            size = self._slice.records
            part = cut(batch, start, start + size) if start or size < count else batch
            start += size
            begun = self._now()
            self.counters.busy.start(begun)
            made = self._records_made
            self._held = 0.0
            emitted = self._pipeline.run(part, first) if first else self._pipeline.run_port(part, port)
            computed = self._now()
            await self._deliver(emitted)
            done = self._now()
            self.counters.busy.stop(done)
            self._slice.adapt(len(part), self._records_made - made, computed - begun + self._held, done - begun)
            if self._pipeline.assigners:
                await self._follow_assigners()
            await self._spill(len(part))
            # Let the links, the other subtasks and the control messages of this worker have their turn.
            await asyncio.sleep(0)
            if start < count:
                await self._between_slices(batch, start)

    @property
    def _records_made(self) -> int:
        """Records that left the pipeline since the start."""
        return self.counters.records_out if self._sink is not None else self._outputs.records_out

    async def _between_slices(self, batch: Batch, start: int) -> None:
        """The records of a batch from `start` on are still to be processed: a moment at which a snapshot may be taken."""
        await self._wait_for_room()

    async def _deliver(self, batch: Batch | None) -> None:
        """Hand what the pipeline produced to the sink or the outputs, and its side outputs to theirs."""
        self._end_copy()
        if self._sink is not None:
            if batch:
                self.counters.records_out += len(batch)
                await self._give(self._sink, batch.values)
            return
        if batch is None:
            self._outputs.add(None)
        else:
            self._outputs.add(batch.values, batch.timestamps)
        for _, process in self._pipeline.processes:
            for tag, side in process.sides.take():
                self._outputs.add_side(tag, side.values, side.timestamps)

    async def _give(self, sink: SinkPart, values: list[Any]) -> None:
        """Give records to the sink. Time in which it lets nobody else have a turn counts like that of blocking code."""
        turns: list[None] = []
        begun = self._now()
        turn = asyncio.get_running_loop().call_soon(turns.append, None)
        try:
            await sink.write(values)
        finally:
            self._end_copy()
        if not turns:
            turn.cancel()
            self._held = self._now() - begun

    async def _spill(self, records: int) -> None:
        """Write changed state early where it has outgrown its memory, and go on with merging what is durable.

        Args:
            records: that were processed since the last time.
        """
        for part in self._keyed:
            with _naming(part):
                needs_spill = part.backend.needs_spill()
            if needs_spill:
                while self._captures.spills >= SPILLS_MAX:
                    await self._wait()
                self._captures.put_spill(part.uid, part.freeze())
            with _naming(part):
                await merge(part.backend, records, self._now)

    async def _wait_for_room(self) -> None:
        """Wait until every output has credit: this is where a slow consumer slows its producer."""
        if self._outputs.writable:
            return
        self.counters.blocked.start(self._now())
        while not self._outputs.writable:
            await self._wait()
        self.counters.blocked.stop(self._now())

    async def _wait(self) -> None:
        """Wait until something may have changed. Whoever waits looks again at all it waits for."""
        await self.wakeup.wait()
        self.wakeup.clear()
        self._outputs.check()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ event time

    async def advance(self, watermark: int) -> None:
        """Every input says that event time has come to `watermark`: fire timers, then tell the outputs."""
        await self._deliver_all(self._pipeline.advance(watermark, self._slice.most))
        if self._pipeline.assigners:
            await self._follow_assigners()
        self._send_watermark()

    async def _follow_assigners(self) -> None:
        """Take what the chain itself says about event time through it, and on."""
        await self._deliver_all(self._pipeline.assigned(self._slice.most))
        self._look_for_idleness()
        self._send_watermark()

    async def _deliver_all(self, emitted: Iterator[Batch | None], *, takes_credit: bool = True) -> None:
        """Deliver step by step, and let others have their turn in between."""
        for batch in emitted:
            await self._deliver(batch)
            await asyncio.sleep(0)
            if takes_credit:
                await self._wait_for_room()

    def _send_watermark(self) -> None:
        if self._pipeline.watermark > self._watermark_sent:
            self._watermark_sent = self._pipeline.watermark
            self._outputs.advance(self._watermark_sent)

    def _look_for_idleness(self) -> None:
        for _, assigner in self._pipeline.assigners:
            assigner.look(self._starved)
        # The last one decides: the others say nothing about the time behind it.
        self._send_idleness(self._pipeline.assigners[-1][1].is_idle)

    def _send_idleness(self, is_idle: bool) -> None:
        if is_idle is not self._is_idle_sent:
            self._is_idle_sent = is_idle
            self._outputs.send_idleness(is_idle)

    async def _starve(self) -> None:
        """Wait with nothing to do: this is what idleness is counted by."""
        if self._idle_step is None or self.is_ended:
            await self._wait()
            return
        begun = self._now()
        timer = asyncio.get_running_loop().call_later(self._idle_step, self.wakeup.set)
        try:
            await self._wait()
        finally:
            timer.cancel()
        if not self._has_input():
            # Where the whole process stood still, input may be on its way: that counts as one step, not as its length.
            self._starved += min(self._now() - begun, self._idle_step)
            self._look_for_idleness()

    def _has_input(self) -> bool:
        """Whether there is something to be taken."""
        raise NotImplementedError

    # ------------------------------------------------------------------ timers

    async def fire_timers(self) -> None:
        """Fire processing-time timers that are due, a slice of them at most, and ask to be woken for the next one."""
        if not self._pipeline.processes:
            return
        now = self._clock_ms()
        due = self._pipeline.next_timer_ms()
        if due is not None and due <= now:
            for emitted in self._pipeline.fire_due(now, self._slice.records):
                await self._deliver(emitted)
            await asyncio.sleep(0)
            due = self._pipeline.next_timer_ms()
        self._alarm.set(due)

    async def end_input(self) -> None:
        """Every input has ended: fire what waits for time, tell the outputs, and say so."""
        await self._end_time()
        self._outputs.send_event(END_OF_INPUT)
        self.is_ended = True
        self._answers.ended()

    async def _end_time(self, *, takes_credit: bool = True) -> None:
        """No time comes any more: fire what waits for it, and send the greatest watermark."""
        await self._deliver_all(self._pipeline.fire_last(self._slice.most), takes_credit=takes_credit)
        if self._pipeline.timers_dropped:
            self._log(
                f"subtask {self._answers.called}: {self._pipeline.timers_dropped} timers were set at the end of input, where"
                " no time comes any more, and were dropped"
            )
        self._alarm.set(None)
        self._send_watermark()

    # ------------------------------------------------------------------ snapshots and commits

    async def snapshot(self, barrier: Barrier, recording: Recording | None = None) -> None:
        """Freeze every part, pass the barrier on, and leave the writing to run beside the stream.

        With a `recording` it is acknowledged when that is whole and written, too. A draining barrier ends time first,
        also here: all inputs have sent the greatest watermark before it. What fires then takes no credit, since the
        barrier behind it must not wait (rule 13).
        """
        if barrier.drain:
            await self._end_time(takes_credit=False)
        captured: list[tuple[str, Captured]] = []
        saved: deque[tuple[str, Captured]] = deque()
        if barrier.kind == "checkpoint":
            captured = [(part.uid, await part.capture(barrier)) for part in self._parts]
        if barrier.savepoint:
            saved.extend([(part.uid, await part.capture_savepoint(barrier)) for part in self._parts])
        self._outputs.send_event(barrier)
        stats = {"alignment_ms": self.counters.alignment_ms}
        if any(part.backend.is_unread for part in self._keyed):
            stats["unread"] = True
        self._captures.put(Capture(barrier, captured, saved, stats, recording))

    def complete(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` is in the commit log: commit what the sink prepared up to it."""
        if self._sink is not None:
            self._commits.put_nowait(checkpoint)

    async def _run_commits(self, sink: SinkPart) -> None:
        while True:
            checkpoint = await self._commits.get()
            await sink.commit(checkpoint)
            self._answers.committed(checkpoint)

    def abort(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` was given up."""
        self._captures.give_up(checkpoint)


@contextmanager
def _naming(part: KeyedPart) -> Iterator[None]:
    """Name the operator whose state holds what can never be written: looking at samples and merging may meet it."""
    try:
        yield
    except BadRecordError as error:
        explained = engine_class(error)(f"cannot keep the state of operator '{part.uid}': {error}")
        explained.operator = part.uid
        raise explained from error
