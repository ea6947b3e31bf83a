"""A process function sees one key at a time, its state and timers; what it gets wrong is said clearly."""

from __future__ import annotations

import asyncio

import pytest

from flowpoint.api.functions import KeyedProcessFunction
from flowpoint.codec.placement import GroupCache
from flowpoint.errors import BadRecordError, StorageError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, Barrier, Batch
from flowpoint.model.settings import StateSettings
from flowpoint.runtime.chain import HashEmit
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.pipeline import Pipeline
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import NO_KEY, KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import ListState, ValueState
from flowpoint.state.timers import TimerService
from tests.unit.runtime.fakes import CODEC, keyed, plain
from tests.unit.runtime.harness import EndlessReader, ListReader, Processing, WallClock, run, running, source


def backend():
    return HeapBackend(CODEC, 128, StateSettings(backend="heap"), "/nowhere", "p")


def process(function, key=lambda value: value, clock=lambda: 0, state=None, uid="p", **more):
    """The operator around a function."""
    state = state or backend()
    cell = KeyCell()
    bind(function, state, cell)
    timers = TimerService(state, cell)
    keyed = KeyedParts(cell, timers, GroupCache(128))
    operator = Process(uid, function, (Port("process", key, f"key_by({uid})"),), clock, keyed=keyed, **more)
    operator.cell = cell
    return operator


def from_function(fn):
    """A process function that is just this."""

    class Function(KeyedProcessFunction):
        def process(self, value, ctx):
            return fn(value, ctx)

    return Function()


class Counting(KeyedProcessFunction):
    seen = ValueState("seen", default=0)

    def process(self, value, ctx):
        self.seen.value += 1
        yield (ctx.key, self.seen.value, ctx.timestamp)


# ---------------------------------------------------------------- results


def test_state_and_context_belong_to_the_key_of_the_record():
    operator = process(Counting(), key=str.lower)

    assert operator.apply(Batch(["a", "B", "A"])).values == [("a", 1, None), ("b", 1, None), ("a", 2, None)]
    assert operator.cell.key is NO_KEY


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda value, ctx: None, []),
        (lambda value, ctx: [value, value], [1, 1, 2, 2]),
        (lambda value, ctx: (value,), [1, 2]),
        (lambda value, ctx: (n for n in range(value)), [0, 0, 1]),
        (lambda value, ctx: iter([]), []),
        (lambda value, ctx: {value}, [1, 2]),
    ],
    ids=["None", "list", "tuple", "generator", "iterator", "set"],
)
def test_a_function_may_return_none_or_any_iterable(fn, expected):
    assert process(from_function(fn)).apply(Batch([1, 2])).values == expected


@pytest.mark.parametrize("result", ["text", b"bytes", {"a": 1}])
def test_one_record_where_an_iterable_belongs_is_not_taken_apart(result):
    with pytest.raises(
        UserCodeError, match="'p' \\(process\\) failed on record 5: .*; yield it, or return \\[it\\]"
    ) as caught:
        process(from_function(lambda value, ctx: result)).apply(Batch([5]))

    assert caught.value.operator == "p"


def test_a_result_that_is_no_iterable_is_said_to_be_none():
    with pytest.raises(
        UserCodeError, match=r"on record 5: its function returned 7 \(int\): it must return an iterable"
    ):
        process(from_function(lambda value, ctx: 7)).apply(Batch([5]))


# ---------------------------------------------------------------- errors


def one_over(value, ctx=None):
    return [1 / value]


def late(value, ctx):
    yield value
    yield 1 / value


@pytest.mark.parametrize(
    ("fn", "key", "kind", "words"),
    [
        (one_over, str, UserCodeError, ["'p' (process) failed on record 0", "ZeroDivisionError"]),
        (late, str, UserCodeError, ["'p' (process) failed on record 0", "ZeroDivisionError"]),
        (one_over, lambda v: 1 / v, UserCodeError, ["key_by(p) failed on record 0"]),
        (one_over, lambda v: [v], BadRecordError, ["'p': key_by(p) failed on record 0: the key is not hashable"]),
        (one_over, lambda v: float("nan"), BadRecordError, ["failed on record 0: cannot use NaN"]),
        (one_over, lambda v: object(), BadRecordError, ["failed on record 0: cannot use <object object> as a key"]),
    ],
)
def test_an_error_says_whether_function_or_key_failed_and_on_which_record(fn, key, kind, words):
    operator = process(from_function(fn), key=key)

    with pytest.raises(kind) as caught:
        operator.apply(Batch([0]))

    assert caught.value.operator == "p"
    assert [word for word in words if word not in str(caught.value)] == []
    assert operator.cell.key is NO_KEY


def test_an_error_of_ours_keeps_its_class():
    def refuse(value, ctx):
        raise StorageError("a lookup table is gone")

    with pytest.raises(StorageError, match="'p' \\(process\\) failed on record 1: a lookup table is gone"):
        process(from_function(refuse)).apply(Batch([1]))


def test_a_function_that_ends_its_process_is_the_users_error():
    def leave(value, ctx):
        raise SystemExit(1)

    with pytest.raises(UserCodeError, match="SystemExit: 1; a function must not end or cancel"):
        process(from_function(leave)).apply(Batch([1]))


# ---------------------------------------------------------------- open and close


class Opened(KeyedProcessFunction):
    def __init__(self):
        self.calls = []

    def open(self, ctx):
        self.calls.append(("open", ctx.uid, ctx.subtask, ctx.parallelism))

    def process(self, value, ctx):
        self.calls.append("process")

    def close(self):
        self.calls.append("close")


def test_open_comes_before_the_records_and_close_once_at_the_end():
    function = Opened()
    operator = process(function)

    operator.open(2, 5)
    operator.apply(Batch([1]))
    operator.close()
    operator.close()

    assert function.calls == [("open", "p", 2, 5), "process", "close"]


def test_what_was_not_opened_is_not_closed():
    function = Opened()

    process(function).close()

    assert function.calls == []


def test_a_failing_open_names_the_operator_and_is_not_closed():
    class Failing(Opened):
        def open(self, ctx):
            raise ValueError("no model file")

    function = Failing()
    operator = process(function)

    with pytest.raises(UserCodeError, match="operator 'p': open\\(\\) failed: ValueError: no model file"):
        operator.open(0, 1)
    operator.close()

    assert function.calls == []


def test_state_cannot_be_used_in_open():
    class TooEarly(Counting):
        def open(self, ctx):
            self.seen.value = 1

    with pytest.raises(UserCodeError, match="outside a keyed call"):
        process(TooEarly()).open(0, 1)


def test_a_subtask_closes_its_functions_when_it_ends():
    function = Opened()

    async def main():
        operator = process(function)
        operator.open(0, 1)
        it = Processing(operators=[operator])
        async with running(it):
            it.send(1)
            await asyncio.sleep(1)

    run(main())

    assert function.calls == [("open", "p", 0, 1), "process", "close"]


# ---------------------------------------------------------------- timers


class Alarm(KeyedProcessFunction):
    """(key, at): sets a timer at `at`; emits (key, at) when it fires."""

    count = ValueState("count", default=0)

    def process(self, value, ctx):
        ctx.timers.processing(value[1])

    def on_timer(self, timestamp, ctx):
        self.count.value += 1
        yield (ctx.key, timestamp, self.count.value, ctx.timestamp)


def first(value):
    return value[0]


def alarms(clock, function=None, **more):
    return process(function or Alarm(), key=first, clock=clock, **more)


def test_timers_fire_when_they_are_due_in_their_order_each_for_its_own_key():
    async def main():
        clock = WallClock()
        now = clock()
        it = Processing(operators=[alarms(clock)], clock=clock)
        async with running(it):
            it.send(("b", now + 200), ("a", now + 300), ("a", now + 100), ("b", now + 200))
            await asyncio.sleep(0.25)
            early = list(it.records)
            await asyncio.sleep(1)
            return [(key, at - now, count, seen - now) for key, at, count, seen in it.records], len(early)

    assert run(main()) == ([("a", 100, 1, 100), ("b", 200, 1, 200), ("a", 300, 2, 300)], 2)


def test_ac14_a_timer_that_was_due_while_the_job_was_down_fires_at_once():
    async def main():
        clock = WallClock()
        now = clock()
        state = backend()
        alarms(clock, state=state).apply(Batch([("a", now - 5000)]))
        it = Processing(operators=[alarms(clock, state=state)], clock=clock)
        async with running(it):
            await asyncio.sleep(0.02)
            return it.records

    records = run(main())

    assert [record[0] for record in records] == ["a"]


def test_ac14_also_in_the_task_of_a_source_that_has_nothing_to_read():
    async def main():
        clock = WallClock()
        now = clock()
        state = backend()
        alarms(clock, state=state).apply(Batch([("a", now - 5000), ("b", now + 500)]))
        it = source(EndlessReader([]), operators=[alarms(clock, state=state)], clock=clock)
        async with running(it):
            await asyncio.sleep(0.1)
            first_ones = [record[0] for record in it.records]
            await asyncio.sleep(1)
            return first_ones, [record[0] for record in it.records]

    assert run(main()) == (["a"], ["a", "b"])


def test_no_timer_fires_behind_a_halting_barrier():
    async def main():
        clock = WallClock()
        now = clock()
        it = source(EndlessReader([("a", now + 500)]), operators=[alarms(clock)], clock=clock)
        async with running(it):
            await asyncio.sleep(0.1)
            it.trigger(1, halt=True)
            await asyncio.sleep(5)
            halted = list(it.records)
            it.subtask.resume()
            await asyncio.sleep(0.1)
            return halted, [record[0] for record in it.records[1:]]

    assert run(main()) == ([Barrier(1, halt=True)], ["a"])


def test_many_overdue_timers_fire_a_slice_at_a_time_and_a_barrier_comes_between():
    async def main():
        clock = WallClock()
        now = clock()
        state = backend()
        alarms(clock, state=state).apply(Batch([(n, now - 1) for n in range(1000)]))
        it = Processing(operators=[alarms(clock, state=state)], clock=clock)
        it.event(Barrier(1))
        async with running(it):
            await asyncio.sleep(1)
            return it.records

    records = run(main())

    assert len(records) == 1001
    assert 0 < records.index(Barrier(1)) < 1000


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
def test_a_wall_clock_that_jumps_is_noticed_within_a_second(jump):
    async def main():
        clock = WallClock()
        now = clock()
        it = Processing(operators=[alarms(clock)], clock=clock)
        async with running(it):
            it.send(("a", now + 1_800_000))
            await asyncio.sleep(1)
            clock.jumped += jump
            await asyncio.sleep(1.1)
            fired = len(it.records)
            await asyncio.sleep(5400 + 1)
            return fired, len(it.records)

    assert run(main()) == ((1, 1) if jump > 0 else (0, 1))


def test_a_timer_that_sets_itself_again_in_the_past_starves_nobody():
    class Restless(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.timers.processing(timestamp)
            yield from super().on_timer(timestamp, ctx)

    async def main():
        clock = WallClock()
        it = Processing(operators=[alarms(clock, Restless())], clock=clock)
        async with running(it):
            it.send(("a", 0))
            await asyncio.sleep(0.005)
            it.event(Barrier(1))
            await asyncio.sleep(0.005)
            return Barrier(1) in it.records

    assert run(main())


def test_at_the_end_of_input_pending_timers_fire_and_those_set_meanwhile_are_dropped():
    class Again(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.timers.processing(timestamp + 1000)
            yield from super().on_timer(timestamp, ctx)

    async def main():
        clock = WallClock()
        operator = alarms(clock, Again())
        far = clock() + 10**9
        it = Processing(operators=[operator], clock=clock)
        async with running(it):
            it.send(("b", far + 1), ("a", far))
            it.event(END_OF_INPUT)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it, far, operator

    it, far, operator = run(main())

    assert it.records == [("a", far, 1, far), ("b", far + 1, 1, far + 1), END_OF_INPUT, Barrier(1)]
    assert it.reported(messages.Ended) == [messages.Ended(3, [1, 0])]
    assert operator.next_timer_ms() is None
    assert ["2 timers were set at the end of input" in line for line in it.logs] == [True]


def test_at_the_end_of_input_a_timer_may_still_take_another_one_back():
    class Session(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.timers.delete_processing(timestamp + 1)
            yield timestamp

    operator = alarms(lambda: 0, Session())
    operator.apply(Batch([("a", 10), ("a", 11), ("b", 11)]))

    assert [item for batch in operator.fire_last(1) for item in batch.values] == [10, 11]
    assert operator.timers_dropped == 0


def test_at_the_end_of_input_what_a_timer_emits_still_reaches_the_timers_of_the_operators_behind_it():
    async def main():
        clock = WallClock()
        far = clock() + 10**9
        chain = [alarms(clock, uid="first"), alarms(clock, uid="second")]
        it = source(ListReader([("a", far)]), operators=chain, clock=clock)
        async with running(it):
            await asyncio.sleep(1)
            return it.records, far

    records, far = run(main())

    assert records == [("a", far, 1, far), END_OF_INPUT]


def test_an_error_in_on_timer_names_key_and_time():
    class Failing(Alarm):
        def on_timer(self, timestamp, ctx):
            raise ValueError("no")

    operator = alarms(lambda: 10, Failing())
    operator.apply(Batch([("a", 5)]))

    with pytest.raises(UserCodeError, match="'p' \\(process\\) failed in on_timer for key 'a' at 5: ValueError: no"):
        operator.fire_due(10, 100)


@pytest.mark.parametrize(("result", "words"), [("text", "would be taken apart"), (5, "must return an iterable")])
def test_on_timer_returns_as_process_does(result, words):
    class Odd(Alarm):
        def on_timer(self, timestamp, ctx):
            return result

    operator = alarms(lambda: 10, Odd())
    operator.apply(Batch([("a", 5)]))

    with pytest.raises(UserCodeError, match=words):
        operator.fire_due(10, 100)


# ---------------------------------------------------------------- in a pipeline


class Listing(KeyedProcessFunction):
    items = ListState("items")

    def process(self, value, ctx):
        self.items.append(value)
        return [len(self.items)]


def test_a_process_between_two_loops_gets_what_the_first_made_and_feeds_the_second():
    operators = [plain("map", lambda v: v * 10), process(Listing(), key=lambda v: 1), plain("map", str), keyed("count")]
    pipeline = Pipeline(operators, None)

    assert pipeline.run(Batch([1, 2, 3])) == Batch([("1", 1), ("2", 1), ("3", 1)])
    assert pipeline.run(Batch([])) == Batch([])
    pipeline.close()


def test_what_a_timer_emits_enters_the_chain_behind_its_operator():
    before = []
    operators = [plain("map", lambda v: before.append(v) or v), alarms(lambda: 10), plain("map", first)]
    pipeline = Pipeline(operators, None)
    pipeline.run(Batch([("a", 5)]))

    assert before == [("a", 5)]
    assert list(pipeline.fire_due(10, 100)) == [Batch(["a"])]
    assert pipeline.next_timer_ms() is None
    pipeline.close()


def test_a_chain_that_deals_out_deals_out_what_timers_emit_too():
    emit = HashEmit("next", first, "", {"a": 0}, lambda key: 0, [[]])
    pipeline = Pipeline([alarms(lambda: 10)], emit)
    pipeline.run(Batch([("a", 5)]))

    assert list(pipeline.fire_due(10, 100)) == [None]
    assert [record[0] for record in emit.buffers[0]] == ["a"]
    pipeline.close()


def test_a_chain_with_more_flat_maps_than_a_loop_may_have_is_cut():
    pipeline = Pipeline([plain("flat_map", lambda v: [v]) for _ in range(50)], None)

    assert pipeline.run(Batch([1, 2])) == Batch([1, 2])
    pipeline.close()


def test_nothing_at_all_hands_the_batch_through():
    pipeline = Pipeline([], None)
    batch = Batch([1])

    assert pipeline.run(batch) is batch
    pipeline.close()


def test_an_error_in_any_stage_is_explained():
    pipeline = Pipeline([process(Listing(), key=lambda v: 1), plain("map", lambda v: 1 / 0, "m")], None)

    with pytest.raises(UserCodeError, match="'m' \\(map\\) failed on record 1") as caught:
        pipeline.run(Batch([5]))

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    pipeline.close()


# ---------------------------------------------------------------- slips of the pen


class Tagging(KeyedProcessFunction):
    def process(self, value, ctx):
        ctx.output("bad", value)


def test_a_value_for_a_side_output_that_nobody_takes_is_told_once_where_another_is_taken():
    told = []
    operator = process(Tagging(), side_tags=["bda"], warn=told.append)

    operator.apply(Batch([1, 2]))

    (text,) = told
    assert "operator 'p'" in text
    assert "'bad'" in text
    assert "taken: 'bda'" in text


def test_side_outputs_that_nobody_takes_at_all_are_no_slip():
    told = []
    process(Tagging(), warn=told.append).apply(Batch([1]))

    assert told == []


class SetsTimer(KeyedProcessFunction):
    def process(self, value, ctx):
        ctx.timers.event(ctx.timestamp + 10)


def test_who_calculates_with_a_timestamp_that_is_not_there_is_told_to_assign_some():
    with pytest.raises(UserCodeError, match=r"TypeError: .*; ctx.timestamp is None .*assign_timestamps"):
        process(SetsTimer()).apply(Batch([1]))
