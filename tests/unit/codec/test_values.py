"""Values come back from bytes equal and of the same type, and what cannot is refused by name."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum, auto
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.codec.values import Codec, TypeRegistry, is_immutable
from flowpoint.errors import BadRecordError, UnknownTypeError
from flowpoint.host.module_path import JOB_MODULE


class Color(Enum):
    RED = "red"
    GREEN = 2


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    A = "a"


class Mode(Flag):
    READ = auto()
    WRITE = auto()


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(1)


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    items: list[Item] = field(default_factory=list)


class Pair(NamedTuple):
    left: Any
    right: Any = None


class Event(msgspec.Struct):
    at: int
    tags: set[str] = set()


class Text(str):
    """A subclass that nobody declared."""


def codec() -> Codec:
    return Codec(TypeRegistry([Color, Level, Kind, Mode, Order, Pair, Event]))


def same(a: Any, b: Any) -> bool:
    """Equal and of the same type all the way down; NaN is the same as NaN, -0.0 not as 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (set, frozenset)):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if isinstance(a, datetime):
        return (a.replace(tzinfo=None), a.fold, repr(a.tzinfo)) == (b.replace(tzinfo=None), b.fold, repr(b.tzinfo))
    if isinstance(a, Decimal):
        return str(a) == str(b)
    return bool(a == b)


BERLIN = ZoneInfo("Europe/Berlin")

VALUES = [
    None, True, False, 0, -1, 2**63, 2**64, -(2**63) - 1, 10**400, -(10**400),
    0.0, -0.0, 1.5, math.inf, -math.inf, math.nan,
    "", "word", "ä€😀", "\ud800 alone", b"", b"\x00\xff",
    [], [1, [2, [3]]], (), (1,), (1, (2, [3])), {}, {"b": 1, "a": 2},
    {(1, 2): "t", None: 0, 1.5: "f", frozenset({1}): 2},
    set(), {1, "a"}, frozenset(), frozenset({(1, 2), "x"}),
    datetime(2024, 2, 29, 23, 59, 59, 999999), datetime.min, datetime.max,
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 10, 27, 2, 30, fold=1),
    date(1, 1, 1), time(23, 59, 59, 1), time(1, 2, tzinfo=UTC), time(1, fold=1),
    timedelta(days=-1, microseconds=1), timedelta.max,
    Decimal("1.10"), Decimal("-0"), Decimal("NaN"), Decimal("sNaN12"), Decimal("-Infinity"), Decimal("1E+999"),
    UUID(int=5), Color.RED, Color.GREEN, Level.LOW, Kind.A, Mode.READ | Mode.WRITE, Mode(0),
    Item("a"), Order(1, [Item("b", Decimal("2.5"))]), Pair(1, (2,)), Event(5, {"x"}),
    {"deep": [(Order(2), {Color.RED: Pair("a")}, {date(2024, 1, 1)})]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert same(codec().decode(codec().encode(value)), value)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals() | st.uuids()
moments = st.datetimes(timezones=st.none() | st.timezones()) | st.dates() | st.times() | st.timedeltas()
hashable = st.recursive(
    plain.filter(lambda value: not (isinstance(value, Decimal) and value.is_snan())) | moments | st.sampled_from(Color),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
anything = st.recursive(
    plain | moments | hashable,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(anything)
def test_any_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert same(codec().decode(codec().encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        defaultdict(lambda: 1), type("Tally", (Counter,), {})(a=1), Text("x"), type("Many", (list,), {})([1]),
        bytearray(b"x"), memoryview(b"x"), msgpack.ExtType(5, b"x"), Fraction(1, 2), 1j, range(3), object(), int, len, ...,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_that_cannot_be_kept_is_refused_by_type_wherever_it_hides(value: Any) -> None:
    for hidden in (value, [value], (1, value), {"k": value}, {"k": [("x", value)]}, Pair(value), Item("n", value)):
        with pytest.raises(BadRecordError, match=type(value).__name__):
            codec().encode(hidden)
        with pytest.raises(BadRecordError, match=type(value).__name__):
            codec().encode_column([hidden, hidden])


def test_the_message_names_type_value_and_remedy() -> None:
    with pytest.raises(BadRecordError, match=r"Item: .*does not declare.*annotation.*value is Item\(name='x'"):
        Codec().encode(Item("x"))


def test_a_time_zone_of_another_library_is_refused() -> None:
    class Odd(timezone.__base__):  # type: ignore[name-defined,misc]
        def utcoffset(self, _: Any) -> timedelta:
            return timedelta(0)

    with pytest.raises(BadRecordError, match=r"zone is of type .*Odd; use datetime\.timezone or zoneinfo"):
        codec().encode(datetime(2024, 1, 1, tzinfo=Odd()))


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    spiral: Any = ()
    for _ in range(5000):
        spiral = (spiral,)

    for value in (ring, spiral):
        with pytest.raises(BadRecordError, match="nested too deeply or contains itself"):
            codec().encode(value)
    assert codec().decode(codec().encode([1])) == [1]


@pytest.mark.parametrize(("wrap", "kind"), [(lambda v: (v,), "tuple"), (lambda v: [v], "list"), (Pair, "Pair")])
@pytest.mark.parametrize("inmost", [1, "\udcff"])
def test_what_is_nested_too_deeply_is_named_by_the_type_of_the_whole(
    wrap: Callable[[Any], Any], kind: str, inmost: Any
) -> None:
    value: Any = inmost
    for _ in range(1200):
        value = wrap(value)
    encoder = Codec(TypeRegistry([Pair]))

    for write in (encoder.encode, lambda v: encoder.encode_column([0, v, 1]), lambda v: encoder.encode_column([v, v])):
        with pytest.raises(BadRecordError, match=f"^cannot serialise a value of type {kind}: "):
            write(value)
    assert encoder.decode(encoder.encode(inmost)) == inmost


def test_what_can_be_encoded_at_greatest_depth_can_be_decoded() -> None:
    depth = 0
    value: Any = ()
    while True:
        try:
            data = codec().encode(value)
        except BadRecordError:
            break
        assert codec().decode(data) == value
        value, depth = (value,), depth + 1

    assert depth >= 50


@pytest.mark.parametrize("cut", range(12))
def test_damaged_bytes_are_an_error_that_says_so(cut: int) -> None:
    data = codec().encode([1, "word", ("a", 2)])

    with pytest.raises(BadRecordError, match="damaged"):
        codec().decode(data[:cut])


def test_a_copy_shares_nothing_mutable() -> None:
    original = {"a": [1, {2}], "o": Order(1, [Item("x")])}

    copied = codec().copy(original)
    copied["a"][1].add(3)
    copied["o"].items.append(Item("y"))

    assert original == {"a": [1, {2}], "o": Order(1, [Item("x")])}


def test_an_immutable_value_is_not_copied() -> None:
    value = ("a", 1, (Decimal(1), date(2024, 1, 1)))

    assert codec().copy(value) is value
    assert is_immutable(value)
    assert not is_immutable(("a", [1]))


class TestRegistry:
    def test_fields_and_type_arguments_are_taken_in(self) -> None:
        registry = TypeRegistry([dict[str, list[Order]], int, None, "text"])

        assert registry.name_of(Order) == "Order"
        assert registry.resolve("Item") is Item

    def test_an_unknown_name_is_refused_and_nothing_is_imported(self) -> None:
        with pytest.raises(BadRecordError, match=r"os:PathLike: the job does not declare"):
            TypeRegistry([Order]).resolve("os:PathLike")

    def test_two_classes_of_one_name_are_told_apart_by_module(self) -> None:
        ours = dataclass(type("Twin", (), {"__module__": "ours", "__annotations__": {"a": int}, "a": 1}))
        theirs = dataclass(type("Twin", (), {"__module__": "theirs", "__annotations__": {"a": int}, "a": 2}))
        registry = TypeRegistry([ours, theirs])

        assert type(Codec(registry).decode(Codec(registry).encode(ours()))) is ours
        with pytest.raises(BadRecordError, match="several classes of this name, in ours, theirs"):
            registry.resolve("Twin")

    def test_a_class_may_move_to_another_module(self) -> None:
        before = dataclass(type("Mover", (), {"__module__": "job", "__annotations__": {"a": int}}))
        after = dataclass(type("Mover", (), {"__module__": "models", "__annotations__": {"a": int}}))

        back = Codec(TypeRegistry([after])).decode(Codec(TypeRegistry([before])).encode(before(7)))

        assert type(back) is after
        assert back.a == 7


def _version(fields: dict[str, type], **defaults: Any) -> Any:
    return dataclass(type("Versioned", (), {"__annotations__": fields, "__module__": __name__, **defaults}))


class TestChangedClass:
    def encoded(self, *, column: bool) -> bytes:
        old = _version({"a": int, "b": int})
        writer = Codec(TypeRegistry([old]))
        return writer.encode_column([old(1, 2)]) if column else writer.encode(old(1, 2))

    def read(self, cls: Any, *, column: bool) -> Any:
        reader = Codec(TypeRegistry([cls]))
        data = self.encoded(column=column)
        return reader.decode_column(data)[0] if column else reader.decode(data)

    @pytest.mark.parametrize("column", [False, True])
    def test_a_new_field_takes_its_default_and_order_does_not_matter(self, column: bool) -> None:
        cls = _version({"b": int, "a": int, "c": int}, c=3)

        assert self.read(cls, column=column) == cls(2, 1, 3)

    @pytest.mark.parametrize("column", [False, True])
    def test_a_new_field_without_default_is_refused(self, column: bool) -> None:
        with pytest.raises(BadRecordError, match=r"no field 'c', which the class now requires"):
            self.read(_version({"a": int, "b": int, "c": int}), column=column)

    @pytest.mark.parametrize("column", [False, True])
    def test_a_removed_field_is_refused(self, column: bool) -> None:
        with pytest.raises(BadRecordError, match=r"has the field 'b', which the class no longer"):
            self.read(_version({"a": int}), column=column)

    def test_a_removed_enum_member_is_refused(self) -> None:
        data = codec().encode(Color.RED)
        smaller = Enum("Color", {"GREEN": 2})

        with pytest.raises(BadRecordError, match="no member 'RED' any more"):
            Codec(TypeRegistry([smaller])).decode(data)


def test_a_dataclass_with_post_init_comes_back_as_it_was() -> None:
    @dataclass
    class Counted:
        n: int
        double: int = field(init=False)

        def __post_init__(self) -> None:
            self.double = self.n * 2

    value = Counted(2)
    value.n = 10
    registry = TypeRegistry([Counted])

    assert Codec(registry).decode(Codec(registry).encode(value)) == value
    assert Codec(registry).decode_column(Codec(registry).encode_column([value])) == [value]


@pytest.mark.parametrize("wrap", [lambda v: (v,), lambda v: {"a": v}, lambda v: (v, [v]) if v == 1 else (v,)])
@pytest.mark.parametrize("levels", [1200, 3000])
def test_a_value_that_is_nested_too_deeply_is_refused_in_whatever_way_it_is_written(
    wrap: Callable[[Any], Any], levels: int
) -> None:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)

    for write in (Codec().encode, Codec().copy, lambda v: Codec().encode_column([v, v])):
        with pytest.raises(BadRecordError, match="is nested too deeply or contains itself"):
            write(value)


@pytest.mark.parametrize("levels", [31, 32, 33, 90, 130])
def test_values_of_many_levels_come_back_from_columns(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = (value, "x")

    assert Codec().decode_column(Codec().encode_column([value, value])) == [value, value]


def test_a_class_of_a_job_file_is_called_by_the_name_it_has_there() -> None:
    session = dataclasses.make_dataclass("Session", ["number"])
    session.__module__ = JOB_MODULE

    with pytest.raises(
        UnknownTypeError, match=r"of type Session: .*Job\(\.\.\., types=\[Session\]\).*ValueState\(name, Session\)"
    ):
        Codec().encode(session(1))


def test_a_value_that_cannot_be_serialised_is_shown_with_the_name_of_its_class() -> None:
    class UnknownToEverybodyHere:
        pass

    with pytest.raises(BadRecordError, match="the value is <.*UnknownToEverybodyHere object at "):
        Codec().encode([UnknownToEverybodyHere()])
