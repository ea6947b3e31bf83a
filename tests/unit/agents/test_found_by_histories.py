"""What histories by chance have found (`history_machine`), each as the few steps that it takes."""

from __future__ import annotations

import errno
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy
import pytest

from flowpoint.agents.core import SaverCore
from flowpoint.agents.exchange import imported
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import system_world
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.saver import RUN, CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.errors import OutcomeUnknown, StorageError
from tests.unit.agents.faulty_files import MemoryFiles
from tests.unit.agents.history_machine import schema
from tests.unit.agents.stores import THREAD, config, each_saver, export, ids, open_saver, put
from tests.unit.agents.test_folder_faults import ROOT, SIZES

EVERY_ENTRY = timedelta(0)


@each_saver
def test_a_head_that_is_put_again_while_another_run_has_the_thread_is_the_head_still(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(), {"a": 1}, id="1")
        with saver.core.runs.begun() as run:
            run.other("t")
            put(saver, config(), {"a": 2}, id="1")
        assert saver.counts == {"conflict": 1}
        saver.sweep(EVERY_ENTRY)
        assert saver.get_tuple(config()).checkpoint["channel_values"] == {"a": 2}
        assert ids(saver.list(THREAD)) == ["1"]


@each_saver
def test_a_checkpoint_in_a_namespace_without_any_is_seen_whatever_else_its_run_has_read(
    kind: str, tmp_path: Path
) -> None:
    with open_saver(kind, tmp_path) as saver, saver.core.runs.begun() as run:
        saver.get_tuple({"configurable": {**config()["configurable"], RUN: run.name}})
        put(saver, config(), id="1")
        put(saver, {"configurable": {**config(ns="inner")["configurable"], RUN: run.name}}, id="2")
        assert saver.counts == {"conflict": 1}
        saver.sweep(EVERY_ENTRY)
        assert ids(saver.list(THREAD)) == ["2", "1"]


@each_saver
@pytest.mark.parametrize("removal", ["copied", "pruned"])
def test_a_checkpoint_that_a_cut_kept_may_be_put_again_and_swept(kind: str, removal: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, put(saver, config("from"), id="1"), id="2")
        if removal == "pruned":
            saver.prune(["from"])
        saver.copy_thread("from", "t")
        put(saver, config(), {"a": "again"}, id="2")
        saver.sweep(EVERY_ENTRY)
        put(saver, config(id="2"), id="3")
        saver.sweep(EVERY_ENTRY)
    with open_saver(kind, tmp_path) as saver:
        assert ids(saver.list(THREAD))[:2] == ["3", "2"]
        saver.prune(["t"])
        saver.sweep(EVERY_ENTRY)
        assert ids(saver.list(THREAD)) == ["3"]


@each_saver
def test_a_copy_that_was_cut_is_listed_in_the_order_of_its_commits(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, put(saver, config("from"), id="1", run_id="r"), id="2")
        saver.copy_thread("from", "t")
        put(saver, config(id="2"), id="3")
        saver.delete_for_runs(["r"])
        assert ids(saver.list(THREAD)) == ["3", "2"]
    with open_saver(kind, tmp_path) as saver:
        assert ids(saver.list(THREAD)) == ["3", "2"]
        assert ids(saver.list(THREAD, before=config(id="3"))) == ["2"]


@each_saver
def test_what_is_carried_over_is_of_the_checkpoint_that_another_saver_has_put_since(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver, open_saver(kind, tmp_path) as other:
        put(saver, config(), {"a": "old" * 50_000}, id="1", versions={"a": 1})
        put(other, config(), {"a": "new" * 50_000}, id="1", versions={"a": 1})
        put(saver, config(id="1"), {}, id="2", versions={"a": 1}, changed={})
        saver.sweep(EVERY_ENTRY)
        assert saver.get_tuple(config()).checkpoint["channel_values"] == {"a": "new" * 50_000}


@each_saver
def test_a_reader_that_is_closed_does_not_keep_others_from_opening_the_store(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(), id="1")
        open_saver(kind, tmp_path, read_only=True).close()
        with open_saver(kind, tmp_path) as other:
            assert ids(other.list(THREAD)) == ["1"]


@each_saver
def test_a_thread_that_has_only_pending_writes_is_deleted_too(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        saver.put_writes(config(id="1"), [("a", "secret" * 20_000)], "task")
        saver.delete_thread("t")
        assert [key for key in saver.core.kv.keys("t/") if "/w/" in key or "/b/" in key] == []
        put(saver, config(), id="1")
        assert saver.get_tuple(config()).pending_writes == []


@each_saver
@pytest.mark.parametrize("by", ["copy", "import"])
def test_late_writes_of_a_deleted_thread_are_not_in_what_is_brought_back(kind: str, by: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        saver.put_writes(put(saver, config(), id="1"), [("a", "kept")], "task")
        saver.copy_thread("t", "archive")
        lines = export(saver, "t")
        saver.delete_thread("t")
        saver.put_writes(config(id="1"), [("a", "late")], "task")
        saver.put_writes(config(id="1"), [("a", "late")], "other task")
        if by == "copy":
            saver.copy_thread("archive", "t")
        else:
            imported(saver.core, lines)
        assert saver.get_tuple(config()).pending_writes == [("task", "a", "kept")]


@each_saver
def test_what_tasks_of_two_versions_have_written_is_in_the_order_of_the_tasks(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, schema=schema(1)) as saver:
        at = put(saver, config(), {"a": 1}, id="1")
        saver.put_writes(at, [("a", "old")], "t1", "~1")
    with open_saver(kind, tmp_path, schema=schema(2)) as saver:
        saver.put_writes(at, [("a2", "new")], "t0", "~0")
        saver.put_writes(at, [("__resume__", "yes")], "t1", "~1")
        saver.put_writes(at, [("a2", numpy.array([1, 2])), ("a2", numpy.array([3, 4]))], "t2", "~2")
        written = saver.get_tuple(config()).pending_writes
    assert [(task, channel) for task, channel, _value in written] == [
        ("t0", "a2"),
        ("t1", "__resume__"),
        ("t1", "a2"),
        ("t2", "a2"),
        ("t2", "a2"),
    ]
    assert [value.tolist() for _task, _channel, value in written[3:]] == [[1, 2], [3, 4]]


def saver_on(files: MemoryFiles) -> CoreSaver:
    files.folders.add(ROOT)
    files.durable_folders.add(ROOT)
    return CoreSaver(SaverCore(FolderKv(ROOT, files=files), StrictSerde(), system_world(), SIZES))


def first(saver: CoreSaver) -> None:
    put(saver, config(), {"a": "x" * 200}, id="1")


def second(saver: CoreSaver) -> None:
    put(saver, config(id="1"), {"b": "y" * 200}, id="2")


def writes(saver: CoreSaver) -> None:
    saver.put_writes(config(id="1"), [("a", "z" * 200)], "task")


@pytest.mark.parametrize("command", [second, writes])
def test_what_failed_to_be_synced_and_is_put_again_survives_a_loss_of_power(command: Any) -> None:
    at, has_failed = 0, True
    while has_failed:
        at += 1
        files = MemoryFiles()
        saver = saver_on(files)
        first(saver)
        files.fail_at, files.error, files.after = files.calls + at, errno.EIO, False
        try:
            command(saver)
        except (StorageError, OutcomeUnknown):
            command(saver)
        has_failed = files.fired
        files.lose_power()
        again = saver_on(files)
        assert ids(again.list(THREAD)) == (["2", "1"] if command is second else ["1"])
        assert len(again.get_tuple(config(id="1")).pending_writes) == (command is writes)
    assert at > 5


def test_a_value_that_another_process_has_put_and_not_synced_is_synced_before_it_is_named() -> None:
    files = MemoryFiles()
    saver = saver_on(files)
    first(saver)
    for name in [name for name in files.durable_names if "/b/" in name]:
        del files.durable_names[name]  # as of one who died between making it and syncing its folder
    put(saver_on(files), config(id="1"), {"a": "x" * 200}, id="2")
    files.lose_power()
    assert saver_on(files).get_tuple(config()).checkpoint["channel_values"] == {"a": "x" * 200}


def test_after_a_write_that_failed_nothing_is_taken_for_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_saver("rocks", tmp_path) as saver:
        put(saver, config(), {"a": 1}, id="1")
        kv = saver.core.kv
        assert isinstance(kv, RocksKv)

        def fail(_write: int) -> None:
            raise OSError("no sync")

        with monkeypatch.context() as patch:
            patch.setattr(kv._db, "_sync", fail)
            with pytest.raises(StorageError):
                put(saver, config(id="1"), {"a": 2}, id="2")
        assert saver.get_tuple(config()).checkpoint["id"] == ids(saver.list(THREAD))[0]
        put(saver, config(id="1"), {"a": 3}, id="3")
        assert sorted(ids(saver.list(THREAD))) == ["1", "2", "3"]
