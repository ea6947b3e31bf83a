"""What a key that a person types may mean, and which of these meanings a state has.

A key is typed as text. It may be that very str, a number, true or null, a tuple as JSON (`["a", 1]`) or as Python shows
it (`('a', 1)`), a date, a UUID. All of them are looked up, which is cheap; when the state has more than one of them, that
is said instead of taking one. When it has none, and its files do not tell that its keys are all of Python's own types, all
keys are walked through for one that is shown as this text: whatever a key is, it can be typed as it stands in a listing,
an Enum member also by its bare name. `json:` in front means: exactly this JSON.

Invariants: typed text is parsed as a literal and never evaluated.

Not here: reading state (`keyed_state`).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final
from uuid import UUID

from flowpoint.codec.keys import canonical
from flowpoint.codec.raw import RawEnum
from flowpoint.errors import BadRecordError, NotFoundError, UsageError
from flowpoint.model.texts import alike
from flowpoint.snapshot.keyed_state import Found, KeyedState
from flowpoint.snapshot.value_text import text_of, type_of

EXACTLY: Final = "json:"
_LITERAL_STARTS: Final = ("(", "b'", 'b"', "'", '"', "True", "False", "None")
_PARSERS: Final[tuple[Callable[[str], Any], ...]] = (UUID, date.fromisoformat, datetime.fromisoformat, Decimal)
_CALL: Final = re.compile(r"(?:UUID|Decimal)\('([^']*)'\)")
"""How they are shown."""
_NEIGHBOURS_MAX: Final = 2_000


def meanings(text: str) -> list[Any]:
    """The keys that a text may mean, each once, the str first.

    Raises:
        UsageError: what stands after `json:` is no key in JSON.

    Example:
        >>> meanings("1")
        ['1', 1]
        >>> meanings('["a", 1]')
        ['["a", 1]', ('a', 1)]
    """
    if text.startswith(EXACTLY):
        found = list(_from_json(text.removeprefix(EXACTLY)))
        if not found:
            raise UsageError(
                f"cannot use {text!r} as a key: what stands after {EXACTLY!r} is no JSON that can be a key"
            )
        return found
    candidates = [text, *_from_json(text), *_from_literal(text), *_parsed(text)]
    by_bytes: dict[bytes, Any] = {}
    for key in candidates:
        try:
            by_bytes.setdefault(canonical(key), key)
        except (BadRecordError, TypeError):
            continue
    return list(by_bytes.values())


def lookup(state: KeyedState, text: str) -> list[Found]:
    """The entries of a state whose keys a text may mean: none, one or, where it is ambiguous, several.

    A key that the state does not have costs a walk through all that it has, unless its keys are plain.
    """
    found = [entry for key in meanings(text) if (entry := state.find(key)) is not None]
    if found or state.has_plain_keys:
        return found
    return [entry for entry in state.walk() if reads_as(entry.key, text)]


def find_by_text(state: KeyedState, text: str, where: str) -> Found:
    """The entry whose key a person means by a text.

    Raises:
        NotFoundError: the state has no such key.
        UsageError: it has more than one.
        SnapshotError: a file is damaged.
    """
    found = lookup(state, text)
    if len(found) > 1:
        raise UsageError(ambiguous(text, [entry.key for entry in found], where))
    if not found:
        raise NotFoundError(f"{where} has no key {text!r}{_neighbours(state, text)}")
    return found[0]


def lookup_in_map(keys: Iterable[Any], text: str) -> list[Any]:
    """The keys inside a map that a text may mean."""
    wanted = meanings(text)
    return [key for key in keys if key in wanted or reads_as(key, text)]


def pick_by_text(keys: Iterable[Any], text: str, where: str) -> Any:
    """The one of the keys inside a map that a person means by a text. Raises as `find_by_text`."""
    found = lookup_in_map(keys, text)
    if len(found) > 1:
        raise UsageError(ambiguous(text, found, where))
    if not found:
        raise NotFoundError(f"{where} has no map key {text!r}{_nearest(text, iter(keys))}")
    return found[0]


def reads_as(key: Any, text: str) -> bool:
    """Whether a key is shown as this text, or is the Enum member of this name."""
    return text_of(key) == text or (type(key) is RawEnum and key.member == text)


def _from_json(text: str) -> Iterator[Any]:
    try:
        yield _as_key(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return


def _as_key(value: Any) -> Any:
    if isinstance(value, dict):
        raise TypeError("a JSON object cannot be a key")
    return tuple(map(_as_key, value)) if isinstance(value, list) else value


def _from_literal(text: str) -> Iterator[Any]:
    if not text.startswith(_LITERAL_STARTS):
        return
    # Python shows an infinite number as a name.
    for literal in (text, re.sub(r"\binf\b", "1e999", text)):
        try:
            yield ast.literal_eval(literal)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return


def _parsed(text: str) -> Iterator[Any]:
    call = _CALL.fullmatch(text)
    text = call[1] if call is not None else text
    for parse in _PARSERS:
        try:
            yield parse(text)
        except (ValueError, InvalidOperation):
            continue


def ambiguous(text: str, keys: list[Any], where: str) -> str:
    """What to say when a text may mean several keys."""
    ways = " or ".join(f"{_exact(key, text)} ({type_of(key)})" for key in keys)
    return f"key {text!r} is ambiguous: {where} has {len(keys)} keys that it may mean; write {ways}"


def _exact(key: Any, text: str) -> str:
    """How to type a key of which `text` was not enough."""
    try:
        return EXACTLY + json.dumps(key)
    except TypeError:
        shown = text_of(key)
        return f"({shown})" if shown == text else shown


def _neighbours(state: KeyedState, text: str) -> str:
    return _nearest(text, state.keys())


def _nearest(text: str, keys: Iterator[Any]) -> str:
    """What a message says after an unknown key. Only the first keys of a big state are compared."""
    shown = {key if isinstance(key, str) else text_of(key): None for key in islice(keys, _NEIGHBOURS_MAX)}
    near = alike(text, shown)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is, for example, {next(iter(shown))!r}" if shown else "; it is empty"
