"""`flowpoint logs`: what happened to a job, and what its workers printed.

`-f` looks every `POLL_SECONDS`, as tail does; it ends when the job has ended and everything is shown. The last lines are
found from the end of the file, block by block: a log may be long.
"""

from __future__ import annotations

import os
import sys
import time
from typing import BinaryIO

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError
from flowpoint.launch.home import Home, JobFolder

POLL_SECONDS = 0.2
BLOCK_BYTES = 65536
FOLLOWED_LINES = 10
"""So many are shown first with -f, as tail does."""


@click.command(name="logs", short_help="Show what happened and what was printed.")
@output.job_argument
@click.option("-f", "--follow", is_flag=True, help="Begin with the last 10 lines, and go on until the job ends.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(min=0), help="Only the last N lines (default: all).")
def command(job: str, follow: bool, lines: int | None) -> None:
    """Show the log of a job, running or not: what happened, and what its functions and sinks printed.

    Times in it are in UTC, as their Z says; other commands show the time of this machine's zone, with its name.
    """
    folder = Home.from_environment().find(job)
    try:
        log = folder.log.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"job {job!r} has no log yet: it has never run here") from None
    if lines is None and follow:
        lines = FOLLOWED_LINES
    with log:
        if lines is not None:
            log.seek(_start_of_last(log, lines))
        _copy(log)
        while follow:
            running = _is_running(folder)
            _copy(log)
            if not running:
                return
            time.sleep(POLL_SECONDS)


def _start_of_last(log: BinaryIO, lines: int) -> int:
    """Where the last lines begin. One that is being written counts as a line."""
    end = log.seek(0, os.SEEK_END)
    if not lines:
        return end
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
        return start + len(block) + 1
    return 0


def _copy(log: BinaryIO) -> None:
    """Everything that there is now, byte for byte."""
    while block := log.read(BLOCK_BYTES):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _is_running(folder: JobFolder) -> bool:
    record = folder.read_run()
    return record is not None and record.state == "RUNNING"
