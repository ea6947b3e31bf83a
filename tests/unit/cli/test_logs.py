"""`flowpoint logs` shows all files of a log as one, from any line on, for as long as the job runs."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowpoint.cli import logs
from flowpoint.cli.main import execute
from flowpoint.host.log_files import files_of, turn
from flowpoint.launch.claim import claim_job
from flowpoint.launch.control import Event, EventKind
from flowpoint.launch.home import Home
from flowpoint.launch.job_log import JobLog
from flowpoint.model.settings import LogSettings
from tests.unit.cli.fake_job import claimed, record_run, shell, this_process


class Followed:
    """`flowpoint logs -f` while it runs, and what it has shown."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self.following = asyncio.create_task(shell("logs", "words", "-f"))
        self._capture = capture
        self._text = b""

    @property
    def text(self) -> bytes:
        self._text += self._capture.readouterr().out
        return self._text

    async def until(self, text: bytes) -> None:
        while text not in self.text:
            await asyncio.sleep(0.005)


def test_logs_shows_events_with_their_tracebacks(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    claim = claimed(home)
    log = JobLog(claim.folder.log, LogSettings())
    log.write(Event(EventKind.RUNNING, "running: attempt 1"), wall_ms=1_790_000_000_123)
    log.write(Event(EventKind.FAILED, "it failed", {"trace": "Traceback\n  line\n"}), wall_ms=1_790_000_000_123)
    log.close()
    claim.release("failed", ended=1)

    assert execute(["logs", "words"]) == 0

    assert capfdbinary.readouterr().out.decode().splitlines() == [
        "2026-09-21T14:13:20.123Z running: running: attempt 1",
        "2026-09-21T14:13:20.123Z failed: it failed",
        "Traceback",
        "  line",
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 5000, 20_000])
def test_logs_shows_the_last_lines(home: Home, capfdbinary: pytest.CaptureFixture[bytes], count: int) -> None:
    claim = claimed(home)
    lines = [f"line {number}\n".encode() for number in range(10_000)]
    claim.folder.log.write_bytes(b"".join(lines))
    claim.release("finished", ended=1)

    assert execute(["logs", "words", "-n", str(count)]) == 0

    assert capfdbinary.readouterr().out == b"".join(lines[-count:] if count else [])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 9, 10, 11, 100])
def test_logs_shows_the_last_lines_of_a_log_in_several_files(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes], count: int
) -> None:
    claim = claimed(home)
    lines = [f"line {number}\n".encode() for number in range(10)]
    for name, part in (("log.2", lines[:4]), ("log.1", lines[4:9]), ("log", lines[9:])):
        (claim.folder.path / name).write_bytes(b"".join(part))
    claim.release("finished", ended=1)

    assert execute(["logs", "words", "-n", str(count)]) == 0
    shown = capfdbinary.readouterr().out
    assert execute(["logs", "words"]) == 0

    assert shown == b"".join(lines[-count:] if count else [])
    assert capfdbinary.readouterr().out == b"".join(lines)


def test_logs_shows_what_there_is_and_ends_although_the_job_prints_faster_than_it_shows(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(home)
    log = claim.folder.log
    log.write_bytes(b"first\n")

    class Slow(io.BytesIO):
        """While a block is shown, the job prints more."""

        def write(self, shown: Any) -> int:
            if log.stat().st_size < 10_000:
                with log.open("ab") as printing:
                    printing.write(b"more\n")
            return super().write(shown)

    out = Slow()
    stream = io.TextIOWrapper(out, write_through=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        assert execute(["logs", "words"]) == 0

    assert out.getvalue() == b"first\n"
    claim.release("finished", ended=1)


async def test_logs_follows_into_a_new_file_and_shows_what_comes_late_into_the_old_one(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    claim = claimed(home)
    log = claim.folder.log
    log.write_bytes(b"one\n")
    shown = Followed(capfdbinary)
    await shown.until(b"one")
    for turned in range(3):
        with log.open("ab") as old:
            turn(log, 2)
            log.write_bytes(b"new %d\n" % turned)
            await shown.until(b"new %d" % turned)
            old.write(b"late %d\n" % turned)
            old.flush()
            await shown.until(b"late %d" % turned)
    claim.release("finished", ended=1)

    assert await shown.following == 0
    assert shown.text.count(b"\n") == 7


async def test_logs_goes_on_in_a_log_that_was_begun_anew_and_shows_nothing_twice(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    claim = claimed(home)
    log = claim.folder.log
    for text in (b"one\n", b"two\n", b"three\n"):
        log.write_bytes(text)
        turn(log, 3)
    for number, path in enumerate(files_of(log)):
        os.utime(path, ns=(0, 10**9 - number))
    shown = Followed(capfdbinary)
    await shown.until(b"three")
    log.unlink()
    await asyncio.sleep(logs.POLL_SECONDS * 2)  # as a person would: it has looked meanwhile, or it has not
    log.write_bytes(b"anew\n")
    await shown.until(b"anew")
    claim.release("finished", ended=1)

    assert await shown.following == 0
    assert shown.text == b"one\ntwo\nthree\nanew\n"


def make_a_folder(path: Path) -> None:
    path.mkdir()


def make_a_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [make_a_folder, make_a_pipe])
def test_something_else_in_the_place_of_a_log_is_told(
    home: Home, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    claim = claimed(home)
    make(claim.folder.log)

    assert execute(["logs", "words"]) == 1

    assert capsys.readouterr().err.startswith(f"flowpoint: cannot read the log {claim.folder.log}: ")
    claim.release("finished", ended=1)


def test_a_line_that_is_being_written_is_the_last_one(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    claim = claimed(home)
    claim.folder.log.write_bytes(b"one\ntwo\nthr")
    claim.release("finished", ended=1)

    assert execute(["logs", "words", "-n", "2"]) == 0

    assert capfdbinary.readouterr().out == b"two\nthr"


def test_following_begins_with_the_last_ten_lines(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    claim = claimed(home)
    claim.folder.log.write_bytes(b"".join(b"%d\n" % number for number in range(50)))
    claim.release("finished", ended=1)

    assert execute(["logs", "words", "-f"]) == 0

    assert capfdbinary.readouterr().out.split() == [b"%d" % number for number in range(40, 50)]


async def test_logs_follows_until_the_job_has_ended(home: Home, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    claim = claimed(home)
    log = JobLog(claim.folder.log, LogSettings())
    log.write(Event(EventKind.RUNNING, "one"), wall_ms=0)
    shown = Followed(capfdbinary)
    await shown.until(b"one")
    log.write(Event(EventKind.FINISHED, "two"), wall_ms=0)
    claim.release("finished", ended=1)

    assert await shown.following == 0
    assert b"two" in shown.text
    log.close()


async def test_the_log_of_a_run_that_has_only_taken_the_name_is_followed(
    home: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    claimed(home).release("stopped", ended=1)
    claim = claim_job(home, "words", this_process())
    claim.folder.log.write_bytes(b"of the run before\n")
    shown = Followed(capfdbinary)
    await shown.until(b"before")

    with claim.folder.log.open("ab") as log:
        log.write(b"of this run\n")
    record_run(claim)
    claim.release("finished", ended=2)

    assert await shown.following == 0
    assert b"of this run" in shown.text
