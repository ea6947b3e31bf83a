"""Checkpoints in the coordinator's memory, through the shell, in real processes: what survives, and what is said."""

from __future__ import annotations

import os
import signal
from collections import Counter

from tests.e2e.shell import Running, Shell, committed

RECORDS, KEYS = 6_000, 50
JOB = f"""
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

def build(params):
    job = Job("counts")
    (job.source(SequenceSource(0, {RECORDS}, rate=int(params.get("rate", 0)) or None), uid="numbers")
        .key_by(lambda n: n % {KEYS})
        .count(uid="counts")
        .sink(FileSink("out", format="jsonl"), uid="out"))
    return job
"""
IN_MEMORY = ("--set", "checkpoint.storage=memory", "--set", "checkpoint.interval=200ms", "-p", "2", "--json")


def start(shell: Shell, *more: str, rate: int = 3_000) -> Running:
    shell.write("counts.py", JOB)
    return shell.start("run", "counts.py", "--param", f"rate={rate}", *IN_MEMORY, *more)


def assert_exact(shell: Shell) -> None:
    expected = Counter((n % KEYS, n // KEYS + 1) for n in range(RECORDS))
    assert Counter(tuple(row) for row in committed(shell.folder / "out")) == expected


def warnings(running: Running) -> str:
    return "\n".join(event["text"] for event in running.events("warning"))


def test_killed_workers_are_recovered_from_exactly_and_nothing_is_written_but_output(shell: Shell) -> None:
    running = start(shell)
    running.wait_for("checkpoint_completed", 2)

    for pid in shell.recorded_workers("counts"):
        os.kill(pid, signal.SIGKILL)
    restored = running.wait_for("restored")
    listed = shell.run_ok("checkpoints", "counts", "--json").json()

    assert running.wait(60).code == 0
    assert restored["data"]["checkpoint"] >= 2
    assert {checkpoint["path"] for checkpoint in listed} == {""}
    assert "in the memory of this process" in warnings(running)
    assert not shell.home.checkpoints("counts").exists()
    assert shell.run_ok("checkpoints", "counts", "--json").json() == []
    assert_exact(shell)


def test_when_the_coordinator_is_killed_then_the_same_command_says_that_all_is_gone_and_takes_no_output_over(
    shell: Shell,
) -> None:
    first = start(shell)
    first.wait_for("checkpoint_completed", 3)
    first.kill()

    asked = shell.run("status", "counts")
    again = start(shell, rate=0)
    done = again.wait()

    assert "from the beginning, as its checkpoints went with it" in asked.sentence
    assert "the checkpoints of the last run were in its memory and are gone with it" in warnings(again)
    assert done.code == 1
    assert "--take-output" in done.err
    assert not again.events("restored")


def test_when_the_output_is_elsewhere_then_the_same_command_starts_afresh(shell: Shell) -> None:
    first = start(shell)
    first.wait_for("checkpoint_completed", 2)
    first.kill()
    (shell.folder / "out").rename(shell.folder / "old")

    again = start(shell, rate=0)

    assert again.wait().code == 0
    assert "gone with it" in warnings(again)
    assert_exact(shell)


def test_a_savepoint_goes_to_a_folder_and_is_what_outlives_the_job(shell: Shell) -> None:
    running = start(shell)
    running.wait_for("checkpoint_completed", 1)

    stopped = shell.run_ok("stop", "counts", "--to", "kept", "--json").json()
    running.wait()
    shell.run_ok("verify", stopped["path"])
    again = start(shell, "--from", stopped["path"], rate=0)

    assert again.wait().code == 0
    assert again.events("restored")
    assert "gone" not in warnings(again)
    assert_exact(shell)


def test_a_checkpoint_beyond_the_limit_is_refused_with_the_key_and_the_job_goes_on(shell: Shell) -> None:
    limits = ("--set", "checkpoint.memory_limit=2KB", "--set", "checkpoint.tolerable_failures=1000")
    running = start(shell, *limits, rate=1_000)

    failed = running.wait_for("checkpoint_failed", 2)
    status = shell.status("counts")

    assert "checkpoint.memory_limit is 2,048; raise checkpoint.memory_limit" in failed["text"]
    assert (status["state"], status["restarts"]) == ("RUNNING", 0)
    shell.run("cancel", "counts")
    assert running.wait().code == 130


def test_a_job_whose_snapshots_stay_beyond_the_limit_ends_and_says_what_to_change(shell: Shell) -> None:
    running = start(shell, "--set", "checkpoint.memory_limit=2KB", rate=1_000)

    done = running.wait(timeout=60)

    assert done.code == 1
    assert len(running.events("restarting")) == 2
    assert "checkpoint.memory_limit is 2,048; raise checkpoint.memory_limit" in done.sentence
    assert "3 attempts in a row" in done.sentence
