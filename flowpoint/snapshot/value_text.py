"""Values of state as a person reads them: as text like Python's, as JSON for programs, and their types by name.

JSON is the plainest form of each: a tuple or set is an array, a datetime its ISO text, bytes are hex digits, an object
is a JSON object of its fields. The type stands beside it, and `value_fit` is the way back.

Invariants: no function here fails, whatever the value. Text has no control characters in it.

Not here: which state a value is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, Final
from uuid import UUID

from flowpoint.codec.raw import RawArray, RawEnum, RawObject, bare_name

_INT_BITS_MAX: Final = 10_000
"""Beyond it Python refuses to make decimal digits of an int."""
_TYPES_SHOWN_MAX: Final = 4


def text_of(value: Any, *, limit: int | None = None) -> str:
    """A value as Python would show it, cut to `limit` characters."""
    try:
        text = repr(value)
    except ValueError:
        text = f"<{type_of(value)} with an int of more than {_INT_BITS_MAX} bits>"
    except RecursionError:
        text = f"<{type(value).__qualname__} that is nested too deeply to be shown>"
    return text if limit is None or len(text) <= limit else f"{text[: max(limit - 3, 0)]}..."


def printable(name: str) -> str:
    """A name as it stands, or quoted when it could do something to a terminal."""
    return name if name.isprintable() else repr(name)


def json_of(value: Any) -> Any:
    """A value as JSON-able data."""
    try:
        return _json_of(value)
    except RecursionError:
        return text_of(value)


def _json_of(value: Any) -> Any:
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain(value)
    match value:
        case list() | tuple():
            return [_json_of(item) for item in value]
        case set() | frozenset():
            return sorted(map(_json_of, value), key=repr)
        case dict():
            return {_json_key(key): _json_of(item) for key, item in value.items()}
        case RawObject():
            return {name: _json_of(item) for name, item in value.items()}
        case RawEnum():
            return value.member
        case Enum():
            return value.name
        case RawArray():
            elements = value.elements()
            return value.data.hex() if elements is None else (elements[0] if value.is_scalar else elements)
    return text_of(value)


def _same(value: Any) -> Any:
    return value


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    type(None): _same,
    bool: _same,
    str: _same,
    int: lambda value: value if value.bit_length() <= _INT_BITS_MAX else hex(value),
    float: lambda value: value if isfinite(value) else repr(value),
    bytes: bytes.hex,
    datetime: datetime.isoformat,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: timedelta.total_seconds,
    Decimal: str,
    UUID: str,
}


def _json_key(key: Any) -> str:
    return key if isinstance(key, str) else text_of(key)


def type_of(value: Any) -> str:
    """The type of a value, as an annotation would say it.

    Example:
        >>> type_of(("a", 1))
        'tuple[str, int]'
        >>> type_of([1, 2, 3])
        'list[int]'
    """
    try:
        return _type_of(value)
    except RecursionError:
        return type(value).__qualname__


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "None"
        case RawObject() | RawEnum():
            return printable(bare_name(value.name))
        case RawArray():
            return f"numpy {printable(value.dtype)}"
        case tuple() if type(value) is tuple and len(value) <= _TYPES_SHOWN_MAX:
            return f"tuple[{', '.join(map(_type_of, value))}]" if value else "tuple"
        case list() | set() | frozenset() | tuple():
            return _of(type(value).__name__, value)
        case dict():
            return f"{_of('dict', value)[:-1]}, {_union(value.values())}]" if value else "dict"
    return type(value).__qualname__


def types_of(values: Iterable[Any]) -> str:
    """The types of some values, each once.

    Example:
        >>> types_of([1, "a", 2])
        'int | str'
    """
    return " | ".join(dict.fromkeys(map(type_of, values)))


def _of(name: str, items: Iterable[Any]) -> str:
    inside = _union(items)
    return f"{name}[{inside}]" if inside else name


def _union(items: Iterable[Any]) -> str:
    """The types of some items, each once; only the first hundred are looked at."""
    names = list(dict.fromkeys(_type_of(item) for _, item in zip(range(100), items, strict=False)))
    return " | ".join(names[:_TYPES_SHOWN_MAX]) + (" | ..." if len(names) > _TYPES_SHOWN_MAX else "")
