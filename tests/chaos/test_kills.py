"""kill -9 of workers and coordinators: the committed output is that of a plain loop, and no process is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest

from tests.chaos.jobs import assert_counted, newest_checkpoint, start_counting
from tests.e2e.shell import Running, Shell

EVERYWHERE = pytest.mark.parametrize(
    ("backend", "parallelism"), [("heap", 1), ("rocksdb", 1), ("heap", 2), ("rocksdb", 2), ("heap", 3), ("rocksdb", 3)]
)
SOME = pytest.mark.parametrize(("backend", "parallelism"), [("heap", 1), ("rocksdb", 2), ("heap", 3)])
HEAP_2 = pytest.mark.parametrize(("backend", "parallelism"), [("heap", 2)])
ROCKSDB_3 = pytest.mark.parametrize(("backend", "parallelism"), [("rocksdb", 3)])


def kill(pid: int) -> None:
    """`kill -9`; whoever has ended already is as dead as wanted."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def counting(shell: Shell, backend: str, parallelism: int) -> Running:
    """COUNTING, just started."""
    return start_counting(shell, backend, parallelism)


@pytest.fixture
def checkpointed(counting: Running) -> Running:
    """The same with two checkpoints, so that there is something to go on from."""
    counting.wait_for("checkpoint_completed", 2)
    return counting


def assert_ends_exactly(shell: Shell, running: Running) -> None:
    """The job finishes, and its output is that of a plain loop."""
    done = running.wait()

    assert done.code == 0, done
    assert_counted(shell)


def let_run(running: Running, seconds: float) -> None:
    """Let a job go on for a moment that matters to nobody: any moment is right for a kill."""
    end = time.monotonic() + seconds
    running.wait_until(lambda: time.monotonic() >= end, "a moment")


@EVERYWHERE
def test_when_one_worker_is_killed_at_random_moments_then_the_output_is_exact(
    shell: Shell, counting: Running, backend: str, parallelism: int
) -> None:
    chance = random.Random(f"{backend}{parallelism}")

    for attempt in (1, 2):
        counting.wait_for("running", attempt)
        let_run(counting, chance.uniform(0.0, 0.6))
        kill(chance.choice(shell.recorded_workers("counting")))
        assert "was killed by signal 9" in counting.wait_for("worker_lost", attempt)["text"]

    assert_ends_exactly(shell, counting)


@ROCKSDB_3
def test_when_all_workers_are_killed_then_it_is_one_restart_and_the_output_is_exact(
    shell: Shell, checkpointed: Running
) -> None:
    for pid in shell.recorded_workers("counting"):
        kill(pid)

    assert_ends_exactly(shell, checkpointed)
    assert len(checkpointed.events("running")) == 2


@HEAP_2
def test_when_a_worker_is_killed_during_the_recovery_from_another_kill_then_the_output_is_exact(
    shell: Shell, checkpointed: Running
) -> None:
    first, *others = shell.recorded_workers("counting")

    kill(first)
    checkpointed.wait_for("restarting")
    kill(others[0])
    checkpointed.wait_for("running", 2)

    assert_ends_exactly(shell, checkpointed)
    assert len(checkpointed.events("worker_lost")) == 2


@ROCKSDB_3
def test_when_the_replacement_is_killed_before_records_flow_then_the_output_is_exact(
    shell: Shell, checkpointed: Running
) -> None:
    before = shell.recorded_workers("counting")

    kill(before[0])
    checkpointed.wait_for("restarting")
    checkpointed.wait_until(lambda: set(shell.recorded_workers("counting")) - set(before), "replacement")
    for pid in set(shell.recorded_workers("counting")) - set(before):
        kill(pid)

    assert_ends_exactly(shell, checkpointed)
    assert len(checkpointed.events("worker_lost")) == 2


@SOME
def test_when_the_coordinator_is_killed_then_the_same_command_continues_and_says_so(
    shell: Shell, backend: str, parallelism: int
) -> None:
    first = start_counting(shell, backend, parallelism)
    first.wait_for("checkpoint_completed", 3)
    newest = newest_checkpoint(first)["id"]
    first.kill()

    second = start_counting(shell, backend, parallelism)
    restored = second.wait_for("restored")

    assert_ends_exactly(shell, second)
    assert restored["data"]["checkpoint"] >= newest
    assert f"continuing from checkpoint {restored['data']['checkpoint']}" in restored["text"]


def test_when_coordinators_are_killed_at_random_moments_then_the_output_is_exact(shell: Shell) -> None:
    chance = random.Random("coordinators")

    for backend in ("heap", "rocksdb", "heap", "rocksdb"):
        running = start_counting(shell, backend, 2)
        # Some of these moments are before the job runs at all.
        let_run(running, chance.uniform(0.3, 1.4))
        running.kill()

    assert_ends_exactly(shell, start_counting(shell, "heap", 2))


BLOCKED = """
import time
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def block(n):
    open("blocked", "w").close()
    time.sleep(600)


job = Job("blocked")
job.source(SequenceSource(0, 10), uid="numbers").map(block, uid="block").sink(FileSink("out"), uid="out")
"""


def test_when_a_function_blocks_then_the_worker_dies_with_its_coordinator_all_the_same(shell: Shell) -> None:
    shell.write("job.py", BLOCKED)
    running = shell.start("run", "job.py", "-p", "2")
    running.wait_until((shell.folder / "blocked").exists, "blocked function")
    workers = shell.recorded_workers("blocked")
    running.kill()

    end = time.monotonic() + 5
    while any(process.pid in workers for process in shell.processes()):
        assert time.monotonic() < end, "workers outlived their coordinator"


def test_when_a_function_blocks_then_the_job_can_be_cancelled(shell: Shell) -> None:
    shell.write("job.py", BLOCKED)
    running = shell.start("run", "job.py", "-p", "1")
    running.wait_until((shell.folder / "blocked").exists, "blocked function")

    shell.run_ok("cancel", "blocked")
    done = running.wait(10)

    assert done.code == 130, done
