"""Of which types keys are, as short texts that a manifest can hold: "str", "number", "tuple[str, number]".

Keys that compare equal have one text. So int, bool, float and Decimal are all "number", an IntEnum is one too, and a
NamedTuple is a tuple. Of a tuple the types of its items count, and so how many they are; of what lies deeper only the form.

Invariant: the text follows from types alone, never from values, so that many keys are looked at by their few shapes.

Not here: which types a key may have, and its bytes (`keys.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from decimal import Decimal
from enum import Enum
from itertools import chain
from numbers import Number
from types import NoneType
from typing import Any, Final
from uuid import UUID

KEY_TYPES_MAX: Final = 32
"""Of more types than these nobody can say anything useful."""

_LITERAL: Final = frozenset({str, bytes, int, float, bool, NoneType})
_PLAIN: Final = _LITERAL | {Decimal, UUID}

_NUMBER: Final = "number"
_BASES: Final = (str, bytes, tuple, frozenset)


def key_types(keys: Iterable[Any]) -> set[str]:
    """The types of some keys.

    Example:
        >>> sorted(key_types([1, 2.5, "a", ("a", 1), ("b", True)]))
        ['number', 'str', 'tuple[str, number]']
    """
    kept = list(keys)
    types = set(map(type, kept))
    tuples = {tp for tp in types if issubclass(tp, tuple)}
    shapes = {tuple(map(type, key)) for key in kept if type(key) in tuples} if tuples else set()
    return {_name(tp) for tp in types - tuples} | {f"tuple[{', '.join(map(_name, shape))}]" for shape in shapes}


def are_plain(keys: Iterable[Any]) -> bool:
    """Whether all keys are of types of Python's own that a person can type in: no Enum, no other class, no date.

    Tuples may be of what Python has literals for, but not of tuples.

    Example:
        >>> are_plain([1, "a", ("a", 1)]), are_plain([("a", (1,))])
        (True, False)
    """
    kept = list(keys)
    types = set(map(type, kept))
    inside = set(map(type, chain.from_iterable(key for key in kept if type(key) is tuple))) if tuple in types else set()
    return types <= _PLAIN | {tuple} and inside <= _LITERAL


def _name(tp: type) -> str:
    if issubclass(tp, Enum) and tp.__eq__ is object.__eq__:
        return tp.__qualname__
    if issubclass(tp, Number) or _is_numpy_bool(tp):
        return _NUMBER
    if tp is NoneType:
        return "None"
    return next((base.__name__ for base in _BASES if issubclass(tp, base)), tp.__qualname__)


def _is_numpy_bool(tp: type) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and issubclass(tp, numpy.bool_)
