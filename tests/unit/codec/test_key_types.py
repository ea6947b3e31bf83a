"""Keys that compare equal are of one type; other types, and tuples of another length, are told apart."""

from __future__ import annotations

from collections import namedtuple
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum

import numpy as np
import pytest

from flowpoint.codec.key_types import key_types


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Name(StrEnum):
    ANN = "ann"


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("key", [1, True, 1.0, Decimal(1), Level.LOW, np.int64(1), np.float32(1), np.bool_(True)])
def test_numbers_that_compare_equal_are_of_one_type(key: object) -> None:
    assert key_types([key]) == {"number"}


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
    assert key_types([key]) == {name}


def test_all_types_among_many_keys_are_found() -> None:
    assert key_types([*range(1000), "a", ("a",), ("a", "b")]) == {"number", "str", "tuple[str]", "tuple[str, str]"}
