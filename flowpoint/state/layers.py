"""A backend made of layered tables: freezing, segments on their way to a file, merging, restoring.

A *segment* is what one freeze swapped out of all tables. It stays readable until its entries are durable and merged
into the bases, oldest segment first:

    frozen --(its file, or a later one that took it in, is durable)--> durable --(merge_some)--> gone

Invariants:
- A file that is being written holds every segment up to its own that is in no durable file, so a failed write loses
  nothing: the next file takes its entries in.
- While a base is being written nothing is merged into the tables' bases.

Not here: how files are made (`frozen.py`), when a base is due (`chain.py`), what bases are (`heap.py`, `rocksdb.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Final, Protocol

from flowpoint.codec.placement import place_width
from flowpoint.codec.values import Codec
from flowpoint.errors import BadRecordError, IncompatibleStateError, InternalError
from flowpoint.model.key_groups import overlap
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.state.backend import nothing
from flowpoint.state.chain import Chain
from flowpoint.state.evolution import Evolution
from flowpoint.state.file_format import Block, FileReader, ReadRange
from flowpoint.state.frozen import FrozenState
from flowpoint.state.placed_files import PlacedFiles, PlacedState
from flowpoint.state.restored import RestoredBase, RestoredMapBase
from flowpoint.state.spec import TOMBSTONE, StateSpec
from flowpoint.state.tables import AnyTable, Base, LayeredMapTable, LayeredTable, MapBase

# About 1 ms, with as many written to RocksDB.
MERGE_ENTRIES: Final = 256
_STEP_RECORDS: Final = 128
_STEPS_BEHIND: Final = 4


class Store(Protocol):
    """Where a backend keeps the bases of its tables.

    step_entries: how many entries of a restored state move into a base at a time.
    """

    @property
    def step_entries(self) -> int: ...

    def new_base(self, name: str) -> Base:
        """An empty base for a value table."""

    def new_map_base(self, name: str) -> MapBase:
        """An empty base for a map table."""

    def dirty_limit(self) -> int | None:
        """How many bytes may be changed before a freeze is due; None: any number."""

    def relieve(self) -> bool:
        """Do about 1 ms of work to keep inside the memory allowed; True when there is more."""

    def close(self) -> None:
        """Let go of everything. Idempotent."""


@dataclass(slots=True)
class Segment:
    """What one freeze swapped out: each table with its layer."""

    number: int
    parts: list[tuple[AnyTable, Any]]
    durable: bool = False
    merging: Iterator[tuple[Base, list[Any], list[Any]]] | None = None

    @property
    def entries(self) -> int:
        """The number of entries, deletions included."""
        return sum(table.size(layer) for table, layer in self.parts)


class LayeredBackend:
    """`backend.Backend` on any store."""

    def __init__(self, store: Store, codec: Codec, max_parallelism: int, operator: str) -> None:
        self.codec = codec
        self.max_parallelism = max_parallelism
        self.operator = operator
        self.tables: dict[str, AnyTable] = {}
        self.segments: list[Segment] = []
        self.chain = Chain()
        self._store = store
        self._unclaimed: set[str] = set()
        self._frozen_count = 0
        self._bases_in_writing = 0
        self._is_outdated = False  # the files of the chain hold values of an older version
        self._readable: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ tables

    def table(self, spec: StateSpec) -> LayeredTable:
        """See `backend.Backend`."""
        table = self._opened(spec)
        assert isinstance(table, LayeredTable), f"{spec} asked for as a plain table"
        return table

    def map_table(self, spec: StateSpec) -> LayeredMapTable:
        """See `backend.Backend`."""
        table = self._opened(spec)
        assert isinstance(table, LayeredMapTable), f"{spec} asked for as a map table"
        return table

    def _opened(self, spec: StateSpec) -> AnyTable:
        table = self.tables.get(spec.name)
        if table is None:
            return self._create(spec)
        if table.spec.kind != spec.kind:
            if spec.name in self._unclaimed:
                raise IncompatibleStateError(
                    f"cannot open state '{spec.name}' of operator '{self.operator}' as a {spec.kind}: the snapshot "
                    f"holds it as a {table.spec.kind}; give the new state another name"
                )
            raise InternalError(f"state '{spec.name}' opened as {spec.kind} and as {table.spec.kind}")
        self._unclaimed.discard(spec.name)
        return table

    def _create(self, spec: StateSpec) -> AnyTable:
        if spec.is_map:
            self.tables[spec.name] = LayeredMapTable(spec, self._store.new_map_base(spec.name), self.codec)
        else:
            self.tables[spec.name] = LayeredTable(spec, self._store.new_base(spec.name), self.codec)
        return self.tables[spec.name]

    def schemas(self) -> dict[str, Any]:
        """See `backend.Backend`."""
        classes = self.codec.registry.digest
        return {name: table.spec.to_data(classes) for name, table in self.tables.items()}

    @property
    def is_unread(self) -> bool:
        """See `backend.Backend`."""
        return bool(self._readable)

    def unclaimed(self) -> list[str]:
        """See `backend.Backend`."""
        return sorted(self._unclaimed)

    # ------------------------------------------------------------------ snapshots

    def freeze(self, *, full: bool = False) -> FrozenState:
        """See `backend.Backend`."""
        if full:
            self.chain.is_broken = True
        # A chain that is merely too long is replaced by one base at a time; one that is no chain needs a base at once.
        full = self.chain.is_broken or (self.chain.must_restart and not self._bases_in_writing)
        self._swap_out()
        if full:
            self._hold_bases()
        return FrozenState(self, self._frozen_count, full=full)

    def freeze_detached(self) -> FrozenState:
        """See `backend.Backend`."""
        self._swap_out()
        if self._is_outdated:
            self._hold_bases()
        return FrozenState(self, self._frozen_count, full=self._is_outdated, detached=True)

    def _hold_bases(self) -> None:
        """Keep the bases as they are until the file that is made from them is written (`settle`)."""
        self._bases_in_writing += 1
        self._set_must_copy()

    def _swap_out(self) -> None:
        """What was written since the last freeze becomes a segment of its own."""
        self._frozen_count += 1
        parts = [(table, layer) for table in self.tables.values() if (layer := table.swap()) is not None]
        if parts:
            self.segments.append(Segment(self._frozen_count, parts))

    def pending(self, number: int) -> list[Segment]:
        """The segments up to freeze `number` that are in no durable file."""
        return [segment for segment in self.segments if segment.number <= number and not segment.durable]

    def unmerged(self, number: int) -> list[Segment]:
        """The segments up to freeze `number` that are not yet in the bases."""
        return [segment for segment in self.segments if segment.number <= number]

    def settle(self, number: int, *, full: bool, durable: bool) -> None:
        """The write of freeze `number` has ended."""
        if durable:
            for segment in self.pending(number):
                segment.durable = True
        if full:
            self._is_outdated = self._is_outdated and not durable
            self._bases_in_writing -= 1
            self._set_must_copy()

    def _set_must_copy(self) -> None:
        for table in self.tables.values():
            table.base.must_copy = self._bases_in_writing > 0

    # ------------------------------------------------------------------ memory

    def bytes_dirty(self) -> int:
        """See `backend.Backend`."""
        size = 0
        for name, table in self.tables.items():
            try:
                size += table.dirty_bytes()
            except BadRecordError as error:
                error.args = (f"state '{name}': {error}",)
                raise
        return size

    def needs_spill(self) -> bool:
        """See `backend.Backend`."""
        # Asked for without a limit too: what can never be written is met while samples are weighed, and an author
        # should hear of it at the same time whatever the backend.
        size, limit = self.bytes_dirty(), self._store.dirty_limit()
        return limit is not None and size > limit

    def merge_some(self) -> bool:
        """See `backend.Backend`."""
        if self._bases_in_writing:
            return False
        if not self.segments or not self.segments[0].durable:
            return self._store.relieve() or self._move_some()
        oldest = self.segments[0]
        if oldest.merging is None:
            oldest.merging = _slices(oldest)
        merged = next(oldest.merging, None)
        if merged is not None:
            base, keys, values = merged
            base.absorb(keys, values)
            self._store.relieve()
            return True
        for table, layer in oldest.parts:
            assert table.frozen[0] is layer, "segments are merged oldest first"
            del table.frozen[0]
        del self.segments[0]
        return bool(self.segments) and self.segments[0].durable

    def merge_steps(self, records: int) -> int:
        """See `backend.Backend`."""
        if not self.segments or not self.segments[0].durable:
            return 1
        # Each record may have changed a few entries; where it is many, segments pile up.
        is_behind = len(self.segments) > 1 and self.segments[1].durable
        return max(_STEPS_BEHIND if is_behind else 1, 1 + records // _STEP_RECORDS)

    def _move_some(self) -> bool:
        """Move a few entries out of the files that were restored; True when there is more."""
        for table in self.tables.values():
            if isinstance(table.base, RestoredBase):
                table.base.move_some()
                if table.base.has_moved:
                    table.base = table.base.base  # what it was made of, by kind of table
                return True
        self._let_go_of_files()
        return False

    def _let_go_of_files(self) -> None:
        while self._readable:
            self._readable.pop()()

    # ------------------------------------------------------------------ restore

    def restore(
        self,
        files: Sequence[tuple[StateFile, bytes | ReadRange]],
        groups: tuple[int, int],
        done: Callable[[], None] = nothing,
        evolution: Evolution | None = None,
    ) -> None:
        """See `backend.Backend`."""
        for _ in self.restoring(files, groups, done, evolution):
            pass

    def restoring(
        self,
        files: Sequence[tuple[StateFile, bytes | ReadRange]],
        groups: tuple[int, int],
        done: Callable[[], None] = nothing,
        evolution: Evolution | None = None,
    ) -> Iterator[int]:
        """See `backend.Backend`."""
        if evolution is None:
            evolution = Evolution(self.operator, self.codec.registry)
        self._readable.append(done)
        readers = [(file, FileReader(file.path, data, file.bytes, file.extra.get(SEAL, ""))) for file, data in files]
        taken = 0
        # What lies in the files is older than what is in the bases: only the oldest files can stay where they are.
        placed = len(list(takewhile(lambda found: self._is_placed(found[1]), readers)))
        # What must become something else is read at once: what cannot is found before any record flows.
        if not evolution.is_as_stored or any(self._is_placed(reader) for _, reader in readers[placed:]):
            placed = 0
        for file, reader in readers[:placed]:
            self._open(file, reader, overlap(groups, file.groups))
            taken += reader.entries
            yield taken
        for file, reader in readers[placed:]:
            for block in reader.blocks(evolution.keys, *overlap(groups, file.groups), evolution.value_codec):
                if block.state not in evolution.left_behind:
                    self._take(file.path, block, evolution)
                taken += len(block.keys) + len(block.dead)
                while self._store.relieve():
                    pass
                yield taken
        for file, reader in readers:
            first, last = overlap(groups, file.groups)
            size = sum(ref.size for ref in reader.refs if ref.last >= first and ref.first <= last)
            self.chain.adopt(size, is_base=file.kind == "base")
        if evolution.has_changed:
            # Values of an older version must not stay below newer ones.
            self.chain.is_broken = self._is_outdated = True

    def _is_placed(self, reader: FileReader) -> bool:
        return reader.placed is not None and reader.placed.max_parallelism == self.max_parallelism

    def _open(self, file: StateFile, reader: FileReader, groups: tuple[int, int]) -> None:
        """Read from a file what is asked for, until it has moved over."""
        width = place_width(self.max_parallelism)
        clip = groups[0] * width, (groups[1] + 1) * width
        for number, (name, kind) in enumerate(reader.states):
            table = self._restored_table(file.path, name, kind)
            if not isinstance(table.base, RestoredBase):
                restored = RestoredMapBase if isinstance(table, LayeredMapTable) else RestoredBase
                table.base = restored(table.base, PlacedFiles(self._store.step_entries), self.max_parallelism)
            table.base.files.add(PlacedState(reader, number, self.codec, clip))

    def _restored_table(self, file: str, name: str, kind: str) -> AnyTable:
        """The table of a state in a file."""
        table = self.tables.get(name)
        if table is None:
            table = self._create(StateSpec(name, kind))  # type: ignore[arg-type]  # checked by the reader
            self._unclaimed.add(name)
        elif table.spec.kind != kind:
            raise IncompatibleStateError(
                f"cannot restore state '{name}' of operator '{self.operator}' from {file}: it is a {kind} "
                f"there, and the job declares a {table.spec.kind}; give the new state another name"
            )
        return table

    def _take(self, file: str, block: Block, evolution: Evolution) -> None:
        table = self._restored_table(file, block.state, block.kind)
        table.base.absorb(block.keys, evolution.converted(block.state, block.keys, block.values))
        if block.dead:
            table.base.absorb(block.dead, [TOMBSTONE] * len(block.dead))

    def close(self) -> None:
        """See `backend.Backend`."""
        self.tables.clear()
        self.segments.clear()
        self._let_go_of_files()
        self._store.close()


def _slices(segment: Segment) -> Iterator[tuple[Base, list[Any], list[Any]]]:
    for table, layer in segment.parts:
        keys, value_of = table.source(layer)
        while part := list(islice(keys, MERGE_ENTRIES)):
            yield table.base, part, list(map(value_of, part))
