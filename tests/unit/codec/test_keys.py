"""Equal keys are equal bytes, and every key stays in its key group for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.codec.keys import (
    GroupCache,
    canonical,
    from_canonical,
    group_of,
    hash_key,
    is_own_canonical,
    place_of,
    places_of,
    split_canonical,
)
from flowpoint.codec.registry import TypeRegistry
from flowpoint.errors import BadRecordError

TABLE = Path(__file__).parents[2] / "fixtures" / "key_groups.json"
BERLIN, PARIS = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Paris")
UTC = timezone(timedelta(0))


class Level(IntEnum):
    ONE = 1


class Name(StrEnum):
    A = "a"


class Color(Enum):
    RED = 1
    BLUE = 2


class Mode(Flag):
    R = 1
    W = 2


class Half(float, Enum):
    HALF = 0.5


class Point(NamedTuple):
    x: Any
    y: Any


def table_keys() -> list[tuple[str, Any]]:
    """200 keys of every allowed type, each with the text that stands for it in the table."""
    sources: list[tuple[str, Callable[[int], Any], int]] = [
        ("str", lambda n: "äbc€"[: n % 5] * n + str(n), 30),
        ("long str", lambda n: "x" * (25 + n * 13), 20),
        ("int", lambda n: (-1) ** n * 3**n, 60),
        ("float", lambda n: n / 7 - 1, 15),
        ("integral float", lambda n: float(n) * 10**n, 10),
        ("bool", bool, 2),
        ("bytes", lambda n: bytes(range(n)), 6),
        ("Decimal", lambda n: Decimal(n) / Decimal(10), 12),
        ("UUID", lambda n: UUID(int=n << 64), 4),
        ("date", lambda n: date(2024, 1, 1) + timedelta(days=n), 4),
        ("datetime", lambda n: datetime(2024, 1, 1, n), 4),
        ("aware datetime", lambda n: datetime(2024, 1, 1, n, tzinfo=timezone(timedelta(hours=n))), 4),
        ("repeated hour", lambda n: datetime(2024, 10, 27, 2, n, tzinfo=BERLIN), 2),
        ("time", lambda n: time(n, 1, 2), 3),
        ("aware time", lambda n: time(n, tzinfo=timezone(timedelta(hours=-n))), 3),
        ("timedelta", lambda n: timedelta(days=-n, microseconds=1), 3),
        ("tuple", lambda n: ("a",) * n, 5),
        ("nested tuple", lambda n: (n, ("b", (None, n / 2))), 4),
        ("frozenset", lambda n: frozenset(range(n)), 4),
        ("Enum", lambda n: list(Color)[n], 2),
        ("Flag", Mode, 1),
        ("IntEnum", lambda n: Level.ONE, 1),
        ("None", lambda n: None, 1),
    ]
    return [(f"{name} {n}", make(n)) for name, make, count in sources for n in range(count)]


def placements() -> dict[str, int]:
    return {name: hash_key(key) for name, key in table_keys()}


def test_every_key_stays_where_it_is_for_ever() -> None:
    expected = json.loads(TABLE.read_text())

    assert len(expected) == 200
    assert placements() == expected
    assert [group_of(key, 128) for _, key in table_keys()] == [digest % 128 for digest in expected.values()]


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_placement_does_not_depend_on_the_process(seed: str) -> None:
    code = "import json, tests.unit.codec.test_keys as t; print(json.dumps(t.placements()))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )

    assert json.loads(done.stdout) == json.loads(TABLE.read_text())


EQUAL = [
    [1, True, 1.0, Decimal(1), Decimal("1.000"), Decimal("0.1E1"), Level.ONE],
    [0, False, 0.0, -0.0, Decimal(0), Decimal("-0"), Decimal("0E+999999"), timedelta(0).days],
    [0.5, Decimal("0.5"), Decimal("0.50"), Half.HALF],
    [10**30, Decimal("1E30"), Decimal(10) ** 30],
    [2**70, float(2**70), Decimal(2**70)],
    [float("inf"), Decimal("Infinity")],
    ["a", Name.A],
    [(1, ("a", 2)), Point(True, ("a", 2.0)), (Level.ONE, (Name.A, Decimal(2)))],
    [frozenset({1, 2}), frozenset({2.0, True})],
    [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 13, tzinfo=BERLIN),
     datetime(2024, 1, 1, 13, tzinfo=PARIS), datetime(2024, 1, 1, 7, tzinfo=timezone(timedelta(hours=-5)))],
    [datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN), datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)],
    [datetime(2024, 1, 1), datetime(2024, 1, 1, fold=1)],
    [time(12, tzinfo=UTC), time(13, tzinfo=timezone(timedelta(hours=1)))],
    [time(0, tzinfo=timezone(timedelta(hours=1))), time(1, tzinfo=timezone(timedelta(hours=2)))],
    [time(3), time(3, fold=1), time(3, tzinfo=BERLIN)],
    [timedelta(hours=24), timedelta(days=1)],
    [datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))],
    [datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))],
    [Decimal("0.1")], [0.1], ["1"], [b"1"], [None], ["None"], [()], [("a",)], [frozenset()], [frozenset({"a"})],
    [date(2024, 1, 1)], [Color.RED], [Color.BLUE], [Mode.R], [Mode.R | Mode.W], [UUID(int=1)], [2**64], [-(2**64)],
    [datetime(2024, 10, 27, 2, 30, tzinfo=PARIS)], [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)], ["ä"], ["\ud800"],
]  # fmt: skip


@pytest.mark.parametrize("keys", EQUAL, ids=lambda keys: ascii(keys[0])[:40])
def test_equal_keys_are_equal_bytes_and_come_back_equal(keys: list[Any]) -> None:
    registry = TypeRegistry([Color, Mode])

    for key in keys:
        assert key == keys[0]
        assert canonical(key) == canonical(keys[0])
        assert from_canonical(canonical(key), registry) == key


def test_unequal_keys_are_different_bytes() -> None:
    for i, some in enumerate(EQUAL):
        for others in EQUAL[:i]:
            assert some[0] != others[0]
            assert canonical(some[0]) != canonical(others[0])


numbers = (
    st.integers()
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9)
    | st.integers(-3, 3).map(float)
    | st.integers(-4, 4).map(lambda n: Decimal(n) / 2)
)
moments = (
    st.datetimes(timezones=st.sampled_from([None, UTC, BERLIN, PARIS, timezone(timedelta(hours=1))]),
                 min_value=datetime(2024, 3, 31), max_value=datetime(2024, 4, 1))
    | st.times(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=1)), BERLIN]))
    | st.dates() | st.timedeltas()
)  # fmt: skip
keys = st.recursive(
    numbers
    | moments
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.none()
    | st.sampled_from([*Color, Name.A, *Level]),
    lambda inner: (
        st.tuples(inner) | st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Point, inner, inner)
    ),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(keys | numbers | moments, keys | numbers | moments)
def test_bytes_follow_equality(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)


@settings(max_examples=200, deadline=None)
@given(keys, keys)
def test_a_key_comes_back_equal_and_two_in_a_row_come_apart(one: Any, other: Any) -> None:
    registry = TypeRegistry([Color])

    assert from_canonical(canonical(one), registry) == one
    assert split_canonical(canonical(one) + canonical(other), registry) == [one, other]


@settings(max_examples=200, deadline=None)
@given(keys)
def test_a_key_that_is_its_own_canonical_form_keeps_its_type(key: Any) -> None:
    if is_own_canonical(key):
        assert repr(from_canonical(canonical(key))) == repr(key)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=300) | st.just("\ud800"), min_size=1, max_size=4) | st.lists(keys, max_size=4))
def test_many_keys_are_placed_like_single_ones(several: list[Any]) -> None:
    assert places_of(several, 1000) == [place_of(key, 1000) for key in several]


@dataclass(frozen=True)
class Frozen:
    a: int


class Loud(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Zone(tzinfo):
    def utcoffset(self, _: Any) -> timedelta:
        return timedelta(0)


class Odd(date, Enum):
    NEW_YEAR = (2024, 1, 1)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (float("nan"), "NaN"), (Decimal("NaN"), "NaN"),
        (("a", float("nan")), "NaN"), (frozenset({float("nan")}), "NaN"),
        (["a"], "its type is list.*use a tuple"), ({"a"}, "its type is set.*use a frozenset"), ({}, "its type is dict"),
        (("a", ["b"]), "its type is list"), (bytearray(b"a"), "its type is bytearray.*use bytes"),
        (Fraction(1, 2), "fractions.Fraction"), (1j, "complex"), (Frozen(1), "Frozen.*tuple of its fields"),
        (Loud("a"), "Loud"), (Odd.NEW_YEAR, "Odd"), (object(), "its type is object"), (int, "its type is type"),
        (Decimal("1E+5000"), "more than 4096 digits"),
        (datetime(2024, 1, 1, tzinfo=Zone()), "Zone"),
    ],
    ids=lambda value: value if type(value) is str else type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_a_key_is_refused_by_name(key: Any, said: str) -> None:
    with pytest.raises(BadRecordError, match=said):
        canonical(key)


def test_an_enum_member_is_known_by_class_and_member_name_alone() -> None:
    moved = Enum("Color", {"RED": "another value"}, module="elsewhere")

    assert canonical(moved["RED"]) == canonical(Color.RED)
    with pytest.raises(BadRecordError, match="Color: the job does not declare"):
        from_canonical(canonical(Color.RED))


class TestGroupCache:
    def test_it_remembers_what_was_asked(self) -> None:
        cache = GroupCache(128)

        assert cache.miss("a") == group_of("a", 128)
        assert cache.groups == {"a": group_of("a", 128)}

    def test_it_is_bounded_and_its_dict_stays_the_same_object(self) -> None:
        cache = GroupCache(128, entries_max=10)
        groups = cache.groups

        for n in range(95):
            assert cache.miss(n) == group_of(n, 128)

        assert cache.groups is groups
        assert len(groups) <= 10

    def test_long_keys_are_placed_but_not_kept(self) -> None:
        cache = GroupCache(128)

        assert cache.miss("x" * 1000) == group_of("x" * 1000, 128)
        assert cache.groups == {}

    def test_an_unhashable_key_is_refused(self) -> None:
        with pytest.raises(BadRecordError, match="list.*use a tuple"):
            GroupCache(128).miss(["a"])


@pytest.mark.parametrize("wrap", [lambda key: (key,), lambda key: frozenset({key}), lambda key: (1, (key, "x"))])
@pytest.mark.parametrize("levels", [101, 150, 500, 1000, 3000])
def test_a_key_that_is_nested_too_deeply_is_refused_and_not_left_to_a_limit_of_python(
    wrap: Callable[[Any], Any], levels: int
) -> None:
    key: Any = 1
    for _ in range(levels):
        key = wrap(key)

    with pytest.raises(BadRecordError, match="is nested more than 100 levels deep; flatten it"):
        canonical(key)


@pytest.mark.parametrize("wrap", [lambda key: (key,), lambda key: frozenset({key})])
def test_a_key_of_100_levels_comes_back(wrap: Callable[[Any], Any]) -> None:
    key: Any = 1
    for _ in range(100):
        key = wrap(key)

    assert from_canonical(canonical(key)) == key


def test_a_long_flat_key_is_no_deep_one() -> None:
    assert from_canonical(canonical(tuple(range(1000)))) == tuple(range(1000))
