"""Tables in layers: what was just written, what is frozen, and the base below. Shared by all backends.

    dirty      plain dict, written by user code
    frozen     dicts swapped out by freezes, oldest first, not changed any more
    base       what the backend keeps the rest in

A read goes down until it finds the key; a TOMBSTONE ends the search. In a map table every layer is a dict of dicts,
key -> map key -> value. Where all entries of a layer are walked through, a map's keys are pairs (key, map key), so that
everything below this file sees one shape.

Invariant: a mutable value found in a frozen layer, or in a base that is just being written, is copied before it is
handed out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

from flowpoint.codec.keys import canonical
from flowpoint.codec.values import IMMUTABLE, SCALARS, Codec, is_immutable
from flowpoint.errors import BadRecordError
from flowpoint.state.spec import ABSENT, TOMBSTONE, StateSpec

ENTRY_OVERHEAD: Final = 160
"""Bytes: what every entry weighs, and what its key and value come on top of."""
_SAMPLE_EVERY: Final = 64
_UNCHANGING: Final = IMMUTABLE | {type(TOMBSTONE)}
"""Types of values that nobody can change, which are handed out as they are. The marks are among them: no codec knows
them."""

Source: TypeAlias = tuple[Iterator[Any], Callable[[Any], Any]]
"""All keys of a layer, and the function from such a key to its value: no object is made per entry."""


class Base(Protocol):
    """Where the entries of a value table are once no layer holds them any more."""

    must_copy: bool
    """Set while the base is being written: its values must not be handed out for change."""

    def get(self, key: Any) -> Any:
        """The value, or ABSENT."""

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Take entries in; they are newer than what is there. A value may be TOMBSTONE."""

    def in_memory(self) -> Source:
        """Entries in memory (TOMBSTONE: it hides a stored one). Not to be mixed with `absorb`."""

    def is_resident(self, key: Any) -> bool:
        """Whether `in_memory` has the key."""

    def stored(self) -> Iterator[tuple[int, Any, Any]]:
        """(place, key, value) of entries that are not in memory, in the order of places (`codec.placement.place_of`)."""

    def holding(self, places: tuple[int, int], keys: Sequence[Any]) -> set[Any]:
        """Those of some keys, all of which are at places in [from, up to), for which there is an entry here."""

    def __len__(self) -> int:
        """At least how many entries there are; 0 only when there are none."""


class MapBase(Base, Protocol):
    """The same for a map table. Keys are pairs, except in `submap`."""

    def submap(self, key: Any) -> dict[Any, Any]:
        """All entries of one key, map key -> value; a new dict."""


def weigh(codec: Codec, key: Any, value: Any) -> int:
    """Roughly the bytes of memory that an entry takes."""
    if type(value) in SCALARS:
        return ENTRY_OVERHEAD + sys.getsizeof(key) + sys.getsizeof(value)
    # Objects in containers take a few times the room of their bytes.
    size = 0 if value is TOMBSTONE else 4 * len(codec.encode(value))
    return ENTRY_OVERHEAD + sys.getsizeof(key) + size


class Weight:
    """A running estimate of the bytes per entry, from samples."""

    __slots__ = ("_codec", "per_entry")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.per_entry = 0.0

    def sample(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Let these entries count."""
        for key, value in entries:
            size = weigh(self._codec, key, value)
            self.per_entry += (size - self.per_entry) / 8 if self.per_entry else size


class _Sampler:
    """Knows about how big the dirty layer is, without looking at every entry."""

    __slots__ = ("_calls", "_seen", "weight")

    def __init__(self, codec: Codec) -> None:
        self.weight = Weight(codec)
        self._seen = 0
        self._calls = 0

    def estimate(self, count: int, newest: Callable[[], Iterable[tuple[Any, Any]]]) -> int:
        self._calls += 1
        # Values may grow in place, so look again now and then even when there are no new keys.
        if count > self._seen * 1.25 or count < self._seen or self._calls % _SAMPLE_EVERY == 0:
            self.weight.sample(newest())
            self._seen = count
        return int(count * self.weight.per_entry)


class LayeredTable:
    """One value per key (`backend.Table`)."""

    def __init__(self, spec: StateSpec, base: Base, codec: Codec) -> None:
        self.spec = spec
        self.dirty: dict[Any, Any] = {}
        self.frozen: list[dict[Any, Any]] = []
        self.base = base
        self._codec = codec
        self._sampler = _Sampler(codec)

    def load(self, key: Any, default: Any) -> Any:
        """See `backend.Table`."""
        value = self.dirty.get(key, ABSENT)
        if value is ABSENT:
            value = self._below(key)
        return default if value is ABSENT or value is TOMBSTONE else value

    def get(self, key: Any, default: Any = ABSENT) -> Any:
        """See `backend.Table`."""
        return self.load(key, default)

    def _below(self, key: Any) -> Any:
        for layer in reversed(self.frozen):
            value = layer.get(key, ABSENT)
            if value is not ABSENT:
                return value if type(value) in _UNCHANGING else self._codec.copy(value)
        value = self.base.get(key)
        if self.base.must_copy and type(value) not in _UNCHANGING:
            return self._codec.copy(value)
        return value

    def put(self, key: Any, value: Any) -> None:
        """See `backend.Table`."""
        self.dirty[key] = value

    def delete(self, key: Any) -> None:
        """See `backend.Table`."""
        self.dirty[key] = TOMBSTONE

    def items(self) -> Iterator[tuple[Any, Any]]:
        """See `backend.Table`."""
        yield from live_entries(self, [*self.frozen, self.dirty])

    def encoded(self, value: Any) -> bytes | None:
        """See `backend.Table`."""
        try:
            return self._codec.encode(value)
        except BadRecordError:
            return None

    # ------------------------------------------------------------------ for the backend

    def swap(self) -> dict[Any, Any] | None:
        """Freeze: the dirty layer, now in `frozen`; None when it was empty."""
        if not self.dirty:
            return None
        layer, self.dirty = self.dirty, {}
        self.frozen.append(layer)
        return layer

    def dirty_bytes(self) -> int:
        """Roughly how much memory the dirty layer takes."""
        return self._sampler.estimate(len(self.dirty), lambda: islice(reversed(self.dirty.items()), 2))

    @staticmethod
    def size(layer: dict[Any, Any]) -> int:
        """The number of entries in a layer."""
        return len(layer)

    @staticmethod
    def source(layer: dict[Any, Any]) -> Source:
        """All entries of a layer."""
        return iter(layer), layer.__getitem__

    @staticmethod
    def holds(layer: dict[Any, Any], key: Any) -> bool:
        """Whether a layer has an entry."""
        return key in layer


class LayeredMapTable:
    """One value per key and map key (`backend.MapTable`). An inner dict is never left empty."""

    def __init__(self, spec: StateSpec, base: MapBase, codec: Codec) -> None:
        self.spec = spec
        self.dirty: dict[Any, dict[Any, Any]] = {}
        self.frozen: list[dict[Any, dict[Any, Any]]] = []
        self.base = base
        self._codec = codec
        self._count = 0
        self._sampler = _Sampler(codec)

    def get(self, key: Any, map_key: Any, default: Any = ABSENT) -> Any:
        """See `backend.MapTable`."""
        entries = self.dirty.get(key)
        value = ABSENT if entries is None else entries.get(map_key, ABSENT)
        if value is ABSENT:
            value = self._below(key, map_key)
        return default if value is ABSENT or value is TOMBSTONE else value

    def _below(self, key: Any, map_key: Any) -> Any:
        for layer in reversed(self.frozen):
            entries = layer.get(key)
            value = ABSENT if entries is None else entries.get(map_key, ABSENT)
            if value is not ABSENT:
                return value if type(value) in _UNCHANGING else self._codec.copy(value)
        value = self.base.get((key, map_key))
        if self.base.must_copy and type(value) not in _UNCHANGING:
            return self._codec.copy(value)
        return value

    def put(self, key: Any, map_key: Any, value: Any) -> None:
        """See `backend.MapTable`."""
        entries = self.dirty.get(key)
        if entries is None:
            entries = self.dirty[key] = {}
        before = len(entries)
        entries[map_key] = value
        self._count += len(entries) - before

    def delete(self, key: Any, map_key: Any) -> None:
        """See `backend.MapTable`."""
        self.put(key, map_key, TOMBSTONE)

    def contains(self, key: Any, map_key: Any) -> bool:
        """See `backend.MapTable`."""
        for layer in (self.dirty, *reversed(self.frozen)):
            entries = layer.get(key)
            if entries is not None and map_key in entries:
                return entries[map_key] is not TOMBSTONE
        value = self.base.get((key, map_key))
        return value is not ABSENT and value is not TOMBSTONE

    def items(self, key: Any) -> Iterator[tuple[Any, Any]]:
        """See `backend.MapTable`."""
        merged = self._merged(key)
        if len(merged) < 2:
            return iter(list(merged.items()))
        # One order in every backend, and after every restore.
        return iter([(map_key, merged[map_key]) for map_key in sorted(merged, key=canonical)])

    def _merged(self, key: Any) -> dict[Any, Any]:
        merged = self.base.submap(key)
        if self.base.must_copy:
            merged = {k: value if is_immutable(value) else self._codec.copy(value) for k, value in merged.items()}
        for layer in self.frozen:
            for map_key, value in layer.get(key, {}).items():
                merged[map_key] = value if type(value) in _UNCHANGING else self._codec.copy(value)
        merged |= self.dirty.get(key, {})
        return {map_key: value for map_key, value in merged.items() if value is not TOMBSTONE}

    def clear(self, key: Any) -> None:
        """See `backend.MapTable`."""
        for map_key in self._merged(key):
            self.put(key, map_key, TOMBSTONE)

    def all_items(self) -> Iterator[tuple[Any, Any, Any]]:
        """See `backend.MapTable`."""
        for (key, map_key), value in live_entries(self, [*self.frozen, self.dirty]):
            yield key, map_key, value

    # ------------------------------------------------------------------ for the backend

    def swap(self) -> dict[Any, dict[Any, Any]] | None:
        """Freeze: the dirty layer, now in `frozen`; None when it was empty."""
        if not self.dirty:
            return None
        layer, self.dirty = self.dirty, {}
        self.frozen.append(layer)
        self._count = 0
        return layer

    def dirty_bytes(self) -> int:
        """Roughly how much memory the dirty layer takes."""
        return self._sampler.estimate(self._count, self._newest)

    def _newest(self) -> Iterator[tuple[Any, Any]]:
        for entries in islice(reversed(self.dirty.values()), 2):
            yield from islice(reversed(entries.items()), 2)

    @staticmethod
    def size(layer: dict[Any, dict[Any, Any]]) -> int:
        """The number of entries in a layer."""
        return sum(map(len, layer.values()))

    @staticmethod
    def source(layer: dict[Any, dict[Any, Any]]) -> Source:
        """All entries of a layer."""
        return nested_source(layer)

    @staticmethod
    def holds(layer: dict[Any, dict[Any, Any]], pair: tuple[Any, Any]) -> bool:
        """Whether a layer has an entry."""
        inner = layer.get(pair[0])
        return inner is not None and pair[1] in inner


AnyTable = LayeredTable | LayeredMapTable


def nested_source(layer: dict[Any, dict[Any, Any]]) -> Source:
    """The entries of a dict of dicts, by pairs of keys."""
    return (
        ((key, map_key) for key, inner in layer.items() for map_key in inner),
        lambda pair: layer[pair[0]][pair[1]],
    )


def sources_of(table: AnyTable, layers: Sequence[Any], *, with_base: bool) -> Iterator[tuple[Source, list[Any]]]:
    """Where the entries of a table in memory are: each source with the layers that hide entries of it."""
    if with_base:
        yield table.base.in_memory(), list(layers)
    for position, layer in enumerate(layers):
        yield table.source(layer), list(layers[position + 1 :])


def live_entries(table: AnyTable, layers: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Every live entry of a table whose layers above its base are these (oldest first)."""
    for (keys, value_of), hiding in sources_of(table, layers, with_base=True):
        for key in keys:
            value = value_of(key)
            if value is not TOMBSTONE and not any(table.holds(layer, key) for layer in hiding):
                yield key, value
    for _, key, value in table.base.stored():
        if not any(table.holds(layer, key) for layer in layers):
            yield key, value
