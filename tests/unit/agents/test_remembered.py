"""What is held in memory of the logs: true, whoever reads at the same time, and no more than it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowpoint.agents.entry_names import commit_name
from flowpoint.agents.envelope import PUT, Header
from flowpoint.agents.remembered import Head, Remembered, remember
from flowpoint.agents.stored_index import StoredIndex
from tests.unit.agents.memory_kv import MemoryKv
from tests.unit.agents.stores import config, ids, open_saver, put


class Overtaken(MemoryKv):
    """Between what somebody reads and what is made of it, something else happens, once."""

    meanwhile: Callable[[], None] | None = None

    def get(self, key: str) -> bytes | None:
        found = super().get(key)
        self._happen()
        return found

    def keys(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[str]:
        found = list(super().keys(prefix, start=start, reverse=reverse))
        self._happen()
        return iter(found)

    def _happen(self) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()


def append(index: StoredIndex, kv: MemoryKv, number: int, id: str) -> None:
    header = Header(PUT, number, b"", 0, "t", "", id)
    kv.write([(commit_name("t", number), b""), *index.beside(header, None)[0]])
    index.appended(header)


READS = {
    "head": lambda index: index.head("t", ""),
    "tip": lambda index: index.tip("t"),
    "find": lambda index: index.find("t", "", "b"),
}
"""Whoever reads first, and is overtaken, has no lock of the thread."""


@pytest.mark.parametrize("read", READS)
def test_a_reader_that_a_put_overtakes_does_not_bring_back_what_was(read: str) -> None:
    kv = Overtaken()
    index = StoredIndex(kv)
    append(index, kv, 1, "a")
    kv.remembered = Remembered()
    index = StoredIndex(kv)  # as after a restart: nothing is remembered
    kv.meanwhile = lambda: append(index, kv, 2, "b")
    READS[read](index)

    assert kv.meanwhile is None
    assert (index.head("t", ""), index.tip("t"), index.find("t", "", "b")) == (Head(2, "b"), 2, 2)


def test_ids_are_found_in_any_order_and_after_a_restart(tmp_path: Path) -> None:
    ordered = ["5", "9", "1", "7", "B", "ä"]
    for _ in range(2):
        with open_saver("rocks", tmp_path) as saver:
            for id_ in ordered:
                put(saver, config(), id=id_)
                put(saver, config("u"), id=id_)
                assert saver.get_tuple(config(id=id_)).checkpoint["id"] == id_
            found = [one.checkpoint["id"] for id_ in ordered if (one := saver.get_tuple(config(id=id_)))]
            assert found == ordered
            assert saver.get_tuple(config(id="z")) is None
            assert sorted(ids(saver.list(config()))) == sorted(ordered)


def test_an_id_that_comes_with_a_copy_is_found(tmp_path: Path) -> None:
    with open_saver("rocks", tmp_path) as saver:
        put(saver, config(), id="5")
        assert saver.get_tuple(config("copy", id="5")) is None
        saver.copy_thread("t", "copy")
        assert saver.get_tuple(config("copy", id="5")).checkpoint["id"] == "5"
        saver.delete_thread("copy")
        assert saver.get_tuple(config("copy", id="5")) is None


def test_a_table_that_is_full_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowpoint.agents.remembered._REMEMBERED_MAX", 2)
    table: dict[str, int] = {}
    for thread in ("a", "b", "b", "c"):
        remember(table, thread, 1)
    assert table == {"c": 1}
