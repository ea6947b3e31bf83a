"""Equal keys are equal bytes, and the bytes are a key again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings

from flowpoint.codec.keys import canonical, from_canonical, is_own_canonical, split_canonical
from flowpoint.codec.registry import TypeRegistry
from flowpoint.errors import BadRecordError
from tests.unit.codec.made_keys import BERLIN, PARIS, UTC, Color, Level, Mode, Name, Point, keys, moments, numbers


class Half(float, Enum):
    HALF = 0.5


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
