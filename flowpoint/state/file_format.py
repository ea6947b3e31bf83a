"""The format of a file of keyed state: columnar blocks, found by state and key group. Pure: bytes in, bytes out.

    header   "FLOWSTAT", format version (2 bytes), 2 bytes zero
    blocks   msgpack [groups, keys, values, dead groups, dead keys]; keys and values are columns of `Codec`
    footer   msgpack {"states": [[name, kind]...], "blocks": [[state, first, last, offset, size, live, dead, xxh3]...],
             "places": [max parallelism, places of live entries, places of deleted ones]}
    trailer  offset of the footer (8 bytes), xxh3-64 of the footer (8 bytes), "FLOWEND\\n"

Numbers outside msgpack are big-endian. Inside a block entries are in key-group order, and `groups` says how many belong
to each: [group, count, group, count...]. A map's keys are tuples (key, map key). Deleted entries stand apart from live
ones. The footer tells which block holds which key groups, so a reader that takes over some key groups reads only
their blocks; it may be given a function that reads a range instead of all bytes.

"places" may be missing. Where it stands, the entries of each state are in the order of their places
(`codec.placement.place_of`), and it lists these, 4 bytes each (little-endian): so a reader finds one key by reading one block
(`restored.py`).

Invariants: an entry occurs at most once in a file; format 1 stays readable for ever (a golden file pins it). The seal,
which is the checksum of the footer, proves all of a file: the footer has the checksums of the blocks.
Not here: making files (`file_builder.py`), which entries go into them (`frozen.py`), where they are (`snapshot/`).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgpack
from xxhash import xxh3_64_intdigest

from flowpoint.codec.shortened import shortened
from flowpoint.codec.values import Codec
from flowpoint.errors import BadRecordError, IncompatibleStateError, SnapshotError
from flowpoint.state.spec import KINDS

FORMAT: Final = 1
MAGIC: Final = b"FLOWSTAT"
END: Final = b"FLOWEND\n"
HEADER: Final = struct.Struct(">8sHH")
TRAILER: Final = struct.Struct(">QQ8s")

PLACE: Final = "I"
"""The type of a place in an array: 4 bytes."""
assert array(PLACE).itemsize == 4, "no platform that Python runs on today has another size"

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


@dataclass(frozen=True, slots=True)
class Placed:
    """The places of all live entries of a file and of all deleted ones, in the order of its blocks."""

    max_parallelism: int
    live: array[int]
    dead: array[int]


_NO_PLACES: Final = Placed(0, array(PLACE), array(PLACE))


@dataclass(slots=True)
class Span:
    """Blocks that follow each other in a file, each with the numbers of its first live and first deleted entry."""

    offset: int = 0
    size: int = 0
    refs: list[tuple[BlockRef, int, int]] = field(default_factory=list)

    def add(self, ref: BlockRef, live: int, dead: int) -> None:
        """One block more, at the end."""
        if not self.refs:
            self.offset = ref.offset
        self.refs.append((ref, live, dead))
        self.size += ref.size


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A block as it is stored, proved by its checksum, with its places if the file has some."""

    state: str
    kind: str
    ref: BlockRef
    body: bytes
    live_places: array[int]
    dead_places: array[int]


class FileReader:
    """Reads one file; every check that fails is a SnapshotError with the file's name in it.

    Raises:
        SnapshotError: it is no state file, is damaged, or is of a newer format.
    """

    def __init__(self, name: str, data: bytes | ReadRange, size: int, seal: str = "") -> None:
        """`seal`: what the footer must have as its checksum, if that is known."""
        self.name = name
        self._read: ReadRange = data if callable(data) else _slicer(data)
        self._size = size
        if size < HEADER.size + TRAILER.size:
            raise self._damaged(f"it has only {size} bytes")
        magic, version, reserved = HEADER.unpack(self._read_exactly(0, HEADER.size))
        if magic != MAGIC:
            raise self._damaged("it does not begin as a state file")
        if version > FORMAT:
            raise SnapshotError(
                f"cannot read the state file {name}: it has format {version}, this version reads up to {FORMAT}; "
                f"upgrade FlowPoint"
            )
        if reserved or version == 0:
            raise self._damaged("its header is wrong")
        self.seal = ""
        """The checksum of its footer, as hex digits: where a manifest knows it, it proves every byte of the file."""
        self.placed: Placed | None = None
        """Where each key is, if the file tells."""
        self._states, self._refs = self._index(seal)

    def _index(self, seal: str) -> tuple[list[tuple[str, str]], list[BlockRef]]:
        offset, checksum, end = TRAILER.unpack(self._read_exactly(self._size - TRAILER.size, TRAILER.size))
        size = self._size - TRAILER.size - offset
        if end != END or size < 0 or offset < HEADER.size:
            raise self._damaged("its end is missing")
        body = self._read_exactly(offset, size)
        if xxh3_64_intdigest(body) != checksum:
            raise self._damaged("its index does not match its checksum")
        if seal and seal != seal_of(checksum):
            raise self._damaged(f"its index is not the one that the manifest names ({seal_of(checksum)}, not {seal})")
        self.seal = seal_of(checksum)
        try:
            states, refs, self.placed = _parse_index(body, offset)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError, msgpack.UnpackException) as error:
            raise self._damaged(f"its index makes no sense ({shortened(error)})") from error
        for state, kind in states:
            if kind not in KINDS:
                raise IncompatibleStateError(
                    f"cannot read the state file {self.name}: state '{state}' is of the unknown kind '{kind}'; "
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
        return StoredBlock(self.name, self._states[ref.state], ref, self._body(ref), codec, values or codec)

    def spans(self, groups: tuple[int, int], bytes_max: int) -> Iterator[Span]:
        """The blocks with entries of key groups [first, last], as stretches of the file of about `bytes_max`."""
        span = Span()
        live = dead = 0
        for ref in self._refs:
            if ref.last >= groups[0] and ref.first <= groups[1]:
                if span.refs and (span.offset + span.size != ref.offset or span.size + ref.size > bytes_max):
                    yield span
                    span = Span()
                span.add(ref, live, dead)
            live += ref.live
            dead += ref.dead
        if span.refs:
            yield span

    def raw_block(self, span: Span, numbered: tuple[BlockRef, int, int], data: bytes) -> RawBlock:
        """One of the blocks of a stretch, whose bytes are `data`: not decoded, and proved by its checksum.

        Raises:
            SnapshotError: it is damaged.
        """
        ref, live, dead = numbered
        start = ref.offset - span.offset
        body = data[start : start + ref.size]
        self._check(ref, body)
        placed = self.placed or _NO_PLACES
        state, kind = self._states[ref.state]
        return RawBlock(
            state, kind, ref, body, placed.live[live : live + ref.live], placed.dead[dead : dead + ref.dead]
        )

    def decoded(self, raw: RawBlock, codec: Codec) -> StoredBlock:
        """A block, decoded as far as it is looked at. Raises as `stored_block`."""
        return StoredBlock(self.name, (raw.state, raw.kind), raw.ref, raw.body, codec, codec)

    def _body(self, ref: BlockRef) -> bytes:
        body = self._read_exactly(ref.offset, ref.size)
        self._check(ref, body)
        return body

    def _check(self, ref: BlockRef, body: bytes) -> None:
        if len(body) != ref.size or xxh3_64_intdigest(body) != ref.checksum:
            raise self._damaged(f"the block at byte {ref.offset} does not match its checksum")

    def _read_exactly(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size) if offset >= 0 else b""
        if len(data) != size:
            raise self._damaged(f"{size} bytes at {offset} are missing")
        return data

    def _damaged(self, seen: str) -> SnapshotError:
        return _damaged(self.name, seen)


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


def _parse_index(body: bytes, end: int) -> tuple[list[tuple[str, str]], list[BlockRef], Placed | None]:
    """The states, blocks and places of an index. `end` is where blocks end. Any error of unpacking may come out."""
    index = msgpack.unpackb(body)
    states = [(str(name), str(kind)) for name, kind in index["states"]]
    refs = [BlockRef(*fields) for fields in index["blocks"]]
    for ref in refs:
        numbers = (ref.state, ref.first, ref.last, ref.offset, ref.size, ref.live, ref.dead, ref.checksum)
        sound = all(type(number) is int and number >= 0 for number in numbers)
        if not sound or ref.state >= len(states) or ref.first > ref.last or ref.offset + ref.size > end:
            raise ValueError(f"{ref}")
    if "places" not in index:
        return states, refs, None
    max_parallelism, live, dead = index["places"]
    placed = Placed(int(max_parallelism), _places(live), _places(dead))
    if (len(placed.live), len(placed.dead)) != (sum(ref.live for ref in refs), sum(ref.dead for ref in refs)):
        raise ValueError("there is not one place for each entry")
    return states, refs, placed


def _places(data: bytes) -> array[int]:
    places = array(PLACE)
    places.frombytes(data)
    if sys.byteorder == "big":
        places.byteswap()
    return places


def seal_of(checksum: int) -> str:
    """The checksum of a footer, as a manifest has it."""
    return f"{checksum:016x}"


def seal_in(read: ReadRange, size: int) -> str:
    """The seal of what `read` gives of a file of `size` bytes; "" when it is no whole state file, as far as its ends show.

    Each block can then be proved; none has been. Nothing is decoded: so much is cheap to know before a file is chosen.
    """
    start = HEADER.size
    trailer = read(max(size - TRAILER.size, 0), TRAILER.size)
    if len(trailer) != TRAILER.size or read(0, start)[: len(MAGIC)] != MAGIC:
        return ""
    offset, checksum, end = TRAILER.unpack(trailer)
    length = size - TRAILER.size - offset
    if end != END or offset < start or length < 0:
        return ""
    index = read(offset, length)
    return seal_of(checksum) if len(index) == length and xxh3_64_intdigest(index) == checksum else ""


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
