"""What one freeze has to write, as the bytes of a file, in slices small enough to be made between two batches.

A delta holds what is in no durable file yet; it may take in the newest small deltas and replace them (`chain.py`). A
base holds everything. Which segments belong in is looked up when the bytes are made, not when the freeze happened: a
file before this one may have failed meanwhile, and then its entries belong here.

Entries are put into the order of their places (`sorting.py`), then written block by block. Both steps go on in slices; a
slice without bytes is empty.

Invariants: the sources of a file do not change while it is made: segments never do, and bases are not merged into.
Every entry is written once, the newest one of its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from flowpoint.codec.placement import places_of
from flowpoint.errors import BadRecordError
from flowpoint.state.chain import SMALL_BYTES_MAX, ChainFile
from flowpoint.state.file_builder import FileBuilder
from flowpoint.state.file_format import FileReader
from flowpoint.state.sorting import Buckets, Run, with_stored
from flowpoint.state.spec import TOMBSTONE, has_tombstone
from flowpoint.state.tables import AnyTable, LayeredMapTable, sources_of

if TYPE_CHECKING:
    from flowpoint.state.layers import LayeredBackend

SLICE_BYTES: Final = 256 << 10
# Small, since one key of a restored state is read by reading its block.
_BLOCK_BYTES: Final = 32 << 10
_BLOCK_ENTRIES_FIRST: Final = 256
_BLOCK_ENTRIES_MAX: Final = 2048
# About 2 ms: a turn of the loop may bring a step of merging and a batch on top. Blocks take far more turns than this.
_BUCKET_SLICE: Final = 1024


class FrozenState:
    """`backend.Frozen` of a layered backend."""

    def __init__(self, backend: LayeredBackend, number: int, *, full: bool, detached: bool = False) -> None:
        """`detached`: a file beside the chain, for somebody else, which makes nothing durable for it."""
        self.full = full
        self.replaces = 0
        self.native: Sequence[str] = ()
        self.seal = ""
        self.key_types: set[str] = set()
        self.has_plain_keys = False
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
            if self.full:
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
        builder = FileBuilder(self._backend.codec, self._backend.max_parallelism)
        yield builder.header()
        absorbed: dict[str, dict[Any, Any]] = {}
        if self.full:
            self.replaces = 0 if self._detached else len(self._backend.chain)
        elif not self._detached:
            yield from self._absorb_small_files(absorbed)
        for name, table in list(self._backend.tables.items()):
            try:
                yield from self._table(builder, name, table, absorbed.get(name))
            except BadRecordError as error:
                error.args = (f"cannot write state '{name}' of operator '{self._backend.operator}': {error}",)
                raise
        yield builder.footer()
        self._entries = builder.entries
        self.seal = builder.seal
        self.key_types = builder.key_types
        self.has_plain_keys = builder.has_plain_keys

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
        buckets = Buckets(sum(map(table.size, layers)) + (len(table.base) if self.full else 0))
        for (keys, value_of), hiding in sources_of(table, layers, with_base=self.full):
            while part := list(islice(keys, _BUCKET_SLICE)):
                if hiding:
                    part = [key for key in part if not any(table.holds(layer, key) for layer in hiding)]
                self._fill(buckets, part, list(map(value_of, part)), is_map=isinstance(table, LayeredMapTable))
                yield b""
        runs = buckets.runs()
        if self.full:
            runs = with_stored(runs, _not_hidden(table, layers))
        yield from _blocks(builder, name, table.spec.kind, runs)

    def _fill(self, buckets: Buckets, keys: list[Any], values: list[Any], *, is_map: bool) -> None:
        """Sort entries into buckets by the places of their keys."""
        if self.full and has_tombstone(values):
            # Below a base there is nothing that a deletion could hide.
            keys = [key for key, value in zip(keys, values, strict=True) if value is not TOMBSTONE]
            values = [value for value in values if value is not TOMBSTONE]
        hashed = [pair[0] for pair in keys] if is_map else keys
        buckets.add(places_of(hashed, self._backend.max_parallelism), keys, values)


def _not_hidden(table: AnyTable, layers: Sequence[Any]) -> Iterator[tuple[int, Any, Any]]:
    """What the base does not keep in memory, unless a layer has something newer."""
    if not layers:
        return table.base.stored()
    return (entry for entry in table.base.stored() if not any(table.holds(layer, entry[1]) for layer in layers))


def _blocks(builder: FileBuilder, name: str, kind: str, runs: Iterator[Run]) -> Iterator[bytes]:
    """Blocks of about `_BLOCK_BYTES`; the size of the last one tells how many entries go into the next."""
    limit = _BLOCK_ENTRIES_FIRST
    places: list[int] = []
    keys: list[Any] = []
    values: list[Any] = []
    for run in runs:
        places += run.places
        keys += run.keys
        values += run.values
        while len(keys) >= limit:
            data = builder.placed_block(name, kind, places[:limit], keys[:limit], values[:limit])
            del places[:limit], keys[:limit], values[:limit]
            yield data
            limit = min(max(limit * _BLOCK_BYTES // len(data), 1), _BLOCK_ENTRIES_MAX)
        yield b""
    if keys:
        yield builder.placed_block(name, kind, places, keys, values)
