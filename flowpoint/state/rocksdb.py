"""State that may be bigger than memory: dicts as far as `state.cache_bytes` reaches, RocksDB for the rest.

One get or put through the binding costs as much as thirty dict accesses, so RocksDB is behind a write-back cache:

    resident   entries whose newest value is not in RocksDB; TOMBSTONE where RocksDB still has an older one (`shards.py`)
    clean      immutable values read from RocksDB lately; two generations: when the young one is full, the old one goes
    RocksDB    the rest

Durable segments are merged into `resident`. Only when that outgrows its share of memory are its oldest entries
written to RocksDB, a slice at a time. State that fits into memory never touches the disk.

A key in RocksDB is number of the state (2 bytes), place (4 bytes, `codec.placement.place_of`), canonical key, for maps the
canonical map key. So a state is read in the order in which it stands in a file.
A value is 0 and the encoded value; or, when the canonical key does not give the key back exactly (`True`, `1.5`, a
date in another zone), 1, the length of the encoded key (4 bytes), the encoded key and the encoded value.

Invariants: an entry is newest in resident, else in RocksDB; `clean` never holds what resident or RocksDB contradict.
Not here: RocksDB itself (`database.py`), freezing and merging (`layers.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final

from flowpoint.codec.keys import canonical, from_canonical, is_own_canonical, split_canonical
from flowpoint.codec.placement import place_of_canonical
from flowpoint.codec.values import Codec, is_immutable
from flowpoint.model.settings import StateSettings
from flowpoint.state.database import LocalDatabase, OpenDatabase
from flowpoint.state.layers import LayeredBackend
from flowpoint.state.placed_files import PLACES_END, step_entries
from flowpoint.state.shards import Shards
from flowpoint.state.spec import ABSENT, TOMBSTONE, has_tombstone
from flowpoint.state.tables import ENTRY_OVERHEAD, Source, Weight

# No fewer than are merged at a time (`layers.py`). About 1 ms.
EVICT_ENTRIES: Final = 256
_SAMPLES: Final = 4
_PREFIX: Final = struct.Struct(">HI")
_LENGTH: Final = struct.Struct(">I")


class RocksBackend(LayeredBackend):
    """`backend.Backend` with RocksDB below its cache."""

    def __init__(
        self,
        codec: Codec,
        max_parallelism: int,
        settings: StateSettings,
        work_dir: str,
        operator: str,
        open_database: OpenDatabase,
    ) -> None:
        database = open_database(f"{work_dir}/rocksdb")
        super().__init__(
            RocksStore(codec, max_parallelism, settings.cache_bytes, database), codec, max_parallelism, operator
        )


class RocksStore:
    """`layers.Store`: shares the memory allowed among all tables.

    A quarter of it is for changes not yet frozen; as much is left for what is frozen and not merged; the rest is
    for resident and clean entries.
    """

    def __init__(self, codec: Codec, max_parallelism: int, cache_bytes: int, database: LocalDatabase) -> None:
        self.codec = codec
        self.max_parallelism = max_parallelism
        self.database = database
        self.step_entries = step_entries(cache_bytes)
        self._dirty_bytes_max = cache_bytes // 4
        self._resident_bytes_max = cache_bytes * 3 // 8
        self._clean_bytes_max = cache_bytes // 8
        self._bases: list[RocksBase] = []

    def new_base(self, name: str) -> RocksBase:
        """A base with the next state number."""
        self._bases.append(RocksBase(self, len(self._bases)))
        return self._bases[-1]

    def new_map_base(self, name: str) -> RocksMapBase:
        """A map base with the next state number."""
        base = RocksMapBase(self, len(self._bases))
        self._bases.append(base)
        return base

    def dirty_limit(self) -> int | None:
        """See `layers.Store`."""
        return self._dirty_bytes_max

    def relieve(self) -> bool:
        """See `layers.Store`."""
        if sum(base.clean_bytes() for base in self._bases) > self._clean_bytes_max // 2:
            for base in self._bases:
                base.age_clean()
        if not self._is_over():
            return False
        max(self._bases, key=lambda base: base.resident_bytes()).evict(EVICT_ENTRIES)
        return self._is_over()

    def new_resident(self) -> Shards:
        """Room for as many entries as memory is allowed for, however small they are."""
        return Shards(self._resident_bytes_max // ENTRY_OVERHEAD)

    def _is_over(self) -> bool:
        return sum(base.resident_bytes() for base in self._bases) > self._resident_bytes_max

    def close(self) -> None:
        """See `layers.Store`."""
        self.database.close()


class RocksBase:
    """`tables.Base`: resident entries, clean entries, RocksDB."""

    def __init__(self, store: RocksStore, number: int) -> None:
        self.must_copy = False
        self._store = store
        self._number = number
        self._resident = store.new_resident()
        self._weight = Weight(store.codec)
        self._young: dict[Any, Any] = {}
        self._old: dict[Any, Any] = {}
        self._has_stored = False

    # ------------------------------------------------------------------ reading

    def get(self, key: Any) -> Any:
        """See `tables.Base`."""
        value = self._resident.get(key)
        if value is not ABSENT or not self._has_stored:
            return value
        return self._get_stored(key)

    def _get_stored(self, key: Any) -> Any:
        value = self._young.get(key, ABSENT)
        if value is ABSENT:
            value = self._old.get(key, ABSENT)
            if value is ABSENT:
                data = self._store.database.get(self.stored_key(key))
                if data is None:
                    return ABSENT
                _, value = self._parse_value(data)
                if not is_immutable(value):
                    # The caller may change it: never share it with the cache.
                    return value
            self._young[key] = value
        return value

    def in_memory(self) -> Source:
        """See `tables.Base`."""
        return iter(self._resident), self._resident.__getitem__

    def stored(self) -> Iterator[tuple[int, Any, Any]]:
        """See `tables.Base`."""
        for place, data, stored in self._stored_raw():
            key, value = self._parse(data, stored)
            if not self.is_resident(key):
                yield place, key, value

    def is_resident(self, key: Any) -> bool:
        """See `tables.Base`."""
        return key in self._resident

    def _stored_raw(self, start: int = 0, stop: int = PLACES_END) -> Iterator[tuple[int, bytes, bytes]]:
        """(place, stored key, stored value) of this state, in order, with places in [start, stop)."""
        if not self._has_stored:
            return
        with closing(self._store.database.scan(_PREFIX.pack(self._number, start))) as scan:
            for data, stored in scan:
                number, place = _PREFIX.unpack_from(data)
                if number != self._number or place >= stop:
                    break
                yield place, data, stored

    def holding(self, places: tuple[int, int], keys: Sequence[Any]) -> set[Any]:
        """See `tables.Base`."""
        held = set(filter(self._resident.__contains__, keys))
        stored = {data for _, data, _ in self._stored_raw(*places)}
        if stored:
            held.update(key for key in keys if self.stored_key(key) in stored)
        return held

    def __len__(self) -> int:
        return len(self._resident) + self._has_stored

    # ------------------------------------------------------------------ writing

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """See `tables.Base`."""
        # What changed lately is written last.
        self._resident.renew(keys, values)
        if not self._has_stored and has_tombstone(values):
            self._resident.remove([key for key, value in zip(keys, values, strict=True) if value is TOMBSTONE])
        self._weight.sample(islice(zip(keys, values, strict=True), _SAMPLES))

    def evict(self, count: int) -> list[Any]:
        """Write about the `count` oldest resident entries to RocksDB; their keys."""
        oldest = self._resident.oldest(count)
        self.write(oldest)
        keys = [key for key, _ in oldest]
        self._resident.remove(keys)
        return keys

    def write(self, entries: Sequence[tuple[Any, Any]]) -> None:
        """Put entries into RocksDB; what was cached of them goes."""
        encode = self._encode_value
        self._store.database.write(
            [(self.stored_key(key), None if value is TOMBSTONE else encode(key, value)) for key, value in entries]
        )
        self._has_stored = True
        for key, _ in entries:
            self._young.pop(key, None)
            self._old.pop(key, None)

    # ------------------------------------------------------------------ memory

    def resident_bytes(self) -> int:
        """Roughly the memory of entries that are not in RocksDB."""
        return int(len(self._resident) * self._weight.per_entry)

    def clean_bytes(self) -> int:
        """Roughly the memory of the younger half of what was read from RocksDB."""
        return int(len(self._young) * self._weight.per_entry)

    def age_clean(self) -> None:
        """Forget what was read from RocksDB longest ago."""
        self._old, self._young = self._young, {}

    # ------------------------------------------------------------------ bytes

    def stored_key(self, key: Any) -> bytes:
        """The key in RocksDB."""
        data = canonical(key)
        return _PREFIX.pack(self._number, place_of_canonical(data, self._store.max_parallelism)) + data

    def _encode_value(self, key: Any, value: Any) -> bytes:
        data = self._store.codec.encode(value)
        if is_own_canonical(key):
            return b"\0" + data
        encoded = self._store.codec.encode(key)
        return b"".join((b"\1", _LENGTH.pack(len(encoded)), encoded, data))

    def _parse_value(self, stored: bytes) -> tuple[Any, Any]:
        """The key, ABSENT if it stands in the stored key only; and the value."""
        decode = self._store.codec.decode
        if stored[0] == 0:
            return ABSENT, decode(memoryview(stored)[1:])
        (size,) = _LENGTH.unpack_from(stored, 1)
        start = 1 + _LENGTH.size + size
        return decode(stored[1 + _LENGTH.size : start]), decode(memoryview(stored)[start:])

    def _parse(self, data: bytes, stored: bytes) -> tuple[Any, Any]:
        key, value = self._parse_value(stored)
        return (self._parse_key(data[_PREFIX.size :]) if key is ABSENT else key), value

    def _parse_key(self, data: bytes) -> Any:
        return from_canonical(data, self._store.codec.registry)


class RocksMapBase(RocksBase):
    """`tables.MapBase`: keys are pairs. Resident entries are indexed by key, to find all map keys of one."""

    def __init__(self, store: RocksStore, number: int) -> None:
        super().__init__(store, number)
        self._map_keys = store.new_resident()

    def absorb(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """See `tables.Base`."""
        super().absorb(keys, values)
        for pair in keys:
            if pair in self._resident:
                self._map_keys.of(pair[0]).setdefault(pair[0], {})[pair[1]] = None
            else:
                self._unlist(pair)

    def evict(self, count: int) -> list[Any]:
        """See `RocksBase.evict`."""
        pairs = super().evict(count)
        for pair in pairs:
            self._unlist(pair)
        return pairs

    def _unlist(self, pair: tuple[Any, Any]) -> None:
        maps = self._map_keys.of(pair[0])
        listed = maps.get(pair[0])
        if listed is not None:
            listed.pop(pair[1], None)
            if not listed:
                del maps[pair[0]]

    def submap(self, key: Any) -> dict[Any, Any]:
        """See `tables.MapBase`."""
        found: dict[Any, Any] = {}
        if self._has_stored:
            prefix = self._key_prefix(key)
            with closing(self._store.database.scan(prefix)) as scan:
                for data, stored in scan:
                    # Canonical bytes of one key never begin those of another, so this finds only its own entries.
                    if not data.startswith(prefix):
                        break
                    (_, map_key), value = self._parse(data, stored)
                    found[map_key] = value
        for map_key in self._map_keys.of(key).get(key, ()):
            found[map_key] = self._resident[key, map_key]
        return {map_key: value for map_key, value in found.items() if value is not TOMBSTONE}

    def _key_prefix(self, key: Any) -> bytes:
        data = canonical(key)
        return _PREFIX.pack(self._number, place_of_canonical(data, self._store.max_parallelism)) + data

    def stored_key(self, key: Any) -> bytes:
        """The pair's key in RocksDB; the key group is that of the key alone."""
        return self._key_prefix(key[0]) + canonical(key[1])

    def _parse_key(self, data: bytes) -> Any:
        return tuple(split_canonical(data, self._store.codec.registry))


__all__ = ["RocksBackend", "RocksStore"]
