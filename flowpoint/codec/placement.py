"""Keys to key groups and places: where all keyed state lies.

    group = xxh32(canonical(key), seed 0) % max_parallelism

A place orders the keys inside of their groups: the upper part of it is the group, the lower part the rest of the hash.
Both must never change: keyed state of every snapshot lies where they put it. A table test pins the hash.

Invariants: equal keys have the same place, since they have the same canonical form; the same key has the same place in
every process and on every machine; each place of group g is less than each of group g + 1.

Not here: the bytes of a key (`keys.py`); `owner = group * parallelism // max_parallelism` (`model.key_groups`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack
from xxhash import xxh32_intdigest

from flowpoint.codec.keys import STR_HEADS, canonical

_HASH_MAX: Final = (1 << 32) - 1
_CACHE_ENTRIES_MAX: Final = 65_536
_CACHE_KEY_BYTES_MAX: Final = 256


def hash_key(key: Any) -> int:
    """The 32-bit hash that places a key. Stable for ever, over processes and machines.

    Raises:
        BadRecordError: as `canonical`.
    """
    return xxh32_intdigest(canonical(key))


def group_of(key: Any, max_parallelism: int) -> int:
    """The key group of a key.

    Raises:
        BadRecordError: as `canonical`.

    Example:
        >>> group_of("word", 128) == group_of("word", 128) < 128
        True
    """
    return hash_key(key) % max_parallelism


def place_width(max_parallelism: int) -> int:
    """How many places a key group has: those of group g are [g * width, (g + 1) * width), all below 2**32.

    Example:
        >>> place_width(128)
        16777216
    """
    return (_HASH_MAX // max_parallelism >> 1) + 1


def place_of(key: Any, max_parallelism: int) -> int:
    """Where a key stands in the order of stored state: by key group, then by the rest of its hash.

    Raises:
        BadRecordError: as `canonical`.

    Example:
        >>> place_of("word", 128) // place_width(128) == group_of("word", 128)
        True
    """
    return place_of_canonical(canonical(key), max_parallelism)


def place_of_canonical(data: bytes, max_parallelism: int) -> int:
    """The place of a key that is in its canonical form."""
    digest = xxh32_intdigest(data)
    return digest % max_parallelism * place_width(max_parallelism) + (digest // max_parallelism >> 1)


def places_of(keys: Sequence[Any], max_parallelism: int) -> list[int]:
    """The places of many keys. Raises as `place_of`."""
    width = place_width(max_parallelism)
    return [digest % max_parallelism * width + (digest // max_parallelism >> 1) for digest in _hashes_of(keys)]


def _hashes_of(keys: Sequence[Any]) -> list[int]:
    digest, heads = xxh32_intdigest, STR_HEADS
    types = set(map(type, keys))
    if types == {int}:
        try:
            return list(map(digest, map(msgpack.Packer().pack, keys)))
        except OverflowError:
            # More than 64 bits: the general way takes them.
            pass
    if types == {str}:
        try:
            return [digest(heads[len(data)] + data) for data in map(str.encode, keys)]
        except (IndexError, UnicodeEncodeError):
            # A long key, or a lone surrogate: the general way takes both.
            pass
    return [digest(canonical(key)) for key in keys]


class GroupCache:
    """Remembers the key groups of recent keys; one per hash edge, in the process that routes.

    Generated code looks into `groups` itself and calls `miss` for what is not there. It may keep a reference to the
    dict: it is never replaced. Right only because equal keys have equal groups. Bounded by entries and, as long
    keys are not kept, by bytes; at the bound it starts over.
    """

    __slots__ = ("_entries_max", "_max_parallelism", "groups")

    def __init__(self, max_parallelism: int, entries_max: int = _CACHE_ENTRIES_MAX) -> None:
        self.groups: dict[Any, int] = {}
        self._max_parallelism = max_parallelism
        self._entries_max = entries_max

    def miss(self, key: Any) -> int:
        """The group of a key that is not in `groups`; remembers it.

        Raises:
            BadRecordError: as `canonical`, also for an unhashable key.
        """
        data = canonical(key)
        group = xxh32_intdigest(data) % self._max_parallelism
        if len(data) <= _CACHE_KEY_BYTES_MAX:
            if len(self.groups) >= self._entries_max:
                self.groups.clear()
            self.groups[key] = group
        return group
