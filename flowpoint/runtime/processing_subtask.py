"""A subtask that reads from other subtasks: the machines for alignment and for watermarks decide what an event means.

Not here: what a barrier does once it is aligned (`subtask.py`), when it is (`protocol.alignment`), how watermarks of
several channels become one (`protocol.watermarks`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowpoint.codec.values import Codec
from flowpoint.model.elements import Barrier, Batch, EndOfInput, Event, Idleness, Watermark
from flowpoint.protocol.alignment import BarrierAligner, Block, Decline, Snapshot, Unblock
from flowpoint.protocol.overtaking import Await, Discard, Finish, Overtake, OvertakingAction, OvertakingAligner
from flowpoint.protocol.watermarks import InputWatermarks
from flowpoint.runtime.channel_state import KeyGroups, Recording
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.slices import cut
from flowpoint.runtime.subtask import Subtask
from flowpoint.runtime.subtask_parts import SubtaskParts


@dataclass(frozen=True, slots=True)
class Channel:
    """What is known of an input channel: the input of the operator that it feeds, and whether it carries timestamps.

    may_be_overtaken: its records may become channel state. key_groups: of a hash edge, those of its records.
    """

    port: int = 0
    timed: bool = False
    may_be_overtaken: bool = False
    key_groups: KeyGroups | None = None


@dataclass(frozen=True, slots=True)
class Unaligned:
    """How barriers overtake: at once, or when the checkpoint is older than `timeout` seconds."""

    timeout: float
    codec: Codec


class ProcessingSubtask(Subtask):
    """Takes elements from its gate, processes batches, aligns barriers, and ends when all its inputs have."""

    def __init__(
        self,
        built: SubtaskParts,
        gate: InputGate,
        channels: Sequence[Channel],
        *,
        exactly_once: bool,
        unaligned: Unaligned | None = None,
    ) -> None:
        super().__init__(built)
        assert len(channels) == len(gate), (channels, len(gate))
        self._gate = gate
        self._channels = list(channels)
        self._ports = [channel.port for channel in channels]
        self._watermarks = InputWatermarks([channel.timed for channel in channels], built.pipeline.watermark_in)
        overtakable = [number for number, channel in enumerate(channels) if channel.may_be_overtaken]
        self._unaligned = unaligned if overtakable else None
        self._aligner: BarrierAligner | OvertakingAligner
        if self._unaligned is not None:
            self._aligner = OvertakingAligner(len(gate), overtakable)
            gate.watch_barriers()
        else:
            self._aligner = BarrierAligner(len(gate), exactly_once=exactly_once)
        self._overdue: deque[int] = deque()
        self._overdue_timer: asyncio.TimerHandle | None = None
        self._recording: Recording | None = None
        self._in_hand: tuple[int, Batch] | None = None
        self._channel_in_hand = -1
        self._ended = [False] * len(gate)
        self._aligning_since: float | None = None

    async def loop(self) -> None:
        """Take elements in order; wait when there is nothing to take or nowhere to put."""
        while True:
            await self._wait_between()
            await self.fire_timers()
            if self._gate.announced or self._overdue:
                continue
            taken = self._gate.take()
            if taken is None:
                await self._starve()
                continue
            channel, element = taken
            if isinstance(element, Batch):
                self._watermarks.on_active(channel)
                self._pass_idleness_on()
                self._channel_in_hand = channel
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

    async def _act(self, actions: Sequence[OvertakingAction]) -> None:
        for action in actions:
            match action:
                case Block(channel):
                    self._gate.block(channel)
                case Snapshot(barrier):
                    self._note_alignment()
                    await self.snapshot(barrier)
                case Await(barrier):
                    self._await_timeout(barrier)
                case Overtake(barrier, channels):
                    await self._overtake(barrier, channels)
                case _:
                    self._act_at_once(action)

    def _act_at_once(self, action: OvertakingAction) -> None:
        match action:
            case Unblock(channels):
                self._gate.unblock(channels)
            case Decline(checkpoint, reason):
                self._answers.decline(checkpoint, reason)
            case Finish(checkpoint):
                self._end_recording(checkpoint, is_whole=True)
            case Discard(checkpoint):
                self._end_recording(checkpoint, is_whole=False)
            case _:
                raise AssertionError(f"subtask {self.id}: {action} is not done at once")

    # ------------------------------------------------------------------ barriers that overtake

    async def _between_slices(self, batch: Batch, start: int) -> None:
        """Take a snapshot here if a barrier wants to overtake; what is left of the batch is before that barrier."""
        self._in_hand = None if self.is_restoring else (self._channel_in_hand, cut(batch, start, len(batch)))
        await self._wait_between()
        self._in_hand = None

    async def _wait_between(self) -> None:
        """Wait until the outputs have credit, and look at barriers that do not need it."""
        await self._look_at_barriers()
        while not self._outputs.writable:
            self.counters.blocked.start(self._now())
            await self._wait()
            self.counters.blocked.stop(self._now())
            await self._look_at_barriers()

    async def _look_at_barriers(self) -> None:
        """Act on barriers that have arrived behind records, and on those whose time to be aligned is over."""
        if self._unaligned is None:
            return
        assert isinstance(self._aligner, OvertakingAligner)
        while self._gate.announced or self._overdue:
            if self._overdue:
                await self._act(self._aligner.on_overdue(self._overdue.popleft()))
                continue
            channel, barrier = self._gate.announced.popleft()
            if self.is_restoring:
                self.decline_restoring(barrier.checkpoint)
            await self._act(self._aligner.on_announced(channel, barrier))

    def _await_timeout(self, barrier: Barrier) -> None:
        """Be told when a checkpoint is too old to be aligned."""
        assert self._unaligned is not None
        timeout = self._unaligned.timeout
        age = (self._clock_ms() - barrier.triggered) / 1000
        # Wall time may jump: never wait longer than the timeout on its word.
        left = min(max(timeout - age, 0.0), timeout)
        self._stop_waiting_for_timeout()
        if left == 0:
            self._overdue.append(barrier.checkpoint)
        else:
            self._overdue_timer = asyncio.get_running_loop().call_later(left, self._on_overdue, barrier.checkpoint)

    def _on_overdue(self, checkpoint: int) -> None:
        self._overdue_timer = None
        self._overdue.append(checkpoint)
        self.wakeup.set()

    def _stop_waiting_for_timeout(self) -> None:
        if self._overdue_timer is not None:
            self._overdue_timer.cancel()
            self._overdue_timer = None

    async def _overtake(self, barrier: Barrier, channels: Sequence[int]) -> None:
        """Take the snapshot now; what stands and will stand before the barrier in `channels` is channel state."""
        assert self._unaligned is not None and self._recording is None, f"subtask {self.id}: {barrier}"
        recording = self._recording = Recording(barrier.checkpoint, self._unaligned.codec)
        if self._in_hand is not None:
            channel, rest = self._in_hand
            assert channel in channels, f"subtask {self.id}: {channel=} is in hand, overtaken are {channels}"
            self._recorder(recording, channel)(rest)
        for channel in channels:
            self._gate.record(channel, barrier.checkpoint, self._recorder(recording, channel))
        self._note_alignment()
        await self.snapshot(barrier, recording)

    def _recorder(self, recording: Recording, channel: int) -> Callable[[Batch], None]:
        known = self._channels[channel]
        return lambda batch: recording.add(batch, known.port, known.key_groups)

    def _end_recording(self, checkpoint: int, *, is_whole: bool) -> None:
        recording, self._recording = self._recording, None
        assert recording is not None and recording.checkpoint == checkpoint, f"subtask {self.id}: {checkpoint=}"
        if is_whole:
            recording.finish()
        else:
            self._gate.stop_recording()
            recording.discard()

    async def close(self) -> None:
        """Let go of everything."""
        self._stop_waiting_for_timeout()
        await super().close()

    def _note_alignment(self) -> None:
        begun, self._aligning_since = self._aligning_since, None
        self.counters.alignment_ms = 0 if begun is None else round((self._now() - begun) * 1000)

    def abort(self, checkpoint: int) -> None:
        """Release an alignment for this checkpoint, and swallow its late barriers (rule 12)."""
        super().abort(checkpoint)
        for action in self._aligner.on_abort(checkpoint):
            self._act_at_once(action)
        if not self._aligner.aligning:
            self._aligning_since = None
