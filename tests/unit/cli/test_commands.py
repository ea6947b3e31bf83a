"""Every command against a running job, a dead one and none, by its text, JSON and exit code."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from flowpoint.cli.main import COMMANDS, execute
from flowpoint.errors import TransientError
from flowpoint.launch import client, history
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home
from tests.unit.cli.fake_job import (
    CHECKPOINT,
    FakeJob,
    claimed,
    failed_checkpoint,
    serving,
    shell,
)

Captured = pytest.CaptureFixture[str]


async def test_status_shows_the_figures(home: Home, capsys: Captured) -> None:
    async with serving(home, FakeJob()):
        assert await shell("status", "words") == 0
        text = capsys.readouterr().out
        assert await shell("status", "words", "--json") == 0
        data = json.loads(capsys.readouterr().out)

    assert "RUNNING" in text
    assert "12,346 records/s" in text
    assert "3 (12 ms, 2.0 kB)" in text
    assert "lines_skipped 1,234" in text
    keys = "state attempt restarts parallelism records_in records_out rate lag backpressure last_checkpoint"
    assert set(keys.split()) <= set(data)


async def test_workers_shows_the_pids(home: Home, capsys: Captured) -> None:
    async with serving(home, FakeJob()):
        assert await shell("workers", "words") == 0
        text = capsys.readouterr().out
        assert await shell("workers", "words", "--json") == 0
        data = json.loads(capsys.readouterr().out)

    assert text.splitlines()[1].split() == ["0", "4711", "98%", "51.2", "MB", "lines#0", "counts#0"]
    assert [worker["pid"] for worker in data] == [4711, None]


async def test_checkpoints_of_a_running_job_come_from_the_job(home: Home, capsys: Captured) -> None:
    async with serving(home, FakeJob()):
        assert await shell("checkpoints", "words", "--json") == 0
        assert json.loads(capsys.readouterr().out) == [CHECKPOINT]
        assert await shell("checkpoints", "words") == 0

    assert "chk-3-a2" in capsys.readouterr().out


async def test_a_pending_checkpoint_is_shown_with_how_long_it_has_been_running(home: Home, capsys: Captured) -> None:
    job = FakeJob()
    started = time.time_ns() // 1_000_000 - 90_000
    job.listed = [CHECKPOINT | {"state": "pending", "started": started, "duration_ms": None, "bytes": None}]
    async with serving(home, job):
        assert await shell("checkpoints", "words") == 0

    row = capsys.readouterr().out.splitlines()[1]
    assert "1 m 30 s so far" in row and " - " in row


async def test_a_checkpoint_that_takes_long_says_what_it_waits_for(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.01)
    job = FakeJob()
    job.stalled = 12.0
    job.checkpoint_gate.clear()
    told = ""

    async with serving(home, job):
        waiting = asyncio.create_task(shell("checkpoint", "words"))
        async with asyncio.timeout(10):
            while "\n" not in told:
                await asyncio.sleep(0.001)
                told += capsys.readouterr().err
        job.checkpoint_gate.set()
        assert await waiting == 0

    assert told == (
        "waiting for every operator of job 'words' to pass the barrier and write its state"
        " (at work on the same records: counts for 12.0 s)\n"
    )


def test_checkpoints_of_a_job_that_ended_come_from_its_storage(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed(home).release("stopped", ended=1)
    monkeypatch.setattr(history, "list_checkpoints", lambda _home, name: [CHECKPOINT | {"id": 9, "kind": name}])

    assert execute(["checkpoints", "words", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)[0]["id"] == 9


@pytest.mark.parametrize(
    ("command", "said"), [("checkpoint", "checkpoint 3"), ("stop", "stopped after checkpoint 3"), ("cancel", "cancel")]
)
async def test_a_command_is_carried_out_and_tells_so(home: Home, capsys: Captured, command: str, said: str) -> None:
    job = FakeJob()
    async with serving(home, job):
        assert await shell(command, "words") == 0
        assert said in capsys.readouterr().out
        assert await shell(command, "words", "--json") == 0
        assert json.loads(capsys.readouterr().out)

    assert job.calls.count(command) == 2


async def test_a_rescale_to_what_there_is_says_that_nothing_was_changed(home: Home, capsys: Captured) -> None:
    async with serving(home, FakeJob()):
        assert await shell("rescale", "words", "-p", "2") == 0

    assert capsys.readouterr().out == "job 'words' runs with parallelism 2 already: nothing was changed\n"


async def test_a_stop_that_takes_long_says_what_it_waits_for_and_how_to_end_it_at_once(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PATIENCE_SECONDS", 0.01)
    job = FakeJob()
    job.stop_gate.clear()
    told = ""

    async with serving(home, job):
        stopping = asyncio.create_task(shell("stop", "words"))
        async with asyncio.timeout(10):
            while "\n" not in told:
                await asyncio.sleep(0.001)
                told += capsys.readouterr().err
        assert not stopping.done()
        job.stop_gate.set()
        assert await stopping == 0

    waits = "waiting for the last checkpoint of job 'words' and its sinks; `flowpoint cancel words` ends it at once"
    assert told == f"{waits}\n"
    assert "stopped after checkpoint 3" in capsys.readouterr().out


async def test_a_stop_that_is_answered_at_once_says_nothing_of_waiting(home: Home, capsys: Captured) -> None:
    async with serving(home, FakeJob()):
        assert await shell("stop", "words") == 0

    assert capsys.readouterr().err == ""


async def test_a_failed_checkpoint_is_an_error_with_its_reason(home: Home, capsys: Captured) -> None:
    job = FakeJob()
    job.checkpoint_error = failed_checkpoint()
    async with serving(home, job):
        assert await shell("checkpoint", "words") == 1

    assert capsys.readouterr().err == f"flowpoint: {failed_checkpoint()}\n"


async def test_list_shows_running_and_known_jobs(home: Home, capsys: Captured) -> None:
    claimed(home, "old").release("finished", ended=1)
    home.checkpoints("stored").mkdir(parents=True)
    async with serving(home, FakeJob()):
        assert await shell("list", "--json") == 0
        jobs = {job["name"]: job for job in json.loads(capsys.readouterr().out)}
        assert await shell("list") == 0

    assert {name: job["state"] for name, job in jobs.items()} == {
        "old": "FINISHED",
        "stored": "STORED",
        "words": "RUNNING",
    }
    assert jobs["words"]["pid"] is not None
    assert jobs["old"]["pid"] is None
    assert capsys.readouterr().out.splitlines()[0].split() == ["JOB", "STATE", "PID", "STARTED", "JOB", "FILE"]


def test_a_job_whose_coordinator_was_killed_is_shown_as_killed_and_how_to_go_on(home: Home, capsys: Captured) -> None:
    claim = claimed(home)
    record = claim.folder.read_run()
    assert record is not None
    # The pid is that of the tests, but of a process that began at another time.
    claim.record(replace(record, process=replace(record.process, start_time=1.0)))
    claim.let_go()

    assert execute(["list"]) == 0
    listed = capsys.readouterr().out
    assert execute(["status", "words"]) == 0
    status = capsys.readouterr().out
    assert execute(["stop", "words"]) == 3

    assert listed.splitlines()[1].split()[:3] == ["words", "KILLED", "-"]
    assert "KILLED" in status and "its coordinator is gone without a word" in status
    assert "its coordinator was killed; `flowpoint run /jobs/words.py` continues it" in capsys.readouterr().err


def test_list_of_an_empty_home_says_so(home: Home, capsys: Captured) -> None:
    assert execute(["list"]) == 0
    assert "no job was ever run" in capsys.readouterr().out
    assert execute(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("command", ["status", "workers", "checkpoints", "checkpoint", "stop", "cancel", "logs"])
def test_a_job_that_never_was_is_exit_code_3(home: Home, capsys: Captured, command: str) -> None:
    assert execute([command, "words"]) == 3
    assert "there is no job 'words'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["workers", "checkpoint", "stop", "cancel"])
def test_a_job_that_ended_is_exit_code_3_and_tells_how_to_go_on(home: Home, capsys: Captured, command: str) -> None:
    claimed(home).release("stopped", ended=1)

    assert execute([command, "words"]) == 3
    error = capsys.readouterr().err
    assert "it was stopped" in error
    assert "`flowpoint run /jobs/words.py` continues it" in error


@pytest.fixture
def hanging(home: Home) -> Iterator[JobClient]:
    """A client of a job whose coordinator is stopped: connections are taken by the kernel, and nothing follows."""
    claim = claimed(home)
    record = claim.folder.read_run()
    assert record is not None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(record.socket)
        listener.listen()
        yield JobClient(claim.folder, record, answer_seconds=0.05)
    claim.release("failed", ended=1)


def test_a_job_that_hangs_is_told_by_its_pid(hanging: JobClient) -> None:
    with pytest.raises(TransientError, match=rf"pid {os.getpid()}\) did not answer within 0.05 s"):
        hanging.get("/status")


def test_a_job_that_hangs_is_told_so_too_when_more_wait_there_than_the_kernel_keeps(
    hanging: JobClient, home: Home
) -> None:
    record = home.job("words").read_run()
    assert record is not None
    with ExitStack() as others:
        with suppress(BlockingIOError):
            while True:
                other = others.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(record.socket)

        with pytest.raises(TransientError, match=rf"pid {os.getpid()}\) did not answer within 0.05 s"):
            hanging.get("/status")


def test_a_job_that_hangs_during_a_checkpoint_is_noticed(hanging: JobClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.05)

    with pytest.raises(TransientError, match="did not answer"):
        hanging.post("/checkpoint")


async def test_a_slow_checkpoint_is_waited_for_while_the_job_answers(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.02)
    job = FakeJob()
    job.checkpoint_gate.clear()
    async with serving(home, job):
        waiting = asyncio.create_task(shell("checkpoint", "words"))
        while job.calls.count("status") < 3:
            await asyncio.sleep(0.005)
        job.checkpoint_gate.set()

        assert await waiting == 0


async def test_a_job_that_hangs_up_during_a_command_is_an_error_that_names_the_log(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "END_SECONDS", 0.1)
    job = FakeJob()
    job.checkpoint_gate.clear()
    async with serving(home, job) as server:
        waiting = asyncio.create_task(shell("checkpoint", "words"))
        while "checkpoint" not in job.calls:
            await asyncio.sleep(0.005)
        await server.close(grace=0)

        assert await waiting == 1
    assert "flowpoint logs words" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: Captured) -> None:
    for name in COMMANDS:
        assert execute([name, "--help"]) == 0
        assert f"Usage: flowpoint {name}" in capsys.readouterr().out


@pytest.mark.parametrize("group", [[], ["threads"]])
def test_the_list_of_commands_is_not_cut(capsys: Captured, group: list[str]) -> None:
    assert execute([*group, "--help"]) == 0

    assert "..." not in capsys.readouterr().out.replace("[ARGS]...", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["status"], "missing argument 'JOB'"),
        (["status", "a", "b"], "unexpected extra argument"),
        (["run", "job.py", "--plane"], "--plane"),
        (["run", "job.py", "-p", "0"], "0 is not in the range"),
        (["run", "job.py", "--param", "x"], "'x' is not of the form K=V"),
        (["run", "job.py", "--plain", "--json"], "exclude each other"),
        (["status", "../x"], "there is no job '../x'"),
    ],
)
def test_wrong_usage_is_one_sentence_on_stderr(home: Home, capsys: Captured, arguments: list[str], said: str) -> None:
    code: Any = execute(arguments)

    captured = capsys.readouterr()
    assert code == (3 if "there is no job" in said else 2)
    assert captured.out == ""
    assert captured.err.startswith("flowpoint: ")
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_no_command_shows_what_there_is(capsys: Captured) -> None:
    assert execute([]) == 2
    assert "Commands:" in capsys.readouterr().err


async def test_a_job_that_ends_while_it_is_asked_is_told_as_ended(home: Home, capsys: Captured) -> None:
    job = FakeJob()
    job.checkpoint_gate.clear()
    async with serving(home, job) as server:
        waiting = asyncio.create_task(shell("checkpoint", "words"))
        while "checkpoint" not in job.calls:
            await asyncio.sleep(0.005)
        await server.close(grace=0)

    assert await waiting == 3
    assert "job 'words' is not running: it was stopped" in capsys.readouterr().err


def test_the_status_of_a_job_that_ended_tells_how(home: Home, capsys: Captured) -> None:
    claimed(home).release("failed", ended=1_790_000_001_000, reason="it broke")

    assert execute(["status", "words"]) == 0
    told = capsys.readouterr()
    assert "FAILED" in told.out and "it broke" in told.out
    assert "`flowpoint run /jobs/words.py` tries again" in told.err
    assert execute(["status", "words", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["state"], data["reason"], data["ended"]) == ("FAILED", "it broke", 1_790_000_001_000)
    assert data.keys() >= FakeJob().status().keys()


def test_a_job_is_forgotten_with_its_checkpoints_and_says_what_went(home: Home, capsys: Captured) -> None:
    claimed(home).release("stopped", ended=1)
    home.checkpoints("words").mkdir(parents=True)

    assert execute(["forget", "words"]) == 0

    told = capsys.readouterr().out
    assert str(home.checkpoints("words")) in told and str(home.job("words").path) in told
    assert home.known_jobs() == []
    claimed(home).release("finished", ended=2)


def test_several_jobs_are_forgotten_at_once_and_none_when_one_is_unknown(home: Home, capsys: Captured) -> None:
    for name in ("words", "lines"):
        claimed(home, name).release("finished", ended=1)

    assert execute(["forget", "words", "nobody"]) == 3
    assert home.known_jobs() == ["lines", "words"]
    capsys.readouterr()
    assert execute(["forget", "words", "lines", "--json"]) == 0

    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["words", "lines"]
    assert home.known_jobs() == []


def test_checkpoints_can_be_kept_when_a_job_is_forgotten(home: Home, capsys: Captured) -> None:
    claimed(home).release("stopped", ended=1)
    home.checkpoints("words").mkdir(parents=True)

    assert execute(["forget", "words", "--keep-checkpoints"]) == 0

    assert f"left where they are: the checkpoints in {home.checkpoints('words')}" in capsys.readouterr().out
    assert home.checkpoints("words").is_dir() and not home.job("words").path.exists()


def test_a_running_job_and_one_that_never_was_are_not_forgotten(home: Home, capsys: Captured) -> None:
    claim = claimed(home)

    assert execute(["forget", "words"]) == 2
    assert "cannot forget 'words': it runs" in capsys.readouterr().err
    assert home.job("words").read_run() is not None
    claim.release("finished", ended=1)
    assert execute(["forget", "nothing"]) == 3


def test_a_wrong_command_or_name_is_told_with_what_may_be_meant(home: Home, capsys: Captured) -> None:
    claimed(home).release("stopped", ended=1)

    assert execute(["stauts", "words"]) == 2
    assert "did you mean `flowpoint status`?" in capsys.readouterr().err
    assert execute(["status", "wrods"]) == 3
    assert "did you mean words?" in capsys.readouterr().err
    assert execute(["status", "/jobs/words.py"]) == 3
    assert "/jobs/words.py is the file of job words" in capsys.readouterr().err
