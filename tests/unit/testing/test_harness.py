"""The harness runs one function as a job does: the same state, timers, times, side outputs and errors."""

from __future__ import annotations

import doctest
from dataclasses import dataclass

import pytest

import flowpoint.testing.harness
from flowpoint import (
    BroadcastState,
    CoProcessFunction,
    KeyedProcessFunction,
    ListState,
    MapState,
    ProcessFunction,
    ReducingState,
    ValueState,
)
from flowpoint.errors import BadRecordError, PlanError, UsageError, UserCodeError
from flowpoint.testing import ConnectedHarness, KeyedHarness, PendingTimer, PlainHarness

END = 2**63 - 1


@dataclass
class Point:
    x: int


class Everything(KeyedProcessFunction):
    count = ValueState("n", int, default=0)
    seen = ListState("seen")
    by_value = MapState("by_value")
    longest = ReducingState("longest", max)

    def __init__(self, limit=2):
        self.limit = limit
        self.opened = self.closed = 0

    def open(self, ctx):
        self.opened += 1

    def process(self, value, ctx):
        self.count.value += 1
        self.seen.append(value)
        self.by_value[value] = ctx.timestamp
        self.longest.add(len(value))
        if ctx.timestamp <= ctx.watermark:
            ctx.output("late", value)
        if self.count.value > self.limit:
            yield ctx.key, self.count.value

    def close(self):
        self.closed += 1


class Alarm(KeyedProcessFunction):
    last = ValueState("last")

    def process(self, value, ctx):
        self.last.value = value
        ctx.timers.event(value + 10)
        ctx.timers.processing(ctx.timers.now() + 100)

    def on_timer(self, timestamp, ctx):
        yield timestamp, self.last.value, ctx.timers.now(), ctx.watermark


def test_the_example_in_its_documentation_is_true():
    assert doctest.testmod(flowpoint.testing.harness).failed == 0


def test_records_reach_the_function_and_what_it_emits_and_keeps_can_be_seen():
    with KeyedHarness(Everything(), key=lambda v: v[0]) as h:
        assert h.process("a1", at=5) == []
        h.process("a22", at=7)
        h.process("b1", at=6)
        assert h.process("a3", at=8) == [("a", 3)]

        assert h.outputs == [("a", 3)]
        assert h.timestamped_outputs == [(("a", 3), 8)]
        assert [h.state("n").get(key) for key in "abc"] == [3, 1, 0]
        assert h.state("seen").get("a") == ["a1", "a22", "a3"]
        assert h.state("by_value").get("a") == {"a1": 5, "a22": 7, "a3": 8}
        assert h.state("longest").get("a") == 3
        assert h.state("longest").get("c") is None


def test_late_records_and_side_outputs_are_as_in_a_job():
    with KeyedHarness(Everything(), key=str) as h:
        h.advance_watermark(10)
        h.process("on time", at=11)
        h.process("late", at=10)
        h.process("at the same time as the one before")

        assert h.side_outputs == {"late": ["late", "at the same time as the one before"]}
        assert h.watermark == 10


def test_timers_of_event_time_fire_when_the_watermark_reaches_them():
    with KeyedHarness(Alarm(), key=lambda v: v % 2, now=1000) as h:
        for value in (3, 1, 2):
            h.process(value, at=value)

        assert h.timers[:2] == [PendingTimer(1, "event", 11), PendingTimer(0, "event", 12)]
        assert h.advance_watermark(11) == [(11, 1, 1000, 11)]
        assert h.advance_watermark(20) == [(12, 2, 1000, 20), (13, 1, 1000, 20)]
        assert h.timestamped_outputs[0][1] == 11


def test_timers_of_processing_time_fire_each_at_its_time_on_the_way():
    class Twice(Alarm):
        def on_timer(self, timestamp, ctx):
            yield timestamp, ctx.timers.now()
            if timestamp < 1200:
                ctx.timers.processing(timestamp + 100)

    with KeyedHarness(Twice(), key=str, now=1000) as h:
        h.process(1)

        assert h.advance_processing_time(1099) == []
        assert h.advance_processing_time(5000) == [(1100, 1100), (1200, 1200)]
        assert h.now == 5000


def test_a_timer_that_sets_itself_for_now_is_told_and_does_not_hang(monkeypatch):
    class Endless(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.timers.processing(ctx.timers.now())

    monkeypatch.setattr(flowpoint.testing.harness, "_ROUNDS_MAX", 10)
    with KeyedHarness(Endless(), key=str) as h:
        h.process(1)

        with pytest.raises(UsageError, match="does on_timer set one for a time that has come already"):
            h.advance_processing_time(5000)


def test_the_end_of_input_fires_all_timers():
    with KeyedHarness(Alarm(), key=str) as h:
        h.process(1)

        assert h.end_of_input() == [(11, 1, 0, END), (100, 1, 0, END)]
        assert h.timers == []


def test_a_restored_function_goes_on_where_the_snapshot_was_taken_and_keeps_nothing_else():
    with KeyedHarness(Alarm(), key=str, now=50) as h:
        h.process(7, at=7)
        h.advance_watermark(3)
        h.function.cache = "lost"
        snapshot = h.snapshot()
        h.process(8, at=8)

    with KeyedHarness(Alarm(), key=str, restore=snapshot) as again:
        assert (again.now, again.watermark) == (50, 3)
        assert again.state("last").get("7") == 7
        assert again.state("last").get("8") is None
        assert not hasattr(again.function, "cache")
        assert again.advance_watermark(17) == [(17, 7, 50, 17)]
        assert again.timers == [PendingTimer("7", "processing", 150)]


def test_classes_of_records_in_state_survive_a_snapshot_when_they_are_declared():
    class Keeps(KeyedProcessFunction):
        points = ValueState("points")

        def process(self, value, ctx):
            self.points.value = value

    with KeyedHarness(Keeps(), key=lambda p: p.x, types=[Point]) as h:
        h.process(Point(1))
        snapshot = h.snapshot()
    with KeyedHarness(Keeps(), key=lambda p: p.x, types=[Point], restore=snapshot) as h:
        assert h.state("points").get(1) == Point(1)

    with KeyedHarness(Keeps(), key=lambda p: p.x) as h:
        h.process(Point(1))
        with pytest.raises(BadRecordError, match="Point"):
            h.snapshot()


def test_the_function_that_was_passed_is_not_touched():
    function = Everything(limit=0)
    with KeyedHarness(function, key=str) as h:
        h.process("a")
        ran = h.function

    assert (ran.opened, ran.closed) == (1, 1)
    assert (function.opened, function.closed) == (0, 0)


def test_what_lies_in_state_cannot_be_changed_by_a_test_that_looks_at_it():
    with KeyedHarness(Everything(), key=str) as h:
        h.process("a")
        h.state("seen").get("a").append("b")

        assert h.state("seen").get("a") == ["a"]


def test_errors_are_those_of_a_job():
    class Fails(KeyedProcessFunction):
        n = ValueState("n")

        def process(self, value, ctx):
            self.n.value += 1

    with KeyedHarness(Fails(), key=lambda v: v) as h:
        with pytest.raises(
            UserCodeError, match=r"operator 'Fails' \(process\) failed on record 'a': TypeError.*default="
        ):
            h.process("a")
        with pytest.raises(BadRecordError, match="the key is not hashable"):
            h.process(["a"])


def test_a_name_that_there_is_not_is_answered_with_the_one_that_was_meant():
    class Slips(KeyedProcessFunction):
        def process(self, value, ctx):
            ctx.timers.evnt(5)

    with KeyedHarness(Slips(), key=str) as h, pytest.raises(UserCodeError, match="'evnt'; did you mean 'event'"):
        h.process(1)


@pytest.mark.parametrize("function", [Everything, str.upper])
def test_what_a_job_could_not_have_as_a_function_is_refused(function):
    with pytest.raises(PlanError):
        KeyedHarness(function, key=str)


def test_a_stream_without_timestamps_has_no_event_time():
    with KeyedHarness(Alarm(), key=str, event_time=False) as h:
        with pytest.raises(UserCodeError, match="an event-time timer was set in a stream without timestamps"):
            h.process(1)
        with pytest.raises(UsageError, match="event_time=False"):
            h.process(1, at=5)
        with pytest.raises(UsageError, match="event_time=False"):
            h.advance_watermark(5)


def test_wrong_use_says_what_is_right():
    h = KeyedHarness(Everything(), key=str)
    with pytest.raises(UsageError, match="write `with KeyedHarness"):
        h.process("a")
    with h:
        with pytest.raises(UsageError, match="declares no state 'm'; it declares: 'n', 'seen'"):
            h.state("m")
        h.advance_processing_time(5)
        with pytest.raises(UsageError, match="cannot set the clock back to 4"):
            h.advance_processing_time(4)


class Split(ProcessFunction):
    def process(self, value, ctx):
        if value < 0:
            ctx.output("negative", (value, ctx.timestamp))
        else:
            yield value, ctx.timestamp


@pytest.mark.parametrize(("event_time", "stamp"), [(True, 0), (False, None)])
def test_a_function_without_keys(event_time, stamp):
    with PlainHarness(Split(), event_time=event_time) as h:
        h.process(1)
        h.process(-1)

        assert h.outputs == [(1, stamp)]
        assert h.side_outputs == {"negative": [(-1, stamp)]}


class Join(CoProcessFunction):
    left = ValueState("left")

    def process1(self, value, ctx):
        self.left.value = value
        ctx.timers.event(5)

    def process2(self, value, ctx):
        yield ctx.key, self.left.value, value

    def on_timer(self, timestamp, ctx):
        yield "over", ctx.key


def test_two_keyed_inputs_share_state_and_timers():
    with ConnectedHarness(Join(), key1=lambda v: v[0], key2=lambda v: v[-1]) as h:
        h.process1("ax")

        assert h.process2("ya") == [("a", "ax", "ya")]
        assert h.process2("yb") == [("b", None, "yb")]
        assert h.advance_watermark(5) == [("over", "a")]
        assert h.state("left").get("a") == "ax"


class Rules(CoProcessFunction):
    rules = BroadcastState("rules")

    def process1(self, value, ctx):
        yield value, self.rules.get(value)

    def process2(self, value, ctx):
        self.rules[value[0]] = value[1]


def test_broadcast_state_is_changed_by_its_side_only_and_is_in_snapshots():
    with ConnectedHarness(Rules(), broadcast=2) as h:
        h.process2(("a", 1))
        snapshot = h.snapshot()
        assert h.process1("a") == [("a", 1)]
    with ConnectedHarness(Rules(), broadcast=2, restore=snapshot) as h:
        assert h.broadcast_state("rules") == {"a": 1}

    with pytest.raises(PlanError, match="neither input is a broadcast stream"):
        ConnectedHarness(Rules())
    with pytest.raises(UsageError, match="broadcast=3 is no input"):
        ConnectedHarness(Rules(), broadcast=3)


def test_what_was_emitted_before_an_error_is_kept():
    class Fails(KeyedProcessFunction):
        def process(self, value, ctx):
            ctx.output("tried", value)
            if value == "bad":
                raise ValueError("no")
            yield value

    with KeyedHarness(Fails(), key=str) as h:
        h.process("good")
        with pytest.raises(UserCodeError, match="ValueError: no"):
            h.process("bad")

        assert h.outputs == ["good"]
        assert h.side_outputs == {"tried": ["good", "bad"]}
