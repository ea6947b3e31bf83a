"""State in plain dicts: the fastest backend, for state that fits into memory.

Durable segments are merged into one dict per table; deletions take entries out. Nothing is ever spilled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowpoint.codec.values import Codec
from flowpoint.model.settings import StateSettings
from flowpoint.state.layers import LayeredBackend
from flowpoint.state.placed_files import step_entries
from flowpoint.state.spec import ABSENT, TOMBSTONE, has_tombstone
from flowpoint.state.tables import Source, nested_source


class HeapBackend(LayeredBackend):
    """`backend.Backend` in memory. `work_dir` is not needed; it is taken for likeness."""

    def __init__(
        self,
        codec: Codec,
        max_parallelism: int,
        settings: StateSettings | None = None,
        work_dir: str = "",
        operator: str = "",
    ) -> None:
        super().__init__(HeapStore(settings or StateSettings()), codec, max_parallelism, operator)


class HeapStore:
    """`layers.Store` in memory."""

    def __init__(self, settings: StateSettings) -> None:
        self.step_entries = step_entries(settings.cache_bytes)

    def new_base(self, name: str) -> HeapBase:
        """A dict."""
        return HeapBase()

    def new_map_base(self, name: str) -> HeapMapBase:
        """A dict of dicts."""
        return HeapMapBase()

    def dirty_limit(self) -> int | None:
        """Never spill."""
        return None

    def relieve(self) -> bool:
        """Nothing to do."""
        return False

    def close(self) -> None:
        """Nothing to let go of."""


class HeapBase:
    """`tables.Base` in a dict."""

    def __init__(self) -> None:
        self.must_copy = False
        self._entries: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """See `tables.Base`."""
        return self._entries.get(key, ABSENT)

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """See `tables.Base`."""
        self._entries.update(zip(keys, values, strict=True))
        if has_tombstone(values):
            for key in [key for key, value in zip(keys, values, strict=True) if value is TOMBSTONE]:
                del self._entries[key]

    def in_memory(self) -> Source:
        """See `tables.Base`."""
        return iter(self._entries), self._entries.__getitem__

    def is_resident(self, key: Any) -> bool:
        """See `tables.Base`."""
        return key in self._entries

    def stored(self) -> Iterator[tuple[int, Any, Any]]:
        """Everything is in memory."""
        return iter(())

    def holding(self, places: tuple[int, int], keys: Sequence[Any]) -> set[Any]:
        """See `tables.Base`."""
        return set(filter(self._entries.__contains__, keys))

    def __len__(self) -> int:
        return len(self._entries)


class HeapMapBase:
    """`tables.MapBase` in a dict of dicts; an inner dict is never left empty."""

    def __init__(self) -> None:
        self.must_copy = False
        self._maps: dict[Any, dict[Any, Any]] = {}

    def get(self, key: Any) -> Any:
        """See `tables.Base`."""
        entries = self._maps.get(key[0])
        return ABSENT if entries is None else entries.get(key[1], ABSENT)

    def submap(self, key: Any) -> dict[Any, Any]:
        """See `tables.MapBase`."""
        return dict(self._maps.get(key, ()))

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """See `tables.Base`."""
        for (key, map_key), value in zip(keys, values, strict=True):
            if value is not TOMBSTONE:
                self._maps.setdefault(key, {})[map_key] = value
            elif key in self._maps:
                self._maps[key].pop(map_key, None)
                if not self._maps[key]:
                    del self._maps[key]

    def in_memory(self) -> Source:
        """See `tables.Base`."""
        return nested_source(self._maps)

    def is_resident(self, key: Any) -> bool:
        """See `tables.Base`."""
        return key[1] in self._maps.get(key[0], ())

    def stored(self) -> Iterator[tuple[int, Any, Any]]:
        """Everything is in memory."""
        return iter(())

    def holding(self, places: tuple[int, int], keys: Sequence[Any]) -> set[Any]:
        """See `tables.Base`."""
        return set(filter(self.is_resident, keys))

    def __len__(self) -> int:
        return len(self._maps)
