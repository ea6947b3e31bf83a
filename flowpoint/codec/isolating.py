"""Deep copies of values without bytes: what is changed in the original later does not show in the copy.

Every type of value that may stand in state has a function that copies it, looked up by `type(value)`; one for a class of
records is made when its first instance comes. What never changes is not copied: a tuple of numbers is its own copy, and so
is an instance of a frozen class.

An instance of a class that cannot be serialised stays as it is: no state can hold it. Shared references become copies, as
they do in bytes.

What Python's stack is too short for is refused by name (`_refuse_deep`), once at the outermost value.

Not here: bytes (`values.py`); when a copy is needed (`state.sharing`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from flowpoint.codec.arrays import is_numpy
from flowpoint.codec.registry import Shape, shape_of
from flowpoint.codec.shortened import shortened
from flowpoint.codec.values import IMMUTABLE
from flowpoint.errors import BadRecordError

_Copy = Callable[[Any], Any]


class Isolator:
    """Copies values. `isolator(value)` is the copy.

    Example:
        >>> isolated, numbers = Isolator(), [1]
        >>> record = isolated({"numbers": numbers})
        >>> numbers.append(2)
        >>> record
        {'numbers': [1]}
    """

    def __init__(self) -> None:
        self._copies: dict[type, _Copy] = {
            list: self._list,
            tuple: self._tuple,
            dict: self._dict,
            set: set.copy,  # elements are hashable: nobody changes them
            defaultdict: lambda value: defaultdict(value.default_factory, self._dict(value)),
            OrderedDict: lambda value: OrderedDict(self._dict(value)),
            Counter: Counter.copy,
            deque: lambda value: deque(map(self._copy, value), value.maxlen),
            **dict.fromkeys((*IMMUTABLE, frozenset), _itself),
        }

    def __call__(self, value: Any) -> Any:
        """A value that is equal, of the same type, and shares nothing with the original that could be changed.

        Raises:
            BadRecordError: it is nested too deeply, or contains itself.
        """
        try:
            return self._copy(value)
        except RecursionError:
            _refuse_deep(value)

    def _copy(self, value: Any) -> Any:
        cls = type(value)
        copy = self._copies.get(cls)
        if copy is None:
            copy = self._copies[cls] = self._of_class(cls, value)
        return copy(value)

    def _list(self, values: list[Any]) -> list[Any]:
        if IMMUTABLE.issuperset(map(type, values)):
            return values.copy()
        return list(map(self._copy, values))

    def _tuple(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if IMMUTABLE.issuperset(map(type, values)):
            return values
        copies = tuple(map(self._copy, values))
        return values if _are_same(values, copies) else copies

    def _dict(self, entries: dict[Any, Any]) -> dict[Any, Any]:
        return {key: value if type(value) in IMMUTABLE else self._copy(value) for key, value in entries.items()}

    def _of_class(self, cls: type, example: Any) -> _Copy:
        """How instances of a class are copied; `example` is one."""
        if is_numpy(example):
            return lambda value: value.copy()
        shape = None if issubclass(cls, Enum) else shape_of(cls)
        if shape is None:
            return _itself
        if dataclasses.is_dataclass(cls) and hasattr(example, "__dict__") and not _has_slots(cls):
            return self._plain_copy(cls)
        return self._shaped_copy(cls, shape)

    def _shaped_copy(self, cls: type, shape: Shape) -> _Copy:
        is_frozen = _is_frozen(cls)

        def copy(value: Any) -> Any:
            fields = shape.take(value)
            copies = tuple(map(self._copy, fields))
            return value if is_frozen and _are_same(fields, copies) else shape.make(copies)

        return copy

    def _plain_copy(self, cls: type) -> _Copy:
        """Of a dataclass: attributes that are no fields go with it while it stays in this process."""
        is_frozen = _is_frozen(cls)

        def copy(value: Any) -> Any:
            attributes = vars(value)
            copies = self._dict(attributes)
            if is_frozen and _are_same(attributes.values(), copies.values()):
                return value
            instance: Any = object.__new__(cls)
            instance.__dict__.update(copies)
            return instance

        return copy


def _refuse_deep(value: Any) -> NoReturn:
    raise BadRecordError(
        f"cannot copy a value of type {type(value).__name__}: {shortened(value)} is nested too deeply or contains itself;"
        " flatten it"
    ) from None


def _itself(value: Any) -> Any:
    return value


def _are_same(values: Any, copies: Any) -> bool:
    return all(value is copy for value, copy in zip(values, copies, strict=True))


def _has_slots(cls: type) -> bool:
    return any("__slots__" in vars(base) for base in cls.__mro__[:-1])


def _is_frozen(cls: Any) -> bool:
    """Whether the fields of an instance can never be set again."""
    if issubclass(cls, tuple):
        return True
    parameters = getattr(cls, "__dataclass_params__", None) or getattr(cls, "__struct_config__", None)
    return bool(getattr(parameters, "frozen", False))
