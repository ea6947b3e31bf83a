"""Of which types keys are, as short texts that a manifest can hold: "str", "number", "tuple[str, number]".

Keys that compare equal have one text. So int, bool, float and Decimal are all "number", an IntEnum is one too, and a
NamedTuple is a tuple. Of a tuple the types of its items count, and so how many they are; of what lies deeper only the form.

Invariant: the text follows from types alone, never from values, so that many keys are looked at by their few shapes.

Not here: which types a key may have, and its bytes (`keys.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from decimal import Decimal
from enum import Enum
from itertools import repeat
from numbers import Number
from types import NoneType
from typing import Any, Final, TypeAlias
from uuid import UUID

KEY_TYPES_MAX: Final = 32
"""Of more types than these nobody can say anything useful."""

KeyShape: TypeAlias = tuple[type, ...]
"""The type of a key; behind it, where the key is a tuple, the types of its items."""

_LITERAL: Final = frozenset({str, bytes, int, float, bool, NoneType})
_PLAIN: Final = _LITERAL | {Decimal, UUID}

_NUMBER: Final = "number"
_BASES: Final = (str, bytes, tuple, frozenset)


def key_shapes(keys: Collection[Any]) -> set[KeyShape]:
    """The shapes of some keys: all that is looked at of them, found in one walk.

    Example:
        >>> sorted(map(len, key_shapes([1, 2, ("a", 1), ("b", 2)])))
        [1, 3]
    """
    types = set(map(type, keys))
    shapes: set[KeyShape] = set()
    for tp in types:
        if not issubclass(tp, tuple):
            shapes.add((tp,))
            continue
        own = keys if len(types) == 1 else [key for key in keys if type(key) is tp]
        # Without a step of Python's own for each key: this is done for all state that is written.
        shapes.update((tp, *items) for items in set(map(tuple, map(map, repeat(type), own))))
    return shapes


def key_types(shapes: Iterable[KeyShape]) -> set[str]:
    """The types of keys of these shapes.

    Example:
        >>> sorted(key_types(key_shapes([1, 2.5, "a", ("a", 1), ("b", True)])))
        ['number', 'str', 'tuple[str, number]']
    """
    return {f"tuple[{', '.join(map(_name, items))}]" if issubclass(tp, tuple) else _name(tp) for tp, *items in shapes}


def are_plain(shapes: Iterable[KeyShape]) -> bool:
    """Whether all keys are of types of Python's own that a person can type in: no Enum, no other class, no date.

    Tuples may be of what Python has literals for, but not of tuples.

    Example:
        >>> are_plain(key_shapes([1, "a", ("a", 1)])), are_plain(key_shapes([("a", (1,))]))
        (True, False)
    """
    return all(tp in _PLAIN or (tp is tuple and _LITERAL.issuperset(items)) for tp, *items in shapes)


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
