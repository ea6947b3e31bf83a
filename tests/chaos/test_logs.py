"""What a person or a disk does to the log of a running job: the job goes on, prints what it can, and says what it cannot."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.chaos.jobs import COUNTING, RECORDS, assert_counted
from tests.e2e.shell import Running, Shell

JOB = "counting"
PRINTING = COUNTING.replace(
    'key_by(lambda n: f"key-{n % 13}")', 'map(printed).key_by(lambda n: f"key-{n % 13}")'
).replace('job = Job("counting")', 'def printed(n):\n    print(f"number {n}")\n    return n\n\n\njob = Job("counting")')


@pytest.fixture
def running(shell: Shell) -> Running:
    """COUNTING, which also prints, with two checkpoints."""
    shell.write("job.py", PRINTING)
    settings = ("--set", "checkpoint.interval=200ms", "--set", "heartbeat.interval=50ms")
    running = shell.start("run", "job.py", "--json", "-p", "2", *settings)
    running.wait_for("checkpoint_completed", 2)
    return running


@pytest.fixture
def log(shell: Shell) -> Path:
    return shell.home.job(JOB).log


def assert_ends_exactly(shell: Shell, running: Running) -> None:
    done = running.wait()

    assert done.code == 0, done
    assert_counted(shell)


def troubles(running: Running) -> list[str]:
    return [event["text"] for event in running.events("warning") if "the log of the job" in event["text"]]


def test_when_the_log_is_removed_then_it_is_begun_anew_with_all_that_comes_from_then_on(
    shell: Shell, running: Running, log: Path
) -> None:
    log.unlink()

    running.wait_until(log.exists, "new log")
    running.wait_until(lambda: "number" in log.read_text(), "printed line in the new log")
    assert_ends_exactly(shell, running)
    assert "is begun anew" in "".join(troubles(running))
    assert f"number {RECORDS - 1}\n" in log.read_text()


def test_when_something_else_is_in_the_place_of_the_log_then_workers_start_without_it(
    shell: Shell, running: Running, log: Path
) -> None:
    log.unlink()
    log.mkdir()
    os.kill(shell.recorded_workers(JOB)[0], signal.SIGKILL)

    assert_ends_exactly(shell, running)
    assert "Is a directory" in "".join(troubles(running))
    assert len(running.events("running")) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_when_the_disk_of_the_log_is_full_then_printing_fails_no_function(
    shell: Shell, running: Running, log: Path
) -> None:
    log.unlink()
    log.symlink_to("/dev/full")

    assert_ends_exactly(shell, running)
    assert running.events("restarting") == []
