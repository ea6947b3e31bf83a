"""When a task with several input channels takes its part of a checkpoint.

A barrier cuts every channel into "before" and "after". Exactly-once: a channel whose barrier has come is blocked, so
that nothing from after the cut gets into the snapshot, until the barrier has come in all channels. At-least-once: no
channel is ever blocked; the snapshot is taken when the last barrier comes, and some records after the cut are in it.

Per channel, barriers come with rising checkpoint ids; all that is decided here follows from it:

    event                                          what happens
    first barrier of k                             alignment of k begins; Block(channel)
    further barrier of k                           Block(channel)
    barrier of k in the last channel               Snapshot(barrier), then Unblock(the channels blocked for k)
    barrier of k where j < k is awaited            j can never come there: Decline(j), Unblock; then as above
    barrier of j after another channel passed j    swallowed: j can never come in all channels
    abort of k                                     Unblock; later barriers of k are swallowed, here and downstream

In exactly-once mode at most one checkpoint aligns at a time: the channels that could bring the next one are blocked.
In at-least-once mode several may, when `checkpoint.max_concurrent` > 1; they complete in the order of their ids.

Invariants:
- A channel is blocked only for a checkpoint that is being aligned; no alignment, nothing blocked.
- `Snapshot` comes at most once per checkpoint, and only when every channel has delivered its barrier.
- Channels whose input has ended still deliver barriers (end of input is only a marker), so all of them count.

Not here: unaligned checkpoints, the source's side (a source has no input: its trigger is its barrier).
"""

from __future__ import annotations

from dataclasses import dataclass

from flowpoint.model.elements import Barrier


@dataclass(frozen=True, slots=True)
class Block:
    """Do not read this channel until it is unblocked."""

    channel: int


@dataclass(frozen=True, slots=True)
class Unblock:
    """Read these channels again."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Take the snapshot and send the barrier on, before anything else is read."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Decline:
    """Tell the coordinator that this task cannot take part in the checkpoint any more."""

    checkpoint: int
    reason: str


AlignmentAction = Block | Unblock | Snapshot | Decline


class BarrierAligner:
    """Aligns the barriers of one task.

    Example:
        >>> aligner = BarrierAligner(2, exactly_once=True)
        >>> aligner.on_barrier(0, Barrier(1))
        [Block(channel=0)]
        >>> [type(action).__name__ for action in aligner.on_barrier(1, Barrier(1))]
        ['Snapshot', 'Unblock']
    """

    def __init__(self, channels: int, exactly_once: bool = True) -> None:
        assert channels >= 1, f"a task that aligns has inputs; channels={channels}"
        self._exactly_once = exactly_once
        self._newest = [0] * channels  # per channel: the id of its newest barrier
        self._aligning: dict[int, _Alignment] = {}  # by checkpoint id, rising
        self._aborted: set[int] = set()  # only ids whose barrier may still come in some channel

    @property
    def aligning(self) -> tuple[int, ...]:
        """The checkpoints that wait for barriers, oldest first."""
        return tuple(self._aligning)

    @property
    def blocked(self) -> frozenset[int]:
        """The channels that must not be read."""
        if not self._exactly_once:
            return frozenset()
        return frozenset(channel for alignment in self._aligning.values() for channel in alignment.arrived)

    def on_barrier(self, channel: int, barrier: Barrier) -> list[AlignmentAction]:
        """A barrier was read from a channel."""
        checkpoint = barrier.checkpoint
        assert 0 <= channel < len(self._newest), f"{channel=} of {len(self._newest)} channels, {barrier}"
        assert channel not in self.blocked, f"a blocked channel was read: {channel=} {barrier} {self._aligning}"
        before = self._newest[channel]
        assert checkpoint > before, f"barriers of a channel must rise: {channel=} {before=} {barrier}"

        is_passed = checkpoint < max(self._newest) and checkpoint not in self._aligning
        self._newest[channel] = checkpoint
        actions = self._give_up_skipped(channel, barrier)
        if not is_passed and checkpoint not in self._aborted:
            actions += self._arrive(channel, barrier)
        self._forget_settled()
        assert len(self._aligning) <= 1 or not self._exactly_once, f"two alignments at once: {self._aligning}"
        return actions

    def on_abort(self, checkpoint: int) -> list[AlignmentAction]:
        """The coordinator aborted a checkpoint. It knows already, so there is nothing to decline."""
        if checkpoint > min(self._newest):
            self._aborted.add(checkpoint)
        alignment = self._aligning.pop(checkpoint, None)
        return self._release(alignment) if alignment else []

    def _give_up_skipped(self, channel: int, barrier: Barrier) -> list[AlignmentAction]:
        """Give up the older alignments that still wait for this channel: it has just gone past them."""
        actions: list[AlignmentAction] = []
        for checkpoint, alignment in list(self._aligning.items()):
            if checkpoint < barrier.checkpoint and channel not in alignment.arrived:
                del self._aligning[checkpoint]
                reason = f"channel {channel} delivered checkpoint {barrier.checkpoint} without checkpoint {checkpoint}"
                actions += [Decline(checkpoint, reason), *self._release(alignment)]
        return actions

    def _arrive(self, channel: int, barrier: Barrier) -> list[AlignmentAction]:
        alignment = self._aligning.setdefault(barrier.checkpoint, _Alignment(barrier, []))
        assert alignment.barrier == barrier, f"channels disagree: {channel=} {barrier}, others {alignment.barrier}"
        assert channel not in alignment.arrived, f"twice in one channel: {channel=} {barrier} {alignment.arrived}"
        if len(alignment.arrived) + 1 == len(self._newest):
            del self._aligning[barrier.checkpoint]
            assert barrier.checkpoint < min(self._aligning, default=barrier.checkpoint + 1), (
                f"completed out of order: {barrier} before {self._aligning}"
            )
            return [Snapshot(barrier), *self._release(alignment)]
        alignment.arrived.append(channel)
        return [Block(channel)] if self._exactly_once else []

    def _release(self, alignment: _Alignment) -> list[AlignmentAction]:
        if self._exactly_once and alignment.arrived:
            return [Unblock(tuple(alignment.arrived))]
        return []

    def _forget_settled(self) -> None:
        """Drop aborted ids that every channel has passed, which bounds what is remembered."""
        if self._aborted:
            passed = min(self._newest)
            self._aborted = {checkpoint for checkpoint in self._aborted if checkpoint > passed}


@dataclass(slots=True)
class _Alignment:
    """A checkpoint on its way: its barrier, and the channels that have delivered it, in the order they did."""

    barrier: Barrier
    arrived: list[int]
