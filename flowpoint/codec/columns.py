"""Many values to bytes and back, by columns where they are alike.

A list of tuples of one length, of dicts with the same keys in the same order, or of instances of one declared class
is turned into one column per field, and each column is encoded in turn; everything else goes through msgpack as
one list. The first byte says which form was chosen:

    LIST    the list as `Codec` packs it
    TUPLES  number of fields, then each column
    DICTS   keys, then each column
    OBJECTS class name, field names, then each column

A column stands after its length (4 bytes). Numbers are big-endian.

Invariants: types stay exact; a choice is made only after every value has been looked at (at the speed of C).
Not here: how single values are encoded (`values.py`), what a batch or a file is.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from flowpoint.codec.values import Codec

_LENGTH: Final = struct.Struct(">I")
_WIDTH_MAX: Final = 256
_LEVELS_MAX: Final = 32
"""Columns within columns. What is nested deeper is left to `Codec.encode`, which says what is nested too deeply."""


class _Form(IntEnum):
    """The first byte. Never to change: it stands in snapshots."""

    LIST = 0
    TUPLES = 1
    DICTS = 2
    OBJECTS = 3


def encode(codec: Codec, values: list[Any], level: int = 0) -> bytes:
    """The bytes of a list of values. `level`: how many lists of columns it stands in."""
    if not values or level >= _LEVELS_MAX:
        return bytes([_Form.LIST]) + codec.encode(values)
    first = type(values[0])
    if first is str or first is int or first is float or set(map(type, values)) != {first}:
        return bytes([_Form.LIST]) + codec.encode(values)
    if first is tuple:
        return _encode_tuples(codec, values, level)
    if first is dict:
        return _encode_dicts(codec, values, level)
    shape = codec.registry.shape(first)
    if shape is not None and shape.fields:
        head = codec.encode([codec.registry.name_of(first), list(shape.fields)])
        return _joined(_Form.OBJECTS, head, _columns(codec, zip(*map(shape.take, values), strict=True), level))
    return bytes([_Form.LIST]) + codec.encode(values)


def _encode_tuples(codec: Codec, values: list[tuple[Any, ...]], level: int) -> bytes:
    width = len(values[0])
    if not 0 < width <= _WIDTH_MAX or set(map(len, values)) != {width}:
        return bytes([_Form.LIST]) + codec.encode(values)
    return _joined(_Form.TUPLES, b"", _columns(codec, zip(*values, strict=True), level))


def _encode_dicts(codec: Codec, values: list[dict[Any, Any]], level: int) -> bytes:
    names = tuple(values[0])
    # Keys that are equal may still differ in type (True, 1, a StrEnum member): only plain str keys are taken together.
    alike = (
        0 < len(names) <= _WIDTH_MAX
        and len(set(map(len, values))) == 1
        and set(map(type, chain.from_iterable(values))) == {str}
        and set(map(tuple, values)) == {names}
    )
    if not alike:
        return bytes([_Form.LIST]) + codec.encode(values)
    return _joined(
        _Form.DICTS, codec.encode(list(names)), _columns(codec, zip(*map(dict.values, values), strict=True), level)
    )


def _columns(codec: Codec, columns: Any, level: int) -> list[bytes]:
    return [encode(codec, list(column), level + 1) for column in columns]


def _joined(form: _Form, head: bytes, columns: list[bytes]) -> bytes:
    parts = [bytes([form]), _LENGTH.pack(len(columns)), _LENGTH.pack(len(head)), head]
    for column in columns:
        parts.append(_LENGTH.pack(len(column)))
        parts.append(column)
    return b"".join(parts)


def decode(codec: Codec, data: bytes | memoryview) -> list[Any]:
    """The reverse of `encode`. Any error of unpacking may come out; `Codec.decode_column` translates them."""
    view = memoryview(data)
    form = view[0]
    if form == _Form.LIST:
        values = codec.decode(view[1:])
        if type(values) is not list:
            raise ValueError("not a list")
        return values
    head, columns = _split(codec, view)
    rows = zip(*columns, strict=True)
    if form == _Form.TUPLES:
        return list(rows)
    names = codec.decode(head)
    if form == _Form.DICTS and len(names) == len(columns):
        return [dict(zip(names, row)) for row in rows]  # noqa: B905  checked just now; `strict` costs a quarter
    if form == _Form.OBJECTS:
        name, fields = names
        return list(map(codec.object_maker(name, tuple(fields)), rows))
    raise ValueError(f"unknown form {form}")


def _split(codec: Codec, view: memoryview) -> tuple[memoryview, list[list[Any]]]:
    (count,) = _LENGTH.unpack_from(view, 1)
    (size,) = _LENGTH.unpack_from(view, 5)
    head, at = view[9 : 9 + size], 9 + size
    columns: list[list[Any]] = []
    for _ in range(count):
        (size,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        columns.append(decode(codec, view[at : at + size]))
        at += size
    if at != len(view):
        raise ValueError("wrong length")
    return head, columns
