"""One subtask: the loop that moves records, and what both kinds of subtask do at a barrier.

`Subtask` owns the pipeline, the outputs and the parts that go into snapshots. `ProcessingSubtask` (here) reads from an
input gate under the alignment machine; `SourceSubtask` (`source_subtask.py`) reads from source readers. Inside one
subtask everything runs in one coroutine, so a snapshot sees no half-processed batch; writing snapshots and committing
sinks run beside it, each in order.

A batch is processed in slices of about `SLICE_SECONDS`, so that neither slow user code nor a slow sink keeps the other
subtasks of the worker, or a barrier, waiting.

Invariants: a barrier goes to all outputs in one step, after everything that was processed before it; an acknowledgement
is sent only after everything it names is durable; a commit only after `Complete`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flowpoint.errors import FlowPointError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, Barrier, Batch, EndOfInput, Event
from flowpoint.model.plan import SubtaskId
from flowpoint.protocol.alignment import BarrierAligner, Block, Decline, Snapshot, Unblock
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.outputs import Outputs
from flowpoint.runtime.parts import Captured, KeyedPart, Part, SinkPart
from flowpoint.runtime.pipeline import Pipeline

SLICE_SECONDS = 0.01
TIMER_SLACK_MS = 1

Report: TypeAlias = Callable[[messages.Message], None]


@dataclass(slots=True)
class Counters:
    """Numbers of one subtask since its start. Seconds are of the loop's clock."""

    records_in: int = 0
    records_out: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    alignment_ms: int = 0
    connector: dict[str, int] = field(default_factory=dict)


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
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What was frozen and has to be written, by uid: for a checkpoint, a savepoint or both. No barrier: a spill."""

    barrier: Barrier | None
    captured: list[tuple[str, Captured]]
    saved: list[tuple[str, Captured]] = field(default_factory=list)


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
        self._slice = min(64, built.slice_max)
        self._slice_max = built.slice_max
        self._sink = next((part for part in built.parts if isinstance(part, SinkPart)), None)
        self._keyed = [part for part in built.parts if isinstance(part, KeyedPart)]
        self._snapshots: asyncio.Queue[_Snapshot] = asyncio.Queue()
        self._commits: asyncio.Queue[int] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self.is_ended = False

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Run until cancelled. Raises an ExceptionGroup with what failed."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write_snapshots(), name=f"snapshots {self.id}")
                if self._sink is not None:
                    group.create_task(self._run_commits(self._sink), name=f"commits {self.id}")
                group.create_task(self.loop(), name=f"loop {self.id}")
        finally:
            await self._close()

    async def loop(self) -> None:
        """Move records until cancelled."""
        raise NotImplementedError

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._outputs.close()
        self._pipeline.close()
        for keyed in self._keyed:
            keyed.backend.close()
        if self._sink is not None and self._sink.writer is not None:
            await self._sink.writer.close()

    # ------------------------------------------------------------------ records

    async def process(self, values: list[Any]) -> None:
        """Take a batch through the pipeline into sink and outputs, slice by slice."""
        count = len(values)
        self.counters.records_in += count
        start = 0
        while start < count:
            size = self._slice
            part = values if start == 0 and size >= count else values[start : start + size]
            start += size
            begun = self._now()
            await self._deliver(self._pipeline.run(part))
            self._adapt(len(part), self._now() - begun)
            self._spill()
            # Let the links, the other subtasks and the control messages of this worker have their turn.
            await asyncio.sleep(0)
            if start < count:
                await self.wait_writable()

    async def _deliver(self, values: list[Any] | None) -> None:
        """Hand what the pipeline produced to the sink or the outputs."""
        if self._sink is None:
            self.counters.records_out += len(values) if values else 0
            try:
                self._outputs.add(values)
            except Exception as error:
                raise self._outputs.locate(error) or error from error
        elif values:
            assert self._sink.writer is not None
            self.counters.records_out += len(values)
            try:
                await self._sink.writer.write(values)
            except FlowPointError as error:
                error.operator = error.operator or self._sink.uid
                raise

    def _adapt(self, size: int, seconds: float) -> None:
        """Aim at slices of SLICE_SECONDS."""
        self.counters.busy += seconds
        if seconds > 2 * SLICE_SECONDS:
            self._slice = max(1, int(size * SLICE_SECONDS / seconds))
        elif seconds < SLICE_SECONDS and size >= self._slice:
            self._slice = min(self._slice_max, self._slice * 2)

    def _spill(self) -> None:
        """Write changed state early where it has outgrown its memory, and go on with merging what is durable."""
        for part in self._keyed:
            if part.backend.needs_spill():
                self._snapshots.put_nowait(_Snapshot(None, [(part.uid, part.freeze())]))
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
        await self.wakeup.wait()
        self.wakeup.clear()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ timers

    async def fire_timers(self) -> None:
        """Fire the processing-time timers that are due, and ask to be woken for the next one."""
        if not self._pipeline.processes:
            return
        due = self._pipeline.next_timer_ms()
        if due is not None and due <= self._clock_ms():
            for emitted in self._pipeline.fire_due(self._clock_ms()):
                await self._deliver(emitted)
            due = self._pipeline.next_timer_ms()
        self._arm(due)

    def _arm(self, due: int | None) -> None:
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            # Wall time may jump: never sleep longer than a second on its word.
            delay = min(max(due - self._clock_ms(), TIMER_SLACK_MS) / 1000, 1.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wakeup.set()

    async def end_input(self) -> None:
        """Every input has ended: fire what waits for time, tell the outputs, and say so."""
        for emitted in self._pipeline.fire_due(None):
            await self._deliver(emitted)
        dropped = sum(process.timers_dropped for _, process in self._pipeline.processes)
        if dropped:
            self._log(f"subtask {self.id}: {dropped} timers set at the end of input can never fire and were dropped")
        self._arm(None)
        self._outputs.send_event(END_OF_INPUT)
        self.is_ended = True
        self._report(messages.Ended(attempt=self.attempt, subtask=list(self.id)))

    # ------------------------------------------------------------------ snapshots and commits

    async def snapshot(self, barrier: Barrier) -> None:
        """Freeze every part, pass the barrier on, and leave the writing to run beside the stream."""
        captured, saved = [], []
        if barrier.kind == "checkpoint":
            captured = [(part.uid, await part.capture(barrier)) for part in self._parts]
        if barrier.savepoint:
            saved = [(part.uid, await part.capture_savepoint(barrier)) for part in self._parts]
        self._outputs.send_event(barrier)
        self._snapshots.put_nowait(_Snapshot(barrier, captured, saved))

    async def _write_snapshots(self) -> None:
        """Make captured snapshots durable, in order, and acknowledge them."""
        while True:
            snapshot = await self._snapshots.get()
            barrier = snapshot.barrier
            try:
                operators = {uid: (await write()).to_data() for uid, write in snapshot.captured}
                saved = {uid: (await write()).to_data() for uid, write in snapshot.saved}
            except (FlowPointError, OSError) as error:
                # The state is kept in memory and goes into the next snapshot; this one has failed.
                self._log(f"subtask {self.id}: snapshot not written: {error}")
                if barrier is not None:
                    self._decline(barrier.checkpoint, f"failed while writing: {error}")
                continue
            if barrier is not None:
                stats = {"alignment_ms": self.counters.alignment_ms}
                ack = messages.Ack(self.attempt, barrier.checkpoint, list(self.id), operators, stats, saved)
                self._report(ack)

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
        """Checkpoint `checkpoint` was given up. What was captured for it stays in the state of the next one."""


class ProcessingSubtask(Subtask):
    """A subtask that reads from other subtasks."""

    def __init__(self, built: SubtaskParts, gate: InputGate, *, exactly_once: bool) -> None:
        super().__init__(built)
        self._gate = gate
        self._aligner = BarrierAligner(len(gate), exactly_once=exactly_once)
        self._ended = [False] * len(gate)
        self._aligning_since: float | None = None

    async def loop(self) -> None:
        """Take elements in order; wait when there is nothing to take or nowhere to put."""
        while True:
            await self.wait_writable()
            await self.fire_timers()
            taken = self._gate.take()
            if taken is None:
                await self._wait()
                continue
            channel, element = taken
            if type(element) is Batch:
                await self.process(element.values)
            else:
                await self._on_event(channel, element)  # type: ignore[arg-type]

    async def _on_event(self, channel: int, event: Event) -> None:
        if isinstance(event, Barrier):
            if self._aligning_since is None:
                self._aligning_since = self._now()
            await self._act(self._aligner.on_barrier(channel, event))
        elif isinstance(event, EndOfInput):
            assert not self._ended[channel], f"subtask {self.id}: channel={channel} ended twice"
            self._ended[channel] = True
            if all(self._ended):
                await self.end_input()

    async def _act(self, actions: Sequence[Block | Unblock | Snapshot | Decline]) -> None:
        for action in actions:
            match action:
                case Block(channel):
                    self._gate.block(channel)
                case Unblock(channels):
                    self._gate.unblock(channels)
                case Snapshot(barrier):
                    await self._on_snapshot(barrier)
                case Decline(checkpoint, reason):
                    self._decline(checkpoint, reason)

    async def _on_snapshot(self, barrier: Barrier) -> None:
        if self._aligning_since is not None:
            self.counters.alignment_ms = round((self._now() - self._aligning_since) * 1000)
            self._aligning_since = None
        await self.snapshot(barrier)

    def abort(self, checkpoint: int) -> None:
        """Release an alignment for this checkpoint, and swallow its late barriers (rule 12)."""
        for action in self._aligner.on_abort(checkpoint):
            match action:
                case Unblock(channels):
                    self._gate.unblock(channels)
                case _:
                    raise AssertionError(f"subtask {self.id}: abort of checkpoint={checkpoint} led to {action}")
        self._aligning_since = None


__all__ = ["Counters", "ProcessingSubtask", "Report", "Subtask", "SubtaskParts"]
