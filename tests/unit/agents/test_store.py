"""The long-term memory on RocksDB does what LangGraph's in memory does, and outlives the process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from flowpoint.agents import store as store_module
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.store import RocksStore
from flowpoint.errors import BadRecordError, DamagedStoreError, UsageError


def filled(store: Any) -> Any:
    for i in range(12):
        store.put(("users", f"u{i % 3}"), f"k{i:02}", {"n": i, "kind": {"even": i % 2 == 0}})
    store.put(("users",), "root", {"n": -1})
    store.put(("docs", "v1"), "a/B", {"n": 100})
    store.delete(("users", "u0"), "k00")
    return store


def seen(store: Any) -> Any:
    def keys(found: Any) -> list[str]:
        return sorted(one.key for one in found)

    return (
        store.get(("docs", "v1"), "a/B").value,
        store.get(("users", "u0"), "k00"),
        keys(store.search(("users",), limit=100)),
        keys(store.search((), filter={"n": {"$gte": 5, "$lt": 9}})),
        keys(store.search(("users", "u1"), filter={"kind": {"even": True}})),
        len(store.search(("users",), limit=5, offset=10)),
        store.list_namespaces(),
        store.list_namespaces(prefix=("users", "*"), max_depth=1),
        store.list_namespaces(suffix=("v1",)),
    )


def test_it_finds_what_the_store_in_memory_finds_also_after_reopening(tmp_path: Path) -> None:
    expected = seen(filled(InMemoryStore()))

    with RocksStore(tmp_path) as store:
        assert seen(filled(store)) == expected
    with RocksStore(tmp_path) as store:
        assert seen(store) == expected


def test_items_expire_and_live_on_when_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000]
    monkeypatch.setattr(store_module, "_now", lambda: now[0])
    with RocksStore(tmp_path, ttl={"default_ttl": 1, "refresh_on_read": True}) as store:
        store.put(("a",), "read", {"n": 1})
        store.put(("a",), "unread", {"n": 1})
        store.put(("a",), "for ever", {"n": 1}, ttl=None)
        now[0] += 45_000
        assert store.get(("a",), "read") is not None
        assert store.get(("a",), "unread", refresh_ttl=False) is not None
        now[0] += 45_000

        assert {one.key for one in store.search(("a",))} == {"read", "for ever"}
        assert store.sweep_ttl() == 1
        assert store.get(("a",), "unread") is None


def test_what_it_cannot_do_is_refused(tmp_path: Path) -> None:
    with RocksStore(tmp_path) as store:
        with pytest.raises(BadRecordError, match="'k' of"):
            store.put(("a",), "k", {"n": object()})
        with pytest.raises(UsageError, match="no vectors"):
            store.search(("a",), query="meaning")
        store.put(("a",), "k", {"n": 1})
        with pytest.raises(UsageError, match=r"\$like"):
            store.search(("a",), filter={"n": {"$like": 1}})
        assert store.search(("a",), filter={"missing": {"$gt": 1}}) == []


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {"deep": [{"x": ({None: 1},)}]}])
def test_a_key_that_json_would_take_for_another_is_refused(value: Any, tmp_path: Path) -> None:
    with RocksStore(tmp_path) as store, pytest.raises(BadRecordError, match=r"'k' of \('a',\): the key .* is no text"):
        store.put(("a",), "k", value)


def test_a_damaged_item_is_named_keeps_no_sweep_from_the_others_and_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000]
    monkeypatch.setattr(store_module, "_now", lambda: now[0])
    with RocksStore(tmp_path) as store:
        for key in ("first", "Key/é", "last"):
            store.put(("a", "B"), key, {"n": 1}, ttl=1)
        name = next(name for name in store._kv.keys("s/") if "%" in name.rpartition("/")[2])
        store._kv.write([(name, b"[1, 2")])
        now[0] += 120_000

        with pytest.raises(DamagedStoreError, match=r"cannot sweep 1 items.*'Key/é' of \('a', 'B'\)"):
            store.sweep_ttl()
        assert list(store._kv.keys("s/")) == [name]
        with pytest.raises(DamagedStoreError, match=r"'Key/é' of \('a', 'B'\)"):
            store.search(("a",))
        store.delete(("a", "B"), "Key/é")
        assert store.search(("a",)) == []


def test_it_shares_a_folder_with_a_saver(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver, RocksStore(tmp_path) as store:
        asyncio.run(store.aput(("t",), "t", {"n": 1}))
        assert asyncio.run(store.aget(("t",), "t")).value == {"n": 1}
        assert saver.core.reader.threads() == []


def test_a_value_that_contains_itself_is_refused(tmp_path: Path) -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with RocksStore(tmp_path) as store, pytest.raises(BadRecordError, match="Circular"):
        store.put(("a",), "k", value)
