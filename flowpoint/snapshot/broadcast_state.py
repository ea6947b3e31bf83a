"""Read the broadcast state of an operator out of a snapshot: to whoever looks, a state whose keys are the map keys.

Every subtask has it whole, so it is read from the first one that has any.

Not here: how it lies in files, as a map under one key (`state.broadcast`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flowpoint.snapshot.keyed_state import Found, KeyedState

BROADCAST: Final = "broadcast"


class BroadcastEntries(KeyedState):
    """One broadcast state of one operator. It has what `KeyedState` has; `kind` is "broadcast"."""

    def find(self, key: Any) -> Found | None:
        """The entry of a map key as it is stored, or None."""
        return next((found for found in self.walk() if found.key == key), None)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """All entries."""
        return ((map_key, value) for (_, map_key), value in super().entries())

    def walk(self) -> Iterator[Found]:
        """All entries with where they are."""
        return (Found(self.parts[0].subtask, 0, map_key, value) for map_key, value in self.entries())
