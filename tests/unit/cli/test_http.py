"""The HTTP interface under good, bad and no behaviour of its clients."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flowpoint.host.processes import allow_open_files
from flowpoint.launch import http
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home
from flowpoint.launch.http import HttpServer
from tests.unit.cli.fake_job import CHECKPOINT, TOKEN, FakeJob, failed_checkpoint, serving

AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\n"


class Served:
    """A server, its job, its address and what it reported."""

    def __init__(self, path: str, **limits: float) -> None:
        self.path = path
        self.job = FakeJob()
        self.reported: list[str] = []
        self.server = HttpServer(self.job, TOKEN, self.reported.append, **limits)

    async def raw(self, data: bytes, *, end: bool = False) -> tuple[int, Any]:
        """Send bytes as they are; returns the status and the data of the answer."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(data)
        if end:
            writer.write_eof()
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)

    async def ask(self, method: str, path: str, headers: str = AUTHORIZED, body: str = "") -> tuple[int, Any]:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return await self.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}{length}\r\n{body}".encode())


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="fp") as folder:
        served = Served(str(Path(folder) / "socket"), read_seconds=0.2, write_seconds=0.2)
        await served.server.start(served.path)
        yield served
        await served.server.close()


async def test_questions_are_answered(served: Served) -> None:
    assert (await served.ask("GET", "/status"))[1]["state"] == "RUNNING"
    assert (await served.ask("GET", "/workers"))[1][0]["pid"] == 4711
    assert await served.ask("GET", "/checkpoints") == (200, [CHECKPOINT])
    assert await served.ask("GET", "/checkpoints?x=1") == (200, [CHECKPOINT])


async def test_a_stop_may_drain_and_says_so_by_true_or_false_only(served: Served) -> None:
    status, _ = await served.ask("POST", "/stop", body='{"drain": true}')
    refused, answer = await served.ask("POST", "/stop", body='{"drain": "yes"}')

    assert (status, refused) == (200, 400)
    assert "drain='yes'" in str(answer)
    assert served.job.calls == ["stop drained"]


async def test_where_a_savepoint_goes_is_not_looked_at_on_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(path: str) -> bool:
        raise AssertionError(f"{path} is on a disk that hangs")

    with monkeypatch.context() as patched:
        for look in ("exists", "lexists", "isdir"):
            patched.setattr(os.path, look, hangs)
        status, _ = await served.ask("POST", "/savepoint", body='{"to": "/mnt/savepoints"}')

    assert status == 200


async def test_commands_are_carried_out(served: Served) -> None:
    for path in ("/checkpoint", "/stop", "/cancel"):
        status, _ = await served.ask("POST", path)
        assert status == 200

    assert [call for call in served.job.calls if call != "status"] == ["checkpoint", "stop", "cancel"]


@pytest.mark.parametrize("headers", ["", "Authorization: Bearer wrong\r\n", f"Authorization: Basic {TOKEN}\r\n"])
async def test_without_the_token_nothing_is_told_or_done(served: Served, headers: str) -> None:
    status, data = await served.ask("POST", "/cancel", headers)

    assert status == 401
    assert "token" in data["error"]["message"]
    assert served.job.calls == []


async def test_unknown_paths_and_wrong_methods_are_refused_with_what_there_is(served: Served) -> None:
    status, data = await served.ask("GET", "/nothing")
    assert status == 404
    assert "/status" in data["error"]["message"]

    status, data = await served.ask("GET", "/cancel")
    assert status == 405
    assert served.job.calls == []


async def test_an_error_travels_by_its_kind_and_message(served: Served) -> None:
    served.job.checkpoint_error = failed_checkpoint()

    status, data = await served.ask("POST", "/checkpoint")

    assert status == 409
    assert data["error"] == {"kind": "CheckpointFailed", "message": str(failed_checkpoint())}


async def test_a_bug_is_answered_and_reported_and_the_server_goes_on(served: Served) -> None:
    served.job.checkpoint_error = ZeroDivisionError("oops")

    status, data = await served.ask("POST", "/checkpoint")

    assert status == 500
    assert data["error"]["kind"] == "InternalError"
    assert "oops" in served.reported[0]
    assert (await served.ask("GET", "/status"))[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /status HTTP/1.1\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"GET /stat\xffus HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused(served: Served, data: bytes) -> None:
    status, answer = await served.raw(data)

    assert status == 400
    assert "not a request" in answer["error"]["message"]


async def test_a_head_without_end_is_cut_off(served: Served) -> None:
    status, _ = await served.raw(b"GET /status HTTP/1.1\r\n" + b"X-Long: aaaaaaaaaaaaaaaa\r\n" * 4000)

    assert status == 431


async def test_a_large_body_is_refused(served: Served) -> None:
    size = http.BODY_BYTES_MAX + 1
    head = f"POST /checkpoint HTTP/1.1\r\nHost: x\r\n{AUTHORIZED}Content-Length: {size}\r\n\r\n".encode()

    status, _ = await served.raw(head + b"x" * size)

    assert status == 413
    assert served.job.calls == []


async def test_a_request_in_pieces_is_understood(served: Served) -> None:
    reader, writer = await asyncio.open_unix_connection(served.path)
    for byte in f"GET /status HTTP/1.1\r\nHost: x\r\n{AUTHORIZED}\r\n".encode():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)

    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_client_that_sends_half_a_request_is_told_and_dropped(served: Served) -> None:
    status, data = await served.raw(b"GET /status HTTP/1.1\r\n")
    assert status == 408
    assert "0.2 s" in data["error"]["message"]

    status, _ = await served.raw(b"GET /status HTTP/1.1\r\n", end=True)
    assert status == 400


async def test_a_client_that_sends_nothing_and_goes_leaves_no_trace(served: Served) -> None:
    _, writer = await asyncio.open_unix_connection(served.path)
    writer.close()
    await writer.wait_closed()

    assert (await served.ask("GET", "/status"))[0] == 200
    assert served.reported == []


async def test_a_client_that_does_not_read_does_not_hold_up_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.job, "workers", lambda: ["x" * 8_000_000])
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(served.path)
    deaf.sendall(f"GET /workers HTTP/1.1\r\nHost: x\r\n{AUTHORIZED}\r\n".encode())

    assert (await served.ask("GET", "/status"))[0] == 200
    async with asyncio.timeout(5):
        while served.server._answering:
            await asyncio.sleep(0.01)
    deaf.close()


async def test_more_clients_than_slots_are_refused_until_one_is_free(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "ANSWERING_MAX", 2)
    served.job.checkpoint_gate.clear()
    waiting = [asyncio.create_task(served.ask("POST", "/checkpoint")) for _ in range(2)]
    while served.job.calls != ["checkpoint"] * 2:
        await asyncio.sleep(0)

    assert (await served.ask("GET", "/status"))[0] == 503

    served.job.checkpoint_gate.set()
    assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]
    assert (await served.ask("GET", "/status"))[0] == 200


async def test_a_crowd_that_sends_nothing_keeps_nobody_from_asking(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "READING_MAX", 3)
    idle = [await asyncio.open_unix_connection(served.path) for _ in range(10)]

    assert (await served.ask("GET", "/status"))[0] == 200
    assert await idle[0][0].read() == b""

    for _, writer in idle:
        writer.close()


async def test_400_sockets_that_say_nothing_keep_nobody_from_asking_and_few_of_them_are_held(home: Home) -> None:
    allow_open_files()
    job = FakeJob()
    async with serving(home, job) as server:
        record = home.job(job.name).read_run()
        assert record is not None
        idle = [await asyncio.open_unix_connection(record.socket) for _ in range(400)]
        status = await asyncio.to_thread(lambda: JobClient.of(home, job.name).get("/status"))
        held = len(server._reading)
        for _, writer in idle:
            writer.close()

    assert status["state"] == "RUNNING"
    assert held <= http.READING_MAX


async def test_a_command_is_carried_out_though_its_client_has_gone(served: Served) -> None:
    served.job.checkpoint_gate.clear()
    _, writer = await asyncio.open_unix_connection(served.path)
    writer.write(f"POST /checkpoint HTTP/1.1\r\nHost: x\r\n{AUTHORIZED}\r\n".encode())
    while not served.server._answering:
        await asyncio.sleep(0)
    writer.transport.abort()
    served.job.checkpoint_gate.set()
    async with asyncio.timeout(5):
        while served.server._answering:
            await asyncio.sleep(0)

    assert served.job.calls == ["checkpoint"]


async def test_closing_lets_answers_out_and_drops_the_rest(served: Served) -> None:
    served.job.checkpoint_gate.clear()
    _, idle = await asyncio.open_unix_connection(served.path)
    answer = asyncio.create_task(served.ask("POST", "/checkpoint"))
    while not served.server._answering:
        await asyncio.sleep(0)
    closing = asyncio.create_task(served.server.close(grace=5))
    await asyncio.sleep(0)
    served.job.checkpoint_gate.set()

    assert (await answer)[0] == 200
    await closing
    idle.close()


async def test_closing_does_not_wait_for_ever(served: Served) -> None:
    served.job.checkpoint_gate.clear()
    reader, writer = await asyncio.open_unix_connection(served.path)
    writer.write(f"POST /checkpoint HTTP/1.1\r\nHost: x\r\n{AUTHORIZED}\r\n".encode())
    while not served.server._answering:
        await asyncio.sleep(0)

    await served.server.close(grace=0.01)

    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("folder", ["/tmp/a\0b", "/tmp/\ud800", "relative", 7])
async def test_what_is_no_path_is_refused_before_it_gets_to_the_job(served: Served, folder: Any) -> None:
    for command in ("/savepoint", "/stop"):
        status, answer = await served.ask("POST", command, body=json.dumps({"to": folder}))

        assert status == 400
        assert "absolute path" in answer["error"]["message"]
    assert served.job.calls == []


async def test_a_body_nested_too_deeply_is_refused(served: Served) -> None:
    status, answer = await served.ask("POST", "/savepoint", body="[" * 60_000)

    assert status in (400, 413)
    assert answer["error"]["message"]
    assert served.reported == []
