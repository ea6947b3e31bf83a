"""Which state a process function declares: read from its class, without binding or running anything.

A declaration is a class attribute with a `spec` that has a `name` (see `state.descriptor`), and `is_broadcast` where its
state has no keys; it is recognised by that shape, since planning needs nothing else of it.

Not here: what the state kinds do, and whether a snapshot fits them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateDeclaration:
    """`attribute = ValueState(name, default=...)` in a class body."""

    attribute: str
    name: str
    default: object
    annotation: object = None
    is_broadcast: bool = False


def declared_states(function: object) -> list[StateDeclaration]:
    """The states in the class of `function`, base classes first; an overridden attribute counts once."""
    attributes: dict[str, object] = {}
    for cls in reversed(type(function).__mro__):
        attributes.update(vars(cls))
    return _declarations_in(attributes)


def misplaced_states(function: object) -> list[StateDeclaration]:
    """States that were put on the object (`self.seen = ValueState(...)`), where they cannot work."""
    return _declarations_in(getattr(function, "__dict__", {}))


def _declarations_in(attributes: Mapping[str, object]) -> list[StateDeclaration]:
    found = []
    for attribute, value in attributes.items():
        spec = getattr(value, "spec", None)
        name = getattr(spec, "name", None)
        if isinstance(name, str):
            annotation = getattr(value, "annotation", None)
            is_broadcast = getattr(value, "is_broadcast", False)
            found.append(StateDeclaration(attribute, name, getattr(spec, "default", None), annotation, is_broadcast))
    return found
