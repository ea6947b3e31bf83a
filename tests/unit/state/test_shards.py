"""Several dicts that are one: what is found, in which order it leaves, and that none of them grows great."""

from __future__ import annotations

import pytest

from flowpoint.state.shards import Shards
from flowpoint.state.spec import ABSENT

MANY = 200_000


def filled(keys, expected=MANY):
    shards = Shards(expected)
    shards.renew(keys, [f"value of {key}" for key in keys])
    return shards


def dict_sizes(shards, keys):
    return [len(entries) for entries in {id(shards.of(key)): shards.of(key) for key in keys}.values()]


def test_what_was_put_in_is_found_and_nothing_else():
    shards = filled(range(1000))

    assert shards.get(7) == shards[7] == "value of 7"
    assert 7 in shards
    assert shards.get(1000) is ABSENT
    assert 1000 not in shards
    assert len(shards) == 1000
    assert sorted(shards) == list(range(1000))


def test_equal_keys_of_two_types_are_one_entry():
    shards = filled([1, "1"])

    shards.renew([1.0], ["newer"])

    assert shards[1] == "newer"
    assert len(shards) == 2


def test_what_was_renewed_leaves_last():
    shards = filled(range(10), expected=1)
    shards.renew([0, 1], ["newer", "newer"])

    assert [key for key, _ in shards.oldest(10)] == [2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_taking_the_oldest_again_and_again_empties_it():
    shards = filled(range(1000))
    left = []

    while oldest := shards.oldest(64):
        left += [key for key, _ in oldest]
        shards.remove([key for key, _ in oldest])

    assert sorted(left) == list(range(1000))
    assert len(shards) == 0


@pytest.mark.parametrize("stride", [1, 16, 1024])
def test_none_of_the_dicts_is_so_great_that_its_growth_is_a_pause(stride):
    keys = range(0, MANY * stride, stride)

    sizes = dict_sizes(filled(keys), keys)

    assert sum(sizes) == MANY
    assert max(sizes) < 1.5 * 32_768


def test_state_that_is_small_is_in_one_dict():
    keys = range(1000)

    assert dict_sizes(filled(keys, expected=1000), keys) == [1000]
