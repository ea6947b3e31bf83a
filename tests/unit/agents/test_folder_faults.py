"""The folder store under every failure and every loss of power: what was acknowledged is there, and whole."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flowpoint.agents import exchange, files, folder, retention, shell, shell_fork
from flowpoint.agents.core import SaverCore
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import system_world
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.errors import StorageError, UsageError
from flowpoint.host.disk import make_durable
from tests.unit.agents.faulty_files import MemoryFiles, PowerLost
from tests.unit.agents.stores import config, export, ids, put

ROOT = "/store"
CALLS_MAX = 2000
SERDE = StrictSerde()
SIZES = replace(folder.SIZES, changed=100, kept=100, written=100)
"""Values of 200 bytes stand apart: the failures are the same as of large ones, and sooner over."""
KINDS = [
    pytest.param({"error": errno.EIO}, id="one error"),
    pytest.param({"error": errno.EIO, "after": True}, id="one error, though it was done"),
    pytest.param({"error": errno.ENOSPC, "lasting": True}, id="no more space"),
    pytest.param({"error": 0, "lasting": True}, id="power lost before"),
    pytest.param({"error": 0, "after": True, "lasting": True}, id="power lost after"),
]


def saver_on(files: MemoryFiles) -> CoreSaver:
    files.folders.add(ROOT)
    files.durable_folders.add(ROOT)
    kv = FolderKv(ROOT, files=files)
    return CoreSaver(SaverCore(kv, SERDE, system_world(), SIZES))


class Story:
    """Puts and prunes, and what was acknowledged of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.pruned_from = 0
        self.tried = ""

    def tell(self, saver: CoreSaver) -> None:
        at = config()
        for step, name in enumerate(("a", "b", "c")):
            if name == "c":
                self.pruned_from = 1
                saver.prune(["t"])
            self.tried = name
            at = put(saver, at, {"large": name * 200, "step": step}, id=name)
            saver.put_writes(at, [("w", name)], f"task {name}")
            self.done.append(name)

    def check(self, saver: CoreSaver) -> None:
        """Everything acknowledged is there, except what may have been pruned, and whole."""
        there = ids(saver.list(config()))
        kept = self.done[self.pruned_from :]
        assert set(kept) <= set(there) <= {*self.done, self.tried}
        for name in there:
            found: Any = saver.get_tuple(config(id=name))
            assert found.checkpoint["channel_values"]["large"] == name * 200
            if name in self.done:
                assert found.pending_writes == [(f"task {name}", "w", name)]
        if there:
            head: Any = saver.get_tuple(config())
            assert head.checkpoint["id"] == there[0]
            put(saver, head.config, {"large": "z"}, id="z")
            assert ids(saver.list(config()))[0] == "z"
            retention.sweep(saver.core)
            saver.prune(["t"])
            assert ids(saver.list(config())) == ["z"]


def with_every_failure(kind: dict[str, Any], scenario: Callable[[MemoryFiles], None]) -> int:
    for at in range(1, CALLS_MAX):
        files = MemoryFiles(fail_at=at, **kind)
        scenario(files)
        if not files.fired and files.calls < at:
            return at
    raise AssertionError(f"still failing after {CALLS_MAX} calls")


@pytest.mark.parametrize("kind", KINDS)
def test_after_any_failure_and_a_loss_of_power_what_was_acknowledged_is_there(kind: dict[str, Any]) -> None:
    def scenario(files: MemoryFiles) -> None:
        story = Story()
        try:
            story.tell(saver_on(files))
        except (StorageError, PowerLost):
            files.fail_at = 0
        fired = files.fired
        files.lose_power()
        files.fired = fired
        story.check(saver_on(files))

    assert with_every_failure(kind, scenario) > 60


def test_a_put_that_failed_can_be_repeated_by_the_same_saver() -> None:
    def scenario(files: MemoryFiles) -> None:
        at = files.fail_at
        files.fail_at = 0
        saver = saver_on(files)
        base = put(saver, config(), {"a": "x" * 200}, id="a")
        files.fail_at = files.calls + at
        for _ in range(2):
            with suppress(StorageError):
                put(saver, base, {"a": "y" * 200}, id="b")
        fired, files.fail_at = files.fired, 0
        assert ids(saver.list(config())) == ["b", "a"]
        assert saver.counts == {}
        files.calls, files.fired = at if fired else 0, fired

    assert with_every_failure({"error": errno.EIO, "after": True}, scenario) > 10


def thread_of(saver: CoreSaver, thread: str) -> list[Any]:
    """Everything of a thread, from its head on."""
    head = saver.get_tuple(config(thread))
    listed = list(saver.list({"configurable": {"thread_id": thread}}))
    assert (head is None) == (not listed), "a thread that is seen has a head"
    return [head and head.checkpoint["id"], [(one.checkpoint, one.metadata, one.pending_writes) for one in listed]]


def begin(saver: CoreSaver) -> None:
    """A thread with a branch, a run that is going to be deleted, and a namespace of its own."""
    old = at = put(saver, config(), {"a": "a" * 200}, id="1")
    for id_ in ("2", "3"):
        at = put(saver, at, {"a": id_ * 200, "b": 1}, id=id_, run_id=f"r{id_}")
        saver.put_writes(at, [("w", id_ * 200)], f"task {id_}")
    put(saver, old, {"a": "branch"}, id="branch")
    put(saver, config(ns="sub:1"), {"inner": 1}, id="4")


def fork(saver: CoreSaver) -> None:
    saved = shell.found(saver.core, "t", "", "2")
    shell_fork.fork(saver, saved, {"b": 2})


def take_in(saver: CoreSaver) -> None:
    """Import, under another name, what the store has."""
    lines = [line.replace('"thread": "t"', '"thread": "new"') for line in export(saver, "t")]
    exchange.imported(saver.core, lines)


COMMANDS: dict[str, Callable[[CoreSaver], object]] = {
    "put": lambda saver: put(saver, saver.get_tuple(config()).config, {"a": "z" * 200}, id="5"),
    "put_writes": lambda saver: saver.put_writes(config(id="3"), [("w", "z" * 200)], "late task"),
    "prune": lambda saver: saver.prune(["t"]),
    "expire": lambda saver: saver.expire(["t"], keep_last=2),
    "delete": lambda saver: saver.delete_thread("t"),
    "delete_for_runs": lambda saver: saver.delete_for_runs(["r3"]),
    "copy": lambda saver: saver.copy_thread("t", "new"),
    "import": take_in,
    "fork": fork,
    "sweep": lambda saver: saver.sweep(timedelta(0)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_fails_anywhere_has_happened_as_a_whole_or_not_and_can_be_repeated(
    name: str, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_fork, "uuid6", lambda clock_seq: "forked")
    command = COMMANDS[name]

    def shown(saver: CoreSaver) -> dict[str, Any]:
        threads = [thread_of(saver, thread) for thread in ("t", "new")]
        return json.loads(json.dumps(threads, default=repr), object_hook=lambda o: {**o, "ts": ""} if "ts" in o else o)

    begun = MemoryFiles()
    begin(saver_on(begun))
    before = shown(saver_on(begun))
    whole = begun.copied()
    command(saver_on(whole))
    after = shown(saver_on(whole))

    def scenario(files: MemoryFiles) -> None:
        at, files.fail_at = files.fail_at, 0
        files.restore(begun)
        saver = saver_on(files)
        files.fail_at = files.calls + at
        acknowledged = False
        try:
            command(saver)
            acknowledged = True
        except (StorageError, PowerLost):
            files.fail_at = 0
        fired, files.fail_at = files.fired, 0
        files.lose_power()
        again = saver_on(files)
        found = shown(again)
        assert found == after if acknowledged else found in (before, after)
        with suppress(UsageError):  # that what it makes is there already
            command(again)
        assert shown(saver_on(files)) == after
        files.calls, files.fired = at if fired else 0, fired

    assert with_every_failure(kind, scenario) > 5


def test_files_and_their_names_are_synced_before_a_put_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `MemoryFiles` takes for granted of the real `Files`."""
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        make_durable(descriptor)

    monkeypatch.setattr(files, "make_durable", sync)
    with folder.FolderSaver(tmp_path) as saver:
        at = put(saver, config(), {"large": "x" * 70_000}, id="a")
        made = [path for path in tmp_path.rglob("*") if path.is_dir()]
        assert {str(path.parent) for path in made} <= set(synced), "the names of folders"
        synced.clear()
        at = put(saver, at, {"large": "y" * 70_000}, id="b")
        saver.put_writes(at, [("w", 1)], "task")
    places = [path.rpartition("/") for path in synced]
    t = f"{tmp_path}/t/t"
    assert [folder for folder, _, name in places if name.startswith(".")] == [f"{t}/b", f"{t}/c", f"{t}/w/%/b"]
    at_names = [synced.index(f"{t}/{name}") for name in ("b", "c", "w/%/b")]
    assert at_names == sorted(at_names), "values first, then the commit, then what belongs to it"
