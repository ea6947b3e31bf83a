"""Finds the classes of records in the type annotations of a user's functions, for the codec's registry of types.

A record class is one whose values have a name and fields of their own: dataclass, NamedTuple, Enum, pydantic model,
msgspec Struct. Annotations are walked through generics, unions and the fields of what is found. Looking is best
effort: an annotation that cannot be resolved is passed over, since a missing type is reported clearly by the codec
when a record of it comes.

Not here: encoding, and names of types (`codec.values`).
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

from flowpoint.plan.states import declared_states

_PROCESS_METHODS = ("process", "process1", "process2", "on_timer", "create", "add", "result")


def record_types_of(functions: Iterable[object]) -> tuple[type, ...]:
    """The record classes that these functions mention, each once, in the order they are met.

    Example:
        >>> class Color(Enum):
        ...     RED = 1
        >>> def colors(line: str) -> list[Color]: ...
        >>> [tp.__name__ for tp in record_types_of([colors, str.split])]
        ['Color']
    """
    found: dict[type, None] = {}
    for function in functions:
        for annotation in _annotations_of(function):
            _collect(annotation, found)
    return tuple(found)


def _annotations_of(function: object) -> Iterator[object]:
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        yield from _hints(function)
    elif inspect.isclass(function):
        yield function
    elif function is not None:
        yield from _annotations_of_object(function)


def _annotations_of_object(function: object) -> Iterator[object]:
    """Of a callable object or KeyedProcessFunction: its methods, class attributes, types and defaults of its states."""
    cls = type(function)
    yield from _hints(cls)
    for method in (*_PROCESS_METHODS, "__call__"):
        member = getattr(cls, method, None)
        if inspect.isroutine(member):
            yield from _hints(member)
    for state in declared_states(function):
        yield type(state.default)
        if state.annotation is not None:
            yield state.annotation


def _hints(thing: object) -> list[object]:
    try:
        return list(typing.get_type_hints(thing, include_extras=False).values())
    except Exception:  # noqa: BLE001  resolving runs the user's annotations, which may raise anything
        return _hints_one_by_one(thing)


def _hints_one_by_one(thing: object) -> list[object]:
    """What can be resolved where one annotation of several cannot."""
    resolved: list[object] = []
    scope = getattr(thing, "__globals__", None)
    for name, annotation in getattr(thing, "__annotations__", {}).items():
        alone: Any = SimpleNamespace(__annotations__={name: annotation})
        try:
            resolved.extend(typing.get_type_hints(alone, globalns=scope).values())
        except Exception:  # noqa: BLE001, S112  as in _hints; this one annotation is passed over
            continue
    return resolved


def _collect(annotation: object, found: dict[type, None]) -> None:
    """Walk an annotation without recursion, since record classes may refer to each other in circles."""
    waiting = [annotation]
    # By identity, as annotations may be unhashable; keeping the objects keeps their ids from being used again.
    seen: dict[int, object] = {}
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen[id(current)] = current
        if isinstance(current, type):
            if _is_record_type(current):
                found.setdefault(current)
                waiting.extend(_hints(current))
            elif typing.is_typeddict(current):
                waiting.extend(_hints(current))
        else:
            waiting.extend(_parts(current))


def _parts(annotation: object) -> list[object]:
    """What a generic, a union, a Literal, a NewType, a TypeVar or a list of parameters is made of."""
    if isinstance(annotation, Enum):
        return [type(annotation)]
    if isinstance(annotation, (list, tuple)):
        return list(annotation)
    if isinstance(annotation, dict):
        return list(annotation.values())
    if isinstance(annotation, typing.TypeVar):
        return [annotation.__bound__, *annotation.__constraints__]
    supertype = getattr(annotation, "__supertype__", None)
    return [typing.get_origin(annotation), *typing.get_args(annotation), supertype]


def _is_record_type(tp: type) -> bool:
    if dataclasses.is_dataclass(tp) or issubclass(tp, Enum):
        return True
    is_named_tuple = issubclass(tp, tuple) and hasattr(tp, "_fields")
    # By shape, so that neither pydantic nor msgspec needs to be installed or imported.
    return is_named_tuple or hasattr(tp, "__struct_fields__") or hasattr(tp, "__pydantic_core_schema__")
