"""The base of a table of which a part still lies in the files that it was restored from.

A restore only reads the indexes of the files, so records flow again at once, however big the state is. What is asked
for is then read from its block; meanwhile the rest moves over, a few hundred entries at a time, in the order of places:

    [0, moved)           all in the base below
    [moved, the end)     in the base if it was written or read since, else in the files

Invariants:
- What is in the base is newer than the files, and stays so: only what the base does not have moves over.
- A key that was deleted since stands in `_deleted` until everything has moved: the base forgets deleted keys.
- Nothing moves while the base is being written to a file (`must_copy`).

Not here: the files (`placed_files.py`), when to move (`layers.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from flowpoint.codec.placement import place_of
from flowpoint.state.placed_files import PLACES_END, PlacedFiles
from flowpoint.state.spec import ABSENT, TOMBSTONE, has_tombstone
from flowpoint.state.tables import Base, MapBase, Source


class RestoredBase:
    """`tables.Base` over another one and the files of a snapshot."""

    def __init__(self, base: Base, files: PlacedFiles, max_parallelism: int) -> None:
        self.base = base
        self.files = files
        self._max_parallelism = max_parallelism
        self._moved = 0
        self._moving = files.merged(0)
        self._deleted: set[Any] = set()

    @property
    def must_copy(self) -> bool:
        """See `tables.Base`."""
        return self.base.must_copy

    @must_copy.setter
    def must_copy(self, value: bool) -> None:
        self.base.must_copy = value

    def place(self, key: Any) -> int:
        """Where a key is in the files."""
        return place_of(key, self._max_parallelism)

    def get(self, key: Any) -> Any:
        """See `tables.Base`."""
        value = self.base.get(key)
        if value is not ABSENT or key in self._deleted:
            return value
        place = self.place(key)
        if place < self._moved:
            return ABSENT
        value = self.files.find(place, key)
        if value is not ABSENT and not self.must_copy:
            # What is asked for moves over at once: it may be changed where it then is, and is found faster next time.
            self.base.absorb([key], [value])
        return value

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """See `tables.Base`."""
        if has_tombstone(values):
            self._deleted.update(key for key, value in zip(keys, values, strict=True) if value is TOMBSTONE)
        self.base.absorb(keys, values)

    def in_memory(self) -> Source:
        """See `tables.Base`."""
        return self.base.in_memory()

    def is_resident(self, key: Any) -> bool:
        """See `tables.Base`."""
        return self.base.is_resident(key)

    def holding(self, places: tuple[int, int], keys: Sequence[Any]) -> set[Any]:
        """See `tables.Base`."""
        return self.base.holding(places, keys)

    def stored(self) -> Iterator[tuple[int, Any, Any]]:
        """See `tables.Base`: of a key that both have, what the base below says."""
        mine = zip(repeat(0), self.base.stored())
        theirs = zip(repeat(1), self._not_moved())
        here, seen = -1, set[Any]()
        # Of equal places, those from the base come first.
        for is_theirs, entry in heapq.merge(mine, theirs, key=_place_in):
            if entry[0] != here:
                here = entry[0]
                seen.clear()
            if is_theirs:
                if entry[1] not in seen:
                    yield entry
            else:
                seen.add(entry[1])
                yield entry

    def _not_moved(self) -> Iterator[tuple[int, Any, Any]]:
        for portion in self.files.merged(self._moved):
            for place, key, value in zip(portion.places, portion.keys, portion.values, strict=True):
                if key not in self._deleted and not self.base.is_resident(key):
                    yield place, key, value

    def __len__(self) -> int:
        return len(self.base) + len(self.files)

    @property
    def has_moved(self) -> bool:
        """Whether the base below has everything, so that this one can go."""
        return self._moved == PLACES_END

    def move_some(self) -> None:
        """Move one step over: a few hundred entries.

        Raises:
            SnapshotError: a file is damaged.
        """
        portion = next(self._moving)
        keys, values = portion.keys, portion.values
        newer = self.base.holding((self._moved, portion.end), keys)
        newer |= self._deleted.intersection(keys)
        if newer:
            kept = [key not in newer for key in keys]
            values = [value for value, keep in zip(values, kept, strict=True) if keep]
            keys = [key for key, keep in zip(keys, kept, strict=True) if keep]
        if keys:
            self.base.absorb(keys, values)
        self._moved = portion.end


class RestoredMapBase(RestoredBase):
    """`tables.MapBase` over another one and the files of a snapshot."""

    base: MapBase

    def place(self, key: Any) -> int:
        """Where a pair is in the files: where its key is."""
        return place_of(key[0], self._max_parallelism)

    def submap(self, key: Any) -> dict[Any, Any]:
        """See `tables.MapBase`."""
        newer = self.base.submap(key)
        place = place_of(key, self._max_parallelism)
        if place < self._moved:
            return newer
        older = self.files.submap(place, key)
        found = {map_key: value for map_key, value in older.items() if (key, map_key) not in self._deleted}
        return found | newer


def _place_in(tagged: tuple[int, tuple[int, Any, Any]]) -> int:
    return tagged[1][0]
