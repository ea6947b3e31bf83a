"""Read one state of one operator out of its files: a key at a time, or everything as a stream, newest entries first.

Each subtask's files are a chain, oldest first, in which later entries win, and only the key groups that the subtask
owned count. A key is looked for in the block at its place, or where a file does not tell places, in the blocks of its
key group: newest file first, and only the keys are decoded until one has it. A walk goes key group by key group.

Invariants: memory holds the blocks of one key group at most, and what newer files say of it. Nothing is imported or
called because a file names it. Damage is a SnapshotError that names the file.

Not here: what a key that a person types may mean (`key_text`), whether everything in the files is sound (`verified`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from flowpoint.codec.placement import place_of, place_width
from flowpoint.codec.raw import RawCodec, RawEnum, RawObject, bare_name
from flowpoint.codec.registry import encode_enum
from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.model.key_groups import overlap
from flowpoint.state.file_format import BlockRef, FileReader, StoredBlock
from flowpoint.state.placed_files import PlacedState
from flowpoint.state.spec import ABSENT

MAP: Final = "map"
_BLOCKS_KEPT: Final = 8
_NO_ROWS: Final = slice(0, 0)
_OVERLAP_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as it is stored. `key` is a map's key alone; `value` then is the dict of its entries."""

    subtask: int
    group: int
    key: Any
    value: Any


class StateInFile:
    """The blocks of one state in one file, found by key group, the last few of them kept."""

    def __init__(
        self, reader: FileReader, name: str, codec: RawCodec, max_parallelism: int, groups: tuple[int, int]
    ) -> None:
        """`groups`: the key groups that count of the file."""
        self._reader = reader
        self._groups = groups
        self._codec = codec
        self._kept: OrderedDict[int, StoredBlock] = OrderedDict()
        numbers = [number for number, state in enumerate(reader.states) if state[0] == name]
        mine = (ref for ref in reader.refs if ref.state in numbers and ref.last >= groups[0] and ref.first <= groups[1])
        self.refs = sorted(mine, key=lambda ref: ref.first)
        self._firsts = [ref.first for ref in self.refs]
        # How many groups the widest block spans tells how far back from a group the search must begin.
        self._span_max = max((ref.last - ref.first for ref in self.refs), default=0)
        self._placed: PlacedState | None = None
        if numbers and reader.placed is not None and reader.placed.max_parallelism == max_parallelism:
            width = place_width(max_parallelism)
            self._placed = PlacedState(reader, numbers[0], codec, (groups[0] * width, (groups[1] + 1) * width))
        if sum(ref.last - ref.first for ref in self.refs) > _OVERLAP_MAX * max_parallelism:
            raise SnapshotError(
                f"cannot read state {name!r}: the blocks of its file overlap; use another snapshot, or restore the file"
            )

    def is_within(self, groups: tuple[int, int]) -> bool:
        """Whether all entries of its blocks count."""
        first, last = overlap(self._groups, groups)
        return all(first <= ref.first and ref.last <= last for ref in self.refs)

    def covering(self, group: int) -> Iterator[tuple[StoredBlock, slice, slice]]:
        """The blocks with entries of a key group, and where its live and its dead ones are in them."""
        if not self._groups[0] <= group <= self._groups[1]:
            return
        stop = bisect_right(self._firsts, group)
        start = bisect_right(self._firsts, group - self._span_max - 1)
        for ref in self.refs[start:stop]:
            if ref.last >= group:
                block = self._block(ref)
                live, dead = block.within(group, group)
                yield block, live, dead

    def holding(self, group: int, place: int) -> Iterator[tuple[StoredBlock, slice, slice]]:
        """The same, where the place in the group is known too: only blocks that have it, if the file tells."""
        if self._placed is None:
            yield from self.covering(group)
            return
        live, dead = self._placed.live, self._placed.dead
        rows = live.at(place)
        for number, part in live.in_blocks(rows.start, rows.stop):
            yield self._placed.block(number), part, _NO_ROWS
        rows = dead.at(place)
        for number, part in dead.in_blocks(rows.start, rows.stop):
            yield self._placed.block(number), _NO_ROWS, part

    def _block(self, ref: BlockRef) -> StoredBlock:
        block = self._kept.pop(ref.offset, None) or self._reader.stored_block(ref, self._codec)
        self._kept[ref.offset] = block
        if len(self._kept) > _BLOCKS_KEPT:
            self._kept.popitem(last=False)
        return block


@dataclass(frozen=True, slots=True)
class StatePart:
    """One state in one subtask: the key groups it owned, and its files, newest first."""

    subtask: int
    groups: tuple[int, int]
    files: Sequence[StateInFile]

    def entries(self, group: int) -> Iterator[tuple[Any, Any]]:
        """The live entries of a key group."""
        seen: set[Any] = set()
        for depth, file in enumerate(self.files):
            newer: list[Any] = []
            for block, live, dead in file.covering(group):
                keys = block.keys[live]
                if seen:
                    yield from (pair for pair in zip(keys, block.values[live], strict=True) if pair[0] not in seen)
                else:
                    yield from zip(keys, block.values[live], strict=True)
                if depth + 1 < len(self.files):
                    newer += keys
                    newer += block.dead[dead]
            seen.update(newer)

    def find(self, group: int, place: int, key: Any) -> tuple[Any, Any]:
        """(stored key, value) of a key in its group, at its place; (ABSENT, ABSENT) when it is not there."""
        for file in self.files:
            for block, live, dead in file.holding(group, place):
                keys = block.keys[live]
                at = _index_of(keys, key)
                if at >= 0:
                    return keys[at], block.values[live][at]
                if _index_of(block.dead[dead], key) >= 0:
                    return ABSENT, ABSENT
        return ABSENT, ABSENT

    def find_map(self, group: int, place: int, key: Any) -> tuple[Any, dict[Any, Any]]:
        """(stored key, its entries) of a key of a map; (ABSENT, {}) when there is none."""
        stored: Any = ABSENT
        found: dict[Any, Any] = {}
        gone: set[Any] = set()
        for file in self.files:
            newer: set[Any] = set()
            for block, live, dead in file.holding(group, place):
                pairs = block.keys[live]
                for at in _indexes_of(pairs, key):
                    other, map_key = pairs[at]
                    newer.add(map_key)
                    if map_key not in gone:
                        stored = other
                        found[map_key] = block.values[live.start + at]
                gone_here = block.dead[dead]
                newer.update(gone_here[at][1] for at in _indexes_of(gone_here, key))
            gone |= newer
        return stored, found


@dataclass(frozen=True)
class KeyedState:
    """One state of one operator, over all its subtasks.

    For a value or list state there is one value per key; for a map state the value of a key is a dict.

    Attributes:
        name: as the job declares it. `__timers__` holds the timers, as a map (domain, timestamp) -> True.
        kind: "value", "list" or "map".
        schema: what the manifest says of its type.
        has_plain_keys: whether each key is one that `key_text.meanings` gives for the text that it is shown as; False:
            that is not known.
    """

    name: str
    kind: str
    schema: dict[str, Any]
    max_parallelism: int
    parts: Sequence[StatePart] = field(repr=False)
    has_plain_keys: bool = False

    @property
    def bytes(self) -> int:
        """The size of its blocks in the files, older versions of its entries included."""
        return sum(ref.size for part in self.parts for file in part.files for ref in file.refs)

    @property
    def stored_entries(self) -> int:
        """How many live entries stand in the files: `count()` or, where newer files replace some of them, more."""
        return sum(ref.live for part in self.parts for file in part.files for ref in file.refs)

    @property
    def is_exact(self) -> bool:
        """Whether `stored_entries` is how many there are."""
        return all(
            len([file for file in part.files if file.refs]) <= 1
            and all(file.is_within(part.groups) for file in part.files)
            for part in self.parts
        )

    def count(self) -> int:
        """How many entries there are; those of a map are counted one by one. Walks through all keys if it must.

        Raises:
            SnapshotError: a file is damaged.
        """
        return self.stored_entries if self.is_exact else sum(1 for _ in self.entries())

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`. Reads only the blocks of its key group.

        Raises:
            BadRecordError: such a value cannot be a key.
            SnapshotError: a file is damaged.
        """
        found = self.find(key)
        return default if found is None else found.value

    def find(self, key: Any) -> Found | None:
        """The entry of a key as it is stored, or None."""
        if _is_raw(key):
            return self._search(key)
        place = place_of(key, self.max_parallelism)
        group = place // place_width(self.max_parallelism)
        with _damage_named(self.name):
            for part in self.parts:
                if part.groups[0] <= group <= part.groups[1]:
                    find = part.find_map if self.kind == MAP else part.find
                    stored, value = find(group, place, key)
                    if stored is not ABSENT:
                        return Found(part.subtask, group, stored, value)
        return None

    def group_of(self, key: Any) -> int:
        """The key group of a key, whether it is there or not.

        Raises:
            BadRecordError: such a value cannot be a key.
        """
        return place_of(key, self.max_parallelism) // place_width(self.max_parallelism)

    def keys(self) -> Iterator[Any]:
        """All keys, in no particular order."""
        return (entry.key for entry in self.walk())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values, in no particular order, read as you go.

        Raises:
            SnapshotError: a file is damaged.
        """
        return ((entry.key, entry.value) for entry in self.walk())

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All entries as they stand in the files: the keys of a map are pairs (key, map key)."""
        with _damage_named(self.name):
            for part in self.parts:
                for group in _groups_of(part):
                    yield from part.entries(group)

    def walk(self) -> Iterator[Found]:
        """All keys with where they are."""
        with _damage_named(self.name):
            for part in self.parts:
                for group in _groups_of(part):
                    entries = part.entries(group)
                    if self.kind == MAP:
                        entries = _gathered(entries)
                    for key, value in entries:
                        yield Found(part.subtask, group, key, value)

    def _search(self, key: Any) -> Found | None:
        """Find a key whose hash needs the job's classes."""
        return next((found for found in self.walk() if found.key == key), None)


def _groups_of(part: StatePart) -> Iterator[int]:
    """The key groups of a part that have entries, in order."""
    if any(file.refs for file in part.files):
        yield from range(part.groups[0], part.groups[1] + 1)


def _gathered(entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The entries of a map in one key group, one dict per key."""
    maps: dict[Any, dict[Any, Any]] = {}
    for (key, map_key), value in entries:
        maps.setdefault(key, {})[map_key] = value
    yield from maps.items()


def is_same_key(stored: Any, key: Any) -> bool:
    """Whether a stored key is the given one, also where its class is not known here."""
    if type(stored) is RawEnum:
        name, member = bare_name(stored.name), stored.member
        is_member = isinstance(key, Enum) and type(key).__qualname__ == name and encode_enum(key) == member
        return is_member or bool(stored == key)
    return bool(stored == key or (type(stored) is RawObject and stored.values == key))


def _index_of(keys: list[Any], key: Any) -> int:
    try:
        return keys.index(key)
    except ValueError:
        if not isinstance(key, Enum | tuple | RawEnum):
            return -1
    return next((at for at, stored in enumerate(keys) if is_same_key(stored, key)), -1)


def _indexes_of(pairs: list[Any], key: Any) -> list[int]:
    """Where the entries of a map's key are among (key, map key)."""
    if isinstance(key, Enum | tuple | RawEnum):
        return [at for at, pair in enumerate(pairs) if is_same_key(pair[0], key)]
    return [at for at, pair in enumerate(pairs) if pair[0] == key]


def _is_raw(key: Any) -> bool:
    """Whether a key is, or has in it, what only the job's classes could hash."""
    return type(key) in (RawEnum, RawObject) or (type(key) is tuple and any(map(_is_raw, key)))


@contextmanager
def _damage_named(state: str) -> Iterator[None]:
    """Errors of decoding are damage here: no class is missing, since none is needed."""
    try:
        yield
    except IncompatibleStateError as error:
        raise SnapshotError(str(error)) from error
    except (TypeError, ValueError) as error:
        raise SnapshotError(
            f"cannot read state {state!r}: an entry is not shaped as one ({error}); use another snapshot"
        ) from error
