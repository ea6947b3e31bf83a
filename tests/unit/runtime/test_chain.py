"""Generated loops compute what a plain interpreter of the same operators computes, and say what went wrong."""

from __future__ import annotations

import gc
import linecache
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.codec.placement import group_of
from flowpoint.errors import BadRecordError, FlowPointError, InternalError, StorageError, UserCodeError
from flowpoint.model.elements import Batch
from flowpoint.model.key_groups import owner_of
from flowpoint.runtime.chain import FLAT_MAPS_MAX, HashEmit, Loop
from tests.unit.runtime.fakes import FakeTable, keyed, plain

WIDTH = 3


def hash_emit(key=lambda value: value, width=WIDTH):
    def miss(value):
        target = owner_of(group_of(value, 128), width, 128)
        targets[value] = target
        return target

    targets: dict = {}
    return HashEmit("next", key, "key_by(next)", targets, miss, [[] for _ in range(width)])


# ---------------------------------------------------------------- what it computes


def hash_number(value):
    """A small number made of any value that these chains produce."""
    while isinstance(value, (tuple, list)):
        value = sum(map(hash_number, value))
    return int(value or 0)


@dataclass(frozen=True)
class Step:
    """One operator of a random chain, with a number that makes it differ from others of its kind."""

    kind: str
    n: int

    def operator(self, position, table):
        n, uid = self.n, f"{self.kind}-{position}"

        def key(value):
            return hash_number(value) % (n + 1)

        match self.kind:
            case "map":
                return plain("map", lambda value: (hash_number(value) + n, value), uid)
            case "filter":
                return plain("filter", lambda value: hash_number(value) % (n + 2), uid)
            case "flat_map":
                return plain("flat_map", lambda value: [hash_number(value)] * (hash_number(value) % (n + 1)), uid)
            case "count":
                return keyed("count", None, key, uid, table)
            case "sum":
                return keyed("sum", hash_number, key, uid, table)
            case "min" | "max":
                return keyed(self.kind, hash_number, key, uid, table)
            case "aggregate":
                return keyed("aggregate", Spread(), key, uid, table)
            case "reduce":
                return keyed("reduce", self.reduce, key, uid, table)

    @staticmethod
    def reduce(before, value):
        # Gives None now and then: a value like any other.
        return None if hash_number(value) % 3 == 0 else (hash_number(before), hash_number(value))


class Spread:
    """An aggregate whose accumulator changes in place and is not what it emits."""

    def create(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(hash_number(value))
        return accumulator

    def result(self, accumulator):
        return max(accumulator) - min(accumulator)


def interpret(operators, states, values):
    """The naive interpreter: one record at a time, one operator at a time."""
    return [value for value, _ in interpret_timed(operators, states, values, [None] * len(values))]


def interpret_timed(operators, states, values, stamps):
    """The same for records with timestamps: (value, timestamp), whatever comes of a record keeping its timestamp."""
    out = []
    for value, stamp in zip(values, stamps, strict=True):
        current = [value]
        for op, state in zip(operators, states, strict=True):
            current = [result for item in current for result in apply(op, state, item)]
        out += [(result, stamp) for result in current]
    return out


def apply(op, state, value):
    match op.kind.value:
        case "map":
            return [op.function(value)]
        case "filter":
            return [value] if op.function(value) else []
        case "flat_map":
            return list(op.function(value))
        case "count":
            key = op.key(value)
            state[key] = state.get(key, 0) + 1
        case "sum":
            key = op.key(value)
            state[key] = state[key] + op.function(value) if key in state else op.function(value)
        case "min" | "max":
            key = op.key(value)
            new = op.function(value)
            state[key] = {"min": min, "max": max}[op.kind.value](state.get(key, new), new)
        case "aggregate":
            key = op.key(value)
            state[key] = [*state.get(key, []), hash_number(value)]
            return [(key, max(state[key]) - min(state[key]))]
        case "reduce":
            key = op.key(value)
            state[key] = op.function(state[key], value) if key in state else value
    return [(key, state[key])]


KINDS = st.sampled_from(["map", "filter", "flat_map", "count", "sum", "min", "max", "aggregate", "reduce"])
CHAINS = st.lists(st.builds(Step, KINDS, st.integers(0, 3)), max_size=7)
BATCHES = st.lists(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=8), max_size=5)


@settings(max_examples=150, deadline=None)
@given(chain=CHAINS, batches=BATCHES, freeze=st.booleans())
def test_a_loop_computes_what_a_naive_interpreter_computes(chain, batches, freeze):
    tables = [FakeTable() for _ in chain]
    operators = [step.operator(i, table) for i, (step, table) in enumerate(zip(chain, tables, strict=True))]
    loop = Loop(operators)
    states: list[dict] = [{} for _ in chain]

    for batch in batches:
        assert loop.run(list(batch)) == interpret(operators, states, batch)
        if freeze:
            for table in tables:
                table.freeze()

    assert [table.contents() for table in tables] == states
    loop.close()


@settings(max_examples=150, deadline=None)
@given(chain=CHAINS, batches=BATCHES, deals=st.booleans())
def test_with_timestamps_it_computes_the_same_and_everything_keeps_the_timestamp_of_its_record(chain, batches, deals):
    operators = [step.operator(i, FakeTable()) for i, step in enumerate(chain)]
    emit = hash_emit(hash_number, width=1) if deals else None
    loop = Loop(operators, emit)
    states: list[dict] = [{} for _ in chain]
    expected, found = [], []

    for number, batch in enumerate(batches):
        stamps = [number * 100 + i for i in range(len(batch))]
        emitted = loop.apply(Batch(list(batch), stamps))
        found += [] if emitted is None else zip(emitted.values, emitted.timestamps, strict=True)
        expected += interpret_timed(operators, states, batch, stamps)
    if emit is not None:
        found = list(zip(emit.buffers[0], emit.stamps[0], strict=True))

    assert found == expected
    loop.close()


def test_an_error_in_a_loop_over_timestamps_names_the_record_too():
    loop = Loop([plain("flat_map", lambda value: [1 / value], "f")])

    with pytest.raises(ZeroDivisionError) as caught:
        loop.apply(Batch([1, 0], [5, 6]))

    assert "'f' (flat_map) failed on record 0" in str(loop.locate(caught.value))
    loop.close()


def test_the_least_and_the_greatest_record_may_be_mutable_and_nobody_else_changes_them():
    record = [3]
    loop = Loop([keyed("min", key=lambda value: 0)])

    (emitted,) = loop.run([record])
    record.append(9)
    emitted[1].append(8)

    assert loop.run([[5]]) == [(0, [3])]
    loop.close()


@settings(max_examples=60, deadline=None)
@given(chain=CHAINS, batches=BATCHES)
def test_a_loop_that_deals_out_puts_every_record_into_the_buffer_of_its_keys_owner_in_order(chain, batches):
    operators = [step.operator(i, FakeTable()) for i, step in enumerate(chain)]
    emit = hash_emit(hash_number)
    loop = Loop(operators, emit)
    expected: list[list] = [[] for _ in range(WIDTH)]
    states: list[dict] = [{} for _ in chain]

    for batch in batches:
        assert loop.run(list(batch)) is None
        for value in interpret(operators, states, batch):
            expected[owner_of(group_of(hash_number(value), 128), WIDTH, 128)].append(value)

    assert emit.buffers == expected
    loop.close()


def test_a_buffer_may_be_replaced_between_two_batches():
    emit = hash_emit(width=1)
    loop = Loop([], emit)
    loop.run([1, 2])

    sent, emit.buffers[0] = emit.buffers[0], []
    loop.run([3])

    assert (sent, emit.buffers[0]) == ([1, 2], [3])


def test_two_loops_of_the_same_operators_do_not_mix_up():
    def fail(value):
        raise ValueError(value)

    good, bad = plain("map", str, "same"), plain("map", fail, "same")
    loops = [Loop([op]) for op in (good, bad, good)]

    with pytest.raises(ValueError) as caught:
        loops[1].run([7])

    assert loops[0].run([1]) == loops[2].run([1]) == ["1"]
    assert [loop.locate(caught.value) is None for loop in loops] == [True, False, True]


def test_as_many_flat_maps_as_are_allowed_fit_into_one_loop():
    loop = Loop([plain("flat_map", lambda value: [value, value]) for _ in range(FLAT_MAPS_MAX // 2)])
    widest = Loop([plain("flat_map", lambda value: [value]) for _ in range(FLAT_MAPS_MAX)], hash_emit())

    assert len(loop.run([1])) == 2 ** (FLAT_MAPS_MAX // 2)
    assert widest.run([1]) is None


# ---------------------------------------------------------------- state


def test_a_count_goes_on_from_what_the_backend_holds():
    table = FakeTable()
    table.below = {"a": 41}
    loop = Loop([keyed("count", table=table)])

    assert loop.run(["a", "b", "a"]) == [("a", 42), ("b", 1), ("a", 43)]
    assert table.dirty == {"a": 43, "b": 1}


def test_the_backend_is_asked_once_per_key_until_the_next_freeze():
    table = FakeTable()
    loop = Loop([keyed("count", table=table)])

    loop.run(["a"] * 5 + ["b"])
    assert table.loads == 2
    table.freeze()
    loop.run(["a"] * 5)
    assert table.loads == 3


@pytest.mark.parametrize("frozen", [False, True])
def test_none_as_an_accumulator_is_not_taken_for_no_accumulator(frozen):
    table = FakeTable()
    loop = Loop([keyed("reduce", lambda before, value: None, key=lambda _: "k", table=table)])

    assert loop.run([1, 2]) == [("k", 1), ("k", None)]
    if frozen:
        table.freeze()
    assert loop.run([3]) == [("k", None)]


def test_none_as_the_first_record_reaches_the_reducer():
    loop = Loop([keyed("reduce", lambda before, value: [before, value], key=lambda _: "k")])

    assert loop.run([None, 1]) == [("k", None), ("k", [None, 1])]


def append(before, value):
    before.extend(value)
    return before


def test_an_accumulator_that_is_changed_in_place_does_not_change_what_was_emitted_before():
    loop = Loop([keyed("reduce", append, key=lambda _: "k")])

    assert loop.run([[1], [2], [3]]) == [("k", [1]), ("k", [1, 2]), ("k", [1, 2, 3])]


def test_an_accumulator_that_is_changed_in_place_does_not_change_the_first_record():
    first = [1]
    Loop([keyed("reduce", append, key=lambda _: "k")]).run([first, [2]])

    assert first == [1]


@pytest.mark.parametrize(
    "operator",
    [keyed("reduce", append, key=lambda _: "k"), keyed("sum", lambda value: value, key=lambda _: "k")],
    ids=["reduce", "sum"],
)
def test_what_comes_after_may_change_what_was_emitted_without_changing_the_state(operator):
    loop = Loop([operator, plain("map", lambda pair: pair[1].clear() or pair)])

    loop.run([[1], [2]])

    assert operator.table.dirty == {"k": [1, 2]}


# ---------------------------------------------------------------- errors


class Weird:
    """Hashable and equal like anything, but no key."""


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no")


def one_over(value):
    return 1 / value


def count_with_key(key):
    return [keyed("count", None, key, "counts")]


def located(operators, values, emit=None):
    loop = Loop(operators, emit)
    with pytest.raises(BaseException) as caught:
        loop.run(values)
    explained = loop.locate(caught.value)
    loop.close()
    return explained, caught.value


@pytest.mark.parametrize(
    ("operators", "values", "kind", "uid", "words"),
    [
        ([plain("map", one_over, "m")], [4, 0], UserCodeError, "m", ["'m' (map)", "record 0", "ZeroDivisionError"]),
        ([plain("filter", one_over, "f")], [0], UserCodeError, "f", ["'f' (filter)", "record 0"]),
        ([plain("flat_map", one_over, "fm")], [0], UserCodeError, "fm", ["'fm' (flat_map)", "ZeroDivisionError"]),
        (
            [plain("map", str, "m"), plain("flat_map", lambda _: None, "fm")],
            [5],
            UserCodeError,
            "fm",
            ["'fm' (flat_map)", "record '5'", "returned None (NoneType): it must return an iterable of records"],
        ),
        (
            [plain("flat_map", lambda value: (one_over(v) for v in [1, value]), "fm")],
            [0],
            UserCodeError,
            "fm",
            ["'fm' (flat_map)", "record 0", "ZeroDivisionError"],
        ),
        ([plain("flat_map", list, "fm")], [3], UserCodeError, "fm", ["TypeError: 'int' object is not iterable"]),
        (
            [keyed("sum", one_over, lambda _: 1, "s")],
            [1, 0],
            UserCodeError,
            "s",
            ["'s' (sum)", "record 0", "ZeroDivisionError"],
        ),
        (
            [keyed("reduce", lambda a, b: a / b, lambda _: 1, "r")],
            [1, 0],
            UserCodeError,
            "r",
            ["'r' (reduce)", "record 0", "ZeroDivisionError"],
        ),
        (
            count_with_key(one_over),
            [0],
            UserCodeError,
            "counts",
            ["'counts'", "key_by(counts)", "record 0", "ZeroDivisionError"],
        ),
        (count_with_key(lambda v: [v]), [1], BadRecordError, "counts", ["'counts'", "record 1", "not hashable"]),
        (count_with_key(lambda v: (1, {})), [1], BadRecordError, "counts", ["not hashable", "tuple of such"]),
        (count_with_key(lambda _: float("nan")), [1], BadRecordError, "counts", ["'counts'", "NaN"]),
        (count_with_key(lambda _: Weird()), [1], BadRecordError, "counts", ["'counts'", "Weird", "keys may be"]),
    ],
)
def test_an_error_names_operator_and_record_and_has_the_right_class(operators, values, kind, uid, words):
    explained, _ = located(operators, values)

    assert type(explained) is kind
    assert explained.operator == uid
    assert [word for word in words if word not in str(explained)] == []


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (one_over, UserCodeError, ["'next'", "key_by(next)", "record 0", "ZeroDivisionError"]),
        (lambda v: [v], BadRecordError, ["'next': key_by(next)", "record 0", "not hashable"]),
        (lambda _: float("nan"), BadRecordError, ["'next': key_by(next)", "NaN"]),
        (lambda _: Weird(), BadRecordError, ["'next': key_by(next)", "Weird"]),
    ],
)
def test_an_error_while_dealing_out_names_the_operator_that_wants_the_key(key, kind, words):
    explained, _ = located([plain("map", lambda v: v)], [0], hash_emit(key))

    assert type(explained) is kind
    assert explained.operator == "next"
    assert [word for word in words if word not in str(explained)] == []


def test_an_error_of_ours_raised_by_a_users_function_keeps_its_class():
    def refuse(value):
        raise BadRecordError("no such country")

    explained, _ = located([plain("map", refuse, "m")], [1])

    assert type(explained) is BadRecordError
    assert "'m' (map) failed on record 1: no such country" in str(explained)


def test_a_class_that_a_user_derived_from_ours_becomes_the_one_it_was_derived_from():
    class TwoArguments(StorageError):
        def __init__(self, first, second):
            super().__init__(f"{first}{second}")

    def refuse(value):
        raise TwoArguments("a", "b")

    explained, _ = located([plain("map", refuse)], [1])

    assert type(explained) is StorageError
    assert "ab" in str(explained)


def test_a_bug_of_ours_in_a_step_between_is_not_put_on_the_user():
    class Broken(FakeTable):
        def load(self, key, default):
            raise InternalError("lost")

    explained, _ = located([keyed("count", table=Broken())], [1])

    assert explained is None


def test_trouble_of_the_backend_keeps_its_class_and_gets_the_operators_name():
    class Full(FakeTable):
        def load(self, key, default):
            raise StorageError("disk full")

    explained, _ = located([keyed("count", table=Full(), uid="c")], [1])

    assert (type(explained), explained.operator) == (StorageError, "c")


def test_a_keys_own_hash_function_that_raises_is_the_users_error():
    class BadHash:
        def __hash__(self):
            raise ValueError("cannot hash")

    explained, _ = located(count_with_key(lambda _: BadHash()), [1])

    assert type(explained) is UserCodeError
    assert "ValueError: cannot hash" in str(explained)


class Unusual(BaseException):
    pass


@pytest.mark.parametrize("ending", [SystemExit(3), GeneratorExit(), KeyboardInterrupt(), Unusual()])
def test_a_function_that_would_end_the_worker_is_explained_as_any_other(ending):
    def end(value):
        raise ending

    explained, _ = located([plain("map", end)], [1])

    assert type(explained) is UserCodeError
    assert f"{type(ending).__name__}" in str(explained)
    assert "must not end or cancel" in str(explained)


def test_a_record_is_shown_short_and_the_same_in_every_run():
    texts = [str(located([plain("map", one_over)], [value])[0]) for value in (Weird(), Unspeakable(), "x" * 10_000)]

    assert "0x" not in texts[0]
    assert "<Unspeakable whose repr raised RuntimeError>" in texts[1]
    assert len(texts[2]) < 400


def test_an_error_from_elsewhere_is_not_located():
    loop = Loop([plain("map", str)])

    assert loop.locate(ValueError("elsewhere")) is None


def test_the_source_is_there_for_tracebacks_until_the_loop_is_closed():
    before = set(linecache.cache)
    loops = [Loop([plain("map", one_over)]) for _ in range(3)]
    names = set(linecache.cache) - before

    assert len(names) == 3
    assert all("v1 = f0(v0)" in "".join(linecache.getlines(name)) for name in names)

    for loop in loops:
        loop.close()
        loop.close()
    gc.collect()
    assert set(linecache.cache) - before == set()


def test_every_explained_error_is_one_of_ours():
    explained, _ = located([plain("map", one_over)], [0])

    assert isinstance(explained, FlowPointError)
