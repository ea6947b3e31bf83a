"""Threads that never come back, of a connector's blocking call or of a disk that hangs, keep no job from its end."""

from __future__ import annotations

import os

import pytest

from flowpoint.launch.home import Home
from tests.e2e.shell import Shell

JOB = """
import asyncio
import threading

from flowpoint import Job
from flowpoint.connectors import CollectionSource

tasks = []


class Writer:
    def write(self, batch): ...
    def prepare(self, checkpoint): ...


class Sink:
    async def begin(self, ctx):
        tasks.append(asyncio.create_task({hanging}))
        await asyncio.sleep(0)

    def open(self, ctx):
        return Writer()

    def commit(self, committable): ...
    def abort(self, committable): ...


job = Job("hanging")
job.source(CollectionSource([1, 2, 3]), uid="in").sink(Sink(), uid="out")
"""

HANGING = {
    "of a connector": "asyncio.to_thread(threading.Event().wait)",
    "of the disk": "ctx.disk.read('pipe')",  # nobody ever writes into it
}


@pytest.mark.parametrize("hanging", HANGING.values(), ids=HANGING)
def test_a_job_ends_although_a_thread_of_its_coordinator_hangs(shell: Shell, hanging: str) -> None:
    os.mkfifo(shell.folder / "pipe")
    shell.write("job.py", JOB.format(hanging=hanging))

    done = shell.run("run", "job.py", "-p", "1", timeout=20)

    assert done.code == 0, done
    assert _outcome(shell.home) == "finished"


def _outcome(home: Home) -> str:
    record = home.job("hanging").read_run()
    return record.outcome if record is not None else "nothing"
