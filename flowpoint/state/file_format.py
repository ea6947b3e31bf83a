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
from typing import Any, Final, TypeAlias

import msgpack
from xxhash import xxh3_64_intdigest

from flowpoint.codec.values import Codec
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
class _BlockRef:
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
        self._refs: list[_BlockRef] = []
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
            _BlockRef(
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

    def _index(self) -> tuple[list[tuple[str, str]], list[_BlockRef]]:
        offset, checksum, end = _TRAILER.unpack(self._read_exactly(self._size - _TRAILER.size, _TRAILER.size))
        size = self._size - _TRAILER.size - offset
        if end != _END or size < 0:
            raise self._damaged("its end is missing")
        body = self._read_exactly(offset, size)
        if xxh3_64_intdigest(body) != checksum:
            raise self._damaged("its index does not match its checksum")
        index = msgpack.unpackb(body)
        states = [(name, kind) for name, kind in index["states"]]
        for state, kind in states:
            if kind not in KINDS:
                raise IncompatibleStateError(
                    f"cannot read the state file {self._name}: state '{state}' is of the unknown kind '{kind}'; "
                    f"upgrade FlowPoint"
                )
        return states, [_BlockRef(*fields) for fields in index["blocks"]]

    @property
    def entries(self) -> int:
        """How many entries the file holds, deletions included."""
        return sum(ref.live + ref.dead for ref in self._refs)

    def blocks(self, codec: Codec, first: int, last: int) -> Iterator[Block]:
        """The entries whose key group is in [first, last], block by block. Other blocks are not even read.

        Raises:
            SnapshotError: a block is damaged.
            IncompatibleStateError: it holds values of classes that the job does not declare.
        """
        for ref in self._refs:
            if ref.last < first or ref.first > last:
                continue
            body = self._read_exactly(ref.offset, ref.size)
            if xxh3_64_intdigest(body) != ref.checksum:
                raise self._damaged(f"the block at byte {ref.offset} does not match its checksum")
            state, kind = self._states[ref.state]
            live_groups, keys, values, dead_groups, dead = msgpack.unpackb(body)
            try:
                block = Block(
                    state, kind, codec.decode_column(keys), codec.decode_column(values), codec.decode_column(dead)
                )
            except BadRecordError as error:
                raise IncompatibleStateError(f"cannot restore state '{state}' from {self._name}: {error}") from error
            if ref.first < first or ref.last > last:
                live, gone = _within(live_groups, first, last), _within(dead_groups, first, last)
                block = Block(state, kind, block.keys[live], block.values[live], block.dead[gone])
            yield block

    def _read_exactly(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size) if offset >= 0 else b""
        if len(data) != size:
            raise self._damaged(f"{size} bytes at {offset} are missing")
        return data

    def _damaged(self, seen: str) -> SnapshotError:
        return SnapshotError(
            f"cannot read the state file {self._name}: {seen}; restore it from a backup, or use another snapshot"
        )


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
