"""Keys of all allowed types, for tests: some classes of them, and strategies that make any."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

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


class Point(NamedTuple):
    x: Any
    y: Any


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
