"""kill -9 of a worker and of the coordinator: state is opened from hard links, or copies, beside the workers."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.jobs import assert_counted, is_all_local, said_of_opening, start_counting
from tests.e2e.shell import Running, Shell

JOB = "counting"


def linked_files(shell: Shell) -> int:
    """How many local files there are; each is the storage's file of its name, unless that has just gone."""
    local, stored = shell.home.work(JOB) / "local" / "shared", shell.home.checkpoints(JOB) / "shared"
    found = 0
    for name in os.listdir(local):
        # What is removed meanwhile is removed from the storage first.
        with contextlib.suppress(FileNotFoundError):
            assert os.path.samestat((local / name).stat(), (stored / name).stat()), name
            found += 1
    return found


SHARED_MEMORY = Path("/dev/shm")
"""On Linux this is a file system of its own, whatever the test's folder is on."""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[str]:
    """A folder on another file system than the home."""
    if not SHARED_MEMORY.is_dir() or SHARED_MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield folder


def assert_goes_on_locally_after_a_kill(shell: Shell, running: Running) -> None:
    """A worker is killed; everybody opens local files; the output is exact."""
    running.wait_for("checkpoint_completed", 2)
    os.kill(shell.recorded_workers(JOB)[0], signal.SIGKILL)
    running.wait_for("running", 2)
    said = said_of_opening(shell, JOB)
    done = running.wait()

    assert done.code == 0, done
    assert_counted(shell)
    assert len(said) == 2, said
    assert all(map(is_all_local, said)), said


def test_where_checkpoints_are_on_another_file_system_copies_are_opened(shell: Shell, elsewhere: str) -> None:
    running = start_counting(shell, "rocksdb", 2, "--set", f"checkpoint.storage={elsewhere}")

    assert_goes_on_locally_after_a_kill(shell, running)


def test_where_checkpoints_are_in_the_coordinators_memory_copies_are_opened(shell: Shell) -> None:
    running = start_counting(shell, "heap", 2, "--set", "checkpoint.storage=memory")

    assert_goes_on_locally_after_a_kill(shell, running)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_survivors_replacements_and_the_next_run_open_hard_links_and_nothing_else(shell: Shell, backend: str) -> None:
    first = start_counting(shell, backend, 2)
    first.wait_for("checkpoint_completed", 2)
    assert linked_files(shell) > 0

    os.kill(shell.recorded_workers(JOB)[0], signal.SIGKILL)
    first.wait_for("running", 2)
    after_the_worker = said_of_opening(shell, JOB)
    first.kill()
    second = start_counting(shell, backend, 2)
    second.wait_for("running")
    after_the_coordinator = said_of_opening(shell, JOB)[len(after_the_worker) :]
    done = second.wait()

    assert done.code == 0, done
    assert_counted(shell)
    for said in (after_the_worker, after_the_coordinator):
        assert len(said) == 2, said
        assert all(map(is_all_local, said)), said
    assert not shell.home.work(JOB).exists()
