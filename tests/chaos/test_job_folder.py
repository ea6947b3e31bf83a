"""What is removed of a running job's own folder, by a person or by what tidies temporary files, is there again."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.chaos.jobs import assert_counted, start_counting
from tests.e2e.shell import Running, Shell

JOB = "counting"


@pytest.fixture
def running(shell: Shell) -> Running:
    """COUNTING with two checkpoints."""
    running = start_counting(shell, "heap", 2)
    running.wait_for("checkpoint_completed", 2)
    return running


@pytest.fixture
def folder(shell: Shell) -> Path:
    return shell.home.job(JOB).path


def assert_replaces_a_worker(shell: Shell, running: Running, worker: int) -> None:
    """Commands reach the job, a killed worker is replaced, and the output is exact."""
    os.kill(worker, signal.SIGKILL)
    running.wait_for("running", 2)
    assert shell.status(JOB)["restarts"] >= 1
    done = running.wait()

    assert done.code == 0, done
    assert_counted(shell)


def test_when_its_sockets_are_removed_then_commands_reach_it_and_a_worker_is_replaced(
    shell: Shell, running: Running, folder: Path
) -> None:
    sockets = [path for path in folder.iterdir() if path.is_socket()]
    for path in sockets:
        path.unlink()

    running.wait_until(lambda: all(path.exists() for path in sockets), "new sockets")
    assert_replaces_a_worker(shell, running, shell.recorded_workers(JOB)[0])


def test_when_its_folder_is_removed_then_commands_reach_it_and_a_worker_is_replaced(
    shell: Shell, running: Running, folder: Path
) -> None:
    worker = shell.recorded_workers(JOB)[0]
    shutil.rmtree(folder)

    assert_replaces_a_worker(shell, running, worker)
