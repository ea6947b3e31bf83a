"""`Job.run()`: a job in this very process, for notebooks and tests.

Coordinator and workers are tasks of one loop, so breakpoints, prints and closures just work, and one core is used; for
all cores there is `flowpoint run`. Everything else is the same code: checkpoints, recovery, exactly-once sinks. Snapshots
live in a temporary folder and end with the call, unless `checkpoint.storage` names one.

A notebook's thread has a loop of its own that must not be blocked by another one: then the job gets a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Any, Final, TypedDict, Unpack

import uvloop

from flowpoint import errors
from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.ending import Outcome
from flowpoint.coordinator.job import JobToRun, Wishes
from flowpoint.errors import FlowPointError, JobError
from flowpoint.host.base import Process
from flowpoint.host.system import SystemHost
from flowpoint.launch.config import load_settings
from flowpoint.launch.jobfile import JobObject
from flowpoint.launch.places import open_place
from flowpoint.launch.worker_main import load_with
from flowpoint.model.events import Event, EventKind
from flowpoint.plan.compile import compile_graph
from flowpoint.protocol.job import FINISHED_BEFORE
from flowpoint.protocol.job_table import JobState
from flowpoint.runtime.worker import worker_main
from flowpoint.snapshot.places import MEMORY

_FLAG: Final = re.compile(r"--[a-z-]+")


class RunFlags(TypedDict, total=False):
    """What `Job.run` takes: those of `Wishes` that are true or false."""

    fresh: bool
    take_output: bool
    allow_non_restored: bool
    accept_duplicates: bool
    skip_lost_input: bool
    resume_drained: bool


class _TaskProcess:
    """A worker that is a task of this loop. Its death is its cancellation: nothing here is there to be killed."""

    def __init__(self, pid: int, task: asyncio.Task[None]) -> None:
        self.pid = pid
        self.start_time = 0.0
        self._task = task

    async def wait(self) -> int:
        """See `host.base.Process`."""
        await asyncio.wait([self._task])
        return 1 if self._task.cancelled() or self._task.exception() is not None else 0

    def kill(self) -> None:
        """See `host.base.Process`."""
        self._task.cancel()


class _InProcessHost(SystemHost):
    """The real machine, but a worker is a task."""

    def __init__(self, name: str, run_dir: str, start: Callable[[Sequence[str], int], asyncio.Task[None]]) -> None:
        super().__init__(name, run_dir)
        self._start = start
        self._started = 0

    async def start_process(self, role: str, args: Sequence[str], log_path: str | None) -> Process:  # type: ignore[override]
        """See `host.base.Host`. Numbers stand for process ids."""
        self._started += 1
        return _TaskProcess(self._started, self._start(args, self._started))

    def start_heartbeat(self, address: str, frame: bytes, interval: float) -> Callable[[], None]:
        """No heartbeat: a worker of this process is never silent without its coordinator."""
        return lambda: None


def run_in_process(job: JobObject, **flags: Unpack[RunFlags]) -> None:
    """Run a job to its end.

    Raises:
        FlowPointError: the job is wrong, or it has failed; a user's error as UserCodeError.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        outcome = uvloop.run(_run(job, Wishes(**flags)))
    else:
        with ThreadPoolExecutor(1, "flowpoint job") as thread:
            outcome = thread.submit(uvloop.run, _run(job, Wishes(**flags))).result()
    if outcome.state is JobState.FAILED:
        raise _error_of(outcome)
    if outcome.reason == FINISHED_BEFORE:
        _warn(_in_python(outcome.reason))


def _error_of(outcome: Outcome) -> FlowPointError:
    kind: Any = getattr(errors, outcome.failure.kind, None) if outcome.failure is not None else None
    if not (isinstance(kind, type) and issubclass(kind, FlowPointError)):
        kind = JobError
    trace = outcome.failure.trace if outcome.failure is not None else ""
    error: FlowPointError = kind(_in_python(outcome.reason))
    if trace:
        error.add_note(trace)
    return error


def _in_python(sentence: str) -> str:
    """A sentence that may name flags of the shell, with what they are here."""
    known = {f"--{name.replace('_', '-')}": name for name in RunFlags.__annotations__}
    named = dict.fromkeys(known[flag] for flag in _FLAG.findall(sentence) if flag in known)
    if not named:
        return sentence
    return f"{sentence} (in Python: {', '.join(f'job.run({name}=True)' for name in named)})"


async def _run(job: JobObject, wishes: Wishes) -> Outcome:
    settings = load_settings(None, {"parallelism": 1, **job.config}, os.environ, [])
    # Nobody beats here, and nobody is missed: workers that are tasks of this loop fall silent with their coordinator.
    settings = replace(settings, heartbeat=replace(settings.heartbeat, timeout=inf))
    compiled = compile_graph(job.graph(), settings.parallelism, settings.max_parallelism)
    if settings.checkpoint.storage not in ("", MEMORY):
        # Elsewhere no state outlives the call, so none has to be found again.
        for warning in compiled.warnings:
            _warn(warning)
    with tempfile.TemporaryDirectory(prefix="flowpoint-") as folder:
        async with asyncio.TaskGroup() as group:

            async def worker(args: Sequence[str], number: int) -> None:
                index, incarnation, address = args
                mine = _InProcessHost(f"worker-{index}", folder, start)
                mine.pid = number
                load = load_with(lambda _: job.graph())
                await worker_main(mine, address, int(index), incarnation, settings.heartbeat.interval, load)
                await mine.close()

            def start(args: Sequence[str], number: int) -> asyncio.Task[None]:
                return group.create_task(worker(args, number), name=f"worker {args[0]}")

            host = _InProcessHost("coordinator", folder, start)

            to_run = JobToRun(
                plan=compiled.plan,
                operators=compiled.operators,
                settings=settings,
                source={
                    "parallelism": settings.parallelism,
                    "skip_lost_input": wishes.skip_lost_input,
                    "allow_non_restored": wishes.allow_non_restored,
                },
                wishes=wishes,
                place=open_place(host, settings.checkpoint, compiled.plan.job, f"{folder}/checkpoints"),
                work_dir=f"{folder}/work",
                arguments=lambda index, incarnation, address: [str(index), incarnation, address],
            )
            outcome = await Coordinator(host, to_run, _say).run()
        await host.close()
    return outcome


def _say(event: Event) -> None:
    """Only what a person at a notebook needs to know."""
    if event.kind in (EventKind.WARNING, EventKind.RESTARTING):
        _warn(event.text)


def _warn(text: str) -> None:
    print(f"flowpoint: {text}", file=sys.stderr)
