"""Process functions with event-time timers, two inputs, broadcast state, side outputs, and without keys."""

from __future__ import annotations

import pytest

from flowpoint.api.functions import CoProcessFunction, KeyedProcessFunction, ProcessFunction
from flowpoint.codec.placement import GroupCache
from flowpoint.errors import UserCodeError
from flowpoint.model.elements import WATERMARK_MAX, WATERMARK_MIN, Batch
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.pipeline import Pipeline
from flowpoint.state.broadcast import BroadcastAccess, BroadcastState, bind_broadcast
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import ListState, ReducingState, ValueState
from flowpoint.state.timers import TimerService
from tests.unit.runtime.fakes import CODEC, plain


def backend():
    return HeapBackend(CODEC, 128)


def first(value):
    return value[0]


def keyed_parts(function, state):
    cell = KeyCell()
    bind(function, state, cell)
    return KeyedParts(cell, TimerService(state, cell), GroupCache(128))


def process(function, key=first, state=None, has_event_time=True, **more):
    """A keyed function's operator."""
    return Process(
        "p",
        function,
        (Port("process", key, "key_by(p)"),),
        lambda: 0,
        keyed=keyed_parts(function, state or backend()),
        has_event_time=has_event_time,
        **more,
    )


def connected(function, keys=(first, first), broadcast=None, **more):
    """The operator of a function with two inputs; `broadcast` says which one is."""
    keyed = keyed_parts(function, backend()) if any(keys) else None
    access = None
    if broadcast is not None:
        access = BroadcastAccess(keyed.cell.sharing if keyed is not None else None)
        bind_broadcast(function, backend(), access)
    ports = tuple(Port(f"process{i + 1}", keys[i], f"key_by({i})", is_broadcast=broadcast == i) for i in (0, 1))
    return Process("p", function, ports, lambda: 0, keyed=keyed, access=access, **more)


def pairs(batches):
    """(value, timestamp) of everything in some batches."""
    return [
        pair for batch in batches if batch for pair in zip(batch.values, batch.timestamps or [], strict=bool(batch))
    ]


def advance(operator, watermark, limit=100):
    return pairs(operator.advance(watermark, limit))


# ---------------------------------------------------------------- event-time timers


class Alarm(KeyedProcessFunction):
    """Sets a timer at the time in each record; a timer tells its key, its time, and the watermark."""

    def process(self, value, ctx):
        ctx.timers.event(value[1])

    def on_timer(self, timestamp, ctx):
        yield (ctx.key, timestamp, ctx.timestamp, ctx.watermark)


def test_event_time_timers_fire_when_the_watermark_reaches_them_in_the_order_of_their_times():
    operator = process(Alarm())
    operator.apply(Batch([("a", 30), ("b", 10), ("a", 20), ("b", 10)], [1, 2, 3, 4]))

    assert advance(operator, 9) == []
    assert advance(operator, 20) == [(("b", 10, 10, 20), 10), (("a", 20, 20, 20), 20)]
    assert advance(operator, 20) == []
    assert advance(operator, 30) == [(("a", 30, 30, 30), 30)]


def test_a_timer_may_be_taken_back():
    class TakesBack(Alarm):
        def process(self, value, ctx):
            ctx.timers.event(value[1])
            ctx.timers.delete_event(value[1] - 1)

    operator = process(TakesBack())
    operator.apply(Batch([("a", 10), ("b", 11), ("a", 11)], [0, 0, 0]))

    assert [value[:2] for value, _ in advance(operator, 100)] == [("a", 11), ("b", 11)]


def test_ac39_timers_set_in_a_timer_up_to_the_watermark_fire_in_the_same_step_and_later_ones_do_not():
    class Chained(Alarm):
        def on_timer(self, timestamp, ctx):
            yield timestamp
            ctx.timers.event(timestamp + 5)

    operator = process(Chained())
    operator.apply(Batch([("k", 20)], [10]))

    assert advance(operator, 31, limit=1) == [(20, 20), (25, 25), (30, 30)]
    assert advance(operator, 35) == [(35, 35)]


def test_ac39_what_a_timer_emits_meets_the_watermark_before_it_moved_in_the_functions_behind():
    class Tumbling(KeyedProcessFunction):
        count = ValueState("count", default=0)

        def process(self, value, ctx):
            if ctx.timestamp <= ctx.watermark:
                yield ("late", value)
            self.count.value += 1
            ctx.timers.event(ctx.timestamp // 10 * 10 + 9)

        def on_timer(self, timestamp, ctx):
            yield ("window", timestamp - 9, self.count.value)

    pipeline = Pipeline([process(Alarm()), plain("map", lambda v: (v[0], 1)), process(Tumbling())], None)
    pipeline.run(Batch([("k", 20)], [10]))

    assert pairs(pipeline.advance(25, 100)) == []
    assert pairs(pipeline.advance(29, 100)) == [(("window", 20, 1), 29)]
    assert pipeline.watermark == 29


def test_ac14_event_timers_and_their_windows_survive_a_restore():
    class Windows(KeyedProcessFunction):
        items = ListState("items")

        def process(self, value, ctx):
            self.items.append(value[1])
            ctx.timers.event(9)

        def on_timer(self, timestamp, ctx):
            yield (ctx.key, len(self.items))

    state = backend()
    process(Windows(), state=state).apply(Batch([("a", 0), ("a", 4), ("a", 8), ("b", 0)], [0, 4, 8, 0]))

    after_the_crash = process(Windows(), state=state, watermark=7)
    after_the_crash.apply(Batch([("b", 4), ("b", 8)], [4, 8]))

    assert advance(after_the_crash, 20) == [(("a", 3), 9), (("b", 3), 9)]


def test_the_watermark_never_falls_and_starts_where_it_was_saved():
    seen = []

    class Looks(KeyedProcessFunction):
        def process(self, value, ctx):
            seen.append(ctx.watermark)

    operator = process(Looks(), watermark=50)
    operator.apply(Batch([("a",)], [1]))
    advance(operator, 40)
    operator.apply(Batch([("a",)], [1]))

    assert seen == [50, 50]
    assert process(Looks()).watermark == WATERMARK_MIN


def test_an_event_time_timer_in_a_stream_without_timestamps_is_refused():
    operator = process(Alarm(), has_event_time=False)

    with pytest.raises(UserCodeError, match="'p' .* an event-time timer was set in a stream without timestamps"):
        operator.apply(Batch([("a", 5)]))


def test_timers_that_set_further_ones_without_end_are_stopped_at_the_end_of_time():
    class Ticks(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.timers.event(timestamp + 1)

    operator = process(Ticks())
    operator.apply(Batch([("a", 5)], [1]))
    assert advance(operator, 5000) == []

    with pytest.raises(UserCodeError, match="'p': at the end of input its event-time timers set further ones"):
        advance(operator, WATERMARK_MAX, limit=10_000)


def test_what_a_processing_time_timer_emits_has_its_time_where_there_is_event_time():
    class Soon(KeyedProcessFunction):
        def process(self, value, ctx):
            ctx.timers.processing(7)

        def on_timer(self, timestamp, ctx):
            yield ctx.key

    timed, untimed = process(Soon()), process(Soon(), has_event_time=False)
    timed.apply(Batch([("a",)], [1]))
    untimed.apply(Batch([("a",)]))

    assert (timed.fire_due(7, 10), untimed.fire_due(7, 10)) == (Batch(["a"], [7]), Batch(["a"]))


# ---------------------------------------------------------------- timestamps


def test_what_a_record_makes_has_its_timestamp_and_the_function_sees_it():
    class Twice(KeyedProcessFunction):
        def process(self, value, ctx):
            return [(value[0], ctx.timestamp)] * value[1]

    emitted = process(Twice()).apply(Batch([("a", 2), ("b", 0), ("c", 1)], [10, 20, 30]))

    assert emitted == Batch([("a", 10), ("a", 10), ("c", 30)], [10, 10, 30])


# ---------------------------------------------------------------- two inputs


class Join(CoProcessFunction):
    left = ValueState("left")
    both = ReducingState("both", lambda a, b: a + b)

    def process1(self, value, ctx):
        self.left.value = value[1]
        self.both.add(1)
        ctx.timers.event(100)

    def process2(self, value, ctx):
        self.both.add(10)
        yield (ctx.key, self.left.value, value[1])

    def on_timer(self, timestamp, ctx):
        yield (ctx.key, self.both.value)


def test_two_keyed_inputs_share_state_and_timers_of_a_key():
    operator = connected(Join(), has_event_time=True)
    operator.apply(Batch([("a", 1), ("b", 2)], [0, 0]), 0)

    assert operator.apply(Batch([("a", "x"), ("c", "y")], [5, 6]), 1) == Batch(
        [("a", 1, "x"), ("c", None, "y")], [5, 6]
    )
    assert advance(operator, 100) == [(("a", 11), 100), (("b", 1), 100)]


def test_an_error_says_which_input_failed():
    class Fails(Join):
        def process2(self, value, ctx):
            raise ValueError("no")

    with pytest.raises(UserCodeError, match=r"'p' \(process2\) failed on record \('a', 1\): ValueError: no"):
        connected(Fails()).apply(Batch([("a", 1)]), 1)


class Rules(CoProcessFunction):
    seen = ValueState("seen", default=0)
    rules = BroadcastState("rules")

    def process1(self, value, ctx):
        self.seen.value += 1
        yield (ctx.key, self.seen.value, dict(self.rules))

    def process2(self, rule, ctx):
        self.rules[rule] = True


def test_a_broadcast_record_changes_what_every_key_sees():
    operator = connected(Rules(), keys=(first, None), broadcast=1)
    operator.apply(Batch([("a",)]), 0)
    operator.apply(Batch(["r1", "r2"]), 1)

    assert operator.apply(Batch([("a",), ("b",)]), 0) == Batch(
        [("a", 2, {"r1": True, "r2": True}), ("b", 1, {"r1": True, "r2": True})]
    )


@pytest.mark.parametrize(
    ("port", "use", "words"),
    [
        (0, lambda self, ctx: self.rules.clear(), "broadcast state 'rules' was changed where a subtask is alone"),
        (1, lambda self, ctx: self.seen.value, "state 'seen' was used outside a keyed call"),
        (1, lambda self, ctx: ctx.key, "ctx.key was used where there is no key"),
        (1, lambda self, ctx: ctx.timers.processing(1), "timers were used outside a keyed call"),
    ],
)
def test_what_one_side_of_a_broadcast_connection_must_not_do_is_refused(port, use, words):
    class Wrong(Rules):
        def process1(self, value, ctx):
            use(self, ctx)

        process2 = process1

    operator = connected(Wrong(), keys=(first, None), broadcast=1)

    with pytest.raises(UserCodeError, match=words):
        operator.apply(Batch([("a",)]), port)


def test_after_a_broadcast_record_that_failed_the_state_is_closed_again():
    class Fails(Rules):
        def process2(self, rule, ctx):
            raise ValueError(rule)

    function = Fails()
    operator = connected(function, keys=(first, None), broadcast=1)
    with pytest.raises(UserCodeError):
        operator.apply(Batch(["r"]), 1)

    with pytest.raises(UserCodeError, match="was changed where a subtask is alone"):
        function.rules["x"] = 1


# ---------------------------------------------------------------- without keys, and side outputs


class Split(ProcessFunction):
    def process(self, value, ctx):
        if value % 2:
            ctx.output("odd", value)
            ctx.output("nobody takes this", value)
        else:
            yield (value, ctx.timestamp, ctx.watermark)


def plain_process(function, **more):
    return Process("p", function, (Port("process"),), lambda: 0, **more)


def test_a_function_without_keys_sees_timestamp_and_watermark():
    operator = plain_process(Split(), watermark=3)

    assert operator.apply(Batch([2, 3])) == Batch([(2, None, 3)])
    assert operator.apply(Batch([2, 3], [7, 8])) == Batch([(2, 7, 3)], [7])


def test_side_outputs_that_somebody_takes_are_collected_with_their_timestamps():
    operator = plain_process(Split(), side_tags=["odd"])
    operator.apply(Batch([1, 2, 3]))
    operator.apply(Batch([5, 7], [50, 70]))

    assert list(operator.sides.take()) == [("odd", Batch([1, 3])), ("odd", Batch([5, 7], [50, 70]))]
    assert list(operator.sides.take()) == []


def test_what_a_timer_puts_into_a_side_output_has_the_timers_time():
    class Late(Alarm):
        def on_timer(self, timestamp, ctx):
            ctx.output("alarms", ctx.key)

    operator = process(Late(), side_tags=["alarms"])
    operator.apply(Batch([("a", 10), ("b", 20)], [1, 2]))

    taken = [item for _ in operator.advance(30, 1) for item in operator.sides.take()]

    assert taken == [("alarms", Batch(["a"], [10])), ("alarms", Batch(["b"], [20]))]


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda ctx: ctx.timers.processing(1), "ctx.timers.processing was used without keys"),
        (lambda ctx: ctx.key, "ctx.key was used where there is no key"),
        (lambda ctx: ctx.output(7, 1), "ctx.output got the tag 7, an int"),
    ],
)
def test_what_a_function_without_keys_must_not_do_is_refused(use, words):
    class Wrong(ProcessFunction):
        def process(self, value, ctx):
            use(ctx)

    with pytest.raises(UserCodeError, match=words):
        plain_process(Wrong()).apply(Batch([1]))
