"""Functions that make processes of their own: none of these gets into the engine, or outlives its worker."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.shell import Shell, committed

FORKING = """
import os, sys
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def fork_and(go_on, n):
    if n in (300, 500, 777, 900, 1500):
        try:
            os.close(os.open(f"forked-{n}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return n
        if os.fork() == 0:
            go_on()
    return n


GO_ON = {
    "returns": lambda: None,
    "exits as one does": sys.exit,
    "raises": lambda: 1 / 0,
}[WAY]

job = Job("forking")
(
    job.source(SequenceSource(0, 2000, rate=2000), uid="numbers")
    .map(lambda n: fork_and(GO_ON, n), uid="forking")
    .key_by(lambda n: n % 10)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""

BREEDING = """
import os, subprocess
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def breed(n):
    child = subprocess.Popen(["sleep", "600"])
    with open("children", "a") as children:
        children.write(f"{os.getpid()} {child.pid}\\n")
    return n


job = Job("breeding")
out = FileSink("out", format="jsonl")
job.source(SequenceSource(0, 10, rate=10), uid="numbers").map(breed, uid="breed").sink(out, uid="out")
"""


@pytest.mark.parametrize("way", ["returns", "exits as one does", "raises"])
def test_when_a_function_forks_and_comes_back_twice_then_the_copy_is_ended_and_the_output_exact(
    shell: Shell, way: str
) -> None:
    shell.write("job.py", FORKING.replace("WAY", repr(way)))

    done = shell.run("run", "job.py", "-p", "2", "--set", "checkpoint.interval=100ms")

    assert done.code == 0, done
    assert sorted(committed(shell.folder / "out")) == sorted([n % 10, n // 10 + 1] for n in range(2000))
    assert "is a copy of worker-" in shell.run("logs", "forking").out
    assert "restart" not in done.out


def children(shell: Shell) -> dict[int, list[psutil.Process]]:
    """The processes that the function has started, by worker."""
    found: dict[int, list[psutil.Process]] = {}
    for line in (shell.folder / "children").read_text().splitlines():
        worker, child = map(int, line.split())
        if psutil.pid_exists(child):
            found.setdefault(worker, []).append(psutil.Process(child))
    return found


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"there is no {path}"
        time.sleep(0.01)


def test_what_a_function_has_started_ends_with_its_worker(shell: Shell) -> None:
    shell.write("job.py", BREEDING)
    running = shell.start("run", "job.py", "-p", "1", "--set", "checkpoint.interval=100ms", "--json")
    running.wait_for("checkpoint_completed", 2)
    wait_for_file(shell.folder / "children")
    (worker, bred), *_ = children(shell).items()

    os.kill(worker, signal.SIGKILL)
    running.wait_for("restarting")

    assert_gone(bred)
    assert running.wait().code == 0
    assert_gone([child for bred in children(shell).values() for child in bred])


def test_what_a_function_had_started_before_the_coordinator_was_killed_ends_when_the_job_is_run_again(
    shell: Shell,
) -> None:
    shell.write("job.py", BREEDING)
    running = shell.start("run", "job.py", "-p", "1", "--set", "checkpoint.interval=100ms", "--json")
    running.wait_for("checkpoint_completed", 2)
    wait_for_file(shell.folder / "children")
    (_, bred), *_ = children(shell).items()

    running.kill()
    again = shell.run("run", "job.py", "-p", "1")

    assert again.code == 0, again
    assert_gone(bred)
