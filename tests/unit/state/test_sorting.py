"""Entries come out in the order of their places, whatever the order and the skew in which they went in."""

from __future__ import annotations

import random

import pytest

from flowpoint.codec.placement import group_of, place_of, place_width, places_of
from flowpoint.state.sorting import Buckets, Run, with_stored


def flat(runs: list[Run]) -> list[tuple[int, object]]:
    return [entry for run in runs for entry in zip(run.places, run.keys, strict=True)]


@pytest.mark.parametrize("expected", [0, 10, 10_000, 10**9])
def test_entries_in_memory_are_sorted_whatever_number_was_expected(expected: int) -> None:
    keys = [f"k{n}" for n in range(3000)]
    places = places_of(keys, 128)
    buckets = Buckets(expected)

    buckets.add(places[:1000], keys[:1000], keys[:1000])
    buckets.add(places[1000:], keys[1000:], keys[1000:])

    found = flat(list(buckets.runs()))
    assert [place for place, _ in found] == sorted(places)
    assert dict(found) == dict(zip(places, keys, strict=True))


def test_what_is_stored_in_order_is_merged_in() -> None:
    draw = random.Random(7)
    mine, theirs = draw.sample(range(1 << 31), 500), sorted(draw.sample(range(1 << 31), 1500))
    buckets = Buckets(len(mine))
    buckets.add(mine, mine, mine)

    runs = list(with_stored(buckets.runs(), ((place, place, place) for place in theirs)))

    assert [place for place, _ in flat(runs)] == sorted([*mine, *theirs])


@pytest.mark.parametrize("max_parallelism", [1, 3, 16, 100, 128, 32_768])
def test_places_are_in_the_order_of_key_groups_and_fit_into_four_bytes(max_parallelism: int) -> None:
    keys = [*range(500), *(f"k{n}" for n in range(500)), (1, "a"), 1.5, None]
    width = place_width(max_parallelism)

    for key, place in zip(keys, places_of(keys, max_parallelism), strict=True):
        assert place // width == group_of(key, max_parallelism)
        assert place == place_of(key, max_parallelism) < 1 << 32
