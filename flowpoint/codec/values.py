"""Python values to bytes and back, equal and of the same type.

msgpack carries None, bool, int, float, str, bytes, list and dict by itself, at the speed of C. Everything else becomes
an extension: a code and nested bytes. `strict_types` makes the packer hand every subclass to `_extend`, so nothing is
flattened: what has no rule is refused with a message that names the type.

The packer takes bytearray and memoryview for bytes without asking, and an ExtType as it is; all three are refused, by
looking into containers whose bytes could hold one.

Invariants: `decode(encode(v)) == v`, with the same types all the way down. A class is found only through the
`TypeRegistry`; nothing is imported by name and nothing is pickled. Shared references become copies, cycles are refused.

Not here: batches (`columns.py`), what datetimes and times are made of (`moments.py`), keys, whose bytes follow `==` and
not the type (`keys.py`).
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import NoneType
from typing import Any, Final
from uuid import UUID

import msgpack

from flowpoint.codec import columns
from flowpoint.codec.arrays import is_numpy, make_array, take_array
from flowpoint.codec.containers import (
    CONTAINERS,
    make_counter,
    make_defaultdict,
    make_deque,
    make_ordered,
    take_factory,
)
from flowpoint.codec.moments import make_datetime, make_time, take_datetime, take_time
from flowpoint.codec.registry import Shape, TypeRegistry, decode_enum, encode_enum
from flowpoint.codec.shortened import shortened
from flowpoint.errors import BadRecordError, UnknownTypeError

__all__ = ["IMMUTABLE", "Codec", "ExtensionCode", "TypeRegistry", "is_immutable"]

SCALARS: Final = frozenset({NoneType, bool, int, float, str, bytes})
"""What the packer carries exactly, without help and without anything inside. (An int beyond 64 bits it hands out.)"""

IMMUTABLE: Final = SCALARS | {datetime, date, time, timedelta, Decimal, UUID}
"""Types whose values never change, so that they may be shared freely."""

_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset}) | CONTAINERS
_MISTAKEN: Final = frozenset({bytearray, memoryview, msgpack.ExtType})
_NESTING_MAX: Final = 100

# First bytes of msgpack's bin and ext formats: where none of them occurs, nothing was mistaken for them.
_BIN_OR_EXT: Final = tuple(bytes([first]) for first in (*range(0xC4, 0xCA), *range(0xD4, 0xD9)))
_find_bin_or_ext: Final = re.compile(b"[" + b"".join(_BIN_OR_EXT) + b"]").search
_FEW: Final = 32  # elements up to which looking at their types beats looking through their bytes
_SHORT: Final = 512  # bytes up to which one regular expression beats eleven searches


class ExtensionCode(IntEnum):
    """Extension codes. Never to change: they stand in snapshots."""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    BIG_INT = 4
    DATETIME = 5
    DATE = 6
    TIME = 7
    TIMEDELTA = 8
    DECIMAL = 9
    UUID = 10
    ENUM = 11
    OBJECT = 12
    ARRAY = 13
    DEQUE = 14
    DEFAULTDICT = 15
    COUNTER = 16
    ORDERED_DICT = 17


def is_immutable(value: object) -> bool:
    """Whether a value can be shared without a copy: it is of an immutable type, or a tuple of such."""
    tp = type(value)
    if tp in IMMUTABLE:
        return True
    if tp is tuple or tp is frozenset:
        assert isinstance(value, (tuple, frozenset))
        try:
            return IMMUTABLE.issuperset(map(type, value)) or all(map(is_immutable, value))
        except RecursionError:
            # Nobody looks so deep. Whoever encodes it for a copy says that it is nested too deeply.
            return False
    return isinstance(value, Enum)


class Codec:
    """Encodes and decodes the values of one job. Cheap to make; not to be shared between threads.

    Example:
        >>> codec = Codec()
        >>> codec.decode(codec.encode(("a", {1, 2})))
        ('a', {1, 2})
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self.registry = registry if registry is not None else TypeRegistry()
        self._packers: list[msgpack.Packer] = []
        self._depth = 0
        self._extenders: dict[type, Callable[[Any], msgpack.ExtType]] = {
            tuple: lambda v: self._nested(ExtensionCode.TUPLE, list(v)),
            set: lambda v: self._nested(ExtensionCode.SET, list(v)),
            frozenset: lambda v: self._nested(ExtensionCode.FROZENSET, list(v)),
            int: lambda v: msgpack.ExtType(
                ExtensionCode.BIG_INT, v.to_bytes(v.bit_length() // 8 + 1, "little", signed=True)
            ),
            datetime: lambda v: self._nested(ExtensionCode.DATETIME, take_datetime(v)),
            date: lambda v: self._nested(ExtensionCode.DATE, v.toordinal()),
            time: lambda v: self._nested(ExtensionCode.TIME, take_time(v)),
            timedelta: lambda v: self._nested(ExtensionCode.TIMEDELTA, [v.days, v.seconds, v.microseconds]),
            Decimal: lambda v: msgpack.ExtType(ExtensionCode.DECIMAL, str(v).encode()),
            UUID: lambda v: msgpack.ExtType(ExtensionCode.UUID, v.bytes),
            deque: lambda v: self._nested(ExtensionCode.DEQUE, [v.maxlen, list(v)]),
            defaultdict: lambda v: self._nested(
                ExtensionCode.DEFAULTDICT, [take_factory(v, self.registry.name_of), dict(v)]
            ),
            Counter: lambda v: self._nested(ExtensionCode.COUNTER, dict(v)),
            OrderedDict: lambda v: self._nested(ExtensionCode.ORDERED_DICT, dict(v)),
        }
        self._makers: dict[int, Callable[[bytes], Any]] = {
            ExtensionCode.TUPLE: lambda data: tuple(self._unpack(data)),
            ExtensionCode.SET: lambda data: set(self._unpack(data)),
            ExtensionCode.FROZENSET: lambda data: frozenset(self._unpack(data)),
            ExtensionCode.BIG_INT: lambda data: int.from_bytes(data, "little", signed=True),
            ExtensionCode.DATETIME: lambda data: make_datetime(self._unpack(data)),
            ExtensionCode.DATE: lambda data: date.fromordinal(self._unpack(data)),
            ExtensionCode.TIME: lambda data: make_time(self._unpack(data)),
            ExtensionCode.TIMEDELTA: lambda data: timedelta(*self._unpack(data)),
            ExtensionCode.DECIMAL: lambda data: Decimal(data.decode()),
            ExtensionCode.UUID: lambda data: UUID(bytes=data),
            ExtensionCode.ENUM: lambda data: self._make_enum(*self._unpack(data)),
            ExtensionCode.OBJECT: lambda data: self._make_object(*self._unpack(data)),
            ExtensionCode.ARRAY: lambda data: make_array(*self._unpack(data)),
            ExtensionCode.DEQUE: lambda data: make_deque(*self._unpack(data)),
            ExtensionCode.DEFAULTDICT: lambda data: make_defaultdict(self.registry.resolve, *self._unpack(data)),
            ExtensionCode.COUNTER: lambda data: make_counter(self._unpack(data)),
            ExtensionCode.ORDERED_DICT: lambda data: make_ordered(self._unpack(data)),
        }

    def encode(self, value: Any) -> bytes:
        """The bytes of one value.

        Raises:
            BadRecordError: the value, or something inside, is of a type that cannot be serialised.
        """
        data = self._pack(value)
        tp = type(value)
        if tp in SCALARS or (tp is list and len(value) <= _FEW and SCALARS.issuperset(map(type, value))):
            return data
        if tp in _MISTAKEN:
            refuse_mistaken((value,))
        if tp in _CONTAINERS and may_hold_mistaken(data):
            refuse_mistaken(_children(value))
        return data

    def decode(self, data: bytes | memoryview) -> Any:
        """The value that `encode` was given.

        Raises:
            BadRecordError: the bytes are damaged, or name a class that the job does not declare.
        """
        try:
            return self._unpack(data)
        except BadRecordError:
            raise
        except Exception as error:  # bytes of unknown origin reach into dates, zones, arrays and classes of the job
            raise BadRecordError(
                f"cannot decode a value: its {len(data)} bytes are damaged ({shortened(error)}); "
                f"restore from a good copy"
            ) from error

    def copy(self, value: Any) -> Any:
        """A deep copy; an immutable value itself."""
        return value if is_immutable(value) else self._unpack(self.encode(value))

    def encode_column(self, values: list[Any]) -> bytes:
        """The bytes of many values; much faster than one by one when they are alike (see `columns.py`).

        Raises:
            BadRecordError: as `encode`.
        """
        try:
            return columns.encode(self, values)
        except BadRecordError:
            # One of them: the error of that one names its type, and not that of a list of many.
            for value in values:
                self.encode(value)
            raise

    def decode_column(self, data: bytes | memoryview) -> list[Any]:
        """The reverse of `encode_column`.

        Raises:
            BadRecordError: as `decode`.
        """
        try:
            return columns.decode(self, data)
        except BadRecordError:
            raise
        except Exception as error:  # as in `decode`
            raise BadRecordError(
                f"cannot decode a column: its {len(data)} bytes are damaged ({shortened(error)}); "
                f"restore from a good copy"
            ) from error

    # ------------------------------------------------------------------ bytes

    def _pack(self, value: Any) -> bytes:
        """Pack without looking for what the packer mistakes."""
        packer = self._packers.pop() if self._packers else msgpack.Packer(strict_types=True, default=self._extend)
        try:
            packed: bytes = packer.pack(value)
            return packed
        except UnicodeEncodeError:
            return self._pack_leniently(value)
        except (ValueError, RecursionError) as error:
            raise self._too_deep(value, error) from None
        finally:
            self._packers.append(packer)

    def _pack_leniently(self, value: Any) -> bytes:
        """Pack lone surrogates, as in a file name that is not UTF-8, too. That is slower: it comes second."""
        lenient = msgpack.Packer(strict_types=True, default=self._extend, unicode_errors="surrogatepass")
        try:
            packed: bytes = lenient.pack(value)
        except (ValueError, RecursionError) as error:
            raise self._too_deep(value, error) from None
        return packed

    def _too_deep(self, value: Any, error: ValueError | RecursionError) -> Exception:
        """What to raise. Of a value inside of another one the error itself: the outermost is the one to be named."""
        if self._depth:
            return error
        return BadRecordError(
            f"cannot serialise a value of type {type(value).__name__}: {shortened(value)} is nested too deeply or "
            f"contains itself ({error}); flatten it"
        )

    def _unpack(self, data: bytes | memoryview) -> Any:
        return msgpack.unpackb(
            data, ext_hook=self._make, strict_map_key=False, unicode_errors="surrogatepass", use_list=True
        )

    def _nested(self, code: int, value: Any) -> msgpack.ExtType:
        if self._depth >= _NESTING_MAX:
            raise ValueError(f"more than {_NESTING_MAX} levels")
        self._depth += 1
        try:
            return msgpack.ExtType(code, self._pack(value))
        finally:
            self._depth -= 1

    # ------------------------------------------------------------------ types

    def _extend(self, value: Any) -> msgpack.ExtType:
        """The packer asks: what stands for this value?"""
        tp = type(value)
        extender = self._extenders.get(tp)
        if extender is not None:
            return extender(value)
        if isinstance(value, Enum):
            return self._nested(ExtensionCode.ENUM, [self._name(value), encode_enum(value)])
        shape = self.registry.shape(tp)
        if shape is not None:
            taken = list(shape.take(value))
            refuse_mistaken(taken)
            return self._nested(ExtensionCode.OBJECT, [self._name(value), list(shape.fields), taken])
        if is_numpy(value):
            return self._nested(ExtensionCode.ARRAY, take_array(value))
        self._name(value)
        raise BadRecordError(f"cannot serialise a value of type {tp.__name__}: {shortened(value)}")

    def _name(self, value: Any) -> str:
        try:
            return self.registry.name_of(type(value))
        except UnknownTypeError as error:
            raise UnknownTypeError(f"{error}; the value is {shortened(value)}", error.type_name) from None
        except BadRecordError as error:
            raise BadRecordError(f"{error}; the value is {shortened(value)}") from None

    def _make(self, code: int, data: bytes) -> Any:
        """The unpacker asks: what does this extension stand for?"""
        maker = self._makers.get(code)
        if maker is None:
            raise BadRecordError(
                f"cannot decode a value: extension code {code} is unknown; it was written by a newer version, "
                f"upgrade this one"
            )
        # Each level takes tens of kB of the C stack: bytes that nest deeper than `encode` ever does must not get there.
        if self._depth >= _NESTING_MAX:
            raise ValueError(f"more than {_NESTING_MAX} levels")
        self._depth += 1
        try:
            return maker(bytes(data))
        finally:
            self._depth -= 1

    def _make_enum(self, name: str, stored: str | int) -> Enum:
        return decode_enum(self.registry.resolve(name), stored)

    def _make_object(self, name: str, fields: list[str], values: list[Any]) -> Any:
        return self.shape_named(name).rebuild(tuple(fields), tuple(values))

    def object_maker(self, name: str, fields: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Any]:
        """The function from the values of stored `fields` to an instance of the class of that name.

        Raises:
            BadRecordError: as `shape_named`, or the stored fields do not fit the class.
        """
        shape = self.shape_named(name)
        if fields == shape.fields:
            return shape.make
        arrange = shape.arrange(fields)
        return lambda values: shape.make(arrange(values))

    def shape_named(self, name: str) -> Shape:
        """The shape of the class that a name in bytes stands for.

        Raises:
            BadRecordError: there is no such class, or it has become an Enum.
        """
        shape = self.registry.shape(self.registry.resolve(name))
        if shape is None:
            raise BadRecordError(
                f"cannot read a stored {name}: the class has become an Enum; give the Enum another name"
            )
        return shape


def may_hold_mistaken(data: bytes) -> bool:
    """Whether packed bytes could hold something that the packer took for bytes (or an ExtType)."""
    if len(data) <= _SHORT:
        return _find_bin_or_ext(data) is not None
    return any(first in data for first in _BIN_OR_EXT)


def _children(container: Any) -> Collection[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else container


def refuse_mistaken(values: Collection[Any]) -> None:
    """Look for what the packer takes for something else, all the way down.

    Raises:
        BadRecordError: there is a bytearray, memoryview or ExtType.
    """
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return
    for kind in kinds & _MISTAKEN:
        culprit = next(value for value in values if type(value) is kind)
        raise BadRecordError(
            f"cannot serialise a value of type {kind.__name__}: {shortened(culprit)}; turn it into bytes"
        )
    if kinds & _CONTAINERS:
        for value in values:
            if type(value) in _CONTAINERS:
                refuse_mistaken(_children(value))
