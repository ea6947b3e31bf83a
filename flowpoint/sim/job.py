"""The real coordinator and worker as programs of the simulated machine.

What `launch` does for a person at a shell is done here for a scenario: the job file is executed in each process, the
pids of workers are kept where a later coordinator finds them, and its left-over workers are killed first (rule 8). The
person who starts the job again looks at its commit log: one that was stopped with a savepoint is started from that.

Not here: which job, which faults, what must come out (`scenario`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.job import JobToRun, Wishes
from flowpoint.coordinator.origin import rescaled_to
from flowpoint.errors import CheckpointFailed, FlowPointError, UsageError
from flowpoint.launch.jobfile import JobSource, build_job
from flowpoint.launch.worker_main import graph_from_source, load_with
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.model.events import Event
from flowpoint.model.settings import Settings
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.graph import StreamGraph
from flowpoint.protocol.recovery import standing
from flowpoint.runtime.worker import worker_main
from flowpoint.sim.database import SimDatabase
from flowpoint.sim.faults import DRAINS, FaultKind
from flowpoint.sim.host import SimHost
from flowpoint.sim.jobs import WORK_DIR
from flowpoint.sim.memory import MirroredObjects
from flowpoint.sim.world import InvariantBroken, SimProcess, SimWorld
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.places import MEMORY, FolderPlace, MemoryPlace, Place
from flowpoint.state.database import OpenDatabase

SAVEPOINTS = "/data/savepoints"
PARALLELISM_MAX = 5
ROOT = "coordinator"
INTERRUPTED = 130
STOPS = DRAINS | {FaultKind.ASK_STOP, FaultKind.ASK_STOP_TO}


@dataclass(slots=True)
class Programs:
    """The two mains for one job file, and a person's way to the coordinator that runs now.

    recorded: what `run.json` keeps for the next coordinator: (pid, start time) of the workers of the last one.
    wishes: the flags of the command, which the person gives again as long as nothing is in the log.
    wishes_once: flags of the next start only, whatever is in the log.
    savepoints: the folders of those that the person was told exist.
    draw: what the person wants of a rescale, and whether a savepoint is claimed.
    work_dir: for local state.
    open_database: what state that outgrows memory is kept in, where it is not a simulated database. RocksDB keeps it on
        the real disk, also here.
    """

    world: SimWorld
    source: JobSource
    settings: Settings
    storage: str
    wishes: Wishes = field(default_factory=Wishes)
    wishes_once: Wishes | None = None
    recorded: tuple[tuple[int, float], ...] = ()
    running: tuple[SimProcess, Coordinator] | None = None
    requests: list[asyncio.Task[None]] = field(default_factory=list)
    savepoints: list[str] = field(default_factory=list)
    draw: Random = field(default_factory=Random)
    work_dir: str = WORK_DIR
    open_database: OpenDatabase | None = None

    async def coordinator(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of `flowpoint run`."""
        for pid, start_time in self.recorded:
            await host.kill_stale(pid, start_time)
        place = self._place(host)
        try:
            entries = standing(await CommitLog(place.storage, "", host).entries())
        except FlowPointError as error:
            self.world.trace.tell(host.name, f"the commit log cannot be read: {error}")
            return 1

        def on_workers(pids: dict[int, tuple[int, float]]) -> None:
            self.recorded = tuple(pids.values())

        def emit(event: Event) -> None:
            self.world.trace.tell(host.name, event.text)
            self.world.trace.mark(f"event {event.kind}")

        graph = build_job(self.source, {}).graph()
        wishes = self._wishes(entries)
        goes_on = entries and not wishes.fresh and not wishes.source
        rescaled = rescaled_to(entries, entries[-1].lineage) if goes_on else 0
        to_run = self._plan(graph, place, wishes, rescaled or self.settings.parallelism)
        coordinator = Coordinator(host, to_run, emit, on_workers)
        self.running, self.requests = (self.world.process_of(host), coordinator), []
        outcome = await coordinator.run()
        self.running = None
        self.world.trace.tell(host.name, f"the job is {outcome.state}: {outcome.reason or 'as it should be'}")
        # Whoever asked for something gets an answer, also when the job has ended meanwhile.
        await asyncio.gather(*self.requests)
        return outcome.exit_code

    def _wishes(self, entries: list[CommitEntry]) -> Wishes:
        """The flags of this start. A person reads what the last run has said."""
        if self.wishes_once is not None:
            wishes, self.wishes_once = self.wishes_once, None
            return wishes
        if entries and entries[-1].kind == CommitKind.STOPPED and "savepoint" in entries[-1].extra:
            source, claim = entries[-1].extra["savepoint"], self.draw.random() < 0.5
            return Wishes(source=source, claim=claim, resume_drained=self.wishes.resume_drained)
        return self.wishes if not entries else replace(self.wishes, source="")

    def _place(self, host: SimHost) -> Place:
        if self.settings.checkpoint.storage == MEMORY:
            limit = self.settings.checkpoint.memory_limit
            return MemoryPlace(host, MirroredObjects(limit, self.world.files, self.storage))
        return FolderPlace(host, self.storage)

    def _plan(self, graph: StreamGraph, place: Place, wishes: Wishes, parallelism: int) -> JobToRun:
        settings = replace(self.settings, parallelism=parallelism)
        if parallelism > settings.max_parallelism:
            raise UsageError(f"cannot rescale to {parallelism}: max_parallelism is {settings.max_parallelism}")
        compiled = compile_graph(graph, parallelism, settings.max_parallelism)
        return JobToRun(
            plan=compiled.plan,
            operators=compiled.operators,
            settings=settings,
            source={**self.source.to_data(), "params": {}, "parallelism": parallelism},
            place=place,
            work_dir=self.work_dir,
            arguments=lambda index, incarnation, address: [json.dumps([index, incarnation, address])],
            wishes=wishes,
            replan=lambda other: replace(self._plan(graph, place, wishes, other), rescaled=other),
        )

    def ask(self, request: FaultKind) -> None:
        """Ask the coordinator for something, if there is one that can hear it."""
        if self.running is None or not self.running[0].alive:
            return
        process, coordinator = self.running
        context = process.context.copy()
        self.world.trace.tell("person", f"{request.replace('_', 's for a ', 1)}, of {process.name}")
        if request is FaultKind.ASK_CANCEL:
            self.world.loop.call_soon(coordinator.requests.cancel, INTERRUPTED, context=context)
        else:
            self.world.loop.call_soon(self._request, process, coordinator, request, context=context)

    def _request(self, process: SimProcess, coordinator: Coordinator, request: FaultKind) -> None:
        """In the coordinator's own context: wait for the answer in a task of its process."""
        if self.running is None or self.running[0] is not process:
            return
        self.requests.append(asyncio.create_task(self._answer(process, coordinator, request), name=request))

    async def _answer(self, process: SimProcess, coordinator: Coordinator, request: FaultKind) -> None:
        try:
            if request is FaultKind.ASK_RESCALE:
                await self._rescale(process, coordinator)
                return
            if request in STOPS:
                to = SAVEPOINTS if request in (FaultKind.ASK_STOP_TO, FaultKind.ASK_DRAIN_TO) else ""
                record = await coordinator.requests.stop(INTERRUPTED, to, drain=request in DRAINS)
                if to and record.savepoint_bytes is None:
                    raise CheckpointFailed("the job has ended without a savepoint")
            elif request is FaultKind.ASK_SAVEPOINT:
                record = await coordinator.requests.savepoint(SAVEPOINTS)
                self.savepoints.append(record.savepoint)
            else:
                record = await coordinator.requests.checkpoint()
        except (CheckpointFailed, UsageError) as error:
            process.tell(f"answers {request}: {error}")
        else:
            self.world.trace.mark(f"done {request}")
            process.tell(f"answers {request}: checkpoint {record.id} is {record.state}")
            if record.state != "completed":
                raise InvariantBroken(f"whoever asked was told that all went well, with {record}")

    async def _rescale(self, process: SimProcess, coordinator: Coordinator) -> None:
        wanted = self.draw.randint(1, PARALLELISM_MAX)
        is_rescaled = await coordinator.requests.rescale(wanted, coordinator.plan)
        process.tell(f"answers that the parallelism is {wanted}{'' if is_rescaled else ' already'}")
        self.world.trace.mark(f"done {FaultKind.ASK_RESCALE}")

    async def worker(self, host: SimHost, args: Sequence[str]) -> int:
        """The main of a worker process."""
        index, incarnation, address = json.loads(args[0])

        def log(text: str) -> None:
            self.world.trace.tell(host.name, text)

        interval, load = self.settings.heartbeat.interval, load_with(graph_from_source)
        database = self.open_database or (lambda _: SimDatabase(self.world.trace.mark))
        await worker_main(host, address, index, incarnation, interval, load, log, database)
        return 0


def install(
    world: SimWorld,
    text: str,
    settings: Settings,
    path: str,
    storage: str,
    wishes: Wishes | None = None,
) -> Programs:
    """Register the mains for a job file in a world. The program to start is `ROOT`, without arguments."""
    programs = Programs(world, JobSource(path, text.encode()), settings, storage, wishes or Wishes())
    programs.draw = world.stream("person")
    world.programs[ROOT] = programs.coordinator
    world.programs["worker"] = programs.worker
    return programs
