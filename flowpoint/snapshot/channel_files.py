"""Channel state as a file: the records that were under way to one subtask when an unaligned checkpoint overtook them.

    8 bytes   magic "FPCHAN" and the format's version, two digits
    blocks    4 bytes length, then msgpack [port, key groups, batch]

A block is one batch as it travels (`transport.batches`), in columns. `port` is the input of the operator that it goes
to. `key groups` are packed 16-bit integers, one per record, or None where records go to any subtask (rebalance): with
them the records are dealt out anew at another parallelism, and no user code runs for it (rule 16).

Invariant: the blocks of a file are in the order in which each channel delivered them.

Not here: which file goes to which subtask (`protocol.assignment`), what is recorded when (`runtime.channel_state`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import msgpack
from xxhash import xxh3_64

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.model.elements import Batch
from flowpoint.model.manifest import NO_GROUPS, StateFile
from flowpoint.snapshot.storage import SLICE_BYTES, Storage
from flowpoint.transport.batches import ColumnCodec, decode_batch

CHANNEL: Final = "channel"
MAGIC: Final = b"FPCHAN01"

_LENGTH = Struct("<I")


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch under way, encoded. `groups`: the key group of each record, packed, or None."""

    port: int
    groups: bytes | None
    records: int
    data: bytes


def pack_groups(groups: Sequence[int]) -> bytes:
    """Key groups as they stand in a block."""
    packed = array("H", groups)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack_groups(data: bytes) -> array[int]:
    packed = array("H")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed


async def write_channels(
    storage: Storage, batches: Sequence[RecordedBatch], name: str, groups: tuple[int, int]
) -> StateFile:
    """Write channel state. `groups` is the range that its keyed records are of (NO_GROUPS: none are keyed).

    Raises:
        StorageError: it could not be written or made durable.
    """
    digest, size = xxh3_64(), 0

    def slices() -> Iterator[bytes]:
        nonlocal size
        for block in _blocks(batches):
            digest.update(block)
            size += len(block)
            yield block

    if not await storage.put_if_absent(name, slices()):
        raise StorageError(f"cannot write {name}: it exists already; each write needs a new sequence number")
    return StateFile(name, CHANNEL, size, digest.hexdigest(), sum(batch.records for batch in batches), groups)


def _blocks(batches: Sequence[RecordedBatch]) -> Iterator[bytes]:
    """The file in slices. Small blocks go together: each slice costs a turn of the loop, which may be a busy one."""
    pending = bytearray(MAGIC)
    for batch in batches:
        data: bytes = msgpack.packb([batch.port, batch.groups, batch.data])
        pending += _LENGTH.pack(len(data))
        pending += data
        if len(pending) >= SLICE_BYTES:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending)


def read_channels(
    file: StateFile, data: bytes, codec: ColumnCodec, groups: tuple[int, int]
) -> Iterator[tuple[int, Batch]]:
    """The batches in a file, with their ports: of keyed records those in `groups`, of others all.

    Raises:
        SnapshotError: the bytes are no channel state, although their checksum was right.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise SnapshotError(f"{file.path} is no channel state that this version can read: it begins {data[:8]!r}")
    is_whole = file.groups == NO_GROUPS or (groups[0] <= file.groups[0] and file.groups[1] <= groups[1])
    position = len(MAGIC)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        port, packed, encoded = msgpack.unpackb(data[position : position + length])
        position += length
        batch = decode_batch(codec, encoded)
        if packed is not None and not is_whole:
            batch = _within(batch, _unpack_groups(packed), groups)
        if batch:
            yield port, batch


def _within(batch: Batch, of_record: Sequence[int], groups: tuple[int, int]) -> Batch:
    """The records of a batch whose key groups are in a range."""
    first, last = groups
    kept = [number for number, group in enumerate(of_record) if first <= group <= last]
    stamps = batch.timestamps
    return Batch(
        [batch.values[number] for number in kept], None if stamps is None else [stamps[number] for number in kept]
    )
