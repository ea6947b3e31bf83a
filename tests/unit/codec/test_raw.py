"""Values of classes that nobody has are data, and are written back as the bytes they came from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgpack
import pytest

from flowpoint.codec.raw import RawArray, RawCodec, RawEnum, RawObject
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import BadRecordError
from tests.unit.codec.test_values import Color, Item, Kind, Level, Mode, Order, Pair

TYPES = TypeRegistry([Color, Level, Kind, Mode, Item, Order, Pair])


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (Color.RED, RawEnum("Color", "RED")),
        (Level.LOW, RawEnum("Level", "LOW")),
        (Mode.READ | Mode.WRITE, RawEnum("Mode", 3)),
        (Item("a"), RawObject("Item", ("name", "price"), ("a", Decimal(1)))),
        (Pair(1, Color.RED), RawObject("Pair", ("left", "right"), (1, RawEnum("Color", "RED")))),
        ([{"k": (Item("a"),)}], [{"k": (RawObject("Item", ("name", "price"), ("a", Decimal(1))),)}]),
        ({Color.RED: 1}, {RawEnum("Color", "RED"): 1}),
    ],
)
def test_what_names_a_class_is_data_and_goes_back_to_the_same_bytes(value: Any, raw: Any) -> None:
    stored = Codec(TYPES).encode(value)

    assert RawCodec().decode(stored) == raw
    assert RawCodec().encode(raw) == stored
    assert RawCodec(TYPES).decode(stored) == value


@pytest.mark.parametrize("count", [1, 3])
def test_columns_of_objects_are_read_without_their_class(count: int) -> None:
    items = [Item(f"n{n}", Decimal(n)) for n in range(count)]
    stored = Codec(TYPES).encode_column(items)

    raw = RawCodec().decode_column(stored)

    assert raw == [RawObject("Item", ("name", "price"), (f"n{n}", Decimal(n))) for n in range(count)]
    assert Codec(TYPES).decode_column(RawCodec().encode_column(raw)) == items


def test_an_object_can_be_in_a_set_whatever_its_fields_are() -> None:
    raw = {RawObject("A", ("x",), ([1],)), RawObject("A", ("x",), ([2],)), RawObject("A", ("x",), (1,))}

    assert RawCodec().decode(RawCodec().encode(raw)) == raw


def test_numpy_values_are_read_without_numpy_and_go_back_to_the_same_bytes() -> None:
    numpy = pytest.importorskip("numpy")
    for value, shown in [
        (numpy.float64(1.5), "f8(1.5)"),
        (numpy.array([[1, 2]], dtype=">i2"), "array([1, 2], dtype='>i2', shape=(1, 2))"),
        (numpy.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]), "array(12 bytes"),
    ]:
        stored = Codec().encode(value)

        raw = RawCodec().decode(stored)

        assert type(raw) is RawArray
        assert repr(raw).startswith(shown)
        assert RawCodec().encode(raw) == stored


def test_a_class_that_changed_is_refused_where_it_is_given() -> None:
    @dataclass
    class Item:
        title: str

    Item.__qualname__ = "Item"
    with pytest.raises(BadRecordError, match="has the field 'name'"):
        RawCodec(TypeRegistry([Item])).decode(Codec(TYPES).encode(globals()["Item"]("a")))


def test_nothing_is_imported_because_bytes_name_it() -> None:
    before = set(sys.modules)
    stored = msgpack.packb(msgpack.ExtType(12, msgpack.packb(["antigravity:fly", ["x"], [1]])))

    assert repr(RawCodec().decode(stored)) == "fly(x=1)"
    assert set(sys.modules) == before


@pytest.mark.parametrize("codec", [Codec(), RawCodec()])
@pytest.mark.parametrize("levels", [101, 10_000])
def test_bytes_nested_deeper_than_anything_written_are_damage(codec: Codec, levels: int) -> None:
    data = msgpack.packb([])
    for _ in range(levels):
        data = msgpack.packb(msgpack.ExtType(1, data))

    with pytest.raises(BadRecordError, match="100 levels"):
        codec.decode(data)
    assert codec.decode(codec.encode((1, (2,)))) == (1, (2,))
