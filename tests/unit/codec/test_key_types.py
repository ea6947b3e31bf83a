"""Keys that compare equal are of one type; other types, and tuples of another length, are told apart."""

from __future__ import annotations

from collections import namedtuple
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import numpy as np
import pytest

from flowpoint.codec.key_types import are_plain, key_shapes, key_types


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Name(StrEnum):
    ANN = "ann"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("key", [1, True, 1.0, Decimal(1), Level.LOW, np.int64(1), np.float32(1), np.bool_(True)])
def test_numbers_that_compare_equal_are_of_one_type(key: object) -> None:
    assert key_types(key_shapes([key])) == {"number"}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a", "str"),
        (Name.ANN, "str"),
        (np.str_("a"), "str"),
        (b"a", "bytes"),
        (None, "None"),
        (date(2020, 1, 1), "date"),
        (Color.RED, "Color"),
        (frozenset({1}), "frozenset"),
        (("a", 1), "tuple[str, number]"),
        (Point(1, "a"), "tuple[number, str]"),
        (("a", (1, 2)), "tuple[str, tuple]"),
        ((), "tuple[]"),
    ],
)
def test_a_type_has_a_name(key: object, name: str) -> None:
    assert key_types(key_shapes([key])) == {name}


def test_all_types_among_many_keys_are_found() -> None:
    keys = [*range(1000), "a", ("a",), ("a", "b"), Point(1, 2)]

    assert key_types(key_shapes(keys)) == {"number", "str", "tuple[str]", "tuple[str, str]", "tuple[number, number]"}


@pytest.mark.parametrize("key", ["a", 1, 1.5, True, None, b"a", Decimal(1), UUID(int=1), (), ("a", 1, None)])
def test_what_a_person_can_type_in_is_plain(key: object) -> None:
    assert are_plain(key_shapes([key, "b"]))


@pytest.mark.parametrize(
    "key",
    [Name.ANN, Level.LOW, date(2020, 1, 1), Point(1, 2), ("a", (1,)), ("a", Decimal(1)), frozenset(), np.int64(1)],
)
def test_one_key_that_a_person_cannot_type_in_is_not_plain_among_many(key: object) -> None:
    assert not are_plain(key_shapes(["b", ("c", 1), key, "d"]))
