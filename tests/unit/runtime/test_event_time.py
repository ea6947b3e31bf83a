"""Event time in running subtasks: where it comes from, how it travels, what is idle, and how it ends."""

from __future__ import annotations

import asyncio

import pytest

from flowpoint.api.functions import KeyedProcessFunction
from flowpoint.codec.placement import GroupCache
from flowpoint.errors import TransientError, UserCodeError
from flowpoint.model.elements import (
    END_OF_INPUT,
    WATERMARK_MAX,
    WATERMARK_MIN,
    Barrier,
    Batch,
    Idleness,
    Watermark,
)
from flowpoint.model.event_time import TimestampAssignment
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.operators.timestamps import TimestampAssigner
from flowpoint.runtime.parts import WatermarkPart
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import MapState
from flowpoint.state.timers import TimerService
from tests.unit.runtime.fakes import CODEC, plain
from tests.unit.runtime.harness import EndlessReader, ListReader, Processing, WallClock, run, running, source

LAST = Watermark(WATERMARK_MAX)


def assigner(late_by=0, idle_timeout=None, watermark=WATERMARK_MIN):
    """Records are their own timestamps."""
    return TimestampAssigner("t", TimestampAssignment(lambda n: n, late_by, idle_timeout), watermark)


class Windows(KeyedProcessFunction):
    """Counts per ten milliseconds, all records under one key; late ones are told."""

    counts = MapState("counts")

    def process(self, value, ctx):
        if ctx.timestamp <= ctx.watermark:
            yield ("late", value)
            return
        start = ctx.timestamp // 10 * 10
        self.counts[start] = self.counts.get(start, 0) + 1
        ctx.timers.event(start + 9)

    def on_timer(self, timestamp, ctx):
        yield (timestamp - 9, self.counts.pop(timestamp - 9))


def windows(state=None, watermark=WATERMARK_MIN, clock=lambda: 0, function=None):
    state, cell, function = state or HeapBackend(CODEC, 128), KeyCell(), function or Windows()
    bind(function, state, cell)
    keyed = KeyedParts(cell, TimerService(state, cell), GroupCache(128))
    port = Port("process", lambda value: 0, "key_by(all)")
    return Process("w", function, (port,), clock, keyed=keyed, has_event_time=True, watermark=watermark)


# ---------------------------------------------------------------- assigning timestamps


def test_the_watermark_follows_the_newest_timestamp_and_a_record_exactly_so_far_behind_is_on_time():
    times = assigner(late_by=5)

    assert times.apply(Batch([10, 3])) == Batch([10, 3], [10, 3])
    assert times.take_news() == 10 - 5 - 1
    times.apply(Batch([5]))
    assert times.take_news() is None
    assert times.watermark < 5


@pytest.mark.parametrize("stamp", [1.5, None, True, "now", 2**63, WATERMARK_MAX, -(2**63) - 1])
def test_what_is_no_timestamp_is_refused_and_the_record_named(stamp):
    times = TimestampAssigner("t", TimestampAssignment(lambda record: record["at"], 0))

    with pytest.raises(UserCodeError, match=r"operator 't' .*on record {'at': .*a timestamp is an int") as caught:
        times.apply(Batch([{"at": 1}, {"at": stamp}]))

    assert repr(stamp) in str(caught.value)


def test_a_function_that_fails_names_the_record_it_failed_on():
    times = TimestampAssigner("t", TimestampAssignment(lambda record: record["at"], 0))

    with pytest.raises(UserCodeError, match=r"'t' .*on record {'no': 1}: KeyError"):
        times.apply(Batch([{"at": 1}, {"no": 1}, {"at": 2}]))


# ---------------------------------------------------------------- how it travels


def test_a_source_gives_its_records_times_and_ends_time_before_its_input():
    async def main():
        it = source(ListReader([10, 30, 20], per_read=1), operators=[assigner(late_by=15)], timed=True)
        async with running(it):
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main())[-2:] == [LAST, END_OF_INPUT]


def test_the_least_of_all_channels_makes_timers_fire_and_their_output_comes_before_it():
    async def main():
        it = Processing(channels=2, timed=True, operators=[windows()])
        async with running(it):
            it.send(1, 3, at=[1, 3])
            it.event(Watermark(50))
            await asyncio.sleep(1)
            before = list(it.records)
            it.send(5, channel=1, at=[5])
            it.event(Watermark(9), channel=1)
            await asyncio.sleep(1)
            return before, it.outlets[0].timed

    assert run(main()) == ([], [((0, 3), 9), Watermark(9)])


def test_a_channel_without_timestamps_holds_nothing_back_and_its_records_have_none():
    async def main():
        it = Processing(channels=1, timed=True)
        async with running(it):
            it.send("rule")
            it.send("a", at=[5])
            it.event(Watermark(4))
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main()) == [("rule", None), ("a", 5), Watermark(4)]


def test_times_assigned_anew_hide_those_of_the_stream_before_except_their_end():
    async def main():
        it = Processing(timed=True, operators=[plain("map", lambda n: n + 100), assigner()])
        async with running(it):
            it.send(5, at=[5])
            it.event(Watermark(4))
            await asyncio.sleep(1)
            it.event(LAST)
            it.event(END_OF_INPUT)
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main()) == [(105, 105), Watermark(104), LAST, END_OF_INPUT]


def test_at_the_end_of_input_everything_that_waits_for_event_time_fires():
    async def main():
        it = Processing(timed=True, operators=[windows(), windows()])
        async with running(it):
            it.send(1, 12, at=[1, 12])
            it.event(LAST)
            it.event(END_OF_INPUT)
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main()) == [((0, 1), 9), ((10, 1), 19), LAST, END_OF_INPUT]


def test_many_timers_that_one_watermark_makes_fire_leave_others_their_turn():
    async def main():
        it = Processing(timed=True, operators=[windows()], slice_max=10)
        async with running(it):
            it.send(*range(0, 3000, 10), at=list(range(0, 3000, 10)))
            it.event(Watermark(5000))
            turns = 0
            while Watermark(5000) not in it.records:
                turns += 1
                await asyncio.sleep(0)
            return turns, len(it.records)

    turns, records = run(main())

    assert turns > 30
    assert records == 301


# ---------------------------------------------------------------- snapshots


def test_the_watermark_is_saved_and_a_restored_subtask_starts_there():
    async def saved():
        operator = windows()
        it = Processing(timed=True, operators=[operator], parts=[WatermarkPart(operator)])
        async with running(it):
            it.event(Watermark(25))
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it.acked(1)["w"]["watermark"]

    async def restored(watermark):
        it = Processing(timed=True, operators=[windows(watermark=watermark)])
        async with running(it):
            it.send(20, 30, at=[20, 30])
            it.event(Watermark(10))
            await asyncio.sleep(1)
            return it.outlets[0].timed

    watermark = run(saved())
    assert watermark == 25
    assert run(restored(watermark)) == [Watermark(25), (("late", 20), 20)]


def test_before_the_first_watermark_none_is_saved():
    async def main():
        operator = windows()
        it = Processing(timed=True, operators=[operator], parts=[WatermarkPart(operator)])
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it.acked(1)["w"]

    assert run(main()) == {}


# ---------------------------------------------------------------- stop, and stop with drain


def test_ac41_a_stop_without_drain_leaves_windows_open_and_a_drain_closes_them():
    async def stopped(drain):
        times, counts = assigner(), windows()
        it = source(
            EndlessReader([1, 2, 3]), operators=[times, counts], parts=[WatermarkPart(times), WatermarkPart(counts)],
            timed=True,
        )  # fmt: skip
        async with running(it):
            await asyncio.sleep(1)
            it.trigger(1, halt=True, drain=drain)
            await asyncio.sleep(1)
            return it.outlets[0].timed, it.acked(1)["w"]["watermark"]

    assert run(stopped(False)) == ([Watermark(2), Barrier(1, halt=True)], 2)
    assert run(stopped(True)) == (
        [Watermark(2), ((0, 3), 9), LAST, Barrier(1, halt=True, drain=True)],
        WATERMARK_MAX,
    )


def test_a_drain_fires_processing_time_timers_too_also_in_the_subtasks_behind():
    class Later(Windows):
        def process(self, value, ctx):
            ctx.timers.processing(2**50)

        def on_timer(self, timestamp, ctx):
            yield "fired"

    async def main():
        it = Processing(timed=True, operators=[windows(function=Later(), clock=WallClock())])
        async with running(it):
            it.send(1, at=[1])
            it.event(LAST)
            it.event(Barrier(1, halt=True, drain=True))
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == [LAST, "fired", Barrier(1, halt=True, drain=True)]


def test_what_a_drain_fires_and_its_barrier_wait_for_no_credit():
    class Later(Windows):
        def process(self, value, ctx):
            ctx.timers.processing(2**50)

        def on_timer(self, timestamp, ctx):
            outlets[0].writable = False
            yield "fired"

    outlets = []

    async def main():
        it = Processing(timed=True, operators=[windows(function=Later(), clock=WallClock())])
        outlets.extend(it.outlets)
        async with running(it):
            it.send(1, at=[1])
            it.event(LAST)
            it.event(Barrier(1, halt=True, drain=True))
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == [LAST, "fired", Barrier(1, halt=True, drain=True)]


def test_after_a_drain_that_did_not_come_about_only_a_new_attempt_goes_on():
    async def main():
        it = source(EndlessReader([1]), operators=[assigner()], timed=True)
        async with running(it):
            await asyncio.sleep(1)
            it.trigger(1, halt=True, drain=True)
            await asyncio.sleep(1)
            it.subtask.resume()
            return await it.failure()

    failure = run(main())

    assert isinstance(failure, TransientError)
    assert "'source' cannot go on: a stop with --drain has ended its event time" in str(failure)


def test_a_drain_that_was_given_up_before_it_began_changes_nothing():
    async def main():
        it = source(ListReader([1, 2], per_read=1, delay=1.0), operators=[assigner()], timed=True)
        async with running(it):
            await asyncio.sleep(0.5)
            it.trigger(1, halt=True, drain=True)
            it.subtask.abort(1)
            it.subtask.resume()
            await asyncio.sleep(10)
            return it.records

    assert run(main())[-2:] == [LAST, END_OF_INPUT]


# ---------------------------------------------------------------- idleness


def test_a_source_that_has_nothing_for_a_while_is_idle_and_active_again_with_its_next_record():
    class Pausing(EndlessReader):
        async def read(self, n):
            if self.reads == 1:
                await asyncio.sleep(5)
            return await super().read(n)

    async def main():
        it = source(Pausing([1, 2], per_read=1), operators=[assigner(idle_timeout=2.0)], timed=True)
        async with running(it):
            await asyncio.sleep(6)
            return it.outlets[0].timed

    assert run(main()) == [(1, 1), Watermark(0), Idleness(True), (2, 2), Idleness(False), Watermark(1)]


def test_ac40b_a_source_that_a_slow_consumer_holds_up_is_not_idle():
    async def main():
        it = source(ListReader(list(range(100)), per_read=1), operators=[assigner(idle_timeout=1.0)], timed=True)
        it.outlets[0].writable = False
        async with running(it):
            await asyncio.sleep(5)
            it.outlets[0].writable = True
            await asyncio.sleep(0.2)
            return it.records

    assert not any(isinstance(item, Idleness) for item in run(main()))


def test_ac40b_nor_is_one_whose_worker_stood_still():
    async def main():
        loop = asyncio.get_running_loop()
        it = source(EndlessReader([1]), operators=[assigner(idle_timeout=1.0)], timed=True)
        async with running(it):
            await asyncio.sleep(0.1)
            # The whole process does nothing for five seconds, as with a slow function of another subtask.
            loop._now += 5.0
            await asyncio.sleep(0.01)
            stood_still = list(it.records)
            await asyncio.sleep(1)
            return stood_still, it.records

    stood_still, after = run(main())

    assert Idleness(True) not in stood_still
    assert Idleness(True) in after


def test_idle_inputs_make_an_idle_output_and_do_not_hold_the_others_back():
    async def main():
        it = Processing(channels=2, timed=True)
        async with running(it):
            it.event(Watermark(5), channel=0)
            it.event(Watermark(4), channel=1)
            await asyncio.sleep(1)
            it.event(Idleness(True), channel=1)
            await asyncio.sleep(1)
            it.event(Idleness(True), channel=0)
            await asyncio.sleep(1)
            it.send("a", channel=1, at=[9])
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main()) == [Watermark(4), Watermark(5), Idleness(True), Idleness(False), ("a", 9)]


def test_ac40e_idle_inputs_do_not_keep_windows_from_closing_at_a_drain():
    async def main():
        it = Processing(timed=True, operators=[windows()])
        async with running(it):
            it.send(1, at=[1])
            it.event(Idleness(True))
            await asyncio.sleep(1)
            it.event(LAST)
            it.event(Barrier(1, halt=True, drain=True))
            await asyncio.sleep(1)
            return it.outlets[0].timed

    assert run(main())[-3:] == [((0, 1), 9), LAST, Barrier(1, halt=True, drain=True)]
