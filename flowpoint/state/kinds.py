"""The kinds of state that a user declares in the class of a keyed function.

    class Dedupe(KeyedProcessFunction):
        seen = ValueState("seen", default=0)

        def process(self, value, ctx):
            self.seen.value += 1

Not here: what declarations have in common (`descriptor.py`), what a user reads and writes with (`handles.py`), state without
keys (`broadcast.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowpoint.errors import PlanError
from flowpoint.state.backend import Backend
from flowpoint.state.descriptor import KeyedDeclaration
from flowpoint.state.handles import KeyCell, ListHandle, MapHandle, ReducingHandle, ValueHandle
from flowpoint.state.spec import FIRST_VERSION, Migrations


class ValueState(KeyedDeclaration[ValueHandle]):
    """One value per key.

    Example:
        >>> class Count:
        ...     seen = ValueState("seen", default=0)
        >>> Count.seen.spec.name
        'seen'
    """

    kind = "value"

    def open(self, backend: Backend, cell: KeyCell) -> ValueHandle:
        return ValueHandle(cell, backend.table(self.spec), self.spec.default)


class ListState(KeyedDeclaration[ListHandle]):
    """A list per key: `append`, `extend`, `clear`, iteration, `len`, and `.value`.

    Example:
        >>> ListState("events").spec.kind
        'list'
    """

    kind = "list"

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        ttl: float | str | None = None,
        version: int = FIRST_VERSION,
        migrate: Migrations | None = None,
    ) -> None:
        """`type` and `migrate` are of an element."""
        super().__init__(name, type, ttl=ttl, version=version, migrate=migrate)

    def open(self, backend: Backend, cell: KeyCell) -> ListHandle:
        return ListHandle(cell, backend.table(self.spec))


class MapState(KeyedDeclaration[MapHandle]):
    """A mutable mapping per key; each entry is stored by itself, so a big map costs no more than what is touched of it.

    Example:
        >>> MapState("by_day").spec.kind
        'map'
    """

    kind = "map"

    def __init__(
        self,
        name: str,
        type: Any = None,
        *,
        ttl: float | str | None = None,
        version: int = FIRST_VERSION,
        migrate: Migrations | None = None,
    ) -> None:
        """`type` and `migrate` are of the value of one map key."""
        super().__init__(name, type, ttl=ttl, version=version, migrate=migrate)

    def open(self, backend: Backend, cell: KeyCell) -> MapHandle:
        return MapHandle(cell, backend.map_table(self.spec))


class ReducingState(KeyedDeclaration[ReducingHandle]):
    """One value per key, made of all that were added: `add(value)`, `.value`, `clear()`.

    Example:
        >>> ReducingState("longest", max).spec.kind
        'value'
    """

    kind = "value"

    def __init__(
        self,
        name: str,
        reduce: Callable[[Any, Any], Any],
        type: Any = None,
        *,
        ttl: float | str | None = None,
        version: int = FIRST_VERSION,
        migrate: Migrations | None = None,
    ) -> None:
        super().__init__(name, type, ttl=ttl, version=version, migrate=migrate)
        if not callable(reduce):
            raise PlanError(
                f"cannot declare state '{name}' with reduce={reduce!r}: pass a function of (result so far, value)"
            )
        self._reduce = reduce

    def open(self, backend: Backend, cell: KeyCell) -> ReducingHandle:
        """See `KeyedDeclaration`."""
        return ReducingHandle(cell, backend.table(self.spec), self._reduce)
