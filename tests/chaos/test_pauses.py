"""SIGSTOP: silence is death only where it is the worker's own, and a worker that wakes up late does no harm."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.chaos.jobs import assert_counted, start_counting
from tests.e2e.shell import Shell

IMPATIENT = ("--set", "heartbeat.timeout=1s", "--set", "heartbeat.interval=100ms")


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_when_a_worker_is_silent_for_too_long_then_it_is_replaced_and_its_waking_up_changes_nothing(
    shell: Shell, backend: str
) -> None:
    running = start_counting(shell, backend, 2, *IMPATIENT)
    running.wait_for("checkpoint_completed", 2)
    sleeper = shell.recorded_workers("counting")[0]

    os.kill(sleeper, signal.SIGSTOP)
    lost = running.wait_for("worker_lost")
    with contextlib.suppress(ProcessLookupError):
        os.kill(sleeper, signal.SIGCONT)
    running.wait_for("running", 2)
    done = running.wait()

    assert f"pid {sleeper}" in lost["text"] and "silent for 1 s" in lost["text"]
    assert done.code == 0, done
    assert_counted(shell)


def test_when_the_coordinator_was_stopped_for_a_while_then_it_takes_nobody_for_dead(shell: Shell) -> None:
    running = start_counting(shell, "heap", 2, *IMPATIENT)
    running.wait_for("checkpoint_completed", 2)

    os.kill(running.pid, signal.SIGSTOP)
    asleep_until = time.monotonic() + 2.5
    running.wait_until(lambda: time.monotonic() >= asleep_until, "end of the pause")
    os.kill(running.pid, signal.SIGCONT)
    done = running.wait()

    assert done.code == 0, done
    assert not running.events("worker_lost")
    assert len(running.events("running")) == 1
    assert_counted(shell)
