"""`protocol.alignment` against a naive model, over all interleavings of small inputs and of aborts.

The model knows which elements each channel has delivered so far, and nothing else. From that alone it says which
channels must be blocked, and whether a barrier must lead to a snapshot; `explore` compares it with the aligner after
every step of every order in which channels can be read and checkpoints aborted.
"""

import itertools
import pickle
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.model.elements import Barrier
from flowpoint.protocol.alignment import BarrierAligner, Block, Decline, Snapshot, Unblock

RECORD = 0
MODES = pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly_once", "at_least_once"])


@dataclass
class Model:
    """One run: the channels' content (a record is 0, a barrier its checkpoint id), and what has happened so far."""

    channels: tuple[tuple[int, ...], ...]
    exactly_once: bool
    read: list[int] = field(default_factory=list)  # per channel: how many elements
    aborted: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    declined: list[int] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)  # as the actions say
    begun: set[int] = field(default_factory=set)  # checkpoints that were ever aligning

    def __post_init__(self):
        self.read = self.read or [0] * len(self.channels)

    def past(self, channel):
        return self.channels[channel][: self.read[channel]]

    def has_all(self, checkpoint):
        return all(checkpoint in self.past(channel) for channel in range(len(self.channels)))

    def is_impossible(self, checkpoint):
        """Some channel has gone past it without delivering it."""
        pasts = [self.past(channel) for channel in range(len(self.channels))]
        return any(max(past, default=0) > checkpoint and checkpoint not in past for past in pasts)

    def should_be_blocked(self, channel):
        newest = max(self.past(channel), default=0)
        if not newest or not self.exactly_once:
            return False
        return not (self.has_all(newest) or newest in self.aborted or self.is_impossible(newest))

    def clone(self):
        return Model(
            self.channels,
            self.exactly_once,
            list(self.read),
            list(self.aborted),
            list(self.snapshots),
            list(self.declined),
            set(self.blocked),
            set(self.begun),
        )

    def key(self):
        return tuple(self.read), tuple(sorted(self.aborted)), tuple(self.snapshots), tuple(sorted(self.declined))

    def apply(self, actions):
        for action in actions:
            match action:
                case Block(channel):
                    assert channel not in self.blocked
                    self.blocked.add(channel)
                case Unblock(channels):
                    assert set(channels) <= self.blocked
                    self.blocked -= set(channels)
                case Snapshot(barrier):
                    self.on_snapshot(barrier.checkpoint)
                case Decline(checkpoint, _):
                    assert self.is_impossible(checkpoint)
                    assert checkpoint not in self.snapshots + self.aborted + self.declined
                    self.declined.append(checkpoint)

    def on_snapshot(self, checkpoint):
        assert checkpoint not in self.snapshots, "a second snapshot"
        assert self.has_all(checkpoint), "a snapshot without every barrier"
        for channel in range(len(self.channels)):
            after = self.past(channel)[self.past(channel).index(checkpoint) + 1 :]
            assert not (self.exactly_once and after), f"{after} came after the barrier and is in the snapshot"
        self.snapshots.append(checkpoint)

    def check(self, aligner):
        delivered = {element for channel in range(len(self.channels)) for element in self.past(channel)} - {RECORD}
        gone = {c for c in delivered if self.has_all(c) or self.is_impossible(c)} | set(self.aborted)
        assert set(aligner.aligning) == delivered - gone, f"{self}"
        told = {*self.snapshots, *self.declined, *self.aborted}
        assert self.begun - set(aligner.aligning) <= told, f"an alignment ended without a word: {self}"
        self.begun |= set(aligner.aligning)
        should = {channel for channel in range(len(self.channels)) if self.should_be_blocked(channel)}
        assert self.blocked == should == set(aligner.blocked), f"{self} {aligner.aligning}"

    def do_read(self, aligner, channel):
        element = self.channels[channel][self.read[channel]]
        self.read[channel] += 1
        if element == RECORD:
            return
        must_snapshot = self.has_all(element) and element not in self.aborted
        before = list(self.snapshots)
        self.apply(aligner.on_barrier(channel, Barrier(element)))
        assert self.snapshots == before + [element] * must_snapshot, f"{self}"

    def do_abort(self, aligner, checkpoint):
        self.aborted.append(checkpoint)
        actions = aligner.on_abort(checkpoint)
        assert all(isinstance(action, Unblock) for action in actions)
        self.apply(actions)


def contents(length_max, checkpoints):
    """All contents of a channel: records and rising barriers. Two records in a row are as good as one."""
    for length in range(length_max + 1):
        for content in itertools.product((RECORD, *checkpoints), repeat=length):
            barriers = [element for element in content if element != RECORD]
            has_double = any(a == b == RECORD for a, b in itertools.pairwise(content))
            if not has_double and barriers == sorted(set(barriers)):
                yield content


def explore(channels, exactly_once, aborts=()):
    """Go through every order of reads and aborts, each state once. Returns how many states there were."""
    start = Model(channels, exactly_once)
    stack = [(start, pickle.dumps(BarrierAligner(len(channels), exactly_once)))]
    seen = set()
    while stack:
        model, frozen = stack.pop()
        if (model.key(), frozen) in seen:
            continue
        seen.add((model.key(), frozen))
        readable = [c for c in range(len(channels)) if c not in model.blocked and model.read[c] < len(channels[c])]
        moves = [(Model.do_read, channel) for channel in readable]
        moves += [(Model.do_abort, checkpoint) for checkpoint in aborts if checkpoint not in model.aborted]
        for move, argument in moves:
            after, aligner = model.clone(), pickle.loads(frozen)
            move(after, aligner, argument)
            after.check(aligner)
            stack.append((after, pickle.dumps(aligner)))
        if not readable:
            finish(model.clone(), pickle.loads(frozen))
    return len(seen)


def finish(model, aligner):
    """Nothing more can be read: the coordinator aborts what is open, and then everything can be read to the end."""
    complete = {c for c in (1, 2, 3) if all(c in content for content in model.channels)} - set(model.aborted)
    assert complete <= set(model.snapshots), f"everybody delivered it and nobody aborted it: {model}"
    for checkpoint in aligner.aligning:
        model.do_abort(aligner, checkpoint)
        model.check(aligner)
    assert not model.blocked
    assert not aligner.aligning


@MODES
def test_when_two_channels_of_four_elements_interleave_in_any_way_then_the_model_agrees(exactly_once):
    pairs = itertools.combinations_with_replacement(list(contents(4, (1, 2))), 2)

    states = sum(explore(pair, exactly_once, aborts=(1, 2)) for pair in pairs)

    assert states > 5_000


@pytest.mark.parametrize(("exactly_once", "length_max"), [(True, 4), (False, 3)], ids=["exactly_once", "at_least_once"])
def test_when_three_channels_interleave_in_any_way_then_the_model_agrees(exactly_once, length_max):
    triples = itertools.combinations_with_replacement(list(contents(length_max, (1, 2))), 3)

    states = sum(explore(triple, exactly_once) for triple in triples)

    assert states > 10_000


@MODES
@pytest.mark.parametrize(
    "content",
    [(RECORD, 1, RECORD, 2), (1, RECORD, 2, RECORD), (1, 2, RECORD, 3), (1, RECORD, 2, 3)],
    ids=lambda content: "".join("r" if element == RECORD else str(element) for element in content),
)
def test_when_three_channels_of_four_elements_interleave_with_an_abort_then_the_model_agrees(content, exactly_once):
    states = explore((content,) * 3, exactly_once, aborts=(2,))

    assert states > 30


@MODES
def test_when_a_channel_skips_a_checkpoint_among_three_then_the_model_agrees_with_any_abort(exactly_once):
    channels = ((RECORD, 1, RECORD, 2), (1, RECORD, 2, RECORD), (RECORD, 2, 3))

    assert explore(channels, exactly_once, aborts=(1, 2, 3)) > 100


@MODES
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_when_many_channels_carry_many_barriers_then_the_model_agrees(exactly_once, data):
    count = data.draw(st.integers(1, 6))
    ids = st.lists(st.sampled_from(range(1, 8)), unique=True).map(sorted)
    channels = tuple(tuple(data.draw(ids)) for _ in range(count))
    model, aligner = Model(channels, exactly_once), BarrierAligner(count, exactly_once)

    while True:
        readable = [c for c in range(count) if c not in model.blocked and model.read[c] < len(channels[c])]
        if not readable:
            break
        if data.draw(st.integers(0, 9)) == 0 and (open_ids := [i for i in range(1, 8) if i not in model.aborted]):
            model.do_abort(aligner, data.draw(st.sampled_from(open_ids)))
        else:
            model.do_read(aligner, data.draw(st.sampled_from(readable)))
        model.check(aligner)


def test_when_there_is_one_channel_then_its_barrier_is_a_snapshot_at_once():
    aligner = BarrierAligner(1)

    assert aligner.on_barrier(0, Barrier(1)) == [Snapshot(Barrier(1))]
    assert aligner.on_barrier(0, Barrier(2)) == [Snapshot(Barrier(2))]


def test_when_the_last_barrier_comes_then_the_snapshot_is_taken_before_the_channels_are_released():
    aligner = BarrierAligner(3)
    aligner.on_barrier(2, Barrier(5))
    aligner.on_barrier(0, Barrier(5))

    actions = aligner.on_barrier(1, Barrier(5))

    assert actions == [Snapshot(Barrier(5)), Unblock((2, 0))]


def test_when_a_newer_barrier_comes_while_aligning_then_the_older_is_declined_and_released():
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, Barrier(1))

    actions = aligner.on_barrier(1, Barrier(2))

    assert actions == [
        Decline(1, "channel 1 delivered checkpoint 2 without checkpoint 1"),
        Unblock((0,)),
        Block(1),
    ]
    assert aligner.aligning == (2,)


def test_when_a_checkpoint_is_aborted_then_its_late_barriers_are_swallowed():
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, Barrier(1))

    assert aligner.on_abort(1) == [Unblock((0,))]
    assert aligner.on_barrier(1, Barrier(1)) == []
    assert not aligner.blocked


def test_when_a_checkpoint_is_aborted_before_any_barrier_then_all_its_barriers_are_swallowed():
    aligner = BarrierAligner(2)

    assert aligner.on_abort(3) == []
    assert aligner.on_barrier(0, Barrier(3)) == []
    assert aligner.on_barrier(1, Barrier(3)) == []


def test_when_a_newer_checkpoint_is_aborted_then_the_older_one_still_completes():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.on_barrier(0, Barrier(1))
    aligner.on_barrier(0, Barrier(2))

    aligner.on_abort(2)

    assert aligner.on_barrier(1, Barrier(1)) == [Snapshot(Barrier(1))]
    assert aligner.on_barrier(1, Barrier(2)) == []


def test_when_checkpoints_overlap_at_least_once_then_they_complete_in_order():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.on_barrier(0, Barrier(1))
    aligner.on_barrier(0, Barrier(2))
    assert aligner.aligning == (1, 2)

    assert aligner.on_barrier(1, Barrier(1)) == [Snapshot(Barrier(1))]
    assert aligner.on_barrier(1, Barrier(2)) == [Snapshot(Barrier(2))]


def test_when_ids_are_aborted_and_passed_then_they_are_forgotten():
    aligner = BarrierAligner(2)

    for checkpoint in range(1, 100, 2):
        aligner.on_abort(checkpoint)
        aligner.on_barrier(0, Barrier(checkpoint + 1))
        aligner.on_barrier(1, Barrier(checkpoint + 1))

    assert not aligner._aborted


def test_when_a_finished_checkpoint_is_aborted_late_then_nothing_happens():
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, Barrier(1))
    aligner.on_barrier(1, Barrier(1))

    assert aligner.on_abort(1) == []
    assert not aligner._aborted


def test_when_channels_disagree_about_a_barrier_then_both_are_named():
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, Barrier(1, halt=True))

    with pytest.raises(AssertionError, match=r"halt=False.*halt=True"):
        aligner.on_barrier(1, Barrier(1, halt=False))


def test_when_a_blocked_channel_is_read_then_it_is_a_bug():
    aligner = BarrierAligner(2)
    aligner.on_barrier(0, Barrier(1))

    with pytest.raises(AssertionError, match="a blocked channel was read"):
        aligner.on_barrier(0, Barrier(2))


def test_when_a_channel_goes_back_then_it_is_a_bug():
    aligner = BarrierAligner(2, exactly_once=False)
    aligner.on_barrier(0, Barrier(2))

    with pytest.raises(AssertionError, match="must rise"):
        aligner.on_barrier(0, Barrier(2))


@pytest.mark.parametrize("channel", [-1, 2])
def test_when_there_is_no_such_channel_then_it_is_a_bug(channel):
    with pytest.raises(AssertionError, match="channel"):
        BarrierAligner(2).on_barrier(channel, Barrier(1))


def test_when_a_task_has_no_input_then_it_has_no_aligner():
    with pytest.raises(AssertionError, match="channels=0"):
        BarrierAligner(0)
