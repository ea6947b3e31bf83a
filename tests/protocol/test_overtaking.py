"""`protocol.overtaking` against a naive model, in all orders of arrivals, readings, timeouts and aborts.

The model knows what each channel has got and given so far, and nothing else. `explore` walks every state that can be
reached and looks after every step at what the machine has decided.
"""

import itertools
import pickle
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.model.elements import Barrier
from flowpoint.protocol.alignment import Block, Decline, Snapshot, Unblock
from flowpoint.protocol.overtaking import Await, Discard, Finish, Overtake, OvertakingAligner

RECORD = 0


@dataclass
class Model:
    """One run. Channels hold records (0) and barriers (ids); `aligned` channels cannot be overtaken."""

    channels: tuple[tuple[int, ...], ...]
    aligned: frozenset[int] = frozenset()
    savepoints: frozenset[int] = frozenset()
    arrived: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    snapshots: list[int] = field(default_factory=list)
    declined: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    awaiting: set[int] = field(default_factory=set)
    overdue: set[int] = field(default_factory=set)
    recording: int = 0
    recorded: frozenset[int] = frozenset()
    finished: list[int] = field(default_factory=list)
    discarded: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.arrived = self.arrived or [0] * len(self.channels)
        self.taken = self.taken or [0] * len(self.channels)

    def barrier(self, checkpoint):
        return Barrier(checkpoint, kind="savepoint" if checkpoint in self.savepoints else "checkpoint")

    def past(self, channel):
        return self.channels[channel][: self.taken[channel]]

    def here(self, channel):
        return self.channels[channel][: self.arrived[channel]]

    def clone(self):
        return pickle.loads(pickle.dumps(self))

    # -------------------------------------------------------------- what must hold

    def follow(self, actions):
        for action in actions:
            match action:
                case Block(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case Unblock(channels):
                    assert self.blocked.issuperset(channels)
                    self.blocked.difference_update(channels)
                case Snapshot(barrier):
                    self.check_new(barrier.checkpoint)
                    assert all(self.past(c)[-1:] == (barrier.checkpoint,) for c in range(len(self.channels))), (
                        "aligned: every channel is read exactly up to its barrier"
                    )
                case Overtake(barrier, channels):
                    self.check_new(barrier.checkpoint)
                    self.check_cut(barrier.checkpoint, channels)
                    assert not self.recording, "one is recorded at a time"
                    self.recording, self.recorded = barrier.checkpoint, frozenset(channels)
                case Finish(checkpoint):
                    assert checkpoint == self.recording
                    assert all(checkpoint in self.here(c) for c in self.recorded)
                    self.finished.append(checkpoint)
                    self.recording = 0
                case Discard(checkpoint):
                    assert checkpoint == self.recording
                    self.discarded.append(checkpoint)
                    self.recording = 0
                case Decline(checkpoint):
                    assert checkpoint not in self.declined
                    assert checkpoint not in self.aborted, "the coordinator knows already"
                    assert checkpoint not in self.finished
                    self.declined.append(checkpoint)
                case Await(barrier):
                    assert barrier.may_overtake
                    self.awaiting.add(barrier.checkpoint)

    def check_new(self, checkpoint):
        assert checkpoint not in self.snapshots, "one snapshot of each"
        assert checkpoint not in self.aborted
        assert checkpoint not in self.declined
        assert all(checkpoint > earlier for earlier in self.snapshots)
        self.snapshots.append(checkpoint)

    def check_cut(self, checkpoint, channels):
        assert checkpoint not in self.savepoints
        assert not self.aligned.intersection(channels)
        assert channels, "with nothing to overtake it is an aligned snapshot"
        for channel in range(len(self.channels)):
            past = self.past(channel)
            if channel in channels:
                assert all(barrier < checkpoint for barrier in past), "its barrier has not been taken"
            else:
                assert past[-1:] == (checkpoint,), "nothing from after the barrier has been taken"

    def check_state(self, aligner):
        if self.recording:
            missing = [c for c in self.recorded if self.recording not in self.here(c)]
            assert missing, "what has arrived whole is finished"
        for channel in self.blocked:
            newest = self.past(channel)[-1]
            assert newest, "a channel is blocked behind its barrier"
            assert newest not in (*self.snapshots, *self.aborted, *self.declined)
        for checkpoint in self.overdue - {*self.snapshots, *self.aborted, *self.declined}:
            # It is the newest that is known, and what it may not overtake has been delivered: nothing is waited for.
            newest = max(max(self.here(c), default=0) for c in range(len(self.channels)))
            if checkpoint == newest:
                assert not all(checkpoint in self.past(c) for c in self.aligned), f"{checkpoint} still waits"


def steps(model, aborts):
    """What may happen next."""
    for channel, elements in enumerate(model.channels):
        if model.arrived[channel] < len(elements):
            yield ("arrive", channel)
        if model.taken[channel] < model.arrived[channel] and channel not in model.blocked:
            yield ("take", channel)
    for checkpoint in sorted(model.awaiting - model.overdue):
        yield ("overdue", checkpoint)
    for checkpoint in aborts:
        if checkpoint not in model.aborted:
            yield ("abort", checkpoint)


def do(model, aligner, step):
    what, which = step
    if what == "overdue":
        model.overdue.add(which)
        actions = aligner.on_overdue(which)
    elif what == "abort":
        model.aborted.append(which)
        actions = aligner.on_abort(which)
    else:
        position = model.arrived if what == "arrive" else model.taken
        element = model.channels[which][position[which]]
        position[which] += 1
        if element == RECORD:
            return
        told = aligner.on_announced if what == "arrive" else aligner.on_barrier
        actions = told(which, model.barrier(element))
    model.follow(actions)
    model.check_state(aligner)


def explore(channels, aligned=(), aborts=(), savepoints=()):
    """Walk through everything that can happen; the number of states seen."""
    overtakable = set(range(len(channels))) - set(aligned)
    start = (
        Model(channels, aligned=frozenset(aligned), savepoints=frozenset(savepoints)),
        OvertakingAligner(len(channels), overtakable),
    )
    seen, pending = set(), [pickle.dumps(start)]
    while pending:
        packed = pending.pop()
        model, _ = pickle.loads(packed)
        following = list(steps(model, aborts))
        if not following:
            check_end(model)
        for step in following:
            model, aligner = pickle.loads(packed)
            do(model, aligner, step)
            mark = pickle.dumps((model, aligner))
            if hash(mark) not in seen:
                seen.add(hash(mark))
                pending.append(mark)
    return len(seen)


def check_end(model):
    """Everything has arrived and can be taken no further."""
    everywhere = set.intersection(*[set(elements) for elements in model.channels]) - {RECORD}
    assert not model.blocked or any(max(c) not in everywhere for c in model.channels if c)
    assert not model.recording or model.recording not in everywhere
    for checkpoint in everywhere:
        is_settled = checkpoint in (*model.snapshots, *model.aborted, *model.declined)
        is_settled |= checkpoint < max(model.snapshots, default=0)
        assert is_settled, f"{checkpoint} came everywhere and nothing became of it"


mixed = itertools.combinations_with_replacement
CONTENTS = {
    1: [(0, 1), (0, 1, 0, 2), (1, 2, 0)],
    2: [(0, 1, 0), (1, 0, 2), (0, 1, 2), (0, 2)],
    3: [(0, 1), (1, 2)],
}


@pytest.mark.parametrize("width", [1, 2, 3])
def test_whatever_arrives_or_is_taken_or_times_out_in_any_order_the_cut_is_consistent(width):
    states = sum(explore(channels) for channels in mixed(CONTENTS[width], width))
    assert states > {1: 20, 2: 1_000, 3: 2_000}[width]


@pytest.mark.parametrize("aborts", [(1,), (2,)], ids=str)
def test_the_same_while_checkpoints_are_aborted_at_any_moment(aborts):
    for channels in mixed([(0, 1, 0), (0, 1, 2)], 2):
        explore(channels, aborts=aborts)


@pytest.mark.parametrize("aligned", [(0,), (0, 1)], ids=str)
def test_channels_that_cannot_be_overtaken_are_aligned(aligned):
    for channels in itertools.product([(0, 1), (1, 0)], repeat=len(aligned) + 1):
        explore(channels, aligned=aligned)


def test_a_savepoint_among_checkpoints_stays_aligned():
    for channels in mixed([(0, 1, 0, 2), (1, 2, 0)], 2):
        explore(channels, savepoints=(2,))
        explore(channels, savepoints=(1,))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_long_runs_over_many_checkpoints_keep_the_cut_consistent_and_remember_little(data):
    width = data.draw(st.integers(1, 3))
    gaps = st.lists(st.integers(0, 2), min_size=8, max_size=8)
    channels = tuple(
        tuple(e for k, gap in enumerate(data.draw(gaps), start=1) for e in (*[RECORD] * gap, k)) for _ in range(width)
    )
    aligned = frozenset(range(width - 1)) if data.draw(st.booleans()) else frozenset()
    model = Model(channels, aligned=aligned)
    aligner = OvertakingAligner(width, set(range(width)) - aligned)
    # As with one checkpoint at a time: the next comes only when the last is through.
    while following := [step for step in steps(model, ()) if not comes_too_early(model, step)]:
        do(model, aligner, data.draw(st.sampled_from(following)))
    assert model.snapshots == [*range(1, 9)]
    assert model.declined == []
    assert not aligner._closed
    assert not any(aligner._arrived)


def comes_too_early(model, step):
    """Whether a barrier would arrive while the one before it is still being aligned or recorded."""
    what, channel = step
    if what != "arrive":
        return False
    element = model.channels[channel][model.arrived[channel]]
    return element > 1 and (element - 1 not in model.snapshots or model.recording not in (0, element))


def test_the_first_barrier_overtakes_what_is_queued_before_it():
    aligner = OvertakingAligner(3, {0, 1, 2})
    assert aligner.on_announced(1, Barrier(1)) == [Await(Barrier(1))]
    assert aligner.on_overdue(1) == [Overtake(Barrier(1), (0, 1, 2))]
    assert aligner.on_announced(0, Barrier(1)) == []
    assert aligner.on_announced(2, Barrier(1)) == [Finish(1)]
    assert [aligner.on_barrier(channel, Barrier(1)) for channel in range(3)] == [[], [], []]


def test_a_channel_that_has_delivered_its_barrier_is_read_again_when_the_checkpoint_turns_unaligned():
    aligner = OvertakingAligner(2, {0, 1})
    assert aligner.on_barrier(0, Barrier(1)) == [Await(Barrier(1)), Block(0)]
    assert aligner.on_overdue(1) == [Overtake(Barrier(1), (1,)), Unblock((0,))]


def test_a_checkpoint_in_time_stays_aligned():
    aligner = OvertakingAligner(2, {0, 1})
    aligner.on_barrier(0, Barrier(1))
    assert aligner.on_barrier(1, Barrier(1)) == [Snapshot(Barrier(1)), Unblock((0,))]
    assert aligner.on_overdue(1) == []


def test_an_abort_ends_the_recording():
    aligner = OvertakingAligner(2, {0, 1})
    aligner.on_announced(0, Barrier(1))
    aligner.on_overdue(1)
    assert aligner.recording == 1
    assert aligner.on_abort(1) == [Discard(1)]
    assert aligner.on_announced(1, Barrier(1)) == []


def test_a_newer_checkpoint_ends_the_recording_of_one_that_can_never_be_whole():
    aligner = OvertakingAligner(2, {0, 1})
    aligner.on_announced(0, Barrier(1))
    aligner.on_overdue(1)
    assert aligner.on_announced(1, Barrier(2))[:2] == [Discard(1), Decline(1, "channel 1 has gone past it")]


@pytest.mark.parametrize("barrier", [Barrier(1, kind="savepoint"), Barrier(1, halt=True), Barrier(1, final=True)])
def test_savepoints_and_last_checkpoints_are_not_even_awaited(barrier):
    assert OvertakingAligner(2, {0, 1}).on_announced(0, barrier) == []
