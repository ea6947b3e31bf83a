"""The blocking disk keeps the promises of every disk, and coroutines over it run without a loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flowpoint.errors import InternalError
from flowpoint.host.blocking import BlockingDisk, new_id, run_now, wall_ms
from tests.conformance import test_disk
from tests.conformance.worlds import Check, checks_of


@pytest.mark.parametrize("check", checks_of(vars(test_disk)), ids=lambda check: check.__name__)
def test_the_blocking_disk_does_what_every_disk_does(check: Check, tmp_path: Path) -> None:
    host: Any = SimpleNamespace(disk=BlockingDisk())

    run_now(check(host, host, str(tmp_path / "data")))  # type: ignore[arg-type]  # every check is a coroutine


def test_a_pipe_is_refused_instead_of_read_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="not a regular file"):
        run_now(BlockingDisk().read(str(tmp_path / "pipe")))


async def test_a_coroutine_that_never_waits_is_run_inside_a_loop_and_inside_another() -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 1

    async def outer() -> int:
        return run_now(inner()) + await inner()

    assert run_now(outer()) == 2


async def test_a_coroutine_that_waits_is_a_bug_and_is_said_so() -> None:
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await waiting

    with pytest.raises(InternalError, match="needs a loop"):
        run_now(wait())


def test_errors_come_out_as_they_are() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_now(fail())


def test_ids_and_time_are_those_of_a_host() -> None:
    assert new_id() != new_id()
    assert len(new_id()) == 16
    assert wall_ms() > 1_600_000_000_000
