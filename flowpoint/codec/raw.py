"""Values of classes that nobody here has: read as data, shown as data, and written back as the same bytes.

A tool that opens a snapshot does not have the job's classes, and must not look for them. `RawCodec` reads what names a
class it was not given as `RawObject`, `RawEnum` or `RawArray`: what the bytes say, and nothing else.

Invariants: nothing is imported, called or looked up because bytes name it, numpy included. What was read is encoded to
the bytes it came from.

Not here: how values become text or JSON (`snapshot.value_text`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from flowpoint.codec.registry import TypeRegistry
from flowpoint.codec.values import Codec, ExtensionCode

_PLAIN_DTYPE: Final = re.compile(r"[<>|=]([biuf])([1248])")
_STRUCT_CODES: Final = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}


def bare_name(name: str) -> str:
    """A class's name without the module that tells it from another one of that name."""
    return name.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class RawObject:
    """An instance of some class: its name as stored, and its fields."""

    name: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]

    def items(self) -> Iterator[tuple[str, Any]]:
        """(field, value), in the order of the class."""
        return zip(self.fields, self.values, strict=True)

    def __hash__(self) -> int:
        # The class may have a hash of its own (by identity, say) where its fields have none.
        try:
            return hash((self.name, self.values))
        except TypeError:
            return hash((self.name, self.fields))

    def __repr__(self) -> str:
        return f"{bare_name(self.name)}({', '.join(f'{field}={value!r}' for field, value in self.items())})"


@dataclass(frozen=True, slots=True)
class RawEnum:
    """A member of some Enum. `member` is its name, or the number of a combination of flags."""

    name: str
    member: str | int

    def __repr__(self) -> str:
        member = f".{self.member}" if isinstance(self.member, str) else f"({self.member!r})"
        return f"{bare_name(self.name)}{member}"


@dataclass(frozen=True, slots=True)
class RawArray:
    """A numpy array or, without a shape, a scalar. `data` are its elements in C order."""

    dtype: str
    is_scalar: bool
    shape: tuple[int, ...]
    data: bytes
    description: bytes
    """`dtype` as it was stored."""

    def elements(self) -> list[Any] | None:
        """Its elements in one list; None when they are not plain numbers."""
        match = _PLAIN_DTYPE.fullmatch(self.dtype)
        code = _STRUCT_CODES.get(match[1] + match[2]) if match else None
        if code is None or len(self.data) % struct.calcsize(code):
            return None
        order = ">" if self.dtype[0] == ">" else "<"
        return list(struct.unpack(f"{order}{len(self.data) // struct.calcsize(code)}{code}", self.data))

    def __repr__(self) -> str:
        elements = self.elements()
        if self.is_scalar and elements is not None and len(elements) == 1:
            return f"{self.dtype.lstrip('<>|=')}({elements[0]!r})"
        shown = f"{len(self.data)} bytes" if elements is None else repr(elements)
        return f"array({shown}, dtype={self.dtype!r}, shape={self.shape!r})"


RAW: Final = (RawObject, RawEnum, RawArray)


class RawCodec(Codec):
    """A codec that needs no class. Those it is given all the same are rebuilt; all others stay raw.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     x: int
        >>> stored = Codec(TypeRegistry([Point])).encode(Point(3))
        >>> RawCodec().decode(stored)
        Point(x=3)
        >>> RawCodec().encode(RawCodec().decode(stored)) == stored
        True
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        super().__init__(registry)
        self._makers[ExtensionCode.ARRAY] = lambda data: self._make_array(*self._unpack(data))
        takers: dict[type, Callable[[Any], msgpack.ExtType]] = {
            RawObject: lambda v: self._nested(ExtensionCode.OBJECT, [v.name, list(v.fields), list(v.values)]),
            RawEnum: lambda v: self._nested(ExtensionCode.ENUM, [v.name, v.member]),
            RawArray: lambda v: self._nested(
                ExtensionCode.ARRAY, (self._unpack(v.description), v.is_scalar, list(v.shape), v.data)
            ),
        }
        self._extenders.update(takers)

    def _make_enum(self, name: str, stored: str | int) -> Any:
        if self._knows(name):
            return super()._make_enum(name, stored)
        _check(isinstance(name, str) and isinstance(stored, (str, int)), "an Enum member")
        return RawEnum(name, stored)

    def _make_object(self, name: str, fields: list[str], values: list[Any]) -> Any:
        if self._knows(name):
            return super()._make_object(name, fields, values)
        return RawObject(name, _field_names(name, fields, len(values)), tuple(values))

    def object_maker(self, name: str, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """See `Codec`."""
        if self._knows(name):
            return super().object_maker(name, fields)
        named = _field_names(name, list(fields), len(fields))
        return lambda values: RawObject(name, named, values)

    def _make_array(self, description: Any, is_scalar: bool, shape: list[int], data: bytes) -> RawArray:
        _check(isinstance(is_scalar, bool) and isinstance(data, bytes), "an array")
        dtype = description if isinstance(description, str) else repr(description)
        return RawArray(dtype, is_scalar, tuple(shape), data, self._pack(description))

    def _knows(self, name: str) -> bool:
        return isinstance(name, str) and self.registry.has_name(name)


def _field_names(name: str, fields: list[str], count: int) -> tuple[str, ...]:
    sound = isinstance(name, str) and len(fields) == count and all(isinstance(field, str) for field in fields)
    _check(sound, "an object")
    return tuple(fields)


def _check(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(f"{what} is not shaped as one")
