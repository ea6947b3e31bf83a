"""The classes whose instances an agent's state may hold, found in annotations.

`types_of(builder)` looks at the schemas and channels of an uncompiled StateGraph and of the compiled graphs among its
nodes. Annotations are walked through generics, unions, TypedDicts and the fields of classes. Names that LangGraph hands
over as (module, name) are looked up among the modules that the program has imported itself.

Invariant: nothing is imported here.
Not here: which of these can be saved (`codec.registry`), bytes (`serde.py`).
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any, get_args, get_origin

__all__ = ["classes_in", "types_of", "with_named_classes"]


def types_of(builder: Any) -> tuple[type, ...]:
    """The classes in the annotations of a StateGraph, for `types=` of a saver.

    Values whose class stands in no annotation (what `interrupt` shows, an answer to it, a subclass in a field of its
    base) have to be listed by hand.

    Example:
        RocksSaver("memory", types=[*types_of(builder), Answer])
    """
    return classes_in(_annotations_of(builder))


def _annotations_of(builder: Any) -> Iterator[Any]:
    builder = getattr(builder, "builder", builder)
    yield from builder.schemas
    for channel in builder.channels.values():
        yield channel.ValueType
        yield channel.UpdateType
    for spec in builder.nodes.values():
        yield spec.input_schema
        if hasattr(spec.runnable, "builder"):
            yield from _annotations_of(spec.runnable)


def classes_in(annotations: Iterable[Any]) -> tuple[type, ...]:
    """Every class that these annotations mention, each once, in the order they are met."""
    found: dict[type, None] = {}
    waiting = list(annotations)
    # By identity, as annotations may be unhashable; keeping the objects keeps their ids from being used again.
    seen: dict[int, Any] = {}
    at = 0
    while at < len(waiting):
        current, at = waiting[at], at + 1
        if id(current) in seen:
            continue
        seen[id(current)] = current
        waiting.extend(_mentioned_by(current))
        if isinstance(current, type) and get_origin(current) is None and not typing.is_typeddict(current):
            found.setdefault(current)
    return tuple(found)


def _mentioned_by(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        has_fields = "__annotations__" in vars(annotation) or typing.is_typeddict(annotation)
        bases = [base for base in annotation.__mro__[1:] if "__annotations__" in vars(base)]
        return _hints(annotation) if has_fields or bases else []
    if isinstance(annotation, Enum):
        return [type(annotation)]
    if isinstance(annotation, (list, tuple)):
        return list(annotation)
    if isinstance(annotation, typing.TypeVar):
        return [annotation.__bound__, *annotation.__constraints__]
    # A NewType has a supertype, an alias made by a `type` statement a value.
    others = [getattr(annotation, name, None) for name in ("__supertype__", "__value__")]
    return [get_origin(annotation), *get_args(annotation), *others]


def _hints(cls: type) -> list[Any]:
    try:
        return list(typing.get_type_hints(cls).values())
    except Exception:  # noqa: BLE001  resolving runs the user's annotations, which may raise anything
        return [hint for name, annotation in _own_annotations(cls) for hint in _hint(cls, name, annotation)]


def _own_annotations(cls: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(cls.__mro__):
        yield from vars(base).get("__annotations__", {}).items()


def _hint(cls: type, name: str, annotation: Any) -> list[Any]:
    """One annotation where several cannot be resolved together; a class missed here is refused by name when used."""
    alone: Any = SimpleNamespace(__annotations__={name: annotation})
    try:
        return list(typing.get_type_hints(alone, globalns=vars(sys.modules.get(cls.__module__, object))).values())
    except Exception:  # noqa: BLE001  as in _hints
        return []


def with_named_classes(types: Iterable[Any]) -> list[Any]:
    """Replace (module, name) by the class of that name if its module is imported; leave the others out."""
    found: list[Any] = []
    for tp in types:
        if not isinstance(tp, tuple):
            found.append(tp)
        elif len(tp) >= 2 and all(isinstance(part, str) for part in tp):
            cls = getattr(sys.modules.get(tp[0]), tp[1], None)
            if isinstance(cls, type):
                found.append(cls)
    return found
