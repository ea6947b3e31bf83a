"""A subtask that reads from other subtasks: the machines for alignment and for watermarks decide what an event means.

Not here: what a barrier does once it is aligned (`subtask.py`), when it is (`protocol.alignment`), how watermarks of
several channels become one (`protocol.watermarks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowpoint.model.elements import Barrier, Batch, EndOfInput, Event, Idleness, Watermark
from flowpoint.protocol.alignment import AlignmentAction, BarrierAligner, Block, Decline, Snapshot, Unblock
from flowpoint.protocol.watermarks import InputWatermarks
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.subtask import Subtask, SubtaskParts


@dataclass(frozen=True, slots=True)
class Channel:
    """What is known of an input channel: the input of the operator that it feeds, and whether it carries timestamps."""

    port: int = 0
    timed: bool = False


class ProcessingSubtask(Subtask):
    """Takes elements from its gate, processes batches, aligns barriers, and ends when all its inputs have."""

    def __init__(
        self, built: SubtaskParts, gate: InputGate, channels: Sequence[Channel], *, exactly_once: bool
    ) -> None:
        super().__init__(built)
        assert len(channels) == len(gate), (channels, len(gate))
        self._gate = gate
        self._ports = [channel.port for channel in channels]
        self._watermarks = InputWatermarks([channel.timed for channel in channels], built.pipeline.watermark_in)
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
                await self._starve()
                continue
            channel, element = taken
            if isinstance(element, Batch):
                self._watermarks.on_active(channel)
                self._pass_idleness_on()
                await self.process(element, self._ports[channel])
            else:
                await self._on_event(channel, element)

    async def _on_event(self, channel: int, event: Event) -> None:
        if isinstance(event, Barrier):
            aligning = self._aligner.aligning
            actions = self._aligner.on_barrier(channel, event)
            if self._aligner.aligning not in ((), aligning):
                self._aligning_since = self._now()
            await self._act(actions)
        elif isinstance(event, Watermark):
            risen = self._watermarks.on_watermark(channel, event.timestamp)
            self._pass_idleness_on()
            await self._on_time(risen)
        elif isinstance(event, Idleness):
            if event.is_idle:
                await self._on_time(self._watermarks.on_idle(channel))
            else:
                self._watermarks.on_active(channel)
            self._pass_idleness_on()
        else:
            assert isinstance(event, EndOfInput), event
            assert not self._ended[channel], f"subtask {self.id}: channel={channel} ended twice"
            self._ended[channel] = True
            if all(self._ended):
                await self.end_input()

    async def _on_time(self, risen: int | None) -> None:
        if risen is not None:
            await self.advance(risen)

    def _pass_idleness_on(self) -> None:
        """Idle inputs make an idle output, unless this subtask says itself what time it is."""
        if not self._pipeline.assigners:
            self._send_idleness(self._watermarks.is_idle)

    def _has_input(self) -> bool:
        return self._gate.has_ready

    async def _act(self, actions: Sequence[AlignmentAction]) -> None:
        for action in actions:
            match action:
                case Block(channel):
                    self._gate.block(channel)
                case Unblock(channels):
                    self._gate.unblock(channels)
                case Snapshot(barrier):
                    self._note_alignment()
                    await self.snapshot(barrier)
                case Decline(checkpoint, reason):
                    self._decline(checkpoint, reason)

    def _note_alignment(self) -> None:
        begun, self._aligning_since = self._aligning_since, None
        self.counters.alignment_ms = 0 if begun is None else round((self._now() - begun) * 1000)

    def abort(self, checkpoint: int) -> None:
        """Release an alignment for this checkpoint, and swallow its late barriers (rule 12)."""
        super().abort(checkpoint)
        for action in self._aligner.on_abort(checkpoint):
            match action:
                case Unblock(channels):
                    self._gate.unblock(channels)
                case _:
                    raise AssertionError(f"subtask {self.id}: abort of checkpoint={checkpoint} led to {action}")
        if not self._aligner.aligning:
            self._aligning_since = None
