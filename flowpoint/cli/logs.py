"""`flowpoint logs`: what happened to a job, and what its workers printed.

`-f` looks every `POLL_SECONDS`, as tail does; it ends when the job has ended and everything is shown.
"""

from __future__ import annotations

import sys
import time
from typing import BinaryIO

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError
from flowpoint.launch.home import Home, JobFolder

POLL_SECONDS = 0.2


@click.command(name="logs", short_help="Show what happened and what was printed.")
@output.job_argument
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, until the job ends.")
def command(job: str, follow: bool) -> None:
    """Show the log of a job, running or not: what happened, and what its functions and sinks printed."""
    folder = Home.from_environment().find(job)
    try:
        log = folder.log.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"job {job!r} has no log yet: it has never run here") from None
    with log:
        _copy(log)
        while follow:
            running = _is_running(folder)
            _copy(log)
            if not running:
                return
            time.sleep(POLL_SECONDS)


def _copy(log: BinaryIO) -> None:
    """Everything that there is now, byte for byte."""
    while block := log.read(65536):
        sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _is_running(folder: JobFolder) -> bool:
    record = folder.read_run()
    return record is not None and record.state == "RUNNING"
