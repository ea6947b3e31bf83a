"""The folder store under every failure and every loss of power: what was acknowledged is there, and whole."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from flowpoint.agents import folder, retention
from flowpoint.agents.core import SaverCore
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import system_world
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.serde import StrictSerde
from flowpoint.errors import StorageError
from tests.unit.agents.faulty_files import MemoryFiles, PowerLost
from tests.unit.agents.test_saver import config, ids, put

ROOT = "/store"
CALLS_MAX = 2000
SERDE = StrictSerde()
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
    return CoreSaver(SaverCore(kv, SERDE, system_world(), folder.SIZES))


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
            at = put(saver, at, {"large": name * 70_000, "step": step}, id=name)
            saver.put_writes(at, [("w", name)], f"task {name}")
            self.done.append(name)

    def check(self, saver: CoreSaver) -> None:
        """Everything acknowledged is there, except what may have been pruned, and whole."""
        there = ids(saver.list(config()))
        kept = self.done[self.pruned_from :]
        assert set(kept) <= set(there) <= {*self.done, self.tried}
        for name in there:
            found: Any = saver.get_tuple(config(id=name))
            assert found.checkpoint["channel_values"]["large"] == name * 70_000
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
        base = put(saver, config(), {"a": "x" * 70_000}, id="a")
        files.fail_at = files.calls + at
        for _ in range(2):
            with suppress(StorageError):
                put(saver, base, {"a": "y" * 70_000}, id="b")
        fired, files.fail_at = files.fired, 0
        assert ids(saver.list(config())) == ["b", "a"]
        assert saver.counts == {}
        files.calls, files.fired = at if fired else 0, fired

    assert with_every_failure({"error": errno.EIO, "after": True}, scenario) > 10
