"""Threads that are damaged: each can be deleted, unread, and none keeps a command from the other threads."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from flowpoint.agents.kv import part, text_of
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.schema import Schema
from flowpoint.cli.main import execute
from flowpoint.errors import BadRecordError, ConcurrentRunError, DamagedStoreError, SealError, StorageError
from tests.unit.agents import test_folder_faults as faults
from tests.unit.agents.faulty_files import MemoryFiles, PowerLost
from tests.unit.agents.memory_kv import LogOnly, MemoryKv, saver_on
from tests.unit.agents.stores import config, each_saver, ids, open_saver, put
from tests.unit.agents.test_hostile_entries import ENTRIES, KEYS, fill

each_kind = pytest.mark.parametrize("kind", [MemoryKv, LogOnly], ids=["index", "log"])


class State(TypedDict):
    a: Any


LEFT_OF_A_DELETED_THREAD = ("t/t/c/", "t/t/g/", "t/t/x", "t/t/n")


def damages(entries: dict[str, bytes]) -> Iterator[Callable[[Any], None]]:
    """Every entry of thread t gone, cut short, empty, another's, or under a name that is none."""
    of_t = [key for key in entries if key.startswith("t/t/")]
    values = [key for key in of_t if key.startswith("t/t/b/")]
    for key in sorted(set(of_t).difference(values[2:])):  # one value is like another
        data = entries[key]
        for bad in (
            data[: len(data) // 2],
            b"",
            b"\xff" * 9,
            entries[of_t[0]],
            entries.get(key.replace("t/t/", "t/u/"), b"1"),
        ):
            yield lambda kv, key=key, bad=bad: kv.write([(key, bad)])
        yield lambda kv, key=key: kv.write([], [key])
        yield lambda kv, key=key, data=data: kv.write([(f"{key}x", data)], [key])


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
@each_kind
def test_whatever_is_damaged_in_a_thread_it_can_be_deleted_and_begun_anew(kind: Any, keys: Any) -> None:
    entries = ENTRIES[kind, keys is not None]
    others = {key: data for key, data in entries.items() if not key.startswith("t/t/")}
    for damage in damages(entries):
        kv = kind()
        kv.write(entries.items())
        damage(kv)

        saver_on(kv, keys).delete_thread("t")

        saver = saver_on(kv, keys)
        assert list(saver.list({"configurable": {"thread_id": "t"}})) == []
        left = {key for key, _ in kv.scan("") if key not in others}
        assert all(key.startswith(LEFT_OF_A_DELETED_THREAD) for key in left), left
        assert sum(key.startswith("t/t/c/") for key in left) == 1
        assert {key: kv.get(key) for key in others} == others
        with pytest.raises(ConcurrentRunError, match="was deleted"):
            put(saver, config(id="2"), {"a": 3}, id="late")
        put(saver, config(), {"a": 1}, id="new")
        assert ids(saver.list(config())) == ["new"]


def test_a_thread_of_a_real_folder_with_a_bad_checksum_can_be_deleted_while_others_follow_it(tmp_path: Path) -> None:
    with open_saver("folder", tmp_path) as follower, open_saver("folder", tmp_path) as saver:
        fill(follower)
        for path in (tmp_path / "folder/t/t").rglob("*"):
            if path.is_file():
                path.write_bytes(b"rotten")

        saver.delete_thread("t")

        assert list(follower.list(config())) == []
        put(follower, config(), {"a": 1}, id="new")
        assert ids(saver.list(config())) == ["new"]


@pytest.mark.parametrize("lost", [False, True], ids=["damaged", "missing"])
@pytest.mark.parametrize("kind", faults.KINDS)
def test_deleting_a_damaged_thread_that_fails_anywhere_has_happened_as_a_whole_or_not(
    kind: dict[str, Any], lost: bool
) -> None:
    begun = MemoryFiles()
    faults.begin(faults.saver_on(begun))
    newest = max(name for name in begun.names if "/t/t/c/" in name)

    def damaged(files: MemoryFiles) -> None:
        third = newest[:-1] + "3"
        if lost:
            del files.names[third], files.durable_names[third]
        else:
            files.data[files.names[third]] = files.durable_data[files.names[third]] = b"rotten"

    def is_there(saver: CoreSaver) -> bool:
        try:
            return bool(faults.thread_of(saver, "t")[1])
        except DamagedStoreError:
            return True

    def scenario(files: MemoryFiles) -> None:
        at, files.fail_at = files.fail_at, 0
        files.restore(begun)
        follower, stale = faults.saver_on(files), faults.saver_on(files)
        assert faults.thread_of(follower, "t") == faults.thread_of(stale, "t")
        damaged(files)
        saver = faults.saver_on(files)
        files.fail_at = files.calls + at
        acknowledged = False
        try:
            saver.delete_thread("t")
            acknowledged = True
        except (StorageError, PowerLost):
            files.fail_at = 0
        fired, files.fail_at = files.fired, 0
        if kind["error"] == 0:
            files.lose_power()
        seen = is_there(faults.saver_on(files))
        assert not (acknowledged and seen)
        if not seen:
            assert not is_there(follower), "who follows the log sees it, too"
            put(follower, config(), {"a": 1}, id="new")
            assert ids(faults.saver_on(files).list(config())) == ["new"]
        faults.saver_on(files).delete_thread("t")
        assert not is_there(faults.saver_on(files))
        assert sum("/t/t/c/0" in name for name in files.names) == 1
        put(stale, config(), {"a": 1}, id="newer")
        assert ids(faults.saver_on(files).list(config())) == ["newer"]
        files.calls, files.fired = at if fired else 0, fired

    assert faults.with_every_failure(kind, scenario) > 5


def test_a_failed_deletion_does_not_make_the_same_saver_take_a_damaged_thread_for_empty() -> None:
    def scenario(files: MemoryFiles) -> None:
        at, files.fail_at = files.fail_at, 0
        faults.begin(faults.saver_on(files))
        files.data[files.names["/store/t/t/c/000000000002"]] = b"rotten"
        saver = faults.saver_on(files)
        files.fail_at = files.calls + at
        with suppress(StorageError):
            saver.delete_thread("t")
        fired, files.fail_at = files.fired, 0
        same, other = [_outcome(one) for one in (saver, faults.saver_on(files))]
        assert same == other
        files.calls, files.fired = at if fired else 0, fired

    assert faults.with_every_failure({"error": errno.EIO, "after": True}, scenario) > 5


def test_who_follows_a_log_up_to_a_gap_loses_nothing_when_the_deletion_is_interrupted() -> None:
    def scenario(files: MemoryFiles) -> None:
        at, files.fail_at = files.fail_at, 0
        writer, follower = faults.saver_on(files), faults.saver_on(files)
        put(writer, put(writer, config(), id="a"), id="b")
        assert ids(follower.list(config())) == ["b", "a"]
        put(writer, put(writer, config(id="b"), id="c"), id="d")
        del files.names["/store/t/t/c/000000000003"]
        saver = faults.saver_on(files)
        files.fail_at = files.calls + at
        with suppress(StorageError):
            saver.delete_thread("t")
        fired, files.fail_at = files.fired, 0
        if _outcome(faults.saver_on(files)) == []:
            put(follower, config(), {"a": 1}, id="new")
            assert ids(faults.saver_on(files).list(config())) == ["new"]
        files.calls, files.fired = at if fired else 0, fired

    assert faults.with_every_failure({"error": errno.EIO, "lasting": True}, scenario) > 5


def _outcome(saver: CoreSaver) -> object:
    try:
        return ids(saver.list(config()))
    except DamagedStoreError as error:
        return str(error)


# ---------------------------------------------------------------------- the other threads


def three_threads(saver: CoreSaver) -> None:
    for thread in ("s", "t", "u"):
        first = put(saver, config(thread), {"a": 1}, id=f"{thread}1", run_id="old")
        put(saver, first, {"a": 2}, id=f"{thread}2", run_id="new")
        saver.put_writes(config(thread, id="never"), [("a", 1)], "task")


def spoil(saver: CoreSaver, below: str) -> None:
    """Cut short what is last below a prefix of thread t."""
    key, data = next(saver.core.kv.scan(f"t/t/{below}/", reverse=True))
    saver.core.kv.write([], [key])
    saver.core.kv.write([(key, data[: len(data) // 2])])


def with_a_damaged_thread(kind: str, tmp_path: Path, below: str = "c") -> CoreSaver:
    with open_saver(kind, tmp_path) as saver:
        three_threads(saver)
        spoil(saver, below)
    return open_saver(kind, tmp_path)


@each_saver
def test_a_list_of_all_threads_gives_what_is_whole_and_then_names_the_damaged_ones(kind: str, tmp_path: Path) -> None:
    with with_a_damaged_thread(kind, tmp_path) as saver:
        found = saver.list(None)
        assert [next(found).checkpoint["id"] for _ in range(4)] == ["u2", "u1", "s2", "s1"]
        with pytest.raises(DamagedStoreError, match="'t'"):
            next(found)
        with pytest.raises(DamagedStoreError, match="'t'"):
            list(saver.list(None, limit=1))
        with pytest.raises(DamagedStoreError):
            list(saver.list(config()))


@each_saver
def test_expiring_sweeping_and_deleting_runs_do_the_other_threads_first(kind: str, tmp_path: Path) -> None:
    with with_a_damaged_thread(kind, tmp_path) as saver:
        with pytest.raises(DamagedStoreError, match="'t'"):
            saver.sweep(timedelta(0))
        assert [entry for thread in "su" for entry in saver.core.kv.keys(f"t/{thread}/w/")] == []

        with pytest.raises(DamagedStoreError, match="'t'"):
            saver.expire(keep_last=1)
        assert [ids(saver.list(config(thread))) for thread in "su"] == [["s2"], ["u2"]]

        with pytest.raises(DamagedStoreError, match="'t'"):
            saver.delete_for_runs(["new"])
        assert [ids(saver.list(config(thread))) for thread in "su"] == [[], []]

        saver.delete_thread("t")
        assert (list(saver.list(None)), saver.expire(keep_last=1), saver.sweep(timedelta(0))) == ([], 0, 0)


@each_saver
def test_threads_that_are_named_are_expired_and_pruned_though_one_is_damaged(kind: str, tmp_path: Path) -> None:
    with with_a_damaged_thread(kind, tmp_path) as saver:
        with pytest.raises(DamagedStoreError, match="'t'"):
            saver.prune(["t", "s"])
        with pytest.raises(DamagedStoreError, match="'t'"):
            saver.expire(["t", "u"], keep_last=1)
        assert [ids(saver.list(config(thread))) for thread in "su"] == [["s2"], ["u2"]]


@each_saver
def test_of_many_damaged_threads_every_one_is_named_and_the_reason_of_each_is_logged(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_saver(kind, tmp_path) as saver:
        threads = [f"Thread {number}" for number in range(30)]
        for thread in threads:
            put(saver, config(thread), id="a")
            name = f"t/{part(thread)}/c/{1:012d}"
            saver.core.kv.write([], [name])
            saver.core.kv.write([(name, b"rotten")])
        three_threads(saver)
    with open_saver(kind, tmp_path) as saver:
        with pytest.raises(DamagedStoreError) as refused:
            saver.expire(keep_last=1)
        assert all(repr(thread) in str(refused.value) for thread in threads)
        assert all(repr(thread) in caplog.text for thread in threads)
        assert "'s'" not in str(refused.value)


@each_saver
def test_a_value_or_a_write_that_is_damaged_costs_a_list_of_all_only_its_own_checkpoint(
    kind: str, tmp_path: Path
) -> None:
    with with_a_damaged_thread(kind, tmp_path, "w") as saver:
        put(saver, config(), {"a": "x" * 70_000}, id="t3")
        spoil(saver, "b")
    with open_saver(kind, tmp_path) as saver:
        seen = []
        with pytest.raises((DamagedStoreError, BadRecordError, SealError), match="'t'"):
            for one in saver.list(None):
                seen.append(one.checkpoint["id"])
        assert seen == ["u2", "u1", "t2", "t1", "s2", "s1"]


@each_saver
def test_at_the_shell_the_others_are_listed_and_pruned_and_the_damaged_one_is_deleted(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_a_damaged_thread(kind, tmp_path).close()
    store = str(tmp_path / kind)

    assert execute(["threads", "list", store]) == 1
    shown = capsys.readouterr()
    assert [line.split()[0] for line in shown.out.splitlines()] == ["THREAD", "s", "u"]
    assert "'t' cannot be read" in shown.err
    assert execute(["threads", "prune", store, "--keep-last", "1"]) == 1
    assert execute(["threads", "delete", store, "t"]) == 0
    capsys.readouterr()
    assert execute(["threads", "list", store, "--json"]) == 0
    assert [(t["thread"], t["checkpoints"]) for t in json.loads(capsys.readouterr().out)] == [("s", 1), ("u", 1)]


WHAT_IS_DAMAGED = {"a commit": "c", "a pending write": "w", "a value": "b"}


@pytest.mark.parametrize("below", WHAT_IS_DAMAGED.values(), ids=WHAT_IS_DAMAGED)
@each_saver
def test_an_export_has_every_other_thread_whole_and_then_names_the_damaged_one(
    kind: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_saver(kind, tmp_path) as saver:
        three_threads(saver)
        last = put(saver, config(id="t2"), {"a": "x" * 70_000}, id="t3")
        saver.put_writes(last, [("a", 1)], "task")
        spoil(saver, below)

    assert execute(["threads", "export", str(tmp_path / kind)]) == 1

    shown = capsys.readouterr()
    exported = [json.loads(line) for line in shown.out.splitlines()]
    assert [(line["thread"], line["id"]) for line in exported] == [("s", "s1"), ("s", "s2"), ("u", "u1"), ("u", "u2")]
    assert "cannot export all threads: 't' cannot be read" in shown.err
    assert execute(["threads", "export", str(tmp_path / kind), "t"]) == 1
    assert capsys.readouterr().out == ""


SCHEMA = Schema.of(StateGraph(State).add_node("n", lambda state: {}).add_edge(START, "n"), version=1)


@pytest.mark.parametrize("below", ["c", "w"])
@each_saver
def test_a_check_of_a_schema_looks_at_every_other_thread_and_then_names_the_damaged_one(
    kind: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_saver(kind, tmp_path) as saver:
        three_threads(saver)
        saver.put_writes(config(id="t2"), [("a", 1)], "task")
        spoil(saver, below)
    check = ["threads", "migrate", str(tmp_path / kind), "--check", "--schema", f"{__name__}:SCHEMA"]

    assert execute([*check, "--json"]) == 1

    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["migrated"] == 2
    assert "'t'" in shown.err + str(report["refused"])


def test_a_history_shows_what_can_be_read_and_marks_what_cannot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_saver("rocks", tmp_path) as saver:
        at = put(saver, config(), {"a": 1}, id="1")
        for id_ in ("2", "3"):
            at = put(saver, at, {"a": 1}, id=id_)
        key = next(key for key in saver.core.kv.keys("t/t/c/", reverse=True) if key.endswith("2"))
        data = saver.core.kv.get(key)
        assert data is not None
        saver.core.kv.write([(key, data[: len(data) // 2])])
    history = ["threads", "history", str(tmp_path / "rocks"), "t"]

    assert execute([*history, "--json"]) == 1

    shown = capsys.readouterr()
    assert [(line["id"], line["damaged"] is None) for line in json.loads(shown.out)] == [
        ("3", True),
        ("2", False),
        ("1", True),
    ]
    assert "cannot read 1 of the 3 checkpoints of thread 't'" in shown.err
    assert execute(history) == 1
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]][:2] == ["head", "damaged"]
    assert execute(["threads", "show", str(tmp_path / "rocks"), "t", "--at", "1"]) == 0


@each_saver
def test_a_history_needs_no_value(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(), {"a": "x" * 70_000}, id="1")
        spoil(saver, "b")
    assert execute(["threads", "history", str(tmp_path / kind), "t", "--json"]) == 0
    assert [line["id"] for line in json.loads(capsys.readouterr().out)] == ["1"]


@each_saver
def test_who_has_no_key_is_asked_for_it_and_not_told_to_delete_the_threads(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_saver(kind, tmp_path, keys=KEYS) as saver:
        three_threads(saver)
    assert execute(["threads", "list", str(tmp_path / kind)]) == 1
    error = capsys.readouterr().err
    assert "Open the store with all its keys" in error
    assert "delete" not in error


@pytest.mark.parametrize("text", ["user-7", "", "A/b %~é\udc80", "." * 3])
def test_the_text_of_a_part_comes_back_unless_it_was_cut(text: str) -> None:
    assert text_of(part(text)) == text
    assert text_of(part("X" * 500)).startswith("%58")
