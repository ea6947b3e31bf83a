"""Every key stays in its key group for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.codec.placement import GroupCache, group_of, hash_key, place_of, places_of
from flowpoint.errors import BadRecordError
from tests.unit.codec.made_keys import BERLIN, Color, Level, Mode, keys

TABLE = Path(__file__).parents[2] / "fixtures" / "key_groups.json"


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
    code = "import json, tests.unit.codec.test_placement as t; print(json.dumps(t.placements()))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )

    assert json.loads(done.stdout) == json.loads(TABLE.read_text())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=300) | st.just("\ud800"), min_size=1, max_size=4) | st.lists(keys, max_size=4))
def test_many_keys_are_placed_like_single_ones(several: list[Any]) -> None:
    assert places_of(several, 1000) == [place_of(key, 1000) for key in several]


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
