"""`flowpoint logs`: what happened to a job, and what its workers printed.

A log that has become long is put aside, and another one begun (`host.log_files`); here all files of it are shown as one,
the oldest first. `-f` looks every `POLL_SECONDS`, as tail does; it ends when the job has ended and everything is shown. The
last lines are found from the end of the newest file, block by block: a log may be long.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError, StorageError
from flowpoint.host.log_files import files_of
from flowpoint.host.regular_files import open_existing
from flowpoint.launch.claim import owner_of
from flowpoint.launch.home import Home, JobFolder
from flowpoint.launch.starting import is_starting

POLL_SECONDS = 0.2
BLOCK_BYTES = 65536
FOLLOWED_LINES = 10
"""So many are shown first with -f, as tail does."""
WATCHED_FILES = 2
"""The newest ones: a worker may go on writing for a moment into the one that was put aside."""


@click.command(name="logs", short_help="Show what happened and what was printed.")
@output.job_argument
@click.option("-f", "--follow", is_flag=True, help="Begin with the last 10 lines, and go on until the job ends.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(min=0), help="Only the last N lines (default: all).")
def command(job: str, follow: bool, lines: int | None) -> None:
    """Show the log of a job, running or not: what happened, and what its functions and sinks printed.

    Times in it are in UTC, as their Z says; other commands show the time of this machine's zone, with its name.
    """
    folder = Home.from_environment().find(job)
    with _Log(folder) as log:
        if lines is None and follow:
            lines = FOLLOWED_LINES
        if lines is not None:
            log.skip_to_last(lines)
        log.copy()
        while follow:
            running = _is_running(folder)
            log.copy()
            if not running:
                return
            time.sleep(POLL_SECONDS)


class _Log:
    """The files of a job's log, each open and read as far as it was shown."""

    def __init__(self, folder: JobFolder) -> None:
        self._path = folder.log
        self._name = folder.name
        self._closing = ExitStack()
        self._files: deque[BinaryIO] = deque()  # the oldest first

    def __enter__(self) -> _Log:
        self._take_new()
        if not self._files:
            raise NotFoundError(f"job {self._name!r} has no log yet: it has never run here")
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def skip_to_last(self, lines: int) -> None:
        """Go to where the last lines begin."""
        missing = lines
        for log in reversed(self._files):
            start, missing = _start_of_last(log, missing)
            log.seek(start)

    def copy(self) -> None:
        """Show everything that there is now, byte for byte. What is printed meanwhile is for the next time."""
        self._take_new()
        for log in self._files:
            left = os.fstat(log.fileno()).st_size - log.tell()
            while left > 0 and (block := log.read(min(left, BLOCK_BYTES))):
                sys.stdout.buffer.write(block)
                left -= len(block)
        sys.stdout.buffer.flush()
        while len(self._files) > WATCHED_FILES:
            self._files.popleft().close()

    def _take_new(self) -> None:
        """Open the files that have come since the last look; they may be turned over meanwhile."""
        known = [os.fstat(log.fileno()) for log in self._files][-1:]
        newer: deque[BinaryIO] = deque()
        # Somebody may forget the job meanwhile: then there is nothing new.
        with suppress(FileNotFoundError):
            while not self._open_newer(known, newer):
                newer.clear()
            self._files += newer

    def _open_newer(self, known: list[os.stat_result], newer: deque[BinaryIO]) -> bool:
        """Open what is newer than the newest known file; False when that has changed before all of it was open."""
        for path in files_of(self._path):
            with suppress(FileNotFoundError):
                log = self._closing.enter_context(_opened(path))
                found = os.fstat(log.fileno())
                if any(os.path.samestat(found, stat) for stat in known):
                    break
                # One that was put aside since the last one was opened is that very one.
                if not (newer and os.path.samestat(found, os.fstat(newer[0].fileno()))):
                    newer.appendleft(log)
        else:
            # Somebody has removed the newest known file: what was put aside before it has been shown, or left out.
            while len(newer) > 1 and any(_written(newer[0]) < stat.st_mtime_ns for stat in known):
                newer.popleft()
        newest = [os.fstat(newer[-1].fileno())] if newer else known
        return not newest or os.path.samestat(newest[0], self._path.stat())


def _opened(path: Path) -> BinaryIO:
    try:
        return open(open_existing(str(path)), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(
            f"cannot read the log {path}: {error.strerror}; nobody but FlowPoint puts anything there: remove it, or let "
            "this user read it"
        ) from error


def _written(log: BinaryIO) -> int:
    """When it was last written, in nanoseconds."""
    return os.fstat(log.fileno()).st_mtime_ns


def _start_of_last(log: BinaryIO, lines: int) -> tuple[int, int]:
    """Where the last lines begin, and how many of them are not in this file. One that is being written counts as a line."""
    end = log.seek(0, os.SEEK_END)
    if not lines:
        return end, 0
    # The last byte ends the last line, or belongs to it: the line before it ends earlier.
    at, missing = end - 1, lines
    while at > 0:
        start = max(0, at - BLOCK_BYTES)
        log.seek(start)
        block = log.read(at - start)
        at = start
        breaks = block.count(b"\n")
        if breaks < missing:
            missing -= breaks
            continue
        for _ in range(missing):
            block = block[: block.rindex(b"\n")]
        return start + len(block) + 1, 0
    return 0, missing - 1 if end else missing


def _is_running(folder: JobFolder) -> bool:
    """Also one that is only starting will have something to say."""
    record = folder.read_run()
    is_told = record is not None and record.state == "RUNNING"
    # A start is withdrawn only when it holds the job.
    return is_told or is_starting(folder, record) or owner_of(folder) is not None
