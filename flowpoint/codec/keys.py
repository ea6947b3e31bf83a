"""Keys to bytes that follow equality, and back.

`canonical` turns a key into msgpack bytes after bringing it into one form recursively: `True`, `1`, `1.0`,
`Decimal(1)`, an IntEnum member and a numpy integer of value 1 are equal in Python, so they are the same bytes; so are
two datetimes of one instant in two zones, or a NamedTuple and a plain tuple. It must never change: keyed state of
every snapshot is found by it (`placement.py`).

Invariants: for keys a, b that are accepted, `a == b` exactly when `canonical(a) == canonical(b)`; it depends on
nothing but the key (no `hash()`, no module names); `from_canonical(canonical(k)) == k`. The bytes of one key are never
the beginning of those of another.

Three rules that are not obvious:
- A fraction is its double where that is exact, else its decimal digits: `Decimal("0.5") == 0.5`, but not so 0.1.
- A member of an Enum is its class's name and its own: members of two classes of one name in two modules are one key.
- Python calls a datetime in the hour that a clock change repeats or skips equal only to one with the same zone and
  wall time. It is kept as these two; every other aware datetime is its instant.

Not here: where a key goes (`placement.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from math import isnan
from types import NoneType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack

from flowpoint.codec.registry import TypeRegistry, decode_enum, encode_enum
from flowpoint.codec.shortened import shortened
from flowpoint.errors import BadRecordError
from flowpoint.model.texts import with_article

_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_ZONE_FARTHEST: Final = timedelta(days=1) - _MICROSECOND
_DECIMAL_DIGITS_MAX: Final = 4096
_NESTING_MAX: Final = 100
# What msgpack puts before a str of so many bytes.
STR_HEADS: Final = tuple(bytes([0xA0 + size]) if size < 32 else bytes([0xD9, size]) for size in range(256))


class _Code(IntEnum):
    """Extension codes of canonical keys. Never to change."""

    BIG_INT = 1
    DECIMAL = 2
    FROZENSET = 3
    DATETIME_INSTANT = 4
    DATETIME_WALL = 5
    DATETIME_NAIVE = 6
    DATE = 7
    TIME_NAIVE = 8
    TIME_INSTANT = 9
    TIMEDELTA = 10
    UUID = 11
    ENUM = 12


def canonical(key: Any) -> bytes:
    """The bytes that stand for a key: the same for every key that is equal to it, and for no other.

    Raises:
        BadRecordError: the key is NaN, of a type that cannot be a key, or nested too deeply.

    Example:
        >>> canonical(1) == canonical(True) == canonical(1.0)
        True
    """
    if type(key) is str:
        return _canonical_str(key)
    try:
        data = _pack(_form(key))
    except (ValueError, RecursionError) as error:
        # Msgpack's limit, or Python's.
        raise (_too_deep(key) if _is_too_deep(key) else error) from None
    # Each level takes a byte: most keys need not be looked at.
    if len(data) > _NESTING_MAX and _is_too_deep(key):
        raise _too_deep(key)
    return data


def _too_deep(key: Any) -> BadRecordError:
    return BadRecordError(
        f"cannot use {shortened(key)} as a key: it is nested more than {_NESTING_MAX} levels deep; flatten it"
    )


def _is_too_deep(key: Any) -> bool:
    """Whether tuples and frozensets in a key are nested deeper than can be read back: that takes the C stack."""
    level = [key]
    for _ in range(_NESTING_MAX + 1):
        level = [item for outer in level if isinstance(outer, (tuple, frozenset)) for item in outer]
        if not level:
            return False
    return True


def from_canonical(data: bytes | memoryview, registry: TypeRegistry | None = None) -> Any:
    """A key that is equal to the one `data` was made from, though perhaps of another type (`1` for `True`).

    Raises:
        BadRecordError: the key is an Enum member whose class `registry` does not have.
    """

    def make(code: int, inner: bytes) -> Any:
        return _make(code, inner, registry)

    return msgpack.unpackb(data, ext_hook=make, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")


def split_canonical(data: bytes, registry: TypeRegistry | None = None) -> list[Any]:
    """The keys that several canonical forms in a row stand for."""

    def make(code: int, inner: bytes) -> Any:
        return _make(code, inner, registry)

    unpacker = msgpack.Unpacker(ext_hook=make, use_list=False, strict_map_key=False, unicode_errors="surrogatepass")
    unpacker.feed(data)
    return list(unpacker)


def is_own_canonical(key: Any) -> bool:
    """Whether `from_canonical(canonical(key))` is not only equal to the key but of the same type all through."""
    tp = type(key)
    return tp in _SELF_CANONICAL or (tp is tuple and all(map(is_own_canonical, key)))


# ---------------------------------------------------------------------- to the canonical form


def _pack(form: Any) -> bytes:
    try:
        data: bytes = msgpack.packb(form)
    except UnicodeEncodeError:
        data = msgpack.packb(form, unicode_errors="surrogatepass")
    return data


def _canonical_str(key: str) -> bytes:
    """What `_pack` makes of a str, several times faster for a short one."""
    try:
        data = key.encode()
    except UnicodeEncodeError:
        return _pack(key)
    size = len(data)
    return STR_HEADS[size] + data if size < 256 else _pack(key)


def _form(key: Any) -> Any:
    """The one form of all keys equal to `key`, as something msgpack packs."""
    tp = type(key)
    form = _FORMS.get(tp)
    if form is not None:
        return form(key)
    if isinstance(key, Enum) and _inherits(tp, object):
        return _extension(_Code.ENUM, [tp.__qualname__, encode_enum(key)])
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.generic) and key.dtype.kind in "biufUS":
        plain = key.item()
        if type(plain) in _FORMS:
            return _FORMS[type(plain)](plain)
    for base, plain_of in _BASES:
        if isinstance(key, base) and _inherits(tp, base) and tp.__hash__ is base.__hash__:
            return _FORMS[base](plain_of(key))
    raise BadRecordError(_refusal(key))


def _inherits(tp: type, base: Any) -> bool:
    """Whether instances of a class compare as those of its base do."""
    equal: object = tp.__eq__
    return equal is base.__eq__


def _refusal(key: Any) -> str:
    tp = type(key)
    name = tp.__qualname__ if tp.__module__ == "builtins" else f"{tp.__module__}.{tp.__qualname__}"
    advice: dict[type, str] = {
        list: "use a tuple",
        set: "use a frozenset",
        dict: "use a tuple of its items",
        bytearray: "use bytes",
    }
    return (
        f"cannot use {shortened(key)} as a key: its type is {name}; keys may be str, bytes, int, float, bool, None, "
        f"Decimal, UUID, dates and times, Enum members, tuples and frozensets of these; "
        f"{advice.get(tp, 'use one of these, for example a tuple of its fields')}"
    )


def _extension(code: _Code, form: Any) -> msgpack.ExtType:
    return msgpack.ExtType(code, _pack(form))


def _int(key: int) -> Any:
    if -(1 << 63) <= key < 1 << 64:
        return int(key)
    return msgpack.ExtType(_Code.BIG_INT, key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True))


def _float(key: float) -> Any:
    if isnan(key):
        raise BadRecordError("cannot use NaN as a key: it is not equal to itself; replace it, for example by None")
    return _int(int(key)) if key.is_integer() else key


def _decimal(key: Decimal) -> Any:
    if key.is_nan():
        raise BadRecordError("cannot use NaN as a key: it is not equal to itself; replace it, for example by None")
    if key.is_infinite():
        return float(key)
    if not key:
        return 0
    if abs(key.adjusted()) > _DECIMAL_DIGITS_MAX:
        raise BadRecordError(
            f"cannot use {shortened(key)} as a key: it has more than {_DECIMAL_DIGITS_MAX} digits; use its text"
        )
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    while exponent < 0 and number % 10 == 0:
        number //= 10
        exponent += 1
    signed = -number if sign else number
    if exponent >= 0:
        return _int(signed * 10**exponent)
    double = float(key)
    if Decimal(double) == key:
        return double
    return msgpack.ExtType(_Code.DECIMAL, f"{signed}E{exponent}".encode())


def _tuple(key: tuple[Any, ...]) -> Any:
    return [_form(item) for item in key]


def _frozenset(key: frozenset[Any]) -> Any:
    return msgpack.ExtType(_Code.FROZENSET, _pack(sorted(canonical(item) for item in key)))


def _datetime(key: datetime) -> Any:
    # Equality inside a zone disregards fold, so the form does, too.
    key = key.replace(fold=0)
    offset = key.utcoffset()
    wall = (key.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if offset is None:
        return _extension(_Code.DATETIME_NAIVE, wall)
    if type(key.tzinfo) is not timezone and not isinstance(key.tzinfo, ZoneInfo):
        raise BadRecordError(
            f"cannot use {shortened(key)} as a key: its time zone is {with_article(type(key.tzinfo).__qualname__)}; "
            f"use datetime.timezone or zoneinfo.ZoneInfo"
        )
    if key.replace(fold=1).utcoffset() != offset:
        assert isinstance(key.tzinfo, ZoneInfo)
        return _extension(_Code.DATETIME_WALL, [wall, key.tzinfo.key])
    return _extension(_Code.DATETIME_INSTANT, wall - offset // _MICROSECOND)


def _time(key: time) -> Any:
    wall = key.hour * 3600 + key.minute * 60 + key.second
    offset = key.utcoffset()
    if offset is None:
        return _extension(_Code.TIME_NAIVE, [wall, key.microsecond])
    return _extension(_Code.TIME_INSTANT, [wall - (offset.days * 86400 + offset.seconds), key.microsecond])


_FORMS: Final[dict[type, Callable[[Any], Any]]] = {
    str: lambda key: key,
    bytes: lambda key: key,
    NoneType: lambda key: key,
    int: _int,
    bool: int,
    float: _float,
    Decimal: _decimal,
    tuple: _tuple,
    frozenset: _frozenset,
    datetime: _datetime,
    date: lambda key: _extension(_Code.DATE, key.toordinal()),
    time: _time,
    timedelta: lambda key: _extension(_Code.TIMEDELTA, [key.days, key.seconds, key.microseconds]),
    UUID: lambda key: msgpack.ExtType(_Code.UUID, key.bytes),
}

# A subclass that compares as its base does is that base: IntEnum, StrEnum, NamedTuple.
_BASES: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (int, int.__int__),
    (str, str.__str__),
    (float, float.__float__),
    (bytes, bytes.__bytes__),
    (tuple, tuple),
    (frozenset, frozenset),
)

_SELF_CANONICAL: Final = frozenset({str, bytes, int, NoneType, date, timedelta, UUID})

# ---------------------------------------------------------------------- and back


def _make(code: int, data: bytes, registry: TypeRegistry | None) -> Any:
    if code == _Code.ENUM:
        name, stored = from_canonical(data)
        return decode_enum((registry or TypeRegistry()).resolve(name), stored)
    if code == _Code.FROZENSET:
        return frozenset(from_canonical(item, registry) for item in from_canonical(data))
    return _MAKERS[code](data)


def _make_instant(data: bytes) -> datetime:
    since = timedelta(microseconds=from_canonical(data))
    try:
        return (_EPOCH + since).replace(tzinfo=UTC)
    except OverflowError:
        # The first and last day of the calendar, seen from a zone east or west of UTC.
        offset = _ZONE_FARTHEST if since < timedelta(0) else -_ZONE_FARTHEST
        return (_EPOCH + (since + offset)).replace(tzinfo=timezone(offset))


def _make_wall(data: bytes) -> datetime:
    wall, zone = from_canonical(data)
    return (_EPOCH + timedelta(microseconds=wall)).replace(tzinfo=ZoneInfo(zone))


def _make_time_instant(data: bytes) -> time:
    seconds, microsecond = from_canonical(data)
    wall = min(max(seconds, 0), 86_399)
    zone = timezone(timedelta(seconds=wall - seconds))
    return time(wall // 3600, wall // 60 % 60, wall % 60, microsecond, zone)


def _make_time_naive(data: bytes) -> time:
    wall, microsecond = from_canonical(data)
    return time(wall // 3600, wall // 60 % 60, wall % 60, microsecond)


_MAKERS: Final[dict[int, Callable[[bytes], Any]]] = {
    _Code.BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    _Code.DECIMAL: lambda data: Decimal(data.decode()),
    _Code.DATETIME_INSTANT: _make_instant,
    _Code.DATETIME_WALL: _make_wall,
    _Code.DATETIME_NAIVE: lambda data: _EPOCH + timedelta(microseconds=from_canonical(data)),
    _Code.DATE: lambda data: date.fromordinal(from_canonical(data)),
    _Code.TIME_NAIVE: _make_time_naive,
    _Code.TIME_INSTANT: _make_time_instant,
    _Code.TIMEDELTA: lambda data: timedelta(*from_canonical(data)),
    _Code.UUID: lambda data: UUID(bytes=data),
}
