"""A subtask that reads from other subtasks, under the alignment machine.

Not here: what a barrier does once it is aligned (`subtask.py`), when it is (`protocol.alignment`).
"""

from __future__ import annotations

from collections.abc import Sequence

from flowpoint.model.elements import Barrier, Batch, EndOfInput, Event
from flowpoint.protocol.alignment import AlignmentAction, BarrierAligner, Block, Decline, Snapshot, Unblock
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.subtask import Subtask, SubtaskParts


class ProcessingSubtask(Subtask):
    """Takes elements from its gate, processes batches, aligns barriers, and ends when all its inputs have."""

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
            if isinstance(element, Batch):
                await self.process(element.values)
            else:
                await self._on_event(channel, element)

    async def _on_event(self, channel: int, event: Event) -> None:
        if isinstance(event, Barrier):
            aligning = self._aligner.aligning
            actions = self._aligner.on_barrier(channel, event)
            if self._aligner.aligning not in ((), aligning):
                self._aligning_since = self._now()
            await self._act(actions)
        elif isinstance(event, EndOfInput):
            assert not self._ended[channel], f"subtask {self.id}: channel={channel} ended twice"
            self._ended[channel] = True
            if all(self._ended):
                await self.end_input()

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
        for action in self._aligner.on_abort(checkpoint):
            match action:
                case Unblock(channels):
                    self._gate.unblock(channels)
                case _:
                    raise AssertionError(f"subtask {self.id}: abort of checkpoint={checkpoint} led to {action}")
        if not self._aligner.aligning:
            self._aligning_since = None
