"""What one freeze has to write, as the bytes of a file, in slices small enough to be made between two batches.

A delta holds what is in no durable file yet; it may take in the newest small deltas and replace them (`chain.py`). A
base holds everything. Which segments belong in is looked up when the bytes are made, not when the freeze happened: a
file before this one may have failed meanwhile, and then its entries belong here.

Entries are put into buckets by key group, then written bucket by bucket. Both steps go on in slices; a slice without
bytes is empty.

Invariants: the sources of a file do not change while it is made: segments never do, and bases are not merged into.
Every entry is written once, the newest one of its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flowpoint.codec.keys import groups_of
from flowpoint.errors import BadRecordError
from flowpoint.state.chain import SMALL_BYTES_MAX, ChainFile
from flowpoint.state.file_format import FileBuilder, FileReader
from flowpoint.state.spec import TOMBSTONE, has_tombstone
from flowpoint.state.tables import AnyTable, LayeredMapTable, sources_of

if TYPE_CHECKING:
    from flowpoint.state.layers import LayeredBackend

SLICE_BYTES: Final = 256 << 10
_BLOCK_BYTES: Final = 192 << 10
_BLOCK_ENTRIES_MAX: Final = 2048
_BUCKET_SLICE: Final = 4096
_STORED_SLICE: Final = 1024

Buckets: TypeAlias = dict[int, tuple[list[Any], list[Any]]]
"""Key group -> keys and their values."""


class FrozenState:
    """`backend.Frozen` of a layered backend."""

    def __init__(self, backend: LayeredBackend, number: int, *, full: bool, detached: bool = False) -> None:
        """`detached`: a full file beside the chain, which neither ends it nor makes anything durable for it."""
        self.full = full
        self.replaces = 0
        self.native: Sequence[str] = ()
        self._backend = backend
        self._number = number
        self._detached = detached
        self._entries: int | None = None
        self._bytes = 0
        self._data: list[bytes] | None = None
        self._is_settled = False

    @property
    def entries(self) -> int:
        """See `backend.Frozen`."""
        if self._entries is not None:
            return self._entries
        if not self.full:
            return sum(segment.entries for segment in self._backend.pending(self._number))
        bases = sum(len(table.base) for table in self._backend.tables.values())
        return bases + sum(segment.entries for segment in self._backend.unmerged(self._number))

    def chunks(self) -> Iterator[bytes]:
        """See `backend.Frozen`."""
        self._bytes, self._data = 0, []
        for data in self._file():
            self._keep(data)
            for start in range(0, len(data), SLICE_BYTES) or (0,):
                yield data[start : start + SLICE_BYTES]

    def _keep(self, data: bytes) -> None:
        """Remember a small file's bytes: a later delta may take it in."""
        self._bytes += len(data)
        if self._bytes > SMALL_BYTES_MAX or self.full:
            self._data = None
        elif self._data is not None and data:
            self._data.append(data)

    def durable(self) -> None:
        """See `backend.Frozen`."""
        self._settle(durable=True)

    def failed(self) -> None:
        """See `backend.Frozen`."""
        self._settle(durable=False)

    def _settle(self, *, durable: bool) -> None:
        assert not self._is_settled, f"freeze {self._number} settled twice"
        self._is_settled = True
        if self._detached:
            self._backend.settle(self._number, full=True, durable=False)
            return
        if durable and self.full and not self._bytes:
            # There was nothing at all to write: the chain is empty and stays so.
            self._backend.chain.clear()
        elif durable and self._bytes:
            self._backend.chain.add(ChainFile(self._bytes, is_base=self.full, data=self._data), self.replaces)
        self._backend.settle(self._number, full=self.full, durable=durable)

    # ------------------------------------------------------------------ bytes

    def _file(self) -> Iterator[bytes]:
        builder = FileBuilder(self._backend.codec)
        yield builder.header()
        absorbed: dict[str, dict[Any, Any]] = {}
        if self.full:
            self.replaces = 0 if self._detached else len(self._backend.chain)
        else:
            yield from self._absorb_small_files(absorbed)
        for name, table in list(self._backend.tables.items()):
            try:
                yield from self._table(builder, name, table, absorbed.get(name))
            except BadRecordError as error:
                error.args = (f"cannot write state '{name}' of operator '{self._backend.operator}': {error}",)
                raise
        yield builder.footer()
        self._entries = builder.entries

    def _absorb_small_files(self, absorbed: dict[str, dict[Any, Any]]) -> Iterator[bytes]:
        """Read the newest small files back into one layer per table, oldest first."""
        files = self._backend.chain.absorbable()
        self.replaces = len(files)
        for file in files:
            assert file.data is not None
            reader = FileReader("a file kept in memory", b"".join(file.data), file.size)
            for block in reader.blocks(self._backend.codec, 0, self._backend.max_parallelism - 1):
                layer = absorbed.setdefault(block.state, {})
                entries = [*zip(block.keys, block.values, strict=True), *((key, TOMBSTONE) for key in block.dead)]
                if block.kind == "map":
                    for (key, map_key), value in entries:
                        layer.setdefault(key, {})[map_key] = value
                else:
                    layer.update(entries)
                yield b""

    def _table(
        self, builder: FileBuilder, name: str, table: AnyTable, absorbed: dict[Any, Any] | None
    ) -> Iterator[bytes]:
        """The blocks of one table."""
        segments = self._backend.unmerged(self._number) if self.full else self._backend.pending(self._number)
        layers = [layer for segment in segments for other, layer in segment.parts if other is table]
        if absorbed is not None:
            layers.insert(0, absorbed)
        buckets: Buckets = {}
        for (keys, value_of), hiding in sources_of(table, layers, with_base=self.full):
            while part := list(islice(keys, _BUCKET_SLICE)):
                if hiding:
                    part = [key for key in part if not any(table.holds(layer, key) for layer in hiding)]
                self._fill(buckets, part, list(map(value_of, part)), is_map=isinstance(table, LayeredMapTable))
                yield b""
        yield from self._blocks(builder, name, table, buckets)
        if self.full:
            yield from self._stored_blocks(builder, name, table, layers)

    def _fill(self, buckets: Buckets, keys: list[Any], values: list[Any], *, is_map: bool) -> None:
        """Sort entries into buckets by the group of their key."""
        if self.full and has_tombstone(values):
            # Below a base there is nothing that a deletion could hide.
            keys = [key for key, value in zip(keys, values, strict=True) if value is not TOMBSTONE]
            values = [value for value in values if value is not TOMBSTONE]
        hashed = [pair[0] for pair in keys] if is_map else keys
        groups = groups_of(hashed, self._backend.max_parallelism)
        for group, key, value in zip(groups, keys, values, strict=True):
            bucket = buckets.get(group)
            if bucket is None:
                buckets[group] = ([key], [value])
            else:
                bucket[0].append(key)
                bucket[1].append(value)

    def _blocks(self, builder: FileBuilder, name: str, table: AnyTable, buckets: Buckets) -> Iterator[bytes]:
        """Blocks of about `_BLOCK_BYTES`; the size of the last one tells how many entries go into the next."""
        block: list[tuple[int, list[Any], list[Any]]] = []
        room = limit = _BLOCK_ENTRIES_MAX // 2
        for group in sorted(buckets):
            keys, values = buckets.pop(group)
            start = 0
            while start < len(keys):
                stop = min(start + room, len(keys))
                block.append((group, keys[start:stop], values[start:stop]))
                room -= stop - start
                start = stop
                if room == 0:
                    data = builder.block(name, table.spec.kind, block)
                    yield data
                    limit = min(max(limit * _BLOCK_BYTES // len(data), 1), _BLOCK_ENTRIES_MAX)
                    room, block = limit, []
        if block:
            yield builder.block(name, table.spec.kind, block)

    def _stored_blocks(
        self, builder: FileBuilder, name: str, table: AnyTable, layers: Sequence[Any]
    ) -> Iterator[bytes]:
        """What the base does not keep in memory. It comes in key-group order."""
        stored = table.base.stored()
        while part := list(islice(stored, _STORED_SLICE)):
            buckets: Buckets = {}
            for group, key, value in part:
                if not any(table.holds(layer, key) for layer in layers):
                    bucket = buckets.setdefault(group, ([], []))
                    bucket[0].append(key)
                    bucket[1].append(value)
            yield from self._blocks(builder, name, table, buckets)
