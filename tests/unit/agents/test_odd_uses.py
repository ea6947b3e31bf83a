"""Savers in places that nobody planned for: odd names, many namespaces, cancelled calls, copied folders, old stores."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from flowpoint.agents.entry_names import mark_name
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.kv import Section, part
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.store import RocksStore
from flowpoint.agents.stored_index import MARKED
from flowpoint.errors import StorageError, UsageError
from tests.unit.agents.stores import SAVERS, config, each_saver, ids, open_saver, put

ODD_THREADS = ["", ".", "..", "a/b", "a%2fb", "A", "a", "nul\0", "é𝄞", "lone \ud800", "x" * 5000, "t/c/000000000001"]
ODD_NAMESPACES = ["", "sub:1|inner:2", "a/../b", "ä|\x1f", "n" * 400]


@each_saver
def test_threads_and_namespaces_of_any_name_are_kept_apart(kind: str, tmp_path: Path) -> None:
    threads = ODD_THREADS if kind == "rocks" else ODD_THREADS[::3]
    with open_saver(kind, tmp_path) as saver:
        for thread in threads:
            for ns in ODD_NAMESPACES:
                at = put(saver, config(thread, ns), {"c": [thread, ns]}, id=f"{len(thread)}/id")
                saver.put_writes(at, [("c", ns)], "task/1")
    with open_saver(kind, tmp_path) as saver:
        for thread in threads:
            for ns in ODD_NAMESPACES:
                found = saver.get_tuple(config(thread, ns))
                assert found.checkpoint["channel_values"] == {"c": [thread, ns]}
                assert found.pending_writes == [("task/1", "c", ns)]
        assert sorted(saver.core.reader.threads()) == sorted(threads)
        saver.delete_thread(threads[-1])
        assert sorted(saver.core.reader.threads()) == sorted(threads[:-1])


def test_a_namespace_does_not_see_the_checkpoint_of_another(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver:
        put(saver, config(ns="one"), id="a")
        assert saver.get_tuple(config(ns="two", id="a")) is None
        assert saver.get_tuple(config("u", ns="one", id="a")) is None
        assert ids(saver.list(config(ns="two"))) == []


def test_thousands_of_namespaces_are_listed_by_id(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver:
        for number in range(2000):
            at = config(ns=f"sub:{number}")
            at["configurable"]["__pregel_durability"] = "async"
            put(saver, at, id=f"{number:05}")
        assert ids(saver.list({"configurable": {"thread_id": "t"}}, limit=2)) == ["01999", "01998"]
        assert saver.get_tuple(config(ns="sub:7")).checkpoint["id"] == "00007"


@each_saver
def test_a_missing_thread_id_is_named(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        for given in ({"configurable": {}}, {"configurable": {"thread_id": None}}):
            with pytest.raises(UsageError, match="thread_id"):
                saver.get_tuple(given)


@each_saver
def test_a_sweep_waits_for_who_is_in_a_thread_whatever_its_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config("User/1"))
        inside = threading.Event()
        refresh = saver.core.index.refresh

        def noted(thread: str) -> None:
            inside.set()
            refresh(thread)

        sweep = threading.Thread(target=saver.sweep)
        with saver.core.kv.section(part("User/1"), Section.APPEND):
            monkeypatch.setattr(saver.core.index, "refresh", noted)
            sweep.start()
            assert not inside.wait(0.1)
        sweep.join()
        assert inside.is_set()


async def test_a_put_that_is_cancelled_has_ended_when_its_caller_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FolderSaver(tmp_path) as saver:
        begun, goes_on = threading.Event(), threading.Event()
        create = saver.core.kv.create

        def waiting(*args: Any, **options: Any) -> bool:
            begun.set()
            goes_on.wait()
            return create(*args, **options)

        monkeypatch.setattr(saver.core.kv, "create", waiting)
        at = config()
        loop = asyncio.get_running_loop()
        run = asyncio.create_task(asyncio.to_thread(begun.wait))
        call = asyncio.create_task(_aput(saver, at, "a"))
        await run
        call.cancel()
        loop.call_soon(goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert saver.get_tuple(config()).checkpoint["id"] == "a"


async def _aput(saver: Any, at: Any, id: str) -> Any:
    checkpoint: Any = {"v": 4, "id": id, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}
    return await saver.aput(at, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})


def test_a_folder_shrinks_and_who_has_it_open_can_go_on_writing_there(tmp_path: Path) -> None:
    with FolderSaver(tmp_path) as one, FolderSaver(tmp_path) as other:
        at = config()
        for id_ in ("1", "2", "3"):
            at = put(one, at, {"c": id_}, id=id_)
            other.put_writes(at, [("c", id_)], "task")
        one.prune(["t"])
        assert [folder.name for folder in (tmp_path / "t/t/w/%").iterdir()] == ["3"]

        one.delete_thread("t")
        assert not (tmp_path / "t/t/w").exists()
        other.put_writes(config(id="3"), [("c", "late")], "task")
        put(other, config(), {"c": "new"}, id="4")
        other.put_writes(config(id="4"), [("c", "w")], "task")
        assert one.get_tuple(config()).pending_writes == [("task", "c", "w")]


def test_a_folder_that_is_copied_while_it_is_open_is_a_store(tmp_path: Path) -> None:
    with FolderSaver(tmp_path / "store") as saver:
        at = put(saver, config(), {"c": "x" * 100_000}, id="1")
        saver.put_writes(at, [("c", 2)], "task")
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        put(saver, at, {"c": "later"}, id="2")
    with FolderSaver(tmp_path / "copy") as copy:
        found = copy.get_tuple(config())
        assert (found.checkpoint["id"], found.pending_writes) == ("1", [("task", "c", 2)])
        put(copy, found.config, {"c": "other"}, id="3")
        assert ids(copy.list(config())) == ["3", "1"]


@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_a_tasks_writes_counts_in_whatever_order_checkpoints_are_written_for(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    oracle = InMemorySaver()
    saver = RocksSaver(tmp_path)
    known = ["1", "3", "5", "7"]
    for id_ in known:
        for one in (oracle, saver):
            put(one, config(), id=id_)
    for number in range(150):
        if chance.random() < 0.05:
            saver.close()
            saver = RocksSaver(tmp_path)
        if chance.random() < 0.1:
            saver.copy_thread("t", f"copy {number}")
        at = config(id=chance.choice(known))
        writes = [(chance.choice(["c", "d", "__interrupt__"]), number) for _ in range(chance.randint(1, 3))]
        task = chance.choice(["A", "b", "c"])
        for one in (oracle, saver):
            one.put_writes(at, writes, task)
    with saver:
        for id_ in known:
            ours, theirs = (one.get_tuple(config(id=id_)).pending_writes for one in (saver, oracle))
            assert sorted(ours) == sorted(theirs)


def test_writes_go_on_after_a_copy_and_after_a_deletion(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver:
        saver.put_writes(config("copy", id="0"), [("c", "early")], "task")
        at = put(saver, config(), id="5")
        saver.put_writes(at, [("c", 1)], "task")
        saver.copy_thread("t", "copy")
        saver.put_writes(config("copy", id="5"), [("c", "ignored"), ("d", 2)], "task")
        assert saver.get_tuple(config("copy")).pending_writes == [("task", "c", 1), ("task", "d", 2)]

        saver.delete_thread("copy")
        put(saver, config("copy"), id="5")
        saver.put_writes(config("copy", id="5"), [("c", "again")], "task")
        assert saver.get_tuple(config("copy")).pending_writes == [("task", "c", "again")]


def test_a_store_of_older_code_whose_threads_have_no_marks_goes_on(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver:
        at = put(saver, config(), id="1")
        saver.put_writes(at, [("c", 1)], "task")
        saver.core.kv.write([], [MARKED, mark_name("t")])
    for id_ in ("2", "3"):
        with RocksSaver(tmp_path) as saver:
            at = put(saver, saver.get_tuple(config()).config, id=id_)
            put(saver, config("new"), id=id_)
    with RocksSaver(tmp_path) as saver:
        assert not saver.core.kv.has(MARKED)
        assert ids(saver.list(config())) == ["3", "2", "1"]
        assert saver.core.index.tip("t") == 3
        saver.put_writes(config(id="1"), [("c", "second")], "task")
        assert saver.get_tuple(config(id="1")).pending_writes == [("task", "c", 1)]


@pytest.mark.parametrize(("first", "second"), [("rocks", "folder"), ("folder", "rocks"), ("folder", "store")])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_another_kind_is_refused_instead_of_begun_anew(
    tmp_path: Path, first: str, second: str, read_only: bool
) -> None:
    def opened() -> Any:
        if second == "store":
            return RocksStore(tmp_path / "memory")
        return SAVERS[second](tmp_path / "memory", read_only=read_only)

    with SAVERS[first](tmp_path / "memory") as saver:
        put(saver, config(), {"c": 1}, id="1")
    names = sorted(entry.name for entry in (tmp_path / "memory").iterdir())
    with pytest.raises(UsageError, match=rf"memory as the store of .* it is that of a {SAVERS[first].__name__}"):
        opened()
    assert sorted(entry.name for entry in (tmp_path / "memory").iterdir()) == names


def test_a_folder_saver_that_was_once_opened_on_a_rocksdb_by_mistake_is_refused_there_now(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as saver:
        put(saver, config(), {"c": 1}, id="1")
    (tmp_path / "t").mkdir()
    with pytest.raises(UsageError, match="it is that of a RocksSaver"):
        FolderSaver(tmp_path)


@pytest.mark.parametrize("make", [*SAVERS.values(), RocksStore])
def test_a_path_that_is_no_folder_is_named(tmp_path: Path, make: Any) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(StorageError, match=rf"cannot make the folder {path}"):
            make(path)
