"""The real coordinator and worker as programs of the simulated machine.

What `launch` does for a person at a shell is done here for a scenario: the job file is executed in each process, the
pids of workers are kept where a later coordinator finds them, and its left-over workers are killed first (rule 8). The
person who starts the job again reads its commit log first: a job that was stopped with a savepoint is started from it.

Not here: which job, which faults, what must come out (`scenario`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowpoint.coordinator.coordinator import Coordinator, Outcome
from flowpoint.coordinator.job import JobToRun, Wishes
from flowpoint.coordinator.origin import rescaled_to
from flowpoint.errors import UsageError
from flowpoint.launch.jobfile import JobSource, build_job
from flowpoint.launch.worker_main import graph_from_source, load_with
from flowpoint.model.events import Event
from flowpoint.model.settings import Settings
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.graph import StreamGraph
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.recovery import CommitKind, standing
from flowpoint.runtime.worker import worker_main
from flowpoint.sim.host import SimHost
from flowpoint.sim.orders import Person
from flowpoint.sim.world import SimWorld
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.storage import FolderStorage

WORK_DIR = "/flowpoint/work"
GO_ON = 75
"""The coordinator's exit code when the person has more to run: the next start is no repetition after a failure."""


@dataclass(slots=True)
class SimulatedJob:
    """A job as its person knows it. `workers`: what `run.json` keeps of the last coordinator's.

    claim: a savepoint of a stop is claimed by the run that starts from it.
    """

    text: str
    path: str
    storage: str
    settings: Settings
    wishes: Wishes = field(default_factory=Wishes)
    person: Person | None = None
    claim: bool = False
    workers: tuple[tuple[int, float], ...] = ()

    @property
    def source(self) -> JobSource:
        """The job file."""
        return JobSource(self.path, self.text.encode())


@dataclass(slots=True)
class Programs:
    """The two mains. `jobs`: one after the other, each started when the one before has finished."""

    world: SimWorld
    jobs: list[SimulatedJob]

    async def coordinator(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of `flowpoint run`."""
        job = self.jobs[0]
        for pid, start_time in job.workers:
            await host.kill_stale(pid, start_time)
        entries = standing(await CommitLog(FolderStorage(host.disk, host.new_id, job.storage), "", host).entries())
        wishes = job.wishes
        if entries and entries[-1].kind == CommitKind.STOPPED and "savepoint" in entries[-1].extra:
            wishes = Wishes(source=entries[-1].extra["savepoint"], claim=job.claim)
        elif entries:
            wishes = replace(wishes, source="")
        outcome = await self._run(host, job, wishes, rescaled_to(entries) or job.settings.parallelism)
        if outcome.state is JobState.STOPPED:
            return GO_ON
        if outcome.state is JobState.FINISHED and len(self.jobs) > 1:
            del self.jobs[0]
            return GO_ON
        return outcome.exit_code

    async def _run(self, host: SimHost, job: SimulatedJob, wishes: Wishes, parallelism: int) -> Outcome:
        def on_workers(pids: dict[int, tuple[int, float]]) -> None:
            job.workers = tuple(pids.values())

        def emit(event: Event) -> None:
            self.world.trace.tell(host.name, f"{event.kind}: {event.text}")

        graph = build_job(job.source, {}).graph()
        coordinator = Coordinator(host, _plan(job, graph, wishes, parallelism), emit, on_workers)
        async with asyncio.TaskGroup() as group:
            person = group.create_task(job.person.attend(coordinator), name="person") if job.person else None
            outcome = await coordinator.run()
            if person is not None:
                person.cancel()
        return outcome

    async def worker(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of a worker process."""
        index, incarnation, address = json.loads(args[0])

        def log(text: str) -> None:
            self.world.trace.tell(host.name, text)

        interval = self.jobs[0].settings.heartbeat.interval
        await worker_main(host, address, index, incarnation, interval, load_with(graph_from_source), log)
        return 0


def _plan(job: SimulatedJob, graph: StreamGraph, wishes: Wishes, parallelism: int) -> JobToRun:
    """The job with a parallelism."""
    settings = replace(job.settings, parallelism=parallelism)
    if parallelism > settings.max_parallelism:
        raise UsageError(f"cannot rescale to {parallelism}: max_parallelism is {settings.max_parallelism}")
    compiled = compile_graph(graph, parallelism, settings.max_parallelism)
    return JobToRun(
        plan=compiled.plan,
        operators=compiled.operators,
        settings=settings,
        source={**job.source.to_data(), "params": {}, "parallelism": parallelism},
        storage=job.storage,
        work_dir=WORK_DIR,
        arguments=lambda index, incarnation, address: [json.dumps([index, incarnation, address])],
        wishes=wishes,
        replan=lambda other: replace(_plan(job, graph, wishes, other), rescaled=other),
    )


def install(world: SimWorld, *jobs: SimulatedJob) -> Programs:
    """Register the mains for jobs that run one after the other; the root's role is "coordinator"."""
    programs = Programs(world, list(jobs))
    world.programs["coordinator"] = programs.coordinator
    world.programs["worker"] = programs.worker
    return programs
