"""kill -9 of a worker and of the coordinator: state is opened from hard links beside the workers."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from tests.chaos.jobs import assert_counted, is_all_local, said_of_opening, start_counting
from tests.e2e.shell import Shell

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
