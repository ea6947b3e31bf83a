"""The format of a file of keyed state: columnar blocks, found by state and key group. Pure: bytes in, bytes out.

    header   "FLOWSTAT", format version (2 bytes), 2 bytes zero
    blocks   msgpack [groups, keys, values, dead groups, dead keys]; keys and values are columns of `Codec`
    footer   msgpack {"states": [[name, kind]...], "blocks": [[state, first, last, offset, size, live, dead, xxh3]...]}
    trailer  offset of the footer (8 bytes), xxh3-64 of the footer (8 bytes), "FLOWEND\\n"

Numbers outside msgpack are big-endian. Inside a block entries are in key-group order, and `groups` says how many belong
to each: [group, count, group, count...]. A map's keys are tuples (key, map key). Deleted entries stand apart from live
ones. The footer tells which block holds which key groups, so a reader that takes over some key groups reads only
their blocks; it may be given a function that reads a range instead of all bytes.

Invariants: an entry occurs at most once in a file; format 1 stays readable for ever (a golden file pins it).
Not here: which entries go into a file (`frozen.py`), where the file is (`snapshot/`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgpack
from xxhash import xxh3_64_intdigest

from flowpoint.codec.values import Codec, shortened
from flowpoint.errors import BadRecordError, IncompatibleStateError, SnapshotError
from flowpoint.state.spec import KINDS, TOMBSTONE, has_tombstone

FORMAT: Final = 1
_MAGIC: Final = b"FLOWSTAT"
_END: Final = b"FLOWEND\n"
_HEADER: Final = struct.Struct(">8sHH")
_TRAILER: Final = struct.Struct(">QQ8s")

ReadRange: TypeAlias = Callable[[int, int], bytes]
"""(offset, size) -> these bytes of a file."""

Entries: TypeAlias = Sequence[tuple[int, list[Any], list[Any]]]
"""(key group, keys, their values or TOMBSTONE), in group order."""


@dataclass(frozen=True, slots=True)
class Block:
    """Decoded entries of one state. `values[i]` belongs to `keys[i]`; `dead` keys were deleted."""

    state: str
    kind: str
    keys: list[Any]
    values: list[Any]
    dead: list[Any]


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where a block is and what the index says of it. `state` is a number in `FileReader.states`."""

    state: int
    first: int
    last: int
    offset: int
    size: int
    live: int
    dead: int
    checksum: int


class FileBuilder:
    """Makes the bytes of one file, piece by piece, in order: `header`, any number of `block`, `footer`."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._states: dict[str, tuple[int, str]] = {}
        self._refs: list[BlockRef] = []
        self._offset = 0
        self.entries = 0

    def header(self) -> bytes:
        """The first bytes."""
        return self._placed(_HEADER.pack(_MAGIC, FORMAT, 0))

    def block(self, state: str, kind: str, entries: Entries) -> bytes:
        """The bytes of a block.

        Raises:
            BadRecordError: a key or value cannot be serialised.
        """
        live_groups: list[int] = []
        dead_groups: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        dead: list[Any] = []
        for group, some_keys, some_values in entries:
            alive, alive_values, gone = some_keys, some_values, []
            if has_tombstone(some_values):
                pairs = list(zip(some_keys, some_values, strict=True))
                gone = [key for key, value in pairs if value is TOMBSTONE]
                alive = [key for key, value in pairs if value is not TOMBSTONE]
                alive_values = [value for value in some_values if value is not TOMBSTONE]
            keys += alive
            values += alive_values
            dead += gone
            _count(live_groups, group, len(alive))
            _count(dead_groups, group, len(gone))
        encoded = self._codec.encode_column
        body: bytes = msgpack.packb([live_groups, encoded(keys), encoded(values), dead_groups, encoded(dead)])
        number, _ = self._states.setdefault(state, (len(self._states), kind))
        self._refs.append(
            BlockRef(
                number,
                entries[0][0],
                entries[-1][0],
                self._offset,
                len(body),
                len(keys),
                len(dead),
                xxh3_64_intdigest(body),
            )
        )
        self.entries += len(keys) + len(dead)
        return self._placed(body)

    def footer(self) -> bytes:
        """The last bytes: index and trailer."""
        index = {
            "states": [[name, kind] for name, (_, kind) in self._states.items()],
            "blocks": [
                [ref.state, ref.first, ref.last, ref.offset, ref.size, ref.live, ref.dead, ref.checksum]
                for ref in self._refs
            ],
        }
        body: bytes = msgpack.packb(index)
        return body + _TRAILER.pack(self._offset, xxh3_64_intdigest(body), _END)

    def _placed(self, data: bytes) -> bytes:
        self._offset += len(data)
        return data


def _count(groups: list[int], group: int, count: int) -> None:
    if count:
        groups.append(group)
        groups.append(count)


class FileReader:
    """Reads one file; every check that fails is a SnapshotError with the file's name in it.

    Raises:
        SnapshotError: it is no state file, is damaged, or is of a newer format.
    """

    def __init__(self, name: str, data: bytes | ReadRange, size: int) -> None:
        self._name = name
        self._read: ReadRange = data if callable(data) else _slicer(data)
        self._size = size
        if size < _HEADER.size + _TRAILER.size:
            raise self._damaged(f"it has only {size} bytes")
        magic, version, reserved = _HEADER.unpack(self._read_exactly(0, _HEADER.size))
        if magic != _MAGIC:
            raise self._damaged("it does not begin as a state file")
        if version > FORMAT:
            raise SnapshotError(
                f"cannot read the state file {name}: it has format {version}, this version reads up to {FORMAT}; "
                f"upgrade FlowPoint"
            )
        if reserved or version == 0:
            raise self._damaged("its header is wrong")
        self._states, self._refs = self._index()

    def _index(self) -> tuple[list[tuple[str, str]], list[BlockRef]]:
        offset, checksum, end = _TRAILER.unpack(self._read_exactly(self._size - _TRAILER.size, _TRAILER.size))
        size = self._size - _TRAILER.size - offset
        if end != _END or size < 0 or offset < _HEADER.size:
            raise self._damaged("its end is missing")
        body = self._read_exactly(offset, size)
        if xxh3_64_intdigest(body) != checksum:
            raise self._damaged("its index does not match its checksum")
        try:
            states, refs = _parse_index(body, offset)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError, msgpack.UnpackException) as error:
            raise self._damaged(f"its index makes no sense ({shortened(error)})") from error
        for state, kind in states:
            if kind not in KINDS:
                raise IncompatibleStateError(
                    f"cannot read the state file {self._name}: state '{state}' is of the unknown kind '{kind}'; "
                    f"upgrade FlowPoint"
                )
        return states, refs

    @property
    def states(self) -> list[tuple[str, str]]:
        """(name, kind) of the states in the file."""
        return self._states

    @property
    def refs(self) -> list[BlockRef]:
        """Its blocks, in the order of the file."""
        return self._refs

    @property
    def entries(self) -> int:
        """How many entries the file holds, deletions included."""
        return sum(ref.live + ref.dead for ref in self._refs)

    def blocks(
        self, codec: Codec, first: int, last: int, values_of: Callable[[str], Codec] | None = None
    ) -> Iterator[Block]:
        """The entries whose key group is in [first, last], block by block. Other blocks are not even read.

        values_of: the codec that reads the values of a state, where that is another than `codec`, which reads keys.

        Raises:
            SnapshotError: a block is damaged.
            IncompatibleStateError: it holds values of classes that the job does not declare.
        """
        for ref in self._refs:
            if ref.last < first or ref.first > last:
                continue
            values = None if values_of is None else values_of(self._states[ref.state][0])
            stored = self.stored_block(ref, codec, values)
            block = Block(stored.state, stored.kind, stored.keys, stored.values, stored.dead)
            if ref.first < first or ref.last > last:
                live, gone = stored.within(first, last)
                block = Block(block.state, block.kind, block.keys[live], block.values[live], block.dead[gone])
            yield block

    def stored_block(self, ref: BlockRef, codec: Codec, values: Codec | None = None) -> StoredBlock:
        """A whole block, decoded as far as it is looked at; values by a codec of their own if there is one.

        Raises:
            SnapshotError: it is damaged.
        """
        body = self._read_exactly(ref.offset, ref.size)
        if xxh3_64_intdigest(body) != ref.checksum:
            raise self._damaged(f"the block at byte {ref.offset} does not match its checksum")
        return StoredBlock(self._name, self._states[ref.state], ref, body, codec, values or codec)

    def _read_exactly(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size) if offset >= 0 else b""
        if len(data) != size:
            raise self._damaged(f"{size} bytes at {offset} are missing")
        return data

    def _damaged(self, seen: str) -> SnapshotError:
        return _damaged(self._name, seen)


class StoredBlock:
    """The bytes of a block; its columns are decoded when they are first looked at.

    Attributes:
        live_groups: how many live entries belong to each key group: [group, count, group, count...].
        dead_groups: the same of deleted ones.

    Raises:
        SnapshotError: it does not hold what the index says.
        IncompatibleStateError: a column holds values of classes that the codec does not know.
    """

    def __init__(
        self, file: str, state: tuple[str, str], ref: BlockRef, body: bytes, codec: Codec, values: Codec
    ) -> None:
        self.state, self.kind = state
        self.ref = ref
        self._file = file
        self._codec = codec
        self._value_codec = values
        try:
            self.live_groups, self._keys, self._values, self.dead_groups, self._dead = msgpack.unpackb(body)
            counted = _counted(self.live_groups, ref), _counted(self.dead_groups, ref)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise self._makes_no_sense(shortened(error)) from error
        if counted != (ref.live, ref.dead):
            raise self._makes_no_sense(f"{counted} live and dead entries where the index says {ref.live, ref.dead}")

    @cached_property
    def keys(self) -> list[Any]:
        """The keys of live entries; a map's are pairs."""
        return self._column(self._codec, self._keys, self.ref.live)

    @cached_property
    def values(self) -> list[Any]:
        """The value of each of `keys`."""
        return self._column(self._value_codec, self._values, self.ref.live)

    @cached_property
    def dead(self) -> list[Any]:
        """The keys of deleted entries."""
        return self._column(self._codec, self._dead, self.ref.dead)

    def within(self, first: int, last: int) -> tuple[slice, slice]:
        """Where live and dead entries of key groups [first, last] are."""
        return _within(self.live_groups, first, last), _within(self.dead_groups, first, last)

    def _column(self, codec: Codec, data: bytes, count: int) -> list[Any]:
        try:
            column = codec.decode_column(data)
        except BadRecordError as error:
            raise IncompatibleStateError(f"cannot restore state '{self.state}' from {self._file}: {error}") from error
        if len(column) != count:
            raise self._makes_no_sense(f"{len(column)} entries in a column where {count} are counted")
        return column

    def _makes_no_sense(self, seen: str) -> SnapshotError:
        return _damaged(self._file, f"the block at byte {self.ref.offset} makes no sense: {seen}")


def _damaged(file: str, seen: str) -> SnapshotError:
    return SnapshotError(
        f"cannot read the state file {file}: {seen}; restore it from a backup, or use another snapshot"
    )


def _parse_index(body: bytes, end: int) -> tuple[list[tuple[str, str]], list[BlockRef]]:
    """The states and blocks of an index. `end` is where blocks end. Any error of unpacking may come out."""
    index = msgpack.unpackb(body)
    states = [(str(name), str(kind)) for name, kind in index["states"]]
    refs = [BlockRef(*fields) for fields in index["blocks"]]
    for ref in refs:
        numbers = (ref.state, ref.first, ref.last, ref.offset, ref.size, ref.live, ref.dead, ref.checksum)
        sound = all(type(number) is int and number >= 0 for number in numbers)
        if not sound or ref.state >= len(states) or ref.first > ref.last or ref.offset + ref.size > end:
            raise ValueError(f"{ref}")
    return states, refs


def _counted(groups: list[int], ref: BlockRef) -> int:
    """How many entries are counted in the groups of a block, which must rise from the first to the last it names."""
    numbers, counts = groups[::2], groups[1::2]
    sound = all(type(number) is int for number in groups) and all(count > 0 for count in counts)
    if not sound or len(numbers) != len(counts) or numbers != sorted(numbers):
        raise ValueError("its key groups are out of order")
    if numbers and (numbers[0] < ref.first or numbers[-1] > ref.last):
        raise ValueError("its key groups are not those that the index names")
    return sum(counts)


def _slicer(data: bytes) -> ReadRange:
    return lambda offset, size: data[offset : offset + size]


def _within(groups: list[int], first: int, last: int) -> slice:
    """Where the entries of key groups [first, last] are among all of a block."""
    start = stop = 0
    for group, count in zip(groups[::2], groups[1::2], strict=True):
        if group < first:
            start += count
        if group <= last:
            stop += count
    return slice(start, stop)
