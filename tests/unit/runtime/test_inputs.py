"""The gate takes from every channel in turn, leaves blocked ones alone, and never sleeps on something to take."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.model.elements import Barrier, Batch
from flowpoint.runtime.inputs import InputGate
from flowpoint.transport.inbox import Inbox


class Gate:
    """A gate over `width` inboxes, and what was woken."""

    def __init__(self, width, filled=()):
        self.inboxes = [Inbox(lambda batches, nbytes: None) for _ in range(width)]
        for channel, value in filled:
            self.put(channel, value)
        self.wakes = 0
        self.gate = InputGate(self.inboxes, self.wake)

    def wake(self):
        self.wakes += 1

    def put(self, channel, value):
        self.inboxes[channel].put_batch(Batch([value]), 1)

    def drain(self):
        taken = []
        while (element := self.gate.take()) is not None:
            taken.append((element[0], element[1].values[0]))
        return taken


def test_what_came_before_the_gate_was_made_is_taken():
    gate = Gate(2, [(1, "a"), (1, "b")])

    assert len(gate.gate) == 2
    assert gate.drain() == [(1, "a"), (1, "b")]
    assert gate.gate.take() is None


def test_a_busy_channel_does_not_starve_the_others():
    gate = Gate(3)
    for number in range(3):
        gate.put(0, number)
    gate.put(1, "x")
    gate.put(2, "y")

    assert gate.drain() == [(0, 0), (1, "x"), (2, "y"), (0, 1), (0, 2)]


def test_a_blocked_channel_is_not_read_until_it_is_unblocked():
    gate = Gate(2)
    gate.put(0, "a")
    gate.gate.block(0)
    gate.put(0, "b")
    gate.put(1, "c")

    assert gate.drain() == [(1, "c")]

    gate.gate.unblock((0,))
    assert gate.drain() == [(0, "a"), (0, "b")]


def test_it_wakes_when_something_comes_and_not_when_a_blocked_channel_gets_it():
    gate = Gate(2)
    gate.put(0, "a")
    assert gate.wakes == 1

    gate.gate.block(1)
    gate.put(1, "b")
    assert gate.wakes == 1

    gate.gate.unblock((1,))
    assert gate.wakes == 2


def test_an_empty_channel_may_be_blocked_and_unblocked():
    gate = Gate(1)

    gate.gate.block(0)
    gate.gate.unblock((0,))

    assert gate.gate.take() is None


def test_events_keep_their_place_between_batches():
    gate = Gate(1)
    gate.put(0, 1)
    gate.inboxes[0].put_event(Barrier(1))
    gate.put(0, 2)

    taken = [gate.gate.take()[1] for _ in range(3)]

    assert taken == [Batch([1]), Barrier(1), Batch([2])]


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["put", "take", "block", "unblock"]), st.integers(0, 2)),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(actions=ACTIONS)
def test_whatever_happens_order_is_kept_nothing_is_lost_and_what_can_be_taken_is(actions):
    gate = Gate(3)
    waiting = [[], [], []]
    blocked = set()

    for number, (action, channel) in enumerate(actions):
        wakes = gate.wakes
        match action:
            case "put":
                gate.put(channel, number)
                waiting[channel].append(number)
                if len(waiting[channel]) == 1 and channel not in blocked:
                    assert gate.wakes == wakes + 1
            case "block" if channel not in blocked:
                gate.gate.block(channel)
                blocked.add(channel)
            case "unblock" if channel in blocked:
                gate.gate.unblock((channel,))
                blocked.discard(channel)
            case "take":
                taken = gate.gate.take()
                ready = [c for c in range(3) if waiting[c] and c not in blocked]
                assert (taken is None) == (not ready)
                if taken is not None:
                    assert taken[0] in ready
                    assert taken[1].values[0] == waiting[taken[0]].pop(0)
