"""Workers die with their coordinator, always: while they start, while they are stopped, while they compute."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.chaos.jobs import assert_counted, start_counting
from tests.e2e.shell import Running, Shell

GONE_SECONDS = 5.0


def assert_all_gone(shell: Shell) -> None:
    """Nobody is left after a moment."""
    end = time.monotonic() + GONE_SECONDS
    while left := shell.workers():
        assert time.monotonic() < end, f"workers outlived their coordinator: {left}"
        time.sleep(0.01)


def kill_when_a_child_is_there(shell: Shell, running: Running, count: int) -> None:
    """Kill the coordinator as soon as it has forked so often: its children have not said a word yet."""
    coordinator = psutil.Process(running.pid)
    end = time.monotonic() + 20
    # Without a pause: a child is young for some milliseconds only.
    while len(coordinator.children()) < count:
        assert time.monotonic() < end, running.so_far()
    running.kill()


@pytest.mark.parametrize("count", [1, 3])
def test_when_the_coordinator_is_killed_while_it_starts_its_workers_then_they_are_gone(
    shell: Shell, count: int
) -> None:
    running = start_counting(shell, "heap", 3)

    kill_when_a_child_is_there(shell, running, count)

    assert_all_gone(shell)
    assert start_counting(shell, "heap", 3).wait().code == 0
    assert_counted(shell)


def test_when_the_coordinator_is_killed_then_stopped_workers_are_gone_too(shell: Shell) -> None:
    running = start_counting(shell, "heap", 2)
    running.wait_for("checkpoint_completed", 2)
    for pid in shell.recorded_workers("counting"):
        os.kill(pid, signal.SIGSTOP)

    running.kill()

    assert_all_gone(shell)
    assert start_counting(shell, "heap", 2).wait().code == 0
    assert_counted(shell)


def test_when_the_coordinator_is_killed_during_a_recovery_then_old_and_new_workers_are_gone(shell: Shell) -> None:
    running = start_counting(shell, "heap", 2)
    running.wait_for("checkpoint_completed", 2)
    os.kill(shell.recorded_workers("counting")[0], signal.SIGKILL)
    running.wait_for("restarting")

    running.kill()

    assert_all_gone(shell)
    assert start_counting(shell, "heap", 2).wait().code == 0
    assert_counted(shell)
