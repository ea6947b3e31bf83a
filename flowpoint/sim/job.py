"""The real coordinator and worker as programs of the simulated machine.

What `launch` does for a person at a shell is done here for a scenario: the job file is executed in each process, the
pids of workers are kept where a later coordinator finds them, and its left-over workers are killed first (rule 8).

Not here: which job, which faults, what must come out (`scenario`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.job import JobToRun, Wishes
from flowpoint.launch.jobfile import JobSource, build_job
from flowpoint.launch.worker_main import graph_from_source, load_with
from flowpoint.model.events import Event
from flowpoint.model.settings import Settings
from flowpoint.plan.compile import compile_graph
from flowpoint.runtime.worker import worker_main
from flowpoint.sim.host import SimHost
from flowpoint.sim.world import SimWorld

WORK_DIR = "/flowpoint/work"


@dataclass(slots=True)
class _Recorded:
    """What `run.json` keeps for the next coordinator: the workers of the last one."""

    workers: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Programs:
    """The two mains for one job file."""

    world: SimWorld
    source: JobSource
    settings: Settings
    storage: str
    wishes: Wishes
    recorded: _Recorded = field(default_factory=_Recorded)

    async def coordinator(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of `flowpoint run`."""
        job = build_job(self.source, {})
        settings = self.settings
        compiled = compile_graph(job.graph(), settings.parallelism, settings.max_parallelism)
        for pid, start_time in self.recorded.workers:
            await host.kill_stale(pid, start_time)

        def on_workers(pids: dict[int, tuple[int, float]]) -> None:
            self.recorded.workers = tuple(pids.values())

        def emit(event: Event) -> None:
            self.world.trace.tell(host.name, f"{event.kind}: {event.text}")

        to_run = JobToRun(
            plan=compiled.plan,
            operators=compiled.operators,
            settings=settings,
            source={**self.source.to_data(), "params": {}, "parallelism": settings.parallelism},
            storage=self.storage,
            work_dir=WORK_DIR,
            arguments=lambda index, incarnation, address: [json.dumps([index, incarnation, address])],
            wishes=self.wishes,
        )
        outcome = await Coordinator(host, to_run, emit, on_workers).run()
        return outcome.exit_code

    async def worker(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of a worker process."""
        index, incarnation, address = json.loads(args[0])

        def log(text: str) -> None:
            self.world.trace.tell(host.name, text)

        interval = self.settings.heartbeat.interval
        await worker_main(host, address, index, incarnation, interval, load_with(graph_from_source), log)
        return 0


def install(
    world: SimWorld,
    text: str,
    settings: Settings,
    path: str,
    storage: str,
    wishes: Wishes | None = None,
) -> tuple[str, Sequence[str]]:
    """Register the mains for a job file in a world; returns the root's role and arguments."""
    programs = _Programs(world, JobSource(path, text.encode()), settings, storage, wishes or Wishes())
    world.programs["coordinator"] = programs.coordinator
    world.programs["worker"] = programs.worker
    return "coordinator", ()
