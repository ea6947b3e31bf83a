"""`protocol.watermarks`: the watermark of several channels is the least that still counts, and never falls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowpoint.model.elements import WATERMARK_MAX, WATERMARK_MIN
from flowpoint.protocol.watermarks import InputWatermarks

TIMED = [True, True]


def test_the_watermark_is_the_least_of_all_channels():
    inputs = InputWatermarks(TIMED)

    assert [inputs.on_watermark(0, 10), inputs.on_watermark(1, 4), inputs.on_watermark(1, 12)] == [None, 4, 10]


def test_a_channel_that_has_said_nothing_holds_it_back():
    inputs = InputWatermarks([True, True, True])
    inputs.on_watermark(0, 10)
    inputs.on_watermark(1, 10)

    assert inputs.watermark == WATERMARK_MIN
    assert inputs.on_watermark(2, 3) == 3


def test_ac40a_two_channels_that_go_idle_in_either_order_leave_the_greater_watermark():
    for first, second in ((0, 1), (1, 0)):
        inputs = InputWatermarks(TIMED)
        inputs.on_watermark(0, 5)
        inputs.on_watermark(1, 4)

        inputs.on_idle(first)
        inputs.on_idle(second)

        assert (inputs.watermark, inputs.is_idle) == (5, True)


def test_an_idle_channel_does_not_hold_the_others_back():
    inputs = InputWatermarks(TIMED)
    inputs.on_watermark(0, 7)

    assert inputs.on_idle(1) == 7
    assert inputs.on_watermark(0, 9) == 9
    assert not inputs.is_idle


def test_a_channel_that_comes_back_behind_holds_the_watermark_where_it_is():
    inputs = InputWatermarks(TIMED)
    inputs.on_idle(1)
    inputs.on_watermark(0, 9)

    inputs.on_active(1)

    assert [inputs.on_watermark(0, 20), inputs.on_watermark(1, 5), inputs.on_watermark(1, 15)] == [None, None, 15]


def test_a_channel_without_timestamps_holds_nothing_back():
    inputs = InputWatermarks([True, False])
    inputs.on_active(1)

    assert inputs.on_watermark(0, 5) == 5
    assert inputs.on_idle(0) is None
    assert inputs.is_idle


def test_without_any_timestamps_there_is_no_event_time_and_no_idleness():
    inputs = InputWatermarks([False, False])
    inputs.on_active(0)

    assert (inputs.watermark, inputs.is_idle) == (WATERMARK_MIN, False)


def test_a_channel_that_ended_does_not_hold_the_others_back():
    inputs = InputWatermarks(TIMED)
    inputs.on_watermark(0, WATERMARK_MAX)

    assert inputs.on_watermark(1, 3) == 3
    assert inputs.on_watermark(1, WATERMARK_MAX) == WATERMARK_MAX


def test_after_a_restore_it_starts_where_it_was_saved():
    inputs = InputWatermarks(TIMED, start=100)

    assert inputs.watermark == 100
    assert [inputs.on_watermark(0, 50), inputs.on_watermark(1, 70), inputs.on_watermark(0, 130)] == [None, None, None]
    assert inputs.on_watermark(1, 120) == 120


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["watermark", "idle", "active"]), st.integers(0, 20)), max_size=30
)


@given(EVENTS)
def test_for_any_events_it_is_the_least_of_those_that_are_not_idle_or_stays(events):
    inputs = InputWatermarks([True, True, True])
    said, idle, before = [WATERMARK_MIN] * 3, set(), WATERMARK_MIN

    for channel, kind, timestamp in events:
        if kind == "watermark":
            said[channel] = max(said[channel], timestamp)
            idle.discard(channel)
            risen = inputs.on_watermark(channel, timestamp)
        elif kind == "idle":
            idle.add(channel)
            risen = inputs.on_idle(channel)
        else:
            idle.discard(channel)
            inputs.on_active(channel)
            continue
        busy = [said[c] for c in range(3) if c not in idle]
        now = max(before, min(busy) if busy else max(said))
        assert risen == (now if now > before else None)
        assert inputs.watermark == now
        before = now
