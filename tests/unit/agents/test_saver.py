"""What a saver does beyond LangGraph's suite: order, clocks, filters, sizes, forks, types of versions."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
import threading
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver

from flowpoint import agents
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.values import join_list, split_list
from flowpoint.errors import (
    BadRecordError,
    ConcurrentRunError,
    ConfigError,
    DamagedStoreError,
    StoreInUseError,
    UnknownTypeError,
    UsageError,
)
from tests.unit.agents.stores import SAVERS, config, each_saver, ids, open_saver, put


@each_saver
def test_the_head_is_by_commit_when_the_clock_goes_back(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        first = put(saver, config(), id="9-tomorrow")
        put(saver, first, id="1-yesterday")

        assert saver.get_tuple(config()).checkpoint["id"] == "1-yesterday"
        assert ids(saver.list(config())) == ["1-yesterday", "9-tomorrow"]
        assert ids(saver.list(config(), before=config(id="1-yesterday"))) == ["9-tomorrow"]


@each_saver
def test_before_may_be_an_id_of_another_namespace_or_of_none(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        at = config(ns="sub:1")
        for id_ in ("a", "c", "e"):
            at = put(saver, at, id=id_)

        put(saver, config(), id="d")
        assert ids(saver.list(config(ns="sub:1"), before=config(id="d"), limit=1)) == ["c"]
        assert ids(saver.list(config(ns="sub:1"), before=config(id="b"))) == ["a"]
        assert ids(saver.list(config(ns="sub:1"), before={"configurable": {}})) == ["e", "c", "a"]
        assert ids(saver.list({"configurable": {"thread_id": "t"}})) == ["e", "d", "c", "a"]


@each_saver
def test_limits_and_filters_are_plain(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        metadata = {"d": {"k": [1, 2]}, "a.b": "dot", "x'": 1}
        put(saver, config("t1"), id="a", **metadata)
        put(saver, config("t2"), id="b")

        with pytest.raises(ValueError, match="-1"):
            saver.list(None, limit=-1)
        assert ids(saver.list(None, limit=0)) == []
        assert ids(saver.list(None)) == ["b", "a"]
        for wanted, count in (({"d.k": [1, 2]}, 0), ({"a.b": "dot"}, 1), ({"x'": 2}, 0), ({"missing": None}, 2)):
            assert len(list(saver.list(None, filter=wanted))) == count
        assert ids(saver.list(None, filter={"d": {"k": [1, 2]}})) == ["a"]


@each_saver
def test_no_value_that_was_handed_to_put_is_dropped(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        first = put(saver, config(), {"a": 1, "b": 2}, versions={"a": 1, "b": 1})
        second = put(saver, first, {"a": 3, "quiet": 4}, versions={"a": 2, "b": 1}, changed={"a": 2})
        put(saver, second, {"a": 3}, versions={"a": 2, "b": 2}, changed={"b": 2})

        assert saver.get_tuple(second).checkpoint["channel_values"] == {"a": 3, "b": 2, "quiet": 4}
        assert saver.get_tuple(config()).checkpoint["channel_values"] == {"a": 3}


@each_saver
def test_a_fork_leaves_the_values_of_the_old_branch_alone(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        base = put(saver, config(), {"a": "in"}, versions={"a": 1})
        tip = put(saver, base, {"a": "old"}, versions={"a": 2}, changed={"a": 2})
        put(saver, base, {"a": "edited"}, versions={"a": 2}, changed={"a": 2})

        assert saver.get_tuple(tip).checkpoint["channel_values"] == {"a": "old"}


@each_saver
def test_a_large_value_is_stored_once(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        large, at = os.urandom(100_000), config()
        for step in range(50):
            at = put(
                saver, at, {"large": large, "step": step}, versions={"large": 1, "step": step}, changed={"step": step}
            )
        saver.put_writes(at, [("large", large)], "task")

        stored = sum(len(value) for _key, value in saver.core.kv.scan("t/"))
        assert stored < 350_000
        assert saver.get_tuple(at).checkpoint["channel_values"] == {"large": large, "step": 49}
        assert saver.get_tuple(at).pending_writes == [("task", "large", large)]


@each_saver
def test_lists_of_every_length_come_back_and_share_their_parts(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        at, lists = config(), []
        whole = [f"{i}:" + "m" * 300 for i in range(5000)]
        for start, end in ((0, 0), (0, 1), (0, 300), (0, 301), (1, 302), (0, 5000), (2500, 5000)):
            value = whole[start:end]
            at = put(saver, at, {"messages": value})
            lists.append((at, value))
        one_more = sum(1 for _ in saver.core.kv.keys("t/t/b/"))
        put(saver, at, {"messages": [*whole[2500:5000], "new"]})

        for where, value in lists:
            assert saver.get_tuple(where).checkpoint["channel_values"] == {"messages": value}
        assert sum(1 for _ in saver.core.kv.keys("t/t/b/")) - one_more <= 3


@each_saver
def test_writes_before_their_checkpoint_are_kept_and_make_no_thread_visible(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        saver.put_writes(config(id="c"), [("a", 1)], "task1")
        assert list(saver.list(None)) == []
        assert saver.get_tuple(config()) is None

        put(saver, config(), id="c")
        assert saver.get_tuple(config()).pending_writes == [("task1", "a", 1)]


@each_saver
def test_pending_writes_are_in_the_order_of_tasks_and_special_ones_are_replaced(kind: str, tmp_path: Path) -> None:
    expected = None
    for saver in (InMemorySaver(), open_saver(kind, tmp_path)):
        at = put(saver, config(), id="c")
        saver.put_writes(at, [("a", 1), ("b", 2)], "z-task", "~__pregel_pull, a")
        saver.put_writes(at, [("a", 9), ("b", 9), ("c", 3)], "z-task", "~__pregel_pull, a")
        saver.put_writes(at, [("a", 4)], "a-task", "~__pregel_pull, b")
        saver.put_writes(at, [("__resume__", "first")], "a-task")
        saver.put_writes(at, [("__resume__", "last")], "a-task")
        found = saver.get_tuple(config()).pending_writes
        assert expected is None or found == expected
        expected = found
    assert expected is not None and len(expected) == 5


@each_saver
def test_a_put_whose_answer_was_lost_can_be_repeated(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        base = put(saver, config(), id="a")
        checkpoint = empty_checkpoint()
        for _ in range(2):
            saver.put(base, checkpoint, {"step": 1}, {})
        assert ids(saver.list(config())) == [checkpoint["id"], "a"]
        assert saver.counts == {}


@each_saver
def test_versions_go_on_in_the_type_in_which_they_began(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        assert saver.get_next_version(None) == 1
        assert saver.get_next_version(7) == 8
        old = f"{7:032}.{0.123456:016}"
        new = saver.get_next_version(old)
        assert new > old
        assert saver.get_next_version(new) > new


@each_saver
async def test_sync_methods_work_from_inside_a_loop_and_async_ones_from_two(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(), id="a")
        assert (await saver.aget_tuple(config())).checkpoint["id"] == "a"

        def other_loop() -> None:
            assert asyncio.run(saver.aget_tuple(config())).checkpoint["id"] == "a"

        thread = threading.Thread(target=other_loop)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert ids([one async for one in saver.alist(None)]) == ["a"]


@each_saver
def test_copies_share_the_store_and_a_closed_saver_says_so(kind: str, tmp_path: Path) -> None:
    saver = open_saver(kind, tmp_path)
    twin = copy.copy(saver)
    put(twin.with_allowlist([("uuid", "UUID")]), config(), id="a")
    assert saver.get_tuple(config()).checkpoint["id"] == "a"

    saver.close()
    saver.close()
    with pytest.raises(UsageError, match="closed"):
        put(twin, config())


@each_saver
def test_a_saver_says_what_it_takes_and_refuses_what_it_does_not(kind: str, tmp_path: Path) -> None:
    parameters = inspect.signature(SAVERS[kind]).parameters
    wanted = {"types": (), "schema": None, "on_conflict": "branch", "keys": None, "on_event": None}
    assert {name: parameters[name].default for name in wanted} == wanted
    with pytest.raises(TypeError, match="on_conflikt"):
        open_saver(kind, tmp_path, on_conflikt="raise")


@each_saver
@pytest.mark.parametrize(
    ("options", "message"), [({"on_conflict": "rise"}, "on_conflict='rise'"), ({"keys": {}}, "keys")]
)
def test_an_option_that_cannot_be_used_is_refused_and_the_store_is_let_go_of(
    options: dict[str, Any], message: str, kind: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        open_saver(kind, tmp_path, **options)
    child = os.fork()
    if child == 0:
        try:
            put(open_saver(kind, tmp_path), config())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, refused


def test_every_name_of_the_package_can_be_imported_from_it() -> None:
    for name in agents.__all__:
        assert getattr(agents, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        agents.Nothing  # noqa: B018
    assert agents.ConcurrentRunError is ConcurrentRunError
    assert agents.UnknownTypeError is UnknownTypeError


class Opinion(Enum):
    YES = "yes"


@each_saver
def test_the_serde_of_a_saver_is_the_strict_one(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, types=[Opinion]) as saver, open_saver(kind, tmp_path) as stranger:
        stored = saver.serde.dumps_typed({"at": (1, Opinion.YES)})
        assert saver.serde.loads_typed(stored) == {"at": (1, Opinion.YES)}
        with pytest.raises(UnknownTypeError, match="Opinion"):
            stranger.serde.loads_typed(stored)
        knowing = stranger.with_allowlist([(__name__, "Opinion")])
        assert knowing.serde.loads_typed(stored) == {"at": (1, Opinion.YES)}
        with pytest.raises(BadRecordError, match="kind 'msgpack'"):
            saver.serde.loads_typed(("msgpack", b"\x80"))


@each_saver
def test_without_a_schema_the_log_says_once_that_nothing_is_checked(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "flowpoint.agents")
    with open_saver(kind, tmp_path) as saver:
        put(copy.copy(saver).with_allowlist([("uuid", "UUID")]), config())
        list(saver.list(None))
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["no schema"]


@each_saver
def test_after_a_fork_the_child_is_refused(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        put(saver, config(), id="a")
        child = os.fork()
        if child == 0:
            try:
                put(saver, config(), id="b")
            except UsageError as error:
                os._exit(0 if "before a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert ids(saver.list(None)) == ["a"]


def test_a_second_process_is_told_who_has_the_database_open(tmp_path: Path) -> None:
    with RocksSaver(tmp_path):
        child = os.fork()
        if child == 0:
            try:
                RocksSaver(tmp_path)
            except StoreInUseError as error:
                os._exit(0 if str(os.getppid()) in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


@each_saver
def test_a_reader_beside_the_writer_sees_what_it_writes_and_cannot_write(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no store of threads"):
        open_saver(kind, tmp_path, read_only=True)
    with open_saver(kind, tmp_path) as saver, open_saver(kind, tmp_path, read_only=True) as reader:
        assert reader.get_tuple(config()) is None
        at = put(saver, config(), {"large": "x" * 100_000}, id="a")
        assert ids(reader.list(None)) == ["a"]
        saver.put_writes(at, [("w", 1)], "task")
        put(saver, at, id="b", step=1)
        assert ids(reader.list(None)) == ["b", "a"]
        assert reader.get_tuple(at).pending_writes == [("task", "w", 1)]
        for change in (
            lambda: put(reader, config()),
            lambda: reader.put_writes(at, [("w", 2)], "other"),
            lambda: reader.delete_thread("t"),
            lambda: reader.prune(["t"]),
            lambda: reader.copy_thread("t", "u"),
        ):
            with pytest.raises(UsageError, match="read-only"):
                change()
        saver.prune(["t"])
        assert ids(reader.list(None)) == ["b"]


def test_a_folder_is_read_without_the_right_to_write_there(tmp_path: Path) -> None:
    """Root may write anywhere: what it would have changed is looked at instead."""
    with FolderSaver(tmp_path) as saver:
        put(saver, config(), {"large": "x" * 100_000}, id="a")
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    before = {path: path.stat().st_mtime_ns for path in folders}
    for path in folders:
        path.chmod(0o500)
    try:
        with FolderSaver(tmp_path, read_only=True) as reader:
            assert ids(reader.list(None)) == ["a"]
            assert reader.get_tuple(config()) is not None
    finally:
        for path in folders:
            path.chmod(0o700)
    assert {path: path.stat().st_mtime_ns for path in folders} == before


def test_two_savers_of_one_program_share_a_database(tmp_path: Path) -> None:
    with RocksSaver(tmp_path) as one, RocksSaver.from_conn_string(f"rocks://{tmp_path}") as other:
        put(one, config(), id="a")
        assert ids(other.list(None)) == ["a"]
    with RocksSaver(tmp_path) as again:
        assert ids(again.list(None)) == ["a"]


@each_saver
def test_two_savers_of_one_program_see_each_others_commits_at_once(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as one, open_saver(kind, tmp_path) as other:
        at = put(one, config(), id="0")
        for number in range(1, 7):
            saver = (one, other)[number % 2]
            assert saver.get_tuple(config()).checkpoint["id"] == f"{number - 1}"
            at = put(saver, at, id=f"{number}")
        other.prune(["t"])
        assert ids(one.list(None)) == ["6"]
        one.delete_thread("t")
        assert other.get_tuple(config()) is None
        assert (one.counts, other.counts) == ({}, {})


def test_names_of_threads_that_are_no_names_of_files_are_kept_apart(tmp_path: Path) -> None:
    names = ["", "a/b", "a", "A", "..", ".", "x" * 1000, "x" * 999 + "y", "ä", "%", "\x00"]
    with FolderSaver(tmp_path) as saver:
        for name in names:
            put(saver, config(name, ns=name), id=f"id {name}")
        assert sorted(saver.core.reader.threads()) == sorted(names)
        for name in names:
            assert ids(saver.list(config(name, ns=name))) == [f"id {name}"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with FolderSaver(tmp_path) as saver:
        put(saver, config(), id="a")
        path = next((tmp_path / "t" / "t" / "c").iterdir())
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with FolderSaver(tmp_path) as fresh, pytest.raises(DamagedStoreError, match=path.name):
            fresh.get_tuple(config())


def test_a_commit_that_was_moved_to_another_thread_is_refused(tmp_path: Path) -> None:
    keys = {"k": bytes(16)}
    with FolderSaver(tmp_path, keys=keys) as saver:
        put(saver, config("mine"), {"secret": 1})
        put(saver, config("yours"), {"secret": 2})
        mine, yours = (tmp_path / "t" / name / "c" / f"{1:012}" for name in ("mine", "yours"))
        yours.write_bytes(mine.read_bytes())
    with FolderSaver(tmp_path, keys=keys) as saver, pytest.raises(DamagedStoreError, match="moved"):
        saver.get_tuple(config("yours"))


def reopened(saver: CoreSaver, kind: str, tmp_path: Path) -> CoreSaver:
    saver.close()
    return open_saver(kind, tmp_path)


@each_saver
def test_everything_is_there_after_reopening(kind: str, tmp_path: Path) -> None:
    saver = open_saver(kind, tmp_path)
    at = put(saver, config(), {"a": (1, {2})}, id="a")
    saver.put_writes(at, [("b", 3)], "task")
    with reopened(saver, kind, tmp_path) as saver:
        found = saver.get_tuple(config())
        assert found.checkpoint["channel_values"] == {"a": (1, {2})}
        assert found.pending_writes == [("task", "b", 3)]


def test_the_bytes_of_a_list_are_those_of_its_elements() -> None:
    serde = StrictSerde()
    for value in ([], [1], ["x" * 40] * 20, [(1, {2}), [None, [3]], {"a": b"b"}] * 30_000):
        data = serde.encode(value, thread="t", channel="c")
        elements = split_list(data)
        assert elements == [serde.encode(one, thread="t", channel="c") for one in value]
        assert join_list(elements) == data
