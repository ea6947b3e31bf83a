"""Output that nobody takes, of a pager that is not scrolled or a terminal that is held, holds up no job."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.shell import Shell, committed

JOB = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("unread")
(
    job.source(SequenceSource(0, 10_000_000, rate=2000), uid="numbers")
    .key_by(lambda n: n % 10)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""

PIPE_BYTES = 4096

pytestmark = pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="no pipe can be made small here")


@contextmanager
def unread(shell: Shell) -> Iterator[subprocess.Popen[bytes]]:
    """A run whose output nobody reads, long after its pipe is full."""
    shell.write("job.py", JOB)
    command = ["run", "job.py", "-p", "1", "--json", "--set", "checkpoint.interval=20ms"]
    running = subprocess.Popen(
        [sys.executable, "-m", "flowpoint", *command],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert running.stdout is not None
        fcntl.fcntl(running.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # An event of a checkpoint has more than 200 bytes.
        shell.wait_for_status("unread", lambda status: (status["last_checkpoint"] or {"id": 0})["id"] > 60)
        yield running
    finally:
        running.kill()
        running.communicate()


def test_a_job_goes_on_while_nobody_reads_what_its_run_shows(shell: Shell) -> None:
    with unread(shell) as running:
        last = shell.run_ok("stop", "unread", "--json").json()

        events = [json.loads(line) for line in running.communicate(timeout=20)[0].splitlines()]

    assert (running.returncode, events[-1]["event"]) == (0, "stopped")
    completed = [event["data"]["id"] for event in events if event["event"] == "checkpoint_completed"]
    assert completed == list(range(1, last["id"] + 1))
    assert committed(shell.folder / "out")


def test_a_run_that_waits_only_for_its_reader_is_over_and_an_interrupt_ends_it(shell: Shell) -> None:
    with unread(shell) as running:
        shell.run_ok("stop", "unread")
        record = shell.home.job("unread").read_run()
        while record is None or not record.outcome:  # within the timeout of the test
            record = shell.home.job("unread").read_run()
        assert running.poll() is None

        running.send_signal(signal.SIGINT)

        assert running.wait(timeout=20) == 130
    assert record.outcome == "stopped"
