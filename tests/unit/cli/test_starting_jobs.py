"""A job that has just been started is waited for by whoever asks it something, and told as that."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace

import pytest

from flowpoint.cli.main import execute
from flowpoint.launch import client, history
from flowpoint.launch.claim import claim_job
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home, ProcessId
from flowpoint.launch.http import HttpServer
from flowpoint.launch.starting import announced
from tests.unit.cli.fake_job import CHECKPOINT, TOKEN, FakeJob, claimed, record_run, serving, shell, this_process

Captured = pytest.CaptureFixture[str]


def test_a_socket_that_nobody_listens_on_in_time_is_a_job_that_starts_or_ends(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "START_SECONDS", 0.1)
    claim = claimed(home)  # and never serves

    assert execute(["status", "words"]) == 1
    assert "is starting or ending" in capsys.readouterr().err
    claim.release("finished", ended=1)


async def test_a_job_that_does_not_listen_yet_is_waited_for(home: Home) -> None:
    claim = claimed(home)
    record = claim.folder.read_run()
    assert record is not None
    asking = asyncio.create_task(asyncio.to_thread(JobClient.of(home, "words").get, "/status"))
    server = HttpServer(FakeJob(), TOKEN, report=lambda _line: None)
    await asyncio.sleep(0)
    await server.start(record.socket)

    assert (await asking)["name"] == "words"
    await server.close()
    claim.release("stopped", ended=1)


@pytest.mark.parametrize("ending", ["a first run", "stopped", "killed"])
@pytest.mark.parametrize("command", ["stop", "cancel", "checkpoint", "savepoint", "status"])
async def test_a_run_that_has_only_taken_the_name_is_waited_for(
    home: Home, capsys: Captured, command: str, ending: str
) -> None:
    if ending != "a first run":
        claimed(home).release("stopped" if ending == "stopped" else "", ended=1)
    if ending == "killed":
        folder = home.job("words")
        record = folder.read_run()
        assert record is not None
        folder.run_file.write_text(replace(record, process=ProcessId(999_999_999, 1.0)).to_json())
    claim = claim_job(home, "words", this_process())
    asking = asyncio.create_task(shell(command, "words"))
    server = HttpServer(FakeJob(), TOKEN, report=lambda _line: None)
    await asyncio.sleep(0)
    await server.start(record_run(claim).socket)

    assert await asking == 0, capsys.readouterr().err
    await server.close()
    claim.release("stopped", ended=2)


async def test_a_run_that_has_not_even_taken_the_name_is_waited_for(home: Home, capsys: Captured) -> None:
    claimed(home).release("stopped", ended=1)
    with announced(home, "/jobs/words.py", None) as on_claimed:
        asking = asyncio.create_task(shell("stop", "words"))
        await asyncio.sleep(0)
        claim = claim_job(home, "words", this_process())
        on_claimed()
        server = HttpServer(FakeJob(), TOKEN, report=lambda _line: None)
        await server.start(record_run(claim).socket)

    assert await asking == 0, capsys.readouterr().err
    await server.close()
    claim.release("stopped", ended=2)


async def test_a_run_that_takes_long_to_start_is_told_as_that(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "START_SECONDS", 0.0)
    claimed(home).release("stopped", ended=1)
    claim = claim_job(home, "words", this_process())

    code = await shell("stop", "words")
    await shell("list")

    captured = capsys.readouterr()
    assert code == 1
    assert f"job 'words' is starting or ending (pid {os.getpid()})" in captured.err
    assert "STARTING" in captured.out
    claim.let_go()
    assert await shell("stop", "words") == 3


def test_the_checkpoints_of_a_run_that_takes_long_to_start_are_those_in_its_storage(
    home: Home, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "START_SECONDS", 0.0)
    monkeypatch.setattr(history, "list_checkpoints", lambda _home, _name: [CHECKPOINT])
    claim = claim_job(home, "words", this_process())

    assert execute(["checkpoints", "words", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == [CHECKPOINT]
    claim.let_go()


async def test_a_job_that_was_started_again_meanwhile_is_asked_with_its_new_token(home: Home) -> None:
    claimed(home).release("stopped", ended=1)
    async with serving(home, FakeJob()):
        folder = home.job("words")
        record = folder.read_run()
        assert record is not None
        earlier = JobClient(folder, replace(record, token="of an earlier run"))

        assert (await asyncio.to_thread(earlier.get, "/status"))["state"] == "RUNNING"
