"""Columns come back as the list that went in, whatever form was chosen for them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.errors import BadRecordError
from tests.unit.codec.test_values import VALUES, Color, Event, Item, Order, Pair, anything, codec, same


class Name(StrEnum):
    A = "a"


COLUMNS: list[list[Any]] = [
    [], ["a", "", "ä"], ["a\x00b", "\n"], [1, 2**70, -5], [1.5, -0.0], [True, 1], [1, 1.0, True, "1"], [None, None],
    [("a", 1), ("b", 2)], [("a", 1), ("b", 2.0)], [("a",), ("b", 1)], [(), ()], [("a", (1, (2,))), ("b", (3, (4,)))],
    [tuple(range(300))] * 2, [("a", [1]), ("b", [2])],
    [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], [{"a": 1, "b": 2}, {"b": 1, "a": 2}], [{}, {}], [{1: 1}, {True: 1}],
    [{"a": {"x": 1}}, {"a": {"x": 2}}], [{"a": (1, 2)}, {"a": (3, 4)}], [{"a": 1}, {"b": 1}],
    [Item("a"), Item("b")], [Order(1), Order(2, [Item("x")])], [Pair(1), Pair(2)], [Pair(1), (1, None)],
    [Event(1), Event(2, {"x"})], [Color.RED, Color.GREEN], [Item("a"), None],
    [{1}, {2}], [[1, 2], [3, 4]], [b"a", b""], VALUES,
]  # fmt: skip


@pytest.mark.parametrize("values", COLUMNS, ids=lambda values: ascii(values)[:40])
def test_a_column_comes_back_as_it_was(values: list[Any]) -> None:
    assert same(codec().decode_column(codec().encode_column(values)), values)


@settings(max_examples=100, deadline=None)
@given(st.lists(anything, max_size=5) | st.lists(st.tuples(anything, st.integers()), max_size=5))
def test_any_column_comes_back_as_it_was(values: list[Any]) -> None:
    assert same(codec().decode_column(codec().encode_column(values)), values)


def test_dict_keys_that_are_equal_but_of_another_type_are_not_taken_together() -> None:
    with pytest.raises(BadRecordError, match="Name"):
        codec().encode_column([{"a": 1}, {Name.A: 1}])


def test_alike_values_take_less_room_than_single_ones() -> None:
    rows = [{"timestamp": n, "user": "x"} for n in range(100)]

    assert len(codec().encode_column(rows)) < sum(len(codec().encode(row)) for row in rows) / 2


@pytest.mark.parametrize("values", [["a", "b"], [("a", 1), ("b", 2)], [{"a": 1}], [Item("x")]])
def test_every_cut_of_a_column_is_noticed(values: list[Any]) -> None:
    data = codec().encode_column(values)

    for cut in range(len(data)):
        with pytest.raises(BadRecordError, match="damaged"):
            codec().decode_column(data[:cut])
