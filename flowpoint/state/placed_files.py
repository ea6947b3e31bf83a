"""One state in the files of a snapshot, read a key at a time or as one merged stream, without taking it over first.

Each file is clipped to the places (`codec.placement.place_of`) that count of it. Files come oldest first: where two of them
say something of a key, the later one is right.

    find      looks newest file first; a file says by its index alone that it has nothing, else one block is read
    merged    all entries from a place on, in the order of places, in steps of a few hundred

Invariants: nothing is written; a block is proved by its checksum when it is read. A value that `find` gives is shared
with the block it came from: it may be changed only by who puts it where `find` is never asked for it again.

Not here: what hides these entries (`restored.py`), where the bytes are (`ReadRange`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flowpoint.codec.values import Codec
from flowpoint.errors import SnapshotError
from flowpoint.state.file_format import BlockRef, FileReader, StoredBlock
from flowpoint.state.spec import ABSENT, TOMBSTONE

PLACES_END: Final = 1 << 32
_BLOCKS_KEPT: Final = 8
STEP_ENTRIES_MAX: Final = 256


def step_entries(cache_bytes: int) -> int:
    """How many entries to move at a time where so much memory is allowed."""
    return min(max(cache_bytes >> 12, 1), STEP_ENTRIES_MAX)


@dataclass(frozen=True, slots=True)
class Portion:
    """Live entries in the order of their places: all that there are from the end of the run before up to `end`."""

    end: int
    places: list[int]
    keys: list[Any]
    values: list[Any]


class _Rows:
    """The live entries, or the deleted ones, of one state in one file: numbers into the list of all places."""

    __slots__ = ("_starts", "first", "places", "stop")

    def __init__(self, places: array[int], starts: Sequence[int], stop: int, clip: tuple[int, int]) -> None:
        """`starts`: the number of the first entry of each block; `stop`: the one after the last entry."""
        self.places = places
        self._starts = starts
        self.first = bisect_left(places, clip[0], starts[0], stop)
        self.stop = bisect_left(places, clip[1], self.first, stop)

    def at(self, place: int) -> range:
        """The entries at a place; nearly always none or one."""
        first = bisect_left(self.places, place, self.first, self.stop)
        if first == self.stop or self.places[first] != place:
            return range(0)
        return range(first, bisect_right(self.places, place, first, self.stop))

    def after(self, row: int, entries: int) -> int:
        """A place such that a step from `row` on up to it has about so many entries, and at least one."""
        if row >= self.stop:
            return PLACES_END
        far = min(row + entries, self.stop - 1)
        if self.places[far] > self.places[row]:
            return self.places[far]
        return self.places[row] + 1

    def in_blocks(self, first: int, stop: int) -> Iterator[tuple[int, slice]]:
        """(number of a block, the part of its entries) that together are the entries [first, stop)."""
        while first < stop:
            block = bisect_right(self._starts, first) - 1
            start = self._starts[block]
            end = self._starts[block + 1] if block + 1 < len(self._starts) else stop
            yield block, slice(first - start, min(end, stop) - start)
            first = end


class PlacedState:
    """One state in one file, as far as its places are in `clip` (from, up to)."""

    def __init__(self, reader: FileReader, number: int, codec: Codec, clip: tuple[int, int]) -> None:
        assert reader.placed is not None, "a file without places is read whole"
        self._reader = reader
        self._codec = codec
        self._refs: list[BlockRef] = []
        self._kept: OrderedDict[int, StoredBlock] = OrderedDict()
        live_starts, dead_starts = [], []
        live = dead = 0
        live_stop = dead_stop = 0
        for ref in reader.refs:
            if ref.state == number:
                if self._refs and (live, dead) != (live_stop, dead_stop):
                    raise SnapshotError(f"cannot read the state file {reader.name}: the blocks of a state lie apart")
                self._refs.append(ref)
                live_starts.append(live)
                dead_starts.append(dead)
                live_stop, dead_stop = live + ref.live, dead + ref.dead
            live += ref.live
            dead += ref.dead
        self.live = _Rows(reader.placed.live, live_starts, live_stop, clip)
        self.dead = _Rows(reader.placed.dead, dead_starts, dead_stop, clip)

    def find(self, place: int, key: Any) -> Any:
        """The value of a key; TOMBSTONE: it was deleted; ABSENT: this file says nothing of it."""
        for row in self.live.at(place):
            for block, rows in self.live.in_blocks(row, row + 1):
                stored = self.block(block)
                if stored.keys[rows.start] == key:
                    return stored.values[rows.start]
        for row in self.dead.at(place):
            for block, rows in self.dead.in_blocks(row, row + 1):
                if self.block(block).dead[rows.start] == key:
                    return TOMBSTONE
        return ABSENT

    def submap(self, place: int, key: Any) -> dict[Any, Any]:
        """All entries of a map's key, map key -> value or TOMBSTONE."""
        found: dict[Any, Any] = {}
        rows = self.live.at(place)
        for block, part in self.live.in_blocks(rows.start, rows.stop):
            stored = self.block(block)
            for pair, value in zip(stored.keys[part], stored.values[part], strict=True):
                if pair[0] == key:
                    found[pair[1]] = value
        rows = self.dead.at(place)
        for block, part in self.dead.in_blocks(rows.start, rows.stop):
            found.update((pair[1], TOMBSTONE) for pair in self.block(block).dead[part] if pair[0] == key)
        return found

    def entries(self, first: int, stop: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """(keys, values) of live entries by their numbers."""
        for block, part in self.live.in_blocks(first, stop):
            stored = self.block(block)
            yield stored.keys[part], stored.values[part]

    def dead_keys(self, first: int, stop: int) -> Iterator[list[Any]]:
        """The keys of deleted entries by their numbers."""
        return (self.block(block).dead[part] for block, part in self.dead.in_blocks(first, stop))

    def block(self, number: int) -> StoredBlock:
        """One of its blocks. Raises SnapshotError when it is damaged."""
        block = self._kept.pop(number, None) or self._reader.stored_block(self._refs[number], self._codec)
        self._kept[number] = block
        if len(self._kept) > _BLOCKS_KEPT:
            self._kept.popitem(last=False)
        return block


class PlacedFiles:
    """One state in a chain of files, oldest first. `merged` takes about `step_entries` of a file at a time."""

    def __init__(self, step_entries: int = STEP_ENTRIES_MAX) -> None:
        self._files: list[PlacedState] = []
        self._step_entries = step_entries

    def add(self, file: PlacedState) -> None:
        """A file that is newer than those before, as far as it is of the same places."""
        self._files.append(file)

    def __len__(self) -> int:
        """At least how many live entries there are to be read."""
        return sum(file.live.stop - file.live.first for file in self._files)

    def find(self, place: int, key: Any) -> Any:
        """The value of a key, or ABSENT.

        Raises:
            SnapshotError: a file is damaged.
        """
        for file in reversed(self._files):
            value = file.find(place, key)
            if value is not ABSENT:
                return ABSENT if value is TOMBSTONE else value
        return ABSENT

    def submap(self, place: int, key: Any) -> dict[Any, Any]:
        """The live entries of a map's key. Raises as `find`."""
        found: dict[Any, Any] = {}
        for file in self._files:
            found |= file.submap(place, key)
        return {map_key: value for map_key, value in found.items() if value is not TOMBSTONE}

    def merged(self, start: int) -> Iterator[Portion]:
        """All live entries from a place on. Raises as `find`."""
        cursors = [_Cursor(file, start) for file in self._files]
        end = start
        while end < PLACES_END:
            end = min((cursor.next_end(self._step_entries) for cursor in cursors), default=PLACES_END)
            steps = [step for cursor in cursors if (step := cursor.take(end)) is not None]
            yield _merge(steps, end)


@dataclass(slots=True)
class _Step:
    """What one file says of the places of one step."""

    places: list[int]
    keys: list[Any]
    values: list[Any]
    dead: list[Any]


class _Cursor:
    """How far one file was read."""

    def __init__(self, file: PlacedState, start: int) -> None:
        self._file = file
        self._live = bisect_left(file.live.places, start, file.live.first, file.live.stop)
        self._dead = bisect_left(file.dead.places, start, file.dead.first, file.dead.stop)

    def next_end(self, entries: int) -> int:
        """Up to where to go next."""
        return min(self._file.live.after(self._live, entries), self._file.dead.after(self._dead, entries))

    def take(self, end: int) -> _Step | None:
        """What is before `end`, if anything."""
        live, dead = self._file.live, self._file.dead
        live_stop = bisect_left(live.places, end, self._live, live.stop)
        dead_stop = bisect_left(dead.places, end, self._dead, dead.stop)
        if (live_stop, dead_stop) == (self._live, self._dead):
            return None
        step = _Step(live.places[self._live : live_stop].tolist(), [], [], [])
        for keys, values in self._file.entries(self._live, live_stop):
            step.keys += keys
            step.values += values
        for keys in self._file.dead_keys(self._dead, dead_stop):
            step.dead += keys
        self._live, self._dead = live_stop, dead_stop
        return step


def _merge(steps: list[_Step], end: int) -> Portion:
    """The newest live entries of a few steps, oldest first."""
    if not steps:
        return Portion(end, [], [], [])
    if len(steps) == 1:
        return Portion(end, steps[0].places, steps[0].keys, steps[0].values)
    newest: dict[Any, tuple[int, Any]] = {}
    for step in steps:
        newest.update(zip(step.keys, zip(step.places, step.values, strict=True), strict=True))
        for key in step.dead:
            newest.pop(key, None)
    ordered = sorted(newest.items(), key=_place_in)
    return Portion(
        end, [place for _, (place, _) in ordered], [key for key, _ in ordered], [value for _, (_, value) in ordered]
    )


def _place_in(entry: tuple[Any, tuple[int, Any]]) -> int:
    return entry[1][0]
