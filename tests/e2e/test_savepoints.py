"""Savepoints, hand-overs, starting from snapshots and rescaling, through the shell, in real processes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.shell import Done, Running, Shell, committed

RECORDS, KEYS = 20_000, 50
JOB = f"""
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

def build(params):
    job = Job("counts")
    numbers = job.source(SequenceSource(0, {RECORDS}, rate=int(params.get("rate", 0)) or None), uid="numbers")
    counts = numbers.key_by(lambda n: n % {KEYS}).count(uid="counts")
    counts.sink(FileSink(params.get("out", "out"), format="jsonl"), uid="out")
    if "copy" in params:
        counts.sink(FileSink(params["copy"], format="jsonl"), uid="copy")
    return job
"""
OFTEN = ("--set", "checkpoint.interval=200ms")


def expected() -> Counter[tuple[int, int]]:
    return Counter((n % KEYS, n // KEYS + 1) for n in range(RECORDS))


def written(*folders: Path) -> Counter[tuple[int, int]]:
    return Counter(tuple(row) for folder in folders for row in committed(folder))


def start(shell: Shell, *more: str, rate: int = 4_000) -> Running:
    """Start the job slowly, and wait until it has taken a checkpoint."""
    shell.write("counts.py", JOB)
    running = shell.start("run", "counts.py", "--param", f"rate={rate}", "-p", "2", *OFTEN, *more)
    shell.wait_for_status("counts", lambda status: status["last_checkpoint"])
    return running


def finish(shell: Shell, *more: str) -> Done:
    """Run the job to its end, as fast as it goes."""
    return shell.run_ok("run", "counts.py", *more)


def test_a_running_job_is_rescaled_up_and_down_and_its_output_is_exact(shell: Shell) -> None:
    running = start(shell)

    up = shell.run_ok("rescale", "counts", "-p", "4", "--json").json()
    workers = len(shell.worker_pids("counts"))
    down = shell.run_ok("rescale", "counts", "-p", "1", "--json").json()
    refused = shell.run("rescale", "counts", "-p", "1000")

    assert (up["parallelism"], workers, down["parallelism"]) == (4, 4, 1)
    assert len(shell.worker_pids("counts")) == 1
    assert refused.code == 2
    assert "max_parallelism is 128" in refused.sentence
    assert running.wait(60).code == 0
    assert written(shell.folder / "out") == expected()


def test_a_rescale_is_remembered_by_the_next_run(shell: Shell) -> None:
    start(shell)
    shell.run_ok("rescale", "counts", "-p", "3")
    shell.run_ok("stop", "counts")
    assert "--parallelism" not in shell.run("status", "counts").sentence  # what it says to type must not undo it

    shell.start("run", "counts.py", "--param", "rate=2000", *OFTEN)
    status = shell.wait_for_status("counts", lambda status: status["state"] == "RUNNING")

    assert status["parallelism"] == 3
    shell.run_ok("stop", "counts")
    finish(shell, "-p", "2")
    assert written(shell.folder / "out") == expected()


def test_a_savepoint_can_be_moved_and_opened_with_another_backend_and_parallelism(shell: Shell) -> None:
    running = start(shell)
    made = shell.run_ok("savepoint", "counts", "--to", "backup", "--json").json()
    running.kill()
    moved = shell.folder / "elsewhere" / "copy"
    moved.parent.mkdir()
    shutil.move(made["path"], moved)
    assert "savepoint" in {one["kind"] for one in shell.run_ok("checkpoints", "counts", "--json").json()}
    before = {path: path.read_bytes() for path in sorted(moved.rglob("*")) if path.is_file()}

    more = ("--name", "branch", "--param", "out=branch", "-p", "3", "--set", "state.backend=heap")
    finish(shell, "--from", str(moved), *more)

    assert shell.run_ok("verify", str(moved)).code == 0
    assert {path: path.read_bytes() for path in sorted(moved.rglob("*")) if path.is_file()} == before
    # The branch writes what no checkpoint before the savepoint had committed.
    own = [part for part in (shell.folder / "out").glob("part-*") if int(part.name.split("-")[1]) <= made["parent"]]
    for part in set((shell.folder / "out").glob("part-*")) - set(own):
        part.unlink()
    assert written(shell.folder / "out", shell.folder / "branch") == expected()


def test_stop_with_a_savepoint_hands_the_output_on(shell: Shell) -> None:
    running = start(shell)
    savepoint = shell.run_ok("stop", "counts", "--to", "backup", "--json").json()
    assert running.wait().code == 0
    assert {"path", "id", "duration_ms", "bytes"} <= savepoint.keys()

    assert f"--from {savepoint['path']}` continues it" in shell.run("status", "counts").sentence
    refused = shell.run("run", "counts.py")
    status = shell.run("status", "counts")
    assert "state           STOPPED\n" in status.out and "refused: cannot continue" in status.out
    assert f"--from {savepoint['path']}` continues it" in status.sentence
    parent = shell.run("run", "counts.py", "--from", "backup")
    assert parent.code == 3
    assert f"name one of the snapshots in this folder: {Path(savepoint['path']).name}" in parent.sentence
    finish(shell, "--from", savepoint["path"], "-p", "3")
    again = shell.run_ok("run", "counts.py", "--from", savepoint["path"])

    assert refused.code == 1
    assert "hands its output on" in refused.sentence
    assert "finished before" in again.out
    assert written(shell.folder / "out") == expected()
    # What was refused or done before has changed nothing: the job that finished is still what this name stands for.
    assert "finished before" in shell.run_ok("run", "counts.py").out
    assert "state           FINISHED\n" in shell.run("status", "counts").out


@pytest.mark.parametrize("claim", [False, True], ids=["no_claim", "claim"])
def test_the_same_command_with_from_goes_on_after_a_kill(shell: Shell, claim: bool) -> None:
    start(shell)
    savepoint = shell.run_ok("stop", "counts", "--to", "backup", "--json").json()["path"]
    more = ("--from", savepoint, *(("--claim",) if claim else ()), "--set", "checkpoint.retained=1")
    running = start(shell, *more, rate=1_500)
    newest = shell.status("counts")["last_checkpoint"]["id"]
    shell.run_ok("rescale", "counts", "-p", "3")
    shell.wait_for_status("counts", lambda status: status["last_checkpoint"]["id"] > newest + 1)
    running.kill()

    again = shell.run_ok("run", "counts.py", *more)

    assert "has already gone on from" in again.out
    assert "parallelism 3" in again.out
    assert written(shell.folder / "out") == expected()


@pytest.mark.parametrize("claim", [False, True], ids=["no_claim", "claim"])
def test_the_source_of_a_run_is_not_needed_after_its_first_checkpoint(shell: Shell, claim: bool) -> None:
    start(shell)
    savepoint = Path(shell.run_ok("stop", "counts", "--to", "backup", "--json").json()["path"])
    more = ("--from", str(savepoint), *(("--claim",) if claim else ()), "--set", "checkpoint.retained=1")
    running = start(shell, *more, rate=1_500)
    newest = shell.status("counts")["last_checkpoint"]["id"]
    shell.wait_for_status("counts", lambda status: status["last_checkpoint"]["id"] > newest)

    assert savepoint.exists() != claim
    shutil.rmtree(savepoint, ignore_errors=True)
    running.kill()
    finish(shell)

    assert written(shell.folder / "out") == expected()


def test_a_run_from_a_retained_checkpoint_is_a_branch_and_leaves_its_files_alone(shell: Shell) -> None:
    running = start(shell, "--param", "copy=copied")
    running.kill()
    newest = shell.run_ok("checkpoints", "counts", "--json").json()[-1]
    storage = Path(newest["path"]).parent
    before = {path: path.read_bytes() for path in sorted(storage.rglob("*")) if path.is_file()}

    new_folders = ("--param", "out=branch", "--param", "copy=copied-branch")
    branched = finish(shell, "--from", newest["path"], "--name", "branch", *new_folders, "-p", "1")

    warnings = [line for line in branched.out.splitlines() if "warning: " in line]
    assert len(warnings) == 1
    assert f"this is a branch from checkpoint {newest['id']} of job 'counts'" in warnings[0]
    assert {path: path.read_bytes() for path in sorted(storage.rglob("*")) if path.is_file()} == before
    assert written(shell.folder / "out", shell.folder / "branch") == expected()


def test_a_savepoint_that_fails_leaves_the_job_running_and_nothing_behind(shell: Shell) -> None:
    running = start(shell)
    (shell.folder / "file").write_text("not a folder")
    too_long = "x" * 300

    refused = shell.run("savepoint", "counts", "--to", "file")
    failed = shell.run("savepoint", "counts", "--to", too_long)
    stopped = shell.run("stop", "counts", "--to", too_long)

    assert refused.code == 2
    assert "is not a folder" in refused.sentence
    assert failed.code == stopped.code == 2
    assert "nothing can be written there" in failed.sentence
    assert "nothing can be written there" in stopped.sentence
    assert shell.status("counts")["restarts"] == 0
    running.wait(60)
    assert written(shell.folder / "out") == expected()


def test_a_snapshot_that_is_not_there_is_refused_before_anything_starts(shell: Shell) -> None:
    shell.write("counts.py", JOB)

    missing = shell.run("run", "counts.py", "--from", "nowhere")

    assert missing.code == 3
    assert "there is no snapshot" in missing.sentence
    assert shell.run("run", "counts.py", "--claim").code == 2
