"""A dict that may have very many entries, and is several dicts: none of them is so great that its growth is a pause.

A dict that grows, or takes in as much as is taken out of it, moves all its entries at once now and then: 30 ms for half
a million of them. Here a key's hash says which of the dicts it is in, and only that one moves.

    number of dicts    a prime, so that keys which are all multiples of something spread, too
    order              in each dict the oldest come first; `oldest` takes from one dict after the other

Not here: what the entries are (`rocksdb.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from flowpoint.state.spec import ABSENT

_ENTRIES_PER_DICT: Final = 1 << 15
_PRIMES: Final = (1, 3, 7, 17, 31, 61, 127, 251, 509, 1021, 2039, 4093, 8191)


class Shards:
    """Keys to values, made for about so many entries."""

    def __init__(self, expected: int) -> None:
        """`expected`: more than these are held, too, in greater dicts."""
        wanted = min(expected // _ENTRIES_PER_DICT + 1, _PRIMES[-1])
        self._dicts: list[dict[Any, Any]] = [{} for _ in range(_PRIMES[bisect_left(_PRIMES, wanted)])]
        self._count = len(self._dicts)
        self._next = 0

    def get(self, key: Any) -> Any:
        """The value, or ABSENT."""
        return self._dicts[hash(key) % self._count].get(key, ABSENT)

    def __getitem__(self, key: Any) -> Any:
        return self._dicts[hash(key) % self._count][key]

    def __contains__(self, key: Any) -> bool:
        return key in self._dicts[hash(key) % self._count]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._dicts)

    def __len__(self) -> int:
        return sum(map(len, self._dicts))

    def of(self, key: Any) -> dict[Any, Any]:
        """The dict that has or would have a key."""
        return self._dicts[hash(key) % self._count]

    def renew(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Put entries in; they are the newest now, also where they had been there."""
        dicts, count = self._dicts, self._count
        for key, value in zip(keys, values, strict=True):
            entries = dicts[hash(key) % count]
            entries.pop(key, None)
            entries[key] = value

    def oldest(self, count: int) -> list[tuple[Any, Any]]:
        """About `count` of the oldest entries, of one dict; the next call looks into the next one."""
        for _ in self._dicts:
            entries = self._dicts[self._next]
            self._next = (self._next + 1) % self._count
            if entries:
                return list(islice(entries.items(), count))
        return []

    def remove(self, keys: Sequence[Any]) -> None:
        """Take out entries that are there."""
        dicts, count = self._dicts, self._count
        for key in keys:
            del dicts[hash(key) % count][key]
