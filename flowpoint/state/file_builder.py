"""Makes the bytes of a file of keyed state (`file_format.py`), piece by piece, from entries or from stored blocks.

Invariant: blocks are made in the order in which they stand in the file; what was handed out is never changed later.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack
from xxhash import xxh3_64_intdigest

from flowpoint.codec.key_types import KEY_TYPES_MAX, are_plain, key_shapes, key_types
from flowpoint.codec.placement import place_width
from flowpoint.codec.values import Codec
from flowpoint.state.file_format import END, FORMAT, HEADER, MAGIC, PLACE, TRAILER, BlockRef, Entries, RawBlock, seal_of
from flowpoint.state.spec import TOMBSTONE, has_tombstone


@dataclass(frozen=True, slots=True)
class _Split:
    """Live entries and deleted ones, apart."""

    keys: list[Any]
    values: list[Any]
    dead: list[Any]


class FileBuilder:
    """Makes one file: `header`, any number of blocks, `footer`.

    With `max_parallelism` the file tells the place of each key: all blocks are then made by `placed_block` or
    `copied_block`. Without, by `block` or `copied_block`.
    """

    def __init__(self, codec: Codec, max_parallelism: int = 0) -> None:
        self._codec = codec
        self._max_parallelism = max_parallelism
        self._states: dict[str, tuple[int, str]] = {}
        self._refs: list[BlockRef] = []
        self._live_places = array(PLACE)
        self._dead_places = array(PLACE)
        self._offset = 0
        self.entries = 0
        self.key_types: set[str] = set()
        """Of the keys in all blocks that were made here (`codec.key_types`)."""
        self.has_plain_keys = True
        """Whether all of those are of types that a person can type in (`codec.key_types.are_plain`)."""
        self.seal = ""
        """Of the file (`FileReader.seal`), once its footer is made."""

    def header(self) -> bytes:
        """The first bytes."""
        return self._appended(HEADER.pack(MAGIC, FORMAT, 0))

    def block(self, state: str, kind: str, entries: Entries) -> bytes:
        """The bytes of a block in a file without places.

        Raises:
            BadRecordError: a key or value cannot be serialised.
        """
        live_groups: list[int] = []
        dead_groups: list[int] = []
        whole = _Split([], [], [])
        for group, keys, values in entries:
            part = _split(keys, values)
            whole.keys.extend(part.keys)
            whole.values.extend(part.values)
            whole.dead.extend(part.dead)
            _count(live_groups, group, len(part.keys))
            _count(dead_groups, group, len(part.dead))
        return self._block(state, kind, (entries[0][0], entries[-1][0]), whole, live_groups, dead_groups)

    def placed_block(self, state: str, kind: str, places: Sequence[int], keys: list[Any], values: list[Any]) -> bytes:
        """The bytes of a block: entries in the order of their places, which go on from those of the block before.

        Raises:
            BadRecordError: a key or value cannot be serialised.
        """
        live, gone = places, []
        if has_tombstone(values):
            live = [place for place, value in zip(places, values, strict=True) if value is not TOMBSTONE]
            gone = [place for place, value in zip(places, values, strict=True) if value is TOMBSTONE]
        width = place_width(self._max_parallelism)
        groups = places[0] // width, places[-1] // width
        body = self._block(state, kind, groups, _split(keys, values), _counts(live, width), _counts(gone, width))
        self._live_places.extend(live)
        self._dead_places.extend(gone)
        return body

    def copied_block(self, stored: RawBlock) -> bytes:
        """The bytes of a block of another file, as they are. Blocks come in the order of that file."""
        self._live_places.extend(stored.live_places)
        self._dead_places.extend(stored.dead_places)
        return self._placed(stored.state, stored.kind, stored.ref, stored.body)

    def footer(self) -> bytes:
        """The last bytes: index and trailer."""
        index: dict[str, Any] = {
            "states": [[name, kind] for name, (_, kind) in self._states.items()],
            "blocks": [
                [ref.state, ref.first, ref.last, ref.offset, ref.size, ref.live, ref.dead, ref.checksum]
                for ref in self._refs
            ],
        }
        if self._max_parallelism:
            index["places"] = [self._max_parallelism, _packed(self._live_places), _packed(self._dead_places)]
        body: bytes = msgpack.packb(index)
        checksum = xxh3_64_intdigest(body)
        self.seal = seal_of(checksum)
        return body + TRAILER.pack(self._offset, checksum, END)

    def _block(
        self,
        state: str,
        kind: str,
        groups: tuple[int, int],
        entries: _Split,
        live_groups: list[int],
        dead_groups: list[int],
    ) -> bytes:
        self._note_keys(kind, entries.keys)
        self._note_keys(kind, entries.dead)
        encoded = self._codec.encode_column
        keys, values, dead = encoded(entries.keys), encoded(entries.values), encoded(entries.dead)
        body: bytes = msgpack.packb([live_groups, keys, values, dead_groups, dead])
        checksum = xxh3_64_intdigest(body)
        ref = BlockRef(0, *groups, 0, len(body), len(entries.keys), len(entries.dead), checksum)
        return self._placed(state, kind, ref, body)

    def _note_keys(self, kind: str, keys: list[Any]) -> None:
        own = [pair[0] for pair in keys] if kind == "map" else keys
        shapes = key_shapes(own)
        if len(self.key_types) <= KEY_TYPES_MAX:
            self.key_types |= key_types(shapes)
        self.has_plain_keys = self.has_plain_keys and are_plain(shapes)

    def _placed(self, state: str, kind: str, ref: BlockRef, body: bytes) -> bytes:
        number, _ = self._states.setdefault(state, (len(self._states), kind))
        self._refs.append(replace(ref, state=number, offset=self._offset))
        self.entries += ref.live + ref.dead
        return self._appended(body)

    def _appended(self, data: bytes) -> bytes:
        self._offset += len(data)
        return data


def _split(keys: list[Any], values: list[Any]) -> _Split:
    if not has_tombstone(values):
        return _Split(keys, values, [])
    return _Split(
        [key for key, value in zip(keys, values, strict=True) if value is not TOMBSTONE],
        [value for value in values if value is not TOMBSTONE],
        [key for key, value in zip(keys, values, strict=True) if value is TOMBSTONE],
    )


def _counts(places: Sequence[int], width: int) -> list[int]:
    """How many of these places, which are in order, are of each key group."""
    counts: list[int] = []
    start = 0
    while start < len(places):
        group = places[start] // width
        stop = bisect_left(places, (group + 1) * width, start)
        _count(counts, group, stop - start)
        start = stop
    return counts


def _count(groups: list[int], group: int, count: int) -> None:
    if count:
        groups.append(group)
        groups.append(count)


def _packed(places: array[int]) -> bytes:
    if sys.byteorder == "big":
        places = array(PLACE, places)
        places.byteswap()
    return places.tobytes()
