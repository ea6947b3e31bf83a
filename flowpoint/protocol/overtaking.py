"""When a task takes its part of an unaligned checkpoint: the first barrier overtakes the records queued before it.

It begins like any alignment (`alignment.BarrierAligner`, which this machine contains), and may end earlier. A barrier is
known as soon as it has *arrived* in a channel, behind records that nobody has taken yet (`on_announced`). When the
checkpoint is older than `aligned_timeout` (`on_overdue`), the snapshot is taken at once: what stands before the barrier
in the channels that have not delivered it is channel state, and nothing is blocked any more.

    event                                           what happens
    first arrival of k                              Await(barrier): `on_overdue(k)` is due at the timeout, or now
    barriers of k taken in all channels             Snapshot, as aligned
    overdue, all aligned channels have delivered k  Overtake(barrier, channels), Unblock; recording of `channels` begins
    k has arrived in all recorded channels          Finish(k): the channel state is whole
    k is taken in a recorded channel                swallowed
    abort of k while it is recorded                 Discard(k)
    k overtakes while an older one is aligned        Decline(older), Unblock: its barrier cannot follow that of k
    a recorded channel goes past k without it       Discard(k), Decline(k)
    a newer one overtakes while k is recorded       Discard(k), Decline(k): k has failed, or the newer were not there

Channels of forward and broadcast edges are never overtaken: their records cannot be dealt out anew. Savepoints, stops
and final checkpoints stay aligned (`Barrier.may_overtake`).

Invariants:
- At most one checkpoint is recorded, and at most one snapshot is taken of each.
- A channel is overtaken only before its barrier is taken; nothing from after a barrier was taken before the snapshot.
- `Finish` or `Discard` follows each `Overtake`, once.

Not here: what is recorded (`runtime.channel_state`), clocks, restoring.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from flowpoint.model.elements import Barrier
from flowpoint.protocol.alignment import AlignmentAction, BarrierAligner, Decline, Snapshot


@dataclass(frozen=True, slots=True)
class Await:
    """Call `on_overdue` when the checkpoint is older than `aligned_timeout`."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Overtake:
    """Take the snapshot and send the barrier on now. What comes before the barrier in `channels` is channel state."""

    barrier: Barrier
    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """All channel state of this checkpoint has arrived."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Stop recording for this checkpoint and forget what was recorded."""

    checkpoint: int


OvertakingAction: TypeAlias = AlignmentAction | Await | Overtake | Finish | Discard


class OvertakingAligner:
    """Aligns the barriers of one task, exactly once, and lets them overtake when they are overdue.

    Example:
        >>> aligner = OvertakingAligner(2, overtakable={0, 1})
        >>> [type(action).__name__ for action in aligner.on_announced(0, Barrier(1))]
        ['Await']
        >>> [type(action).__name__ for action in aligner.on_overdue(1)]
        ['Overtake']
        >>> aligner.on_announced(1, Barrier(1))
        [Finish(checkpoint=1)]
    """

    def __init__(self, channels: int, overtakable: Collection[int]) -> None:
        assert overtakable, "a task none of whose channels can be overtaken needs a BarrierAligner"
        self._inner = BarrierAligner(channels, exactly_once=True)
        self._overtakable = frozenset(overtakable)
        self._taken = [0] * channels  # per channel: the newest barrier that was taken
        self._arrived: list[set[int]] = [set() for _ in range(channels)]  # barriers known and not passed everywhere
        self._newest = [0] * channels  # per channel: the newest barrier that has arrived
        self._waiting: Barrier | None = None  # the newest that may overtake and has not
        self._is_overdue = False
        self._closed: set[int] = set()  # snapshot taken, declined or aborted, and still to come in some channel
        self._overtaken = 0  # the newest checkpoint that has overtaken: older ones are over
        self._recording: _Recording | None = None

    @property
    def aligning(self) -> tuple[int, ...]:
        """The checkpoints that wait for barriers to be taken, oldest first."""
        return self._inner.aligning

    @property
    def recording(self) -> int | None:
        """The checkpoint whose channel state is still arriving."""
        return self._recording.checkpoint if self._recording is not None else None

    def on_announced(self, channel: int, barrier: Barrier) -> list[OvertakingAction]:
        """A barrier has arrived in a channel, behind what is queued there."""
        checkpoint = barrier.checkpoint
        if checkpoint <= self._newest[channel]:
            return []
        self._newest[channel] = checkpoint
        self._arrived[channel].add(checkpoint)
        actions = self._note_arrival(channel, checkpoint)
        if checkpoint < self._overtaken and checkpoint not in self._closed:
            # A newer one has left through the outputs already, and barriers of a channel rise.
            actions += self._end(checkpoint)
        if self._is_new(barrier):
            self._waiting, self._is_overdue = barrier, False
            actions.append(Await(barrier))
        return actions

    def on_overdue(self, checkpoint: int) -> list[OvertakingAction]:
        """The checkpoint is older than `aligned_timeout`."""
        if self._waiting is None or self._waiting.checkpoint != checkpoint:
            return []
        self._is_overdue = True
        return self._try_to_overtake()

    def on_barrier(self, channel: int, barrier: Barrier) -> list[OvertakingAction]:
        """A barrier was taken from a channel."""
        actions = self.on_announced(channel, barrier)
        self._taken[channel] = barrier.checkpoint
        for action in self._inner.on_barrier(channel, barrier):
            if isinstance(action, Snapshot):
                self._close(action.barrier.checkpoint)
                if self._waiting is not None and self._waiting.checkpoint < action.barrier.checkpoint:
                    self._waiting = None
            elif isinstance(action, Decline):
                self._close(action.checkpoint)
            actions.append(action)
        actions += self._try_to_overtake()
        self._forget_passed()
        return actions

    def on_abort(self, checkpoint: int) -> list[OvertakingAction]:
        """The coordinator aborted a checkpoint."""
        actions = [*self._stop_recording(checkpoint), *self._end(checkpoint)]
        self._forget_passed()
        return actions

    def _is_new(self, barrier: Barrier) -> bool:
        """Whether this checkpoint may overtake and is the newest that is waiting to."""
        if not barrier.may_overtake or barrier.checkpoint in self._closed:
            return False
        return self._waiting is None or self._waiting.checkpoint < barrier.checkpoint

    def _note_arrival(self, channel: int, checkpoint: int) -> list[OvertakingAction]:
        """What an arrival means for what is being recorded."""
        recording = self._recording
        if recording is None or channel not in recording.awaited or checkpoint < recording.checkpoint:
            return []
        if checkpoint > recording.checkpoint:
            return self._give_up(recording, f"channel {channel} has gone past it")
        recording.awaited.discard(channel)
        if recording.awaited:
            return []
        self._recording = None
        return [Finish(checkpoint)]

    def _try_to_overtake(self) -> list[OvertakingAction]:
        barrier = self._waiting
        if barrier is None or not self._is_overdue:
            return []
        checkpoint = barrier.checkpoint
        open_channels = [channel for channel, taken in enumerate(self._taken) if taken < checkpoint]
        if not self._overtakable.issuperset(open_channels):
            return []
        skipped = self._skipped(checkpoint)
        if skipped is not None:
            reason = f"channel {skipped} goes past checkpoint {checkpoint} without it"
            return [Decline(checkpoint, reason), *self._end(checkpoint)]
        actions = self._give_up_older(checkpoint)
        actions += [Overtake(barrier, tuple(open_channels)), *self._end(checkpoint)]
        self._overtaken = checkpoint
        awaited = {channel for channel in open_channels if checkpoint not in self._arrived[channel]}
        if awaited:
            self._recording = _Recording(checkpoint, awaited)
        else:
            actions.append(Finish(checkpoint))
        return actions

    def _skipped(self, checkpoint: int) -> int | None:
        """A channel in which the barrier can never come, since a newer one is there."""
        for channel, newest in enumerate(self._newest):
            if newest > checkpoint and checkpoint not in self._arrived[channel]:
                return channel
        return None

    def _give_up_older(self, checkpoint: int) -> list[OvertakingAction]:
        """What is older than a checkpoint that overtakes can follow it no more."""
        actions: list[OvertakingAction] = []
        if self._recording is not None:
            actions += self._give_up(self._recording, f"checkpoint {checkpoint} overtakes it")
        older = {known for arrived in self._arrived for known in arrived if known < checkpoint} - self._closed
        for known in sorted(older):
            actions += [Decline(known, f"checkpoint {checkpoint} overtakes it"), *self._end(known)]
        return actions

    def _end(self, checkpoint: int) -> list[OvertakingAction]:
        """Close a checkpoint: its barriers are swallowed from here on, and what is blocked for it is read again."""
        self._close(checkpoint)
        return [*self._inner.on_abort(checkpoint)]

    def _give_up(self, recording: _Recording, reason: str) -> list[OvertakingAction]:
        return [*self._stop_recording(recording.checkpoint), Decline(recording.checkpoint, reason)]

    def _stop_recording(self, checkpoint: int) -> list[OvertakingAction]:
        if self._recording is None or self._recording.checkpoint != checkpoint:
            return []
        self._recording = None
        return [Discard(checkpoint)]

    def _close(self, checkpoint: int) -> None:
        """Nothing is to be decided about a checkpoint any more."""
        self._closed.add(checkpoint)
        if self._waiting is not None and self._waiting.checkpoint == checkpoint:
            self._waiting = None

    def _forget_passed(self) -> None:
        """Drop what every channel has passed, which bounds what is remembered."""
        passed = min(self._taken)
        self._closed = {checkpoint for checkpoint in self._closed if checkpoint > passed}
        for arrived in self._arrived:
            arrived.difference_update([checkpoint for checkpoint in arrived if checkpoint <= passed])


@dataclass(slots=True)
class _Recording:
    """A checkpoint whose snapshot is taken and whose channel state still arrives in the `awaited` channels."""

    checkpoint: int
    awaited: set[int]
