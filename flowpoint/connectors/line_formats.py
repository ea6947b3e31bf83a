"""Bytes to records and back, a block at a time, for files of lines: `lines` (plain text) and `jsonl` (one JSON a line).

A line ends with "\\n". Reading takes one "\\r" before it away, so that files from Windows give the same records.
Writing refuses what would not come back: a text with a line break in it, with a "\\r" at its end or a byte order mark at
its beginning (of a file, reading takes that away), and for jsonl every value for which
`json.loads` of the written line would not equal the value (tuples come back as lists, that much is JSON). So NaN, sets,
dates, dict keys that are not str, ... are refused with a hint instead of being turned silently into something else.

How jsonl is fast and strict at once: msgspec encodes a whole batch in one call (20 ns a record against 480 for the
standard library), but turns NaN into null and dates into text. Therefore the *types* of the batch are collected with
`set(map(type, ...))`, level by level, at C speed; only if they are all plain is msgspec's output used, else each record
is checked and written by the standard library. Reading decodes line by line, never a joined text: `1 2` and
`[3` + `,4]` are three lines and three values when joined, and all of them wrong.

Invariants: `encode` writes exactly one "\\n" per record, at its end. `decode` returns exactly one record per line or
raises; `decode_line` then tells which line is to blame.
Not here: files, offsets, what happens to a bad line (`file_reader`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any, Final, NoReturn, Protocol

import msgspec

from flowpoint.errors import PlanError

_MARK: Final = "\ufeff"
_SCALARS: Final = frozenset({str, int, bool, NoneType})
_ARRAYS: Final = frozenset({tuple, list})
_PLAIN: Final = _SCALARS | _ARRAYS | {float, dict}
_HINTS: Final = {
    "datetime": "value.isoformat()",
    "date": "value.isoformat()",
    "time": "value.isoformat()",
    "timedelta": "value.total_seconds()",
    "Decimal": "str(value)",
    "UUID": "str(value)",
    "bytes": "value.decode() or base64",
    "set": "sorted(value)",
    "frozenset": "sorted(value)",
}


class UnwritableError(ValueError):
    """A record that the format cannot hold. The message says which, and what to do."""


class LineFormat(Protocol):
    """How records stand in the lines of a file."""

    name: str
    suffix: str

    def encode(self, values: list[Any]) -> bytes:
        """All records as lines, each ended by a newline. Raises UnwritableError."""

    def decode(self, raw: bytes) -> list[Any]:
        """One record per line; `raw` ends with a newline. Raises ValueError when any line is bad or blank."""

    def decode_line(self, line: bytes) -> list[Any]:
        """The record in one line (without its newline), as a list; empty for a line to be passed over.

        Raises ValueError.
        """


class Lines:
    """Each line is a str record. Blank lines are records too."""

    name = "lines"
    suffix = ".txt"

    def encode(self, values: list[Any]) -> bytes:
        try:
            text = "\n".join(values) + "\n"
            if text.count("\n") == len(values) and "\r\n" not in text and not _begins_with_mark(text):
                return text.encode()
        except (TypeError, UnicodeEncodeError):
            pass  # the search below finds the value and says it better
        raise UnwritableError(_why_no_line(values))

    def decode(self, raw: bytes) -> list[Any]:
        text = raw.decode()
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        lines.pop()
        return lines

    def decode_line(self, line: bytes) -> list[Any]:
        return [line.decode().removesuffix("\r")]


class JsonLines:
    """Each line is one JSON value. Blank lines are passed over."""

    name = "jsonl"
    suffix = ".jsonl"

    def __init__(self) -> None:
        self._encode_lines = msgspec.json.Encoder().encode_lines
        self._decode = msgspec.json.Decoder().decode

    def encode(self, values: list[Any]) -> bytes:
        try:
            # Encoding comes first: it ends a value that contains itself, which the look at the types would not.
            encoded = self._encode_lines(values)
            if _is_plain(values):
                return encoded
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            pass  # one of the records: the loop below finds it, or can write what msgspec cannot
        return b"".join(_encode_strictly(value) + b"\n" for value in values)

    def decode(self, raw: bytes) -> list[Any]:
        lines = raw.split(b"\n")
        lines.pop()
        try:
            return list(map(self._decode, lines))
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

    def decode_line(self, line: bytes) -> list[Any]:
        text = line.decode()
        if not text or text.isspace():
            return []
        try:
            # The standard library also takes lone surrogates and 1e400, which are JSON, too.
            return [json.loads(text, parse_constant=_refuse_constant)]
        except RecursionError:
            raise ValueError("nested too deeply") from None


def line_format(name: str, connector: str) -> LineFormat:
    """The format of that name. Raises PlanError, naming the connector, when there is none (yet)."""
    match name:
        case "lines":
            return Lines()
        case "jsonl":
            return JsonLines()
    later = " yet" if name in ("csv", "parquet") else ""
    raise PlanError(f"{connector}: format={name!r} is not supported{later}; use 'lines' or 'jsonl'")


def _begins_with_mark(text: str) -> bool:
    """Whether any line begins with a byte order mark: it may come to stand at the beginning of a file."""
    return _MARK in text and (text.startswith(_MARK) or f"\n{_MARK}" in text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _why_no_line(values: Iterable[Any]) -> str:
    for value in values:
        if not isinstance(value, str):
            return f"{_shown(value)}: format 'lines' takes str; use .map(str) before the sink, or format='jsonl'"
        if "\n" in value:
            return f"{_shown(value)}: a line break inside would make it two lines; use format='jsonl'"
        if value.endswith("\r"):
            return f"{_shown(value)}: a carriage return at the end is lost when the line is read; use format='jsonl'"
        if value.startswith(_MARK):
            return f"{_shown(value)}: a byte order mark at the beginning is lost when it is read; use format='jsonl'"
        if any("\ud800" <= char <= "\udfff" for char in value):
            return f"{_shown(value)}: a lone surrogate has no UTF-8 form; use format='jsonl'"
    raise AssertionError("every value fits a line, yet the batch did not")


def _is_plain(values: list[Any]) -> bool:
    """Whether JSON gives exactly these values back: looks at the types only, one level of nesting per round."""
    level = values
    while True:
        types = set(map(type, level))
        if types <= _SCALARS:
            return True
        if not types <= _PLAIN:
            return False
        if float in types and not all(map(isfinite, [v for v in level if type(v) is float])):
            return False
        below: list[Any] = []
        if types & _ARRAYS:
            arrays = level if types <= _ARRAYS else [v for v in level if type(v) in _ARRAYS]
            below.extend(chain.from_iterable(arrays))
        if dict in types:
            dicts = level if types == {dict} else [v for v in level if type(v) is dict]
            if not set(map(type, chain.from_iterable(dicts))) <= {str}:
                return False
            below.extend(chain.from_iterable(map(dict.values, dicts)))
        level = below


def _encode_strictly(value: Any) -> bytes:
    """One record, by the standard library, after a look at everything in it."""
    try:
        _check(value)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except UnwritableError as error:
        raise UnwritableError(f"{_shown(value)}: {error}") from None
    except ValueError as error:
        raise UnwritableError(f"{_shown(value)}: {error}") from None
    except RecursionError:
        raise UnwritableError(f"{_shown(value)}: it is nested too deeply or contains itself; flatten it") from None
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate: legal in JSON as an escape
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _check(value: Any) -> None:
    match value:
        case None | str() | int():
            return
        case float():
            if not isfinite(value):
                raise UnwritableError(f"JSON has no {value}; map it to None before the sink")
        case list() | tuple():
            for item in value:
                _check(item)
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise UnwritableError(
                        f"the dict key {key!r} is of type {type(key).__name__}, JSON keys are text;"
                        " map the keys with str() before the sink"
                    )
                _check(item)
        case _:
            name = type(value).__name__
            hint = "dataclasses.asdict(value)" if hasattr(value, "__dataclass_fields__") else _HINTS.get(name)
            advice = f"map it before the sink, for instance with {hint}" if hint else "map it before the sink"
            raise UnwritableError(f"JSON has no {name} ({_shown(value)}); {advice}")


def _shown(value: Any) -> str:
    """The value as a message shows it: its type, and not too much of it."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a __repr__ is user code, and this is already the way to report an error
        text = "a value that cannot be shown"
    return f"{text[:100] + '...' if len(text) > 100 else text} ({type(value).__name__})"
