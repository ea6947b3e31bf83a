"""`Job.run()`: a job in this very process, for notebooks and tests.

Coordinator and workers are tasks of one loop, so breakpoints, prints and closures just work, and one core is used; for
all cores there is `flowpoint run`. Everything else is the same code: checkpoints, recovery, exactly-once sinks. Snapshots
live in a temporary folder and end with the call, unless `checkpoint.storage` names one.

A notebook's thread has a loop of its own that must not be blocked by another one: then the job gets a thread. Ctrl-C
ends the job as it ends one in the shell, is waited for, and then raised as KeyboardInterrupt (`launch.keyboard`).
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Any, Final, Self, TypedDict, Unpack

from flowpoint import errors
from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.ending import Outcome
from flowpoint.coordinator.job import JobToRun, Wishes
from flowpoint.errors import FlowPointError, JobError
from flowpoint.host import main_loop
from flowpoint.host.base import Process
from flowpoint.host.system import SystemHost
from flowpoint.launch.assertions import require_assertions
from flowpoint.launch.config import load_settings
from flowpoint.launch.interrupts import INTERRUPTED, Interrupts
from flowpoint.launch.jobfile import JobObject
from flowpoint.launch.keyboard import Keyboard
from flowpoint.launch.places import open_place
from flowpoint.launch.worker_main import load_with
from flowpoint.model.events import Event, EventKind
from flowpoint.model.settings import Settings
from flowpoint.plan.compile import CompiledJob, compile_graph
from flowpoint.protocol.job import FINISHED_BEFORE
from flowpoint.protocol.job_table import JobState
from flowpoint.runtime.closing import finish
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
    """A worker that is a task of this loop. It dies by its cancellation, as nothing here can be killed, or by an error."""

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


class _Workers:
    """The tasks that are workers; none outlives the block. One that fails ends alone, as a process does.

    Its coordinator hears of that from `_TaskProcess.wait`; what the error was is told as a process would: on stderr.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # Nobody is left to tell them that it is over.
            for task in self._tasks:
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def start(self, worker: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin a worker."""
        task = asyncio.get_running_loop().create_task(worker, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _warn(f"{task.get_name()} has ended by an error:\n{''.join(traceback.format_exception(error))}")


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
        KeyboardInterrupt: somebody has interrupted it, and it has ended.
    """
    require_assertions()
    with Keyboard() as keyboard:
        outcome = _run_in_loop_of_its_own(_run(job, Wishes(**flags), keyboard))
    if outcome.state is JobState.FAILED:
        raise _error_of(outcome)
    if outcome.exit_code == INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.reason == FINISHED_BEFORE:
        _warn(_in_python(outcome.reason))


def _run_in_loop_of_its_own(run: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run it here, or in a thread if this one has a loop already. A thread that does not end is not waited for."""
    if not _is_in_a_loop():
        return main_loop.run(run)
    thread = ThreadPoolExecutor(1, "flowpoint job")
    running = thread.submit(main_loop.run, run)
    try:
        return running.result()
    finally:
        thread.shutdown(wait=running.done())


def _is_in_a_loop() -> bool:
    """Whether a loop runs in this thread. Asked apart, so that no error of the job has this one as its context."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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


async def _run(job: JobObject, wishes: Wishes, keyboard: Keyboard) -> Outcome:
    settings = load_settings(None, {"parallelism": 1, **job.config}, os.environ, [])
    # Nobody beats here, and nobody is missed: workers that are tasks of this loop fall silent with their coordinator.
    settings = replace(settings, heartbeat=replace(settings.heartbeat, timeout=inf))
    compiled = compile_graph(job.graph(), settings.parallelism, settings.max_parallelism)
    if settings.checkpoint.storage not in ("", MEMORY):
        # Elsewhere no state outlives the call, so none has to be found again.
        for warning in compiled.warnings:
            _warn(warning)
    with tempfile.TemporaryDirectory(prefix="flowpoint-") as folder:
        workers = _Workers()

        async def worker(args: Sequence[str], number: int) -> None:
            index, incarnation, address = args
            mine = _InProcessHost(f"worker-{index}", folder, start)
            mine.pid = number
            load = load_with(lambda _: job.graph())
            try:
                await worker_main(mine, address, int(index), incarnation, settings.heartbeat.interval, load, _warn)
            finally:
                await finish(mine.close())

        def start(args: Sequence[str], number: int) -> asyncio.Task[None]:
            return workers.start(worker(args, number), f"worker {args[0]}")

        host = _InProcessHost("coordinator", folder, start)
        try:
            async with workers:
                return await _coordinate(host, _job_to_run(compiled, settings, wishes, host, folder), keyboard)
        finally:
            await finish(host.close())


async def _coordinate(host: SystemHost, job: JobToRun, keyboard: Keyboard) -> Outcome:
    def tell(event: Event) -> None:
        _say(event)
        interrupts.on_event(event)

    coordinator = Coordinator(host, job, tell)
    interrupts = Interrupts(coordinator.requests, _say)
    with keyboard.telling(interrupts.interrupt):
        return await coordinator.run()


def _job_to_run(compiled: CompiledJob, settings: Settings, wishes: Wishes, host: SystemHost, folder: str) -> JobToRun:
    return JobToRun(
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


def _say(event: Event) -> None:
    """Only what a person at a notebook needs to know."""
    if event.kind in (EventKind.WARNING, EventKind.RESTARTING):
        _warn(event.text)


def _warn(text: str) -> None:
    print(f"flowpoint: {text}", file=sys.stderr)
