"""Format 1 of state files: pinned by a golden file, precise about damage, and readable in part."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from flowpoint.codec.placement import group_of, place_of
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.state.file_builder import FileBuilder
from flowpoint.state.file_format import Block, FileReader
from flowpoint.state.spec import TOMBSTONE
from tests.unit.codec.test_values import Item

FIXTURES = Path(__file__).parents[2] / "fixtures"


def golden_bytes(name: str = "state-format-1") -> bytes:
    """A fixture: lines of hex digits, each followed by what they mean."""
    lines = (FIXTURES / f"{name}.hex").read_text().splitlines()
    return b"".join(bytes.fromhex(line.partition("#")[0]) for line in lines)


def build() -> bytes:
    builder = FileBuilder(Codec())
    return b"".join(
        [
            builder.header(),
            builder.block("counts", "value", [(3, ["a", "b"], [1, TOMBSTONE]), (7, ["c"], [None])]),
            builder.block("days", "map", [(9, [("k", 1), ("k", 2)], [2.5, "x"])]),
            builder.footer(),
        ]
    )


COUNTS = Block("counts", "value", ["a", "c"], [1, None], ["b"])
DAYS = Block("days", "map", [("k", 1), ("k", 2)], [2.5, "x"], [])


def blocks(data: bytes, first: int = 0, last: int = 127) -> list[Block]:
    return list(FileReader("shared/x.base", data, len(data)).blocks(Codec(), first, last))


def test_the_golden_file_of_format_1_is_read() -> None:
    assert blocks(golden_bytes()) == [COUNTS, DAYS]


def test_what_is_written_is_the_golden_file() -> None:
    assert build().hex(" ") == golden_bytes().hex(" ")


def build_with_places() -> bytes:
    builder = FileBuilder(Codec(), 16)
    counts = placed({"a": 1, "b": TOMBSTONE, "c": None}, str)
    days = placed({("k", 1): 2.5, ("k", 2): "x"}, itemgetter(0))
    return b"".join(
        [
            builder.header(),
            builder.placed_block("counts", "value", *counts),
            builder.placed_block("days", "map", *days),
            builder.footer(),
        ]
    )


def placed(entries: dict[Any, Any], key_of: Callable[[Any], Any]) -> tuple[list[int], list[Any], list[Any]]:
    """(places, keys, values) in the order of the places."""
    ordered = sorted(entries, key=lambda key: place_of(key_of(key), 16))
    return [place_of(key_of(key), 16) for key in ordered], ordered, [entries[key] for key in ordered]


def test_the_golden_file_with_places_is_read_and_is_what_is_written() -> None:
    data = golden_bytes("state-format-1-with-places")

    assert build_with_places().hex(" ") == data.hex(" ")
    assert {(block.state, *block.keys) for block in blocks(data)} == {
        ("counts", "a", "c"),
        ("days", ("k", 1), ("k", 2)),
    }
    reader = FileReader("shared/x.base", data, len(data))
    assert reader.placed is not None
    assert reader.placed.max_parallelism == 16
    assert sorted(reader.placed.live) == sorted(place_of(key, 16) for key in ("a", "c", "k", "k"))
    assert list(reader.placed.dead) == [place_of("b", 16)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 2, []),
        (3, 3, [Block("counts", "value", ["a"], [1], ["b"])]),
        (4, 8, [Block("counts", "value", ["c"], [None], [])]),
        (7, 127, [Block("counts", "value", ["c"], [None], []), DAYS]),
        (10, 127, []),
    ],
)
def test_a_part_of_the_key_groups_is_read_alone(first: int, last: int, expected: list[Block]) -> None:
    assert [block for block in blocks(build(), first, last) if block.keys or block.dead] == expected


def test_blocks_outside_the_key_groups_are_not_read() -> None:
    data = build()
    asked: list[int] = []

    def read(offset: int, size: int) -> bytes:
        asked.append(offset)
        return data[offset : offset + size]

    reader = FileReader("shared/x.base", read, len(data))
    asked.clear()
    list(reader.blocks(Codec(), 9, 9))

    assert len(asked) == 1
    assert reader.entries == 5


def test_every_flipped_bit_is_noticed() -> None:
    data = build()

    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(SnapshotError, match=r"shared/x\.base"):
            blocks(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    data = build()

    for size in range(len(data)):
        with pytest.raises(SnapshotError, match=r"shared/x\.base"):
            blocks(data[:size])


def test_a_newer_format_is_refused() -> None:
    data = bytearray(build())
    data[9] = 2

    with pytest.raises(SnapshotError, match="it has format 2, this version reads up to 1; upgrade"):
        blocks(bytes(data))


def test_a_class_that_is_no_longer_declared_is_named_with_state_and_file() -> None:
    codec = Codec(TypeRegistry([Item]))
    builder = FileBuilder(codec)
    data = b"".join(
        [
            builder.header(),
            builder.block("items", "value", [(group_of("a", 128), ["a"], [Item("x")])]),
            builder.footer(),
        ]
    )

    with pytest.raises(
        IncompatibleStateError, match=r"state 'items' from shared/x\.base: .*Item: the job does not declare"
    ):
        blocks(data)
