"""A running job as the shell and the HTTP interface see it: `launch.control.JobControl` on a coordinator.

Not here: HTTP itself, signals, what the numbers are made of (`coordinator.statistics`).
"""

from __future__ import annotations

import asyncio

import psutil

from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.job import JobToRun, widest
from flowpoint.errors import CheckpointFailed
from flowpoint.host.base import Host
from flowpoint.launch.control import Data
from flowpoint.launch.history import describe_retained
from flowpoint.launch.home import Home
from flowpoint.launch.own_folders import refuse_own_folder
from flowpoint.launch.places import check_target
from flowpoint.protocol.job_table import JobState
from flowpoint.snapshot.commit_log import CommitLog

CPU_SECONDS = 1.0
"""Shorter looks say little: the kernel counts CPU in hundredths of a second, and many may ask at once."""


class _Process:
    """What a process uses. Whoever asks gets the same numbers: one look does not shorten the other's."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        # The first look covers its whole life.
        self._looked_at = self._process.create_time()
        self._used = 0.0
        self._percent: float | None = None

    def cpu_percent(self, now: float) -> float:
        """Percent of a core, over the last `CPU_SECONDS` or somewhat longer. `now`: epoch seconds."""
        passed = now - self._looked_at
        # A clock that was set back tells nothing until it has caught up.
        if passed > 0 and (self._percent is None or passed >= CPU_SECONDS):
            times = self._process.cpu_times()
            used = times.user + times.system
            self._percent = round(100 * (used - self._used) / passed, 1)
            self._looked_at, self._used = now, used
        return self._percent or 0.0

    def rss_bytes(self) -> int:
        """Memory that it has now."""
        rss: int = self._process.memory_info().rss
        return rss


_OF_THE_MOMENT = ("rate", "backpressure", "busy", "stalled")


def _at_rest(status: Data) -> Data:
    """The status of a job that is over: it has no figures of the moment any more."""
    operators = [operator | dict.fromkeys(_OF_THE_MOMENT) for operator in status["operators"]]
    return status | {"rate": None, "backpressure": None, "lag": None, "operators": operators}


class RunningJob:
    """Answers for one coordinator. `facts` are status fields that do not change: job_file, pid, started."""

    def __init__(self, coordinator: Coordinator, job: JobToRun, facts: Data, host: Host, home: Home) -> None:
        self._coordinator = coordinator
        self._job = job
        self._facts = facts
        self._host = host
        self._home = home
        self._log = CommitLog(job.place.storage, "", host)
        self._processes: dict[int, _Process] = {}

    def status(self) -> Data:
        """See `JobControl`."""
        coordinator, statistics = self._coordinator, self._coordinator.statistics
        last = coordinator.checkpoints.last_completed
        shown = None
        if last is not None:
            shown = {
                "id": last.id,
                "duration_ms": last.duration_ms,
                "bytes": last.bytes,
                "alignment_ms": last.alignment_ms,
            }
        now = asyncio.get_running_loop().time()
        status = {
            "name": self._job.plan.job,
            "state": coordinator.state.value.upper(),
            "attempt": coordinator.attempt,
            "restarts": coordinator.restarts,
            "parallelism": widest(coordinator.plan),
            "records_in": statistics.records_in,
            "records_out": statistics.records_out,
            "rate": round(statistics.rate(now), 1),
            "lag": self._lag(),
            "backpressure": round(min(statistics.backpressure(now), 1.0), 3),
            "last_checkpoint": shown,
            "reason": coordinator.reason,
            "operators": statistics.operators(now),
            **self._facts,
        }
        return _at_rest(status) if coordinator.is_over.is_set() else status

    def _lag(self) -> float | None:
        """How many seconds event time is behind the clock in the output; None where there is no event time."""
        watermark = self._coordinator.statistics.watermark()
        return None if watermark is None else max(0, self._host.wall_ms() - watermark) / 1000

    def workers(self) -> list[Data]:
        """See `JobControl`."""
        shown = []
        now = asyncio.get_running_loop().time()
        pids = self._coordinator.pids()
        living = {pid for pid, _ in pids.values()}
        self._processes = {pid: process for pid, process in self._processes.items() if pid in living}
        for index, (pid, _) in pids.items():
            cpu, rss = self._usage(pid)
            shown.append(
                {
                    "index": index,
                    "pid": pid,
                    "subtasks": self._coordinator.subtasks_of(index),
                    "cpu_percent": cpu,
                    "rss_bytes": rss,
                    "rate": round(self._coordinator.statistics.worker_rate(index, now), 1),
                }
            )
        return shown

    def _usage(self, pid: int) -> tuple[float, int]:
        """CPU of about the last second, in percent of a core, and resident memory in bytes; zeros when it has ended."""
        try:
            process = self._processes.get(pid)
            if process is None:
                process = self._processes[pid] = _Process(pid)
            return process.cpu_percent(self._host.wall_ms() / 1000), process.rss_bytes()
        except psutil.Error:
            self._processes.pop(pid, None)
            return 0.0, 0

    async def checkpoints(self) -> list[Data]:
        """See `JobControl`."""
        retained = await describe_retained(self._job.place, self._log)
        known = [record.to_data() for record in self._coordinator.checkpoints.history]
        # A checkpoint and a savepoint at one barrier, as a stop takes them, share their number.
        by_id = {(data["id"], data["attempt"], data["kind"]): data for data in retained}
        for data in known:
            path = data["path"] if data["kind"] == "savepoint" else self._job.place.path(data["path"])
            key = data["id"], data["attempt"], data["kind"]
            if data["state"] == "pending":
                data |= {"duration_ms": None, "bytes": None}
            if data["state"] != "completed" or key in by_id:
                by_id[key] = data | {"path": path}
        return [by_id[key] for key in sorted(by_id)]

    async def checkpoint(self) -> Data:
        """See `JobControl`."""
        record = await self._coordinator.requests.checkpoint()
        return record.to_data() | {"path": self._job.place.path(record.path)}

    async def savepoint(self, to: str = "") -> Data:
        """See `JobControl`."""
        await self._check_target(to or self._job.savepoints)
        record = await self._coordinator.requests.savepoint(to)
        return record.to_data()

    async def stop(self, to: str = "", *, drain: bool = False) -> Data:
        """See `JobControl`."""
        if to:
            await self._check_target(to)
        record = await self._coordinator.requests.stop(0, to, drain=drain)
        if drain and not record.drained and self._coordinator.state is JobState.STOPPED:
            raise CheckpointFailed(
                "the job was stopped, but not drained: somebody else stopped it without --drain; its timers have not fired, "
                "and the next run goes on where it was"
            )
        if not to:
            return record.to_data() | {"path": self._job.place.path(record.path)}
        if record.savepoint_bytes is None or not record.savepoint.startswith(f"{to.rstrip('/')}/"):
            raise CheckpointFailed(
                "the job has ended without this savepoint: it was stopped by somebody else, had read all its input, or "
                "its attempt failed after the last checkpoint; its retained checkpoints can be continued from"
            )
        return record.to_data() | {"kind": "savepoint", "path": record.savepoint, "bytes": record.savepoint_bytes}

    async def _check_target(self, folder: str) -> None:
        """Before a barrier goes out. Beside the loop: the disk of a person's choice may hang."""

        def look() -> None:
            refuse_own_folder(folder, self._home, self._job.place.name)
            check_target(folder)

        await self._host.run_blocking(look)

    async def rescale(self, parallelism: int) -> Data:
        """See `JobControl`."""
        is_rescaled = await self._coordinator.requests.rescale(parallelism, self._coordinator.plan)
        return self.status() | {"rescaled": is_rescaled}

    async def cancel(self) -> Data:
        """See `JobControl`."""
        self._coordinator.requests.cancel(130)
        await self._coordinator.is_over.wait()
        return self.status()
