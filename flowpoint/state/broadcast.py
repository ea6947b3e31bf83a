"""Broadcast state: one mapping for all keys, which every subtask of an operator has whole.

It changes only while a record of the broadcast stream is handled, and that record goes to every subtask: so all of them
hold the same. Each puts its own into a snapshot, and a restored subtask takes over one of them, whatever the number of
subtasks was before. It lies in a backend of its own, under one key, since backends deal keys out to subtasks.

Invariant: a change at any other time is refused.

Not here: keyed state (`kinds.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

from flowpoint.codec.keys import canonical
from flowpoint.codec.values import is_immutable
from flowpoint.errors import UserCodeError
from flowpoint.state.backend import Backend, MapTable
from flowpoint.state.descriptor import Declaration, declared
from flowpoint.state.handles import PLAIN_KEYS
from flowpoint.state.sharing import Sharing
from flowpoint.state.spec import ABSENT, FIRST_VERSION, Migrations

_EVERY_KEY: Final = 0


class BroadcastAccess:
    """Says whether broadcast state may be changed just now.

    Args:
        sharing: of the operator, whose keyed state may have one already.
    """

    __slots__ = ("sharing", "writable")

    def __init__(self, sharing: Sharing | None = None) -> None:
        self.writable = False
        self.sharing = sharing if sharing is not None else Sharing()


class BroadcastHandle(MutableMapping[Any, Any]):
    """A mapping that is equal in all subtasks. Walked through in one order, of the canonical map keys."""

    __slots__ = ("_access", "_name", "_table")

    def __init__(self, access: BroadcastAccess, table: MapTable) -> None:
        self._access = access
        self._table = table
        self._name = table.spec.name

    def _check_writable(self) -> None:
        if not self._access.writable:
            raise UserCodeError(
                f"broadcast state '{self._name}' was changed where a subtask is alone with it, so it would differ from "
                f"that of others; change it only in the method that handles the records of the broadcast stream"
            )

    def __getitem__(self, map_key: Any) -> Any:
        value = self._table.get(_EVERY_KEY, map_key)
        if value is ABSENT:
            raise KeyError(map_key)
        if not is_immutable(value):
            self._access.sharing.begin()
            if self._access.writable:
                self._table.put(_EVERY_KEY, map_key, value)
        return value

    def __setitem__(self, map_key: Any, value: Any) -> None:
        self._check_writable()
        if type(map_key) not in PLAIN_KEYS:
            canonical(map_key)
        self._access.sharing.note(value)
        self._table.put(_EVERY_KEY, map_key, value)

    def __delitem__(self, map_key: Any) -> None:
        self._check_writable()
        if map_key not in self:
            raise KeyError(map_key)
        self._table.delete(_EVERY_KEY, map_key)

    def __contains__(self, map_key: object) -> bool:
        return self._table.contains(_EVERY_KEY, map_key)

    def __iter__(self) -> Iterator[Any]:
        return (map_key for map_key, _ in self._table.items(_EVERY_KEY))

    def __len__(self) -> int:
        return sum(1 for _ in self._table.items(_EVERY_KEY))

    def clear(self) -> None:
        """Forget all entries."""
        self._check_writable()
        self._table.clear(_EVERY_KEY)

    def __repr__(self) -> str:
        return f"<BroadcastState '{self._name}'>"


class BroadcastState(Declaration[BroadcastHandle]):
    """A mutable mapping that every subtask has whole. Only records of the broadcast stream may change it; what they do
    must depend on nothing but the record and this state, or the subtasks will differ.

    Example:
        >>> BroadcastState("rules").spec.kind
        'map'
    """

    kind = "map"
    is_broadcast = True

    def __init__(
        self, name: str, type: Any = None, *, version: int = FIRST_VERSION, migrate: Migrations | None = None
    ) -> None:
        """`type` and `migrate` are of the value of one map key."""
        super().__init__(name, type, version=version, migrate=migrate)

    def open(self, backend: Backend, access: BroadcastAccess) -> BroadcastHandle:
        """A handle on it."""
        return BroadcastHandle(access, backend.map_table(self.spec))


def bind_broadcast(instance: object, backend: Backend, access: BroadcastAccess) -> None:
    """Connect the broadcast states that an instance's class declares with a backend of their own. Raises as `bind`."""
    for declaration in declared(type(instance)):
        if isinstance(declaration, BroadcastState):
            declaration.attach(instance, declaration.open(backend, access))
