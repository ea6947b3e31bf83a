"""A running job without a job: answers as `JobControl` promises, from figures that a test sets."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from flowpoint.cli.main import execute
from flowpoint.errors import CheckpointFailed
from flowpoint.launch.claim import Claim, claim_job
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home, ProcessId, RunRecord
from flowpoint.launch.http import HttpServer

TOKEN = "0123456789abcdef"
CHECKPOINT: Data = {
    "id": 3,
    "attempt": 2,
    "kind": "checkpoint",
    "state": "completed",
    "started": 1_790_000_000_000,
    "duration_ms": 12,
    "bytes": 2048,
    "parent": 2,
    "path": "/checkpoints/words/chk-3-a2",
    "reason": "",
    "alignment_ms": 1,
}


class FakeJob:
    """Implements `JobControl`."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.calls: list[str] = []
        self.listed = [CHECKPOINT]
        self.stalled: float | None = None
        self.checkpoint_error: Exception | None = None
        self.checkpoint_gate = asyncio.Event()
        self.checkpoint_gate.set()
        self.stop_gate = asyncio.Event()
        self.stop_gate.set()

    def status(self) -> Data:
        self.calls.append("status")
        operator = {"uid": "counts", "name": "count", "parallelism": 2, "records_in": 1000, "records_out": 1000}
        operator |= {"busy": 0.5, "stalled": self.stalled}
        return {
            "name": self.name,
            "state": "RUNNING",
            "attempt": 2,
            "restarts": 1,
            "parallelism": 2,
            "records_in": 1000,
            "records_out": 1000,
            "rate": 12345.6,
            "lag": None,
            "backpressure": 0.25,
            "last_checkpoint": CHECKPOINT,
            "reason": "",
            "job_file": "/jobs/words.py",
            "pid": os.getpid(),
            "started": 1_790_000_000_000,
            "operators": [operator | {"rate": 12345.6, "backpressure": 0.25, "metrics": {"lines_skipped": 1234}}],
        }

    def workers(self) -> list[Data]:
        self.calls.append("workers")
        return [
            {
                "index": 0,
                "pid": 4711,
                "subtasks": ["lines#0", "counts#0"],
                "cpu_percent": 98.5,
                "rss_bytes": 51_200_000,
            },
            {"index": 1, "pid": None, "subtasks": [], "cpu_percent": None, "rss_bytes": None},
        ]

    async def checkpoints(self) -> list[Data]:
        return self.listed

    async def checkpoint(self) -> Data:
        self.calls.append("checkpoint")
        await self.checkpoint_gate.wait()
        if self.checkpoint_error is not None:
            raise self.checkpoint_error
        return CHECKPOINT

    async def savepoint(self, to: str = "") -> Data:
        self.calls.append(f"savepoint {to}".rstrip())
        return CHECKPOINT

    async def rescale(self, parallelism: int) -> Data:
        self.calls.append(f"rescale {parallelism}")
        return self.status() | {"rescaled": parallelism != 2}

    async def stop(self, to: str = "", *, drain: bool = False) -> Data:
        self.calls.append("stop drained" if drain else "stop")
        await self.stop_gate.wait()
        return CHECKPOINT

    async def cancel(self) -> Data:
        self.calls.append("cancel")
        return self.status()


def failed_checkpoint() -> CheckpointFailed:
    """What a checkpoint ends in whose sink has no room."""
    return CheckpointFailed("checkpoint 4 failed: operator 'out' could not write: no space left on device")


def this_process() -> ProcessId:
    """The process that runs the tests, as the owner of a job."""
    import psutil

    return ProcessId(os.getpid(), psutil.Process().create_time())


def claimed(home: Home, name: str = "words") -> Claim:
    """The job `name`, owned by this process, with its `run.json` written."""
    claim = claim_job(home, name, this_process())
    record_run(claim)
    return claim


def record_run(claim: Claim) -> RunRecord:
    """Write the `run.json` of a job that this process owns."""
    record = RunRecord(
        name=claim.folder.name,
        process=this_process(),
        job_file="/jobs/words.py",
        socket=claim.socket_address(),
        token=TOKEN,
        resume="flowpoint run /jobs/words.py",
        started=1_790_000_000_000,
    )
    claim.record(record)
    return record


@contextlib.asynccontextmanager
async def serving(home: Home, job: FakeJob) -> AsyncIterator[HttpServer]:
    """The job, claimed and answering on its socket."""
    claim = claimed(home, job.name)
    record = claim.folder.read_run()
    assert record is not None
    server = HttpServer(job, TOKEN, report=lambda _line: None)
    await server.start(record.socket)
    try:
        yield server
    finally:
        await server.close()
        claim.release("stopped", ended=1_790_000_001_000)


async def shell(*arguments: str) -> int:
    """Run a command beside the loop that serves the job."""
    return await asyncio.to_thread(execute, arguments)
