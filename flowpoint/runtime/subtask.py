"""One subtask: the loop that moves records, and what both kinds of subtask do at a barrier.

`Subtask` owns the pipeline, the outputs and the parts that go into snapshots. `processing_subtask.py` reads from an
input gate under the alignment machine, `source_subtask.py` from source readers. Inside one subtask everything runs in
one coroutine, so a snapshot sees no half-processed batch; writing snapshots and committing sinks run beside it, each in
order.

A batch is processed in slices of about `SLICE_SECONDS`, so that neither slow user code nor a slow sink keeps the other
subtasks of the worker, or a barrier, waiting.

Event time: after every slice the watermarks made in the chain, and for every watermark that comes in that one, go
through the pipeline; what they make fire is delivered before the watermark is sent on.

Invariants: a barrier goes to all outputs in one step, after everything that was processed before it; an acknowledgement
is sent only after everything it names is durable; a commit only after `Complete`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from flowpoint.errors import BadRecordError, CheckpointFailed, FlowPointError, TransientError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, WATERMARK_MIN, Barrier, Batch
from flowpoint.model.manifest import SubtaskState
from flowpoint.model.plan import SubtaskId
from flowpoint.runtime.channel_state import Recording, RestoredBatch
from flowpoint.runtime.outputs import Outputs
from flowpoint.runtime.parts import Captured, KeyedPart, Part, SinkPart, finish, merged
from flowpoint.runtime.pipeline import Pipeline

SLICE_SECONDS: Final = 0.01
"""For code that blocks the loop."""

WRITE_SECONDS: Final = 0.2
"""For a slice and its sink: longer, since a sink that waits for others may need its time per call."""

SLICE_FIRST: Final = 64
"""Records in the first slice, and the least that a slow sink brings it down to."""

SPILLS_MAX: Final = 2
"""Early writes of one subtask that may be under way: changed state waits in memory until it is written."""

IDLE_STEPS: Final = 4
"""Waiting is counted in this many steps per idle timeout: one step, however long it took, is not yet idleness."""

CLOCK_DOUBT_SECONDS: Final = 1.0
"""Wall time may jump: never sleep longer than this on its word."""

Report: TypeAlias = Callable[[messages.Message], None]
WriteChannels: TypeAlias = Callable[[Recording], Awaitable[tuple[str, SubtaskState]]]
"""Makes channel state durable: the uid it stands with in a manifest, and what stands there."""


@dataclass(slots=True)
class Counters:
    """Numbers of one subtask since its start. Seconds are of the loop's clock.

    connector: what connectors count themselves, by uid.
    """

    records_in: int = 0
    records_out: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    alignment_ms: int = 0
    connector: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class SubtaskParts:
    """Everything `runtime.assembly` built for one subtask."""

    id: SubtaskId
    attempt: int
    pipeline: Pipeline
    outputs: Outputs
    parts: list[Part]
    wakeup: asyncio.Event
    report: Report
    clock_ms: Callable[[], int]
    log: Callable[[str], None]
    slice_max: int = 4096
    restored: list[RestoredBatch] = field(default_factory=list)
    write_channels: WriteChannels | None = None
    counters: Counters = field(default_factory=Counters)


@dataclass(slots=True)
class _Capture:
    """What was frozen at a barrier (None: early) and is to be written.

    saved: what goes into a savepoint, as far as it has not been begun.
    saving: the write of one such part that is under way.
    """

    barrier: Barrier | None
    parts: list[tuple[str, Captured]]
    saved: deque[tuple[str, Captured]] = field(default_factory=deque)
    alignment_ms: int = 0
    recording: Recording | None = None
    saving: asyncio.Task[SubtaskState] | None = None
    is_given_up: bool = False

    def give_up(self) -> None:
        """Save nothing more. The other parts are written nevertheless: the next checkpoint builds on them."""
        self.is_given_up = True
        while self.saved:
            self.saved.popleft()[1].drop()
        if self.saving is not None:
            self.saving.cancel()


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A written capture whose channel state is still arriving."""

    capture: _Capture
    recording: Recording
    operators: dict[str, Any]


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
        self._report = built.report
        self._clock_ms = built.clock_ms
        self._log = built.log
        self._slice = min(SLICE_FIRST, built.slice_max)
        self._slice_max = built.slice_max
        self._sink = next((part for part in built.parts if isinstance(part, SinkPart)), None)
        self._keyed = [part for part in built.parts if isinstance(part, KeyedPart)]
        self._captures: asyncio.Queue[_Capture] = asyncio.Queue()
        self._unfinished: asyncio.Queue[_Unfinished] = asyncio.Queue()
        self._unwritten: list[_Capture] = []
        self._commits: asyncio.Queue[int] = asyncio.Queue()
        self._restored = deque(built.restored)
        self._declined_restoring = 0
        self._held = 0.0
        self._write_channels = built.write_channels
        self._spills = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
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
                group.create_task(self._for_ever(self._write_captures()), name=f"snapshots {self.id}")
                if self._write_channels is not None:
                    step = self._write_recordings(self._write_channels)
                    group.create_task(self._for_ever(step), name=f"channel state {self.id}")
                if self._sink is not None:
                    group.create_task(self._for_ever(self._run_commits(self._sink)), name=f"commits {self.id}")
                group.create_task(self._for_ever(self._begin()), name=f"loop {self.id}")
        finally:
            # To its end: a subtask that has failed may be cancelled while it closes.
            await finish(self.close())

    async def _for_ever(self, duty: Coroutine[Any, Any, None]) -> None:
        """Do a duty that has no end. A `CancelledError` that nobody asked for would end it unnoticed."""
        try:
            await duty
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            text = "a source, sink or function of this subtask has cancelled its caller; let it raise another exception"
            raise UserCodeError(text) from error

    async def _begin(self) -> None:
        # Receivers without a watermark of their own are told the restored one.
        self._send_watermark()
        await self._take_restored()
        await self.loop()

    async def _take_restored(self) -> None:
        """Take in what was under way in the restored checkpoint, before anything new (rule 16)."""
        while self._restored:
            restored = self._restored[0]
            await self._wait_for_room()
            await self.process(restored.batch, restored.port, self._pipeline.entry(restored.uid))
            self._restored.popleft()

    async def _wait_for_room(self) -> None:
        """Wait, before more is taken in, until the outputs have credit."""
        await self.wait_writable()

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
            self._report(messages.Decline(self.attempt, checkpoint, list(self.id), reason, restoring=True))

    async def loop(self) -> None:
        """Move records until cancelled."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of everything, once. What fails meanwhile is only logged: why the subtask ended is what matters."""
        if self._is_closed:
            return
        self._is_closed = True
        self._arm(None)
        self._outputs.close()
        self._pipeline.close()
        for closing in [*(process.close for _, process in self._pipeline.processes), *(p.close for p in self._parts)]:
            await close_quietly(closing, f"subtask {self.id}", self._log)

    def statistics(self) -> Counters:
        """The numbers as they are now."""
        self.counters.records_out = self._records_made
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
            size = self._slice
            part = cut(batch, start, start + size) if start or size < count else batch
            start += size
            begun = self._now()
            made = self._records_made
            self._held = 0.0
            emitted = self._pipeline.run(part, first) if first else self._pipeline.run_port(part, port)
            computed = self._now()
            await self._deliver(emitted)
            self._adapt(len(part), self._records_made - made, computed - begun + self._held, self._now() - begun)
            if self._pipeline.assigners:
                await self._follow_assigners()
            await self._spill()
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
        await self._make_room()

    async def _make_room(self) -> None:
        """Wait until more may be produced."""
        await self.wait_writable()

    async def _deliver(self, batch: Batch | None) -> None:
        """Hand what the pipeline produced to the sink or the outputs, and its side outputs to theirs."""
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
        await sink.write(values)
        if not turns:
            turn.cancel()
            self._held = self._now() - begun

    def _adapt(self, size: int, made: int, computing: float, in_all: float) -> None:
        """Aim at slices of SLICE_SECONDS, WRITE_SECONDS together with the sink, and about `slice_max` records made.

        Output counts as input does: few records at a time stay in the processor's caches and cost the collector less.
        """
        self.counters.busy += in_all
        if computing > 2 * SLICE_SECONDS:
            self._slice = max(1, int(size * SLICE_SECONDS / computing))
        elif made > 2 * self._slice_max:
            self._slice = max(1, size * self._slice_max // made)
        elif in_all > 2 * WRITE_SECONDS:
            self._slice = min(self._slice, max(SLICE_FIRST, size // 2))
        elif size >= self._slice and made <= self._slice_max and computing < SLICE_SECONDS and in_all < WRITE_SECONDS:
            self._slice = min(self._slice_max, self._slice * 2)

    async def _spill(self) -> None:
        """Write changed state early where it has outgrown its memory, and go on with merging what is durable."""
        for part in self._keyed:
            with _naming(part):
                needs_spill = part.backend.needs_spill()
            if needs_spill:
                while self._spills >= SPILLS_MAX:
                    await self._wait()
                self._spills += 1
                self._put(_Capture(None, [(part.uid, part.freeze())]))
            with _naming(part):
                part.backend.merge_some()

    async def wait_writable(self) -> None:
        """Wait until every output has credit: this is where a slow consumer slows its producer."""
        if self._outputs.writable:
            return
        begun = self._now()
        while not self._outputs.writable:
            await self._wait()
        self.counters.blocked += self._now() - begun

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
        await self._deliver_all(self._pipeline.advance(watermark, self._slice_max))
        if self._pipeline.assigners:
            await self._follow_assigners()
        self._send_watermark()

    async def _follow_assigners(self) -> None:
        """Take what the chain itself says about event time through it, and on."""
        await self._deliver_all(self._pipeline.assigned(self._slice_max))
        self._look_for_idleness()
        self._send_watermark()

    async def _deliver_all(self, emitted: Iterator[Batch | None]) -> None:
        """Deliver step by step, and let others have their turn in between."""
        for batch in emitted:
            await self._deliver(batch)
            await asyncio.sleep(0)
            await self._make_room()

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
            for emitted in self._pipeline.fire_due(now, self._slice):
                await self._deliver(emitted)
            await asyncio.sleep(0)
            due = self._pipeline.next_timer_ms()
        self._arm(due)

    def _arm(self, due: int | None) -> None:
        """Be woken when a timer is due, at once when it is already."""
        if due is not None and due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            seconds = (due - self._clock_ms()) / 1000
            if seconds <= 0:
                self.wakeup.set()
            else:
                delay = min(seconds, CLOCK_DOUBT_SECONDS)
                self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wakeup.set()

    async def end_input(self) -> None:
        """Every input has ended: fire what waits for time, tell the outputs, and say so."""
        await self._end_time()
        self._outputs.send_event(END_OF_INPUT)
        self.is_ended = True
        self._report(messages.Ended(attempt=self.attempt, subtask=list(self.id)))

    async def _end_time(self) -> None:
        """No time comes any more: fire what waits for it, and send the greatest watermark."""
        await self._deliver_all(self._pipeline.fire_last(self._slice_max))
        if self._pipeline.timers_dropped:
            self._log(
                f"subtask {self.id}: {self._pipeline.timers_dropped} timers were set at the end of input, where no time"
                " comes any more, and were dropped"
            )
        self._arm(None)
        self._send_watermark()

    # ------------------------------------------------------------------ snapshots and commits

    async def snapshot(self, barrier: Barrier, recording: Recording | None = None) -> None:
        """Freeze every part, pass the barrier on, and leave the writing to run beside the stream.

        With a `recording` it is acknowledged when that is whole and written, too. A draining barrier ends time first,
        also here: all inputs have sent the greatest watermark before it.
        """
        if barrier.drain:
            await self._end_time()
        captured: list[tuple[str, Captured]] = []
        saved: deque[tuple[str, Captured]] = deque()
        if barrier.kind == "checkpoint":
            captured = [(part.uid, await part.capture(barrier)) for part in self._parts]
        if barrier.savepoint:
            saved.extend([(part.uid, await part.capture_savepoint(barrier)) for part in self._parts])
        self._outputs.send_event(barrier)
        self._put(_Capture(barrier, captured, saved, self.counters.alignment_ms, recording))

    def _put(self, capture: _Capture) -> None:
        self._unwritten.append(capture)
        self._captures.put_nowait(capture)

    async def _write_captures(self) -> None:
        """Make what was captured durable, in order, and acknowledge it while anybody waits for it."""
        while True:
            capture = await self._captures.get()
            if self._sink is not None and capture.barrier is not None:
                await self._sink.finish_preparing(capture.barrier.checkpoint)
            operators, failure = await self._write(capture.parts)
            saved, failure_saved = await self._save(capture)
            self._unwritten.remove(capture)
            failure = failure or failure_saved
            barrier = capture.barrier
            if barrier is None:
                self._on_spilled(failure)
            elif capture.is_given_up:
                # Nobody waits for an answer.
                continue
            elif failure is not None:
                # The state is kept in memory and goes into the next snapshot; this one has failed.
                self._log(f"subtask {self.id}: its part of checkpoint {barrier.checkpoint} was not written: {failure}")
                self._decline(barrier.checkpoint, f"failed while writing: {failure}")
            elif capture.recording is not None:
                # What comes later must not wait for this: channel state arrives when others let it.
                self._unfinished.put_nowait(_Unfinished(capture, capture.recording, operators))
            else:
                self._acknowledge(barrier, operators, saved, capture.alignment_ms)

    def _acknowledge(
        self, barrier: Barrier, operators: dict[str, Any], saved: dict[str, Any], alignment_ms: int
    ) -> None:
        stats = {"alignment_ms": alignment_ms}
        self._report(messages.Ack(self.attempt, barrier.checkpoint, list(self.id), operators, stats, saved))

    async def _write_recordings(self, write: WriteChannels) -> None:
        """Write channel state when it is whole, and acknowledge what waited for it."""
        while True:
            unfinished = await self._unfinished.get()
            recording, barrier = unfinished.recording, unfinished.capture.barrier
            assert barrier is not None, unfinished
            await recording.done.wait()
            if recording.is_discarded:
                continue
            try:
                uid, state = await write(recording)
            except (TransientError, OSError) as error:
                self._log(f"subtask {self.id}: records under way were not written: {error}")
                self._decline(barrier.checkpoint, f"failed while writing records under way: {error}")
                continue
            operators = unfinished.operators
            if state.channels:
                operators = {**operators, uid: merged(operators.get(uid, {}), state.to_data())}
            self._acknowledge(barrier, operators, {}, unfinished.capture.alignment_ms)

    async def _write(self, parts: list[tuple[str, Captured]]) -> tuple[dict[str, Any], Exception | None]:
        """Write every part, also after one has failed: each has to learn how its own writing ended.

        Raises:
            FlowPointError: something that no later try can mend.
        """
        operators: dict[str, Any] = {}
        failure: Exception | None = None
        for uid, captured in parts:
            failure = await self._write_one(uid, captured.write(), operators) or failure
        return operators, failure

    async def _save(self, capture: _Capture) -> tuple[dict[str, Any], Exception | None]:
        """Write every part of a savepoint, or as much as there was time for until it was given up."""
        operators: dict[str, Any] = {}
        failure: Exception | None = None
        while capture.saved:
            uid, captured = capture.saved.popleft()
            failure = await self._write_one(uid, self._until_given_up(capture, captured), operators) or failure
        return operators, failure

    @staticmethod
    async def _until_given_up(capture: _Capture, captured: Captured) -> SubtaskState:
        """Write one part of a savepoint. Raises CheckpointFailed when the savepoint is given up meanwhile."""
        is_begun = False

        async def write() -> SubtaskState:
            nonlocal is_begun
            is_begun = True
            return await captured.write()

        capture.saving = asyncio.get_running_loop().create_task(write())
        try:
            return await capture.saving
        except asyncio.CancelledError:
            if not is_begun:
                captured.drop()
            task = asyncio.current_task()
            if not capture.is_given_up or task is None or task.cancelling():
                raise
            raise CheckpointFailed("the savepoint was given up") from None
        finally:
            capture.saving = None

    @staticmethod
    async def _write_one(
        uid: str, writing: Coroutine[Any, Any, SubtaskState], operators: dict[str, Any]
    ) -> Exception | None:
        """Write one part and add it to `operators`; gives what a later try may mend."""
        try:
            operators[uid] = merged(operators.get(uid, {}), (await writing).to_data())
        except (TransientError, OSError) as error:
            return error
        except FlowPointError as error:
            error.operator = error.operator or uid
            raise
        return None

    def _on_spilled(self, failure: Exception | None) -> None:
        if failure is not None:
            # No checkpoint is there that could be declined, and memory has run out.
            raise failure
        self._spills -= 1
        self.wakeup.set()

    def _decline(self, checkpoint: int, reason: str) -> None:
        self._report(messages.Decline(self.attempt, checkpoint, list(self.id), reason))

    def complete(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` is in the commit log: commit what the sink prepared up to it."""
        if self._sink is not None:
            self._commits.put_nowait(checkpoint)

    async def _run_commits(self, sink: SinkPart) -> None:
        while True:
            checkpoint = await self._commits.get()
            await sink.commit(checkpoint)
            self._report(messages.Committed(self.attempt, checkpoint, list(self.id)))

    def abort(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` was given up: nothing of a savepoint is written any more, and nothing acknowledged.

        What was captured for a checkpoint stays in the state of the next one.
        """
        for capture in self._unwritten:
            if capture.barrier is not None and capture.barrier.checkpoint == checkpoint:
                capture.give_up()


def cut(batch: Batch, start: int, end: int) -> Batch:
    """The records of a batch from `start` to before `end`."""
    stamps = batch.timestamps
    return Batch(batch.values[start:end], None if stamps is None else stamps[start:end])


async def close_quietly(closing: Callable[[], Awaitable[None] | None], where: str, log: Callable[[str], None]) -> None:
    """Let go of something where an error must hide no other: it is logged."""
    try:
        waiting = closing()
        if waiting is not None:
            await waiting
    except Exception as error:  # noqa: BLE001  whatever a connector or function does at its end
        log(f"{where}: {type(error).__name__} while closing: {error}")


@contextmanager
def _naming(part: KeyedPart) -> Iterator[None]:
    """Name the operator whose state holds what can never be written: looking at samples and merging may meet it."""
    try:
        yield
    except BadRecordError as error:
        explained = BadRecordError(f"cannot keep the state of operator '{part.uid}': {error}")
        explained.operator = part.uid
        raise explained from error
