"""Batches to bytes and back: the timestamps as packed 64-bit integers, then the column of values.

    1 byte    1: there are timestamps, 0: there are none
    4 bytes   number of timestamps, little-endian (absent without timestamps)
    8 bytes   each timestamp, little-endian, signed
    the rest  `encode_column` of the values

Not here: how values are encoded (`codec`), and which channel a batch belongs to (`transport.wire`).
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import Any, Protocol

from flowpoint.errors import BadRecordError, InternalError
from flowpoint.model.elements import Batch

_COUNT = Struct("<BI")
_WITHOUT = b"\x00"
TIMESTAMP_BYTES = 8


class ColumnCodec(Protocol):
    """What is used of `codec.values.Codec`."""

    def encode_column(self, values: list[Any]) -> bytes:
        """All values as one piece of bytes."""

    def decode_column(self, data: bytes) -> list[Any]:
        """The reverse of `encode_column`."""


def encode_batch(codec: ColumnCodec, values: list[Any], timestamps: list[int] | None) -> bytes:
    """A batch as bytes.

    Raises:
        BadRecordError: a value cannot be encoded, or a timestamp is no 64-bit integer.
    """
    column = codec.encode_column(values)
    if timestamps is None:
        return _WITHOUT + column
    assert len(timestamps) == len(values), (len(timestamps), len(values))
    return b"".join((_COUNT.pack(1, len(timestamps)), _pack(timestamps), column))


def decode_batch(codec: ColumnCodec, data: bytes, start: int = 0) -> Batch:
    """The reverse of `encode_batch`; the batch begins at `start`.

    Raises:
        InternalError: the bytes are no batch.
    """
    if data[start] == 0:
        return Batch(codec.decode_column(data[start + 1 :]))
    _, count = _COUNT.unpack_from(data, start)
    column_start = start + _COUNT.size + count * TIMESTAMP_BYTES
    timestamps = _unpack(data[start + _COUNT.size : column_start])
    values = codec.decode_column(data[column_start:])
    if len(values) != count or len(timestamps) != count:
        raise InternalError(f"a batch came with {len(values)} values and {len(timestamps)} of {count} timestamps")
    return Batch(values, timestamps)


def _pack(timestamps: list[int]) -> bytes:
    try:
        packed = array("q", timestamps)
    except (OverflowError, TypeError) as error:
        raise BadRecordError(
            f"cannot send a batch: a timestamp is not a whole number of milliseconds in 64 bits ({error}); "
            "look at what assigns the timestamps"
        ) from error
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(data: bytes) -> list[int]:
    packed = array("q")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
