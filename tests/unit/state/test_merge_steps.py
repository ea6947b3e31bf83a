"""How much of what is durable is merged between two slices."""

from __future__ import annotations

from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.state.heap import HeapBackend
from flowpoint.state.spec import StateSpec


def written(*entries_of_each_freeze):
    """A backend with so many entries in each of its durable segments."""
    backend = HeapBackend(Codec(TypeRegistry()), 8)
    table = backend.table(StateSpec("seen", "value"))
    for entries in entries_of_each_freeze:
        for key in range(entries):
            table.put(key, 1)
        frozen = backend.freeze()
        assert b"".join(frozen.chunks())
        frozen.durable()
    return backend


def test_where_nothing_is_to_be_merged_one_step_looks_after_memory():
    assert HeapBackend(Codec(TypeRegistry()), 8).merge_steps(1024) == 1


def test_a_trickle_of_records_is_followed_by_one_short_step():
    assert written(5000).merge_steps(5) == 1


def test_steps_keep_up_with_records_that_change_two_entries_each():
    backend = written(5000)
    steps = backend.merge_steps(1024)

    merged = 0
    for _ in range(steps):
        backend.merge_some()
    table = backend.table(StateSpec("seen", "value"))
    merged = len(table.base)

    assert merged >= 2 * 1024


def test_where_segments_pile_up_more_is_merged_than_comes_in():
    assert written(5000, 5000).merge_steps(5) == 4
