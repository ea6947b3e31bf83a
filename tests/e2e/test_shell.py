"""The commands on a running job: what they say, as contract 6.2 has it, and their exit codes."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from flowpoint.cli.main import execute
from tests.e2e.shell import Shell, committed

ENDLESS = """
import sys
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def speak(n):
    if n == 5:
        print("a word from the job")
    return n


job = Job("endless")
(
    job.source(SequenceSource(0, 10_000_000, rate=2000), uid="numbers")
    .map(speak, uid="speak")
    .key_by(lambda n: n % 10)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""

COMMAND = ("run", "job.py", "-p", "2", "--set", "checkpoint.interval=300ms")


def assert_exact(shell: Shell) -> None:
    """Every count of every key once, none left out."""
    output = committed(shell.folder / "out")
    assert output
    for key in range(10):
        counts = sorted(count for other, count in output if other == key)
        assert counts == list(range(1, len(counts) + 1))


def test_questions_about_a_running_job(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    running = shell.start(*COMMAND, "--json")
    told = running.wait_for("checkpoint_completed", 2)
    assert told["data"]["path"] == str(shell.home.checkpoints("endless") / f"chk-{told['data']['id']}-a1")
    status = shell.wait_for_status("endless", lambda status: status["rate"] and status["records_out"])

    assert status["state"] == "RUNNING"
    assert (status["attempt"], status["restarts"], status["parallelism"]) == (1, 0, 2)
    assert {"records_in", "records_out", "rate", "lag", "backpressure"} <= status.keys()
    assert {"id", "duration_ms", "bytes", "alignment_ms"} <= status["last_checkpoint"].keys()
    workers = shell.run_ok("workers", "endless", "--json").json()
    assert [worker["index"] for worker in workers] == [0, 1]
    assert sorted(shell.recorded_workers("endless")) == sorted(worker["pid"] for worker in workers)
    subtasks = [f"{uid}#{i}" for i in (0, 1) for uid in ("numbers", "speak", "counts", "out")]
    assert sorted(subtask for worker in workers for subtask in worker["subtasks"]) == sorted(subtasks)
    for worker in workers:
        assert worker["rss_bytes"] == pytest.approx(psutil.Process(worker["pid"]).memory_info().rss, rel=0.3)
    assert sum(worker["cpu_percent"] for worker in workers) > 0
    (listed,) = shell.run_ok("list", "--json").json()
    assert (listed["name"], listed["state"], listed["pid"]) == ("endless", "RUNNING", running.pid)
    checkpoints = shell.run_ok("checkpoints", "endless", "--json").json()
    keys = {"id", "attempt", "kind", "state", "started", "duration_ms", "bytes", "parent", "path", "reason"}
    assert all(keys <= checkpoint.keys() for checkpoint in checkpoints)
    assert "a word from the job" in shell.run_ok("logs", "endless").out
    for command in ("status", "workers", "checkpoints", "list"):
        told = shell.run_ok(command, *(() if command == "list" else ("endless",))).out
        assert told.strip(), f"{command} says nothing"


def test_a_checkpoint_on_request_and_a_stop_then_the_same_command_goes_on(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    command = ("run", "job.py", "-p", "2", "--json")
    first = shell.start(*command)
    shell.wait_for_status("endless", lambda status: status["records_out"])

    taken = shell.run_ok("checkpoint", "endless", "--json").json()
    assert taken["state"] == "completed" and taken["id"] == 1
    assert committed(shell.folder / "out")
    shell.run_ok("stop", "endless")
    assert first.wait().code == 0

    second = shell.start(*command)
    restored = second.wait_for("restored")
    second.wait_for("running")
    assert restored["data"]["checkpoint"] == 2
    shell.run_ok("stop", "endless")
    second.wait()
    assert_exact(shell)


def test_what_is_known_of_a_checkpoint_is_the_same_when_the_job_has_ended(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    running = shell.start("run", "job.py", "-p", "2", "--set", "checkpoint.interval=0")
    shell.wait_for_status("endless", lambda status: status["records_out"])
    taken = [shell.run_ok("checkpoint", "endless", "--json").json() for _ in range(2)]
    taken.append(shell.run_ok("savepoint", "endless", "--to", "saved", "--json").json())
    taken.append(shell.run_ok("stop", "endless", "--to", "stopped", "--json").json())
    assert running.wait().code == 0

    left = shell.run_ok("checkpoints", "endless", "--json").json()

    assert [one for one in left if one["path"] in {each["path"] for each in taken}] == taken
    assert all(one["duration_ms"] > 0 and one["bytes"] > 0 for one in left)
    shell.start("run", "job.py", "-p", "2", "--from", taken[-1]["path"], "--set", "checkpoint.interval=0")
    shell.wait_for_status("endless", lambda status: status["records_out"])
    assert [one for one in shell.run_ok("checkpoints", "endless", "--json").json() if one in left] == left
    shell.run_ok("cancel", "endless")


def test_cancel_ends_at_once_and_what_was_committed_stays_exact(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    running = shell.start(*COMMAND, "--json")
    running.wait_for("checkpoint_completed", 2)

    shell.run_ok("cancel", "endless")
    done = running.wait(10)

    assert done.code == 130, done
    assert shell.run_ok("status", "endless", "--json").json()["state"] == "CANCELLED"
    assert_exact(shell)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_gracefully_with_a_last_checkpoint(shell: Shell, number: signal.Signals) -> None:
    shell.write("job.py", ENDLESS)
    running = shell.start("run", "job.py", "-p", "2", "--json")
    shell.wait_for_status("endless", lambda status: status["records_out"])

    if number is signal.SIGINT:
        running.interrupt()
    else:
        running.signal(number)
    done = running.wait()

    assert done.code == 130, done
    assert [event["event"] for event in running.events()][-3:] == ["stopping", "checkpoint_completed", "stopped"]
    assert not running.events("worker_lost")
    assert_exact(shell)


STUCK = """
import time
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def stick(n):
    open("stuck", "w").close()
    time.sleep(600)


job = Job("stuck")
job.source(SequenceSource(0, 10), uid="numbers").map(stick, uid="stick").sink(FileSink("out", format="jsonl"), uid="out")
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM)],
)
def test_two_signals_cancel(shell: Shell, first: signal.Signals, second: signal.Signals) -> None:
    shell.write("job.py", STUCK)
    running = shell.start("run", "job.py", "-p", "1", "--json")
    running.wait_until((shell.folder / "stuck").exists, "function that does not return")

    os.killpg(running.pid, first)
    running.wait_for("stopping")
    os.killpg(running.pid, second)
    running.wait_for("cancelling")
    done = running.wait(10)

    assert done.code == 130, done


def test_in_the_background_it_returns_when_records_flow_and_goes_on_without_the_shell(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)

    started = shell.run_ok(*COMMAND, "--detach", "--json").json()

    assert shell.status("endless")["pid"] == started["pid"]
    shell.wait_for_status("endless", lambda status: status["last_checkpoint"])
    shell.run_ok("stop", "endless")
    end = time.monotonic() + 10
    while '"state": "STOPPED"' not in shell.run("status", "endless", "--json").out:
        assert time.monotonic() < end
    assert_exact(shell)


def test_of_several_runs_at_once_exactly_one_goes_on(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)

    runs = [shell.start(*COMMAND) for _ in range(4)]
    shell.wait_for_status("endless", lambda status: status["records_out"])
    end = time.monotonic() + 20
    while sum(run.process.poll() is None for run in runs) > 1:
        assert time.monotonic() < end, "more than one goes on"
    (winner,) = [run for run in runs if run.process.poll() is None]

    for loser in runs:
        if loser is not winner:
            done = loser.wait()
            assert done.code == 2, done
            assert f"already running (pid {winner.pid})" in done.sentence, done
    shell.run_ok("stop", "endless")
    assert winner.wait().code == 0
    assert_exact(shell)


def test_starting_over_begins_a_new_lineage_and_takes_the_output_only_when_told_to(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    first = shell.start(*COMMAND, "--json")
    first.wait_for("checkpoint_completed", 1)
    shell.run_ok("stop", "endless")
    first.wait()

    refused = shell.run(*COMMAND, "--fresh")
    assert refused.code == 1, refused
    assert "--take-output" in refused.sentence

    for part in (shell.folder / "out").glob("part-*"):
        part.unlink()
    again = shell.start(*COMMAND, "--json", "--fresh", "--take-output")
    again.wait_for("checkpoint_completed", 1)
    shell.run_ok("stop", "endless")
    assert again.wait().code == 0
    assert not again.events("restored")
    assert_exact(shell)


def test_a_home_whose_path_is_too_long_for_sockets_works_all_the_same(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    shell.move_home("a-rather-long-name-for-a-folder/" * 4)
    running = shell.start(*COMMAND, "--json")
    running.wait_for("checkpoint_completed", 1)

    assert shell.status("endless")["pid"] == running.pid
    shell.run_ok("stop", "endless")

    assert running.wait().code == 0
    assert_exact(shell)


DYING = """
import os
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("dying")
(
    job.source(SequenceSource(0, 1000), uid="numbers")
    .map(lambda n: os._exit(9) if n == 300 else n, uid="die")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def test_ctrl_c_while_a_restart_is_waited_for_ends_the_job_at_once(shell: Shell) -> None:
    shell.write("job.py", DYING)
    running = shell.start("run", "job.py", "-p", "1", "--json", "--set", "restart.delay=1h")
    running.wait_for("restarting", 2)

    running.interrupt()

    assert running.wait(timeout=10).code == 130
    assert shell.run_ok("list", "--json").json()[0]["state"] == "CANCELLED"


SHORT = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("short")
job.source(SequenceSource(0, 300, rate=1000), uid="numbers").sink(FileSink("out", format="jsonl"), uid="out")
"""


@pytest.mark.parametrize("command", [["status", "short"], ["workers", "short"], ["checkpoints", "short"], ["list"]])
def test_a_command_during_start_and_end_of_a_job_gets_an_answer_or_one_sentence(
    shell: Shell, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWPOINT_HOME", str(shell.home.root))
    shell.write("job.py", SHORT)
    for _ in range(2):
        running = shell.start("run", "job.py", "-p", "1", "--fresh", "--take-output")
        codes = set()
        while running.process.poll() is None:
            codes.add(execute(command))
            error = capsys.readouterr().err
            assert error.count("\n") <= 1 and "Traceback" not in error, error
            assert "bug" not in error and "UNRESPONSIVE" not in error, error
        assert running.wait().code == 0
        assert codes <= {0, 3}


def test_a_cancel_during_start_or_end_of_a_job_ends_it_or_gets_one_sentence(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWPOINT_HOME", str(shell.home.root))
    shell.write("job.py", SHORT)
    running = shell.start("run", "job.py", "-p", "1")
    codes = []
    while running.process.poll() is None:
        codes.append(execute(["cancel", "short"]))
        error = capsys.readouterr().err
        assert error.count("\n") <= 1 and "Traceback" not in error, error

    assert running.wait().code in {0, 130}
    assert set(codes) <= {0, 3}


def test_a_job_in_the_background_answers_as_soon_as_its_start_has_been_told(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)

    shell.run_ok("run", "job.py", "-p", "1", "--detach")

    assert shell.status("endless")["state"] == "RUNNING"
    shell.run_ok("cancel", "endless")


def test_a_job_has_finished_also_when_what_it_kept_beside_cannot_be_removed(shell: Shell) -> None:
    shell.write("job.py", ENDLESS.replace("10_000_000, rate=2000", "100"))
    shell.home.root.mkdir()
    (shell.home.root / "work").write_text("no folder")

    done = shell.run("run", "job.py", "-p", "1", "--set", "state.backend=heap", "--json")

    assert done.code == 0, done
    assert "cannot remove" in done.out
    assert_exact(shell)


def test_the_folder_of_a_running_job_that_has_published_nothing_is_refused_to_another_job(shell: Shell) -> None:
    shell.write("job.py", ENDLESS)
    first = shell.start("run", "job.py", "-p", "1", "--set", "checkpoint.interval=1h", "--json")
    first.wait_for("running")

    second = shell.run("run", "job.py", "-p", "1", "--name", "other")

    assert second.code == 1
    assert "it belongs to job 'endless'" in second.err and "--take-output" in second.err
    shell.run_ok("stop", "endless")
    assert first.wait().code == 0
    assert_exact(shell)
