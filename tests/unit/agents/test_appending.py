"""Appending where a store's answers get lost, and where nothing keeps who removes away from who appends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.agents.memory_kv import LogOnly, MemoryKv, saver_on
from tests.unit.agents.stores import config, ids, put

each_kind = pytest.mark.parametrize("kind", [MemoryKv, LogOnly], ids=["index", "log"])


def interrupted(kv: MemoryKv, by: Callable[[Callable[[], bool]], bool]) -> None:
    """Let something happen at the next creation: `by` is given what creates, and returns what is told of it."""
    create = kv.create

    def once(*given: Any, **options: Any) -> bool:
        kv.create = create  # type: ignore[method-assign]
        return by(lambda: create(*given, **options))

    kv.create = once  # type: ignore[method-assign]


@each_kind
def test_a_commit_of_which_the_store_says_that_it_was_there_already_is_known_by_its_nonce(kind: Any) -> None:
    kv = kind()
    saver = saver_on(kv)
    first = put(saver, config(), {"a": 1}, id="1")

    interrupted(kv, lambda create: not create())  # created, and tried once more inside of the store
    put(saver, first, {"a": 2}, id="2")

    assert ids(saver.list(config())) == ["2", "1"]
    assert len(list(kv.keys("t/t/c/"))) == 2
    assert saver.counts == {}


def test_a_number_that_was_cut_away_meanwhile_is_not_taken_for_the_next_one() -> None:
    kv = LogOnly()
    saver, other = saver_on(kv), saver_on(kv)
    first = put(saver, config(), {"a": 1}, id="1")

    def cut_away(create: Callable[[], bool]) -> bool:
        """Others append and remove, so that the number which is about to be created is free once more."""
        at = first
        for name in ("2", "3"):
            at = put(other, at, {"a": name}, id=name)
            other.prune(["t"])
        return create()

    interrupted(kv, cut_away)
    put(saver, config(), {"a": "mine"}, id="mine")

    assert ids(saver_on(kv).list(config())) == ["mine", "3"], "kept as a branch, and not lost below the cut"
    assert saver_on(kv).get_tuple(config()).checkpoint["id"] == "3"
