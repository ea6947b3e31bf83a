"""Puts the entries of one table into the order of their places, in slices that leave the loop its turns.

Entries in memory come in any order: they go into buckets of a few hundred neighbours each, and a bucket is sorted when
it is its turn. What a base has on the disk comes in order already, and is merged in.

Not here: what a place is (`codec.placement.place_of`), which entries there are (`frozen.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from flowpoint.state.placed_files import PLACES_END

_BUCKET_ENTRIES: Final = 256
_BUCKETS_MAX: Final = 1 << 16
_MERGED_ENTRIES: Final = 512


@dataclass(frozen=True, slots=True)
class Run:
    """Entries in the order of their places; a value may be TOMBSTONE."""

    places: list[int]
    keys: list[Any]
    values: list[Any]


class Buckets:
    """Entries by the upper digits of their places."""

    def __init__(self, expected: int) -> None:
        """`expected`: about how many entries will come."""
        count = min(max(expected // _BUCKET_ENTRIES, 1), _BUCKETS_MAX)
        self._width = PLACES_END // count + 1
        self._buckets: dict[int, Run] = {}

    def add(self, places: Sequence[int], keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Take entries in."""
        buckets, width = self._buckets, self._width
        for number, place, key, value in zip([place // width for place in places], places, keys, values, strict=True):
            bucket = buckets.get(number)
            if bucket is None:
                buckets[number] = Run([place], [key], [value])
            else:
                bucket.places.append(place)
                bucket.keys.append(key)
                bucket.values.append(value)

    def runs(self) -> Iterator[Run]:
        """All entries in order, bucket by bucket; they are let go of on the way."""
        for number in sorted(self._buckets):
            yield _in_order(self._buckets.pop(number))


def _in_order(run: Run) -> Run:
    if len(run.places) == 1:
        return run
    # Columns are picked from by one call each: nothing is done per entry here.
    pick = itemgetter(*sorted(range(len(run.places)), key=run.places.__getitem__))
    return Run(list(pick(run.places)), list(pick(run.keys)), list(pick(run.values)))


def with_stored(runs: Iterator[Run], stored: Iterator[tuple[int, Any, Any]]) -> Iterator[Run]:
    """Runs in order, and entries in order that are not among them, as runs in order."""
    first = next(stored, None)
    if first is None:
        yield from runs
        return
    mine = (entry for run in runs for entry in zip(run.places, run.keys, run.values, strict=True))
    merged = heapq.merge(mine, _with(first, stored), key=itemgetter(0))
    while part := list(islice(merged, _MERGED_ENTRIES)):
        places, keys, values = zip(*part, strict=True)
        yield Run(list(places), list(keys), list(values))


def _with(first: tuple[int, Any, Any], rest: Iterator[tuple[int, Any, Any]]) -> Iterator[tuple[int, Any, Any]]:
    yield first
    yield from rest
