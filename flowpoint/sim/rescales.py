"""A matrix of jobs that go on at another parallelism: topology x parallelism before and after x kind of snapshot.

Each job is cut in the middle of its work: everybody dies the moment the snapshot is in the commit log, before anybody
is told. So what sinks had prepared is visible to nobody yet, and where barriers overtake, records were under way. The job
then goes on from that snapshot at the other parallelism. One worker dies there while state still moves out of the files
of the old subtasks, another after the first checkpoint, which proves that one, too. The committed output is compared with
that of plain loops.

Seed n is cell n of the matrix, and beyond its end the same cells under other schedules:

    scripts/sim --scenario flowpoint.sim.rescales:RescaleScenario --seeds 750

Not here: faults and rescales at random moments (`scenario`).
"""

from __future__ import annotations

import json
from contextvars import Context
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from random import Random
from typing import Any, Final

from flowpoint.coordinator.job import Wishes
from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings
from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.jobs import STORAGE, JobShape, Topology
from flowpoint.sim.scenario import JobScenario
from flowpoint.sim.stored_names import CHECKPOINT, Commit
from flowpoint.sim.world import InvariantBroken, Point, SimWorld

SOURCE_SECONDS: Final = 0.4
SINK_SECONDS: Final = 0.8
"""The sinks are slower than the sources, so that records are under way when a barrier comes."""
RECORDS: Final = 320
INTERVAL: Final = 0.1
NEVER: Final = 1000.0
ASK_SECONDS: Final = 0.1
STATES: Final = (StateSettings("heap", cache_bytes=100), StateSettings("rocksdb", cache_bytes=10_000))
"""So little memory that state moves one or two entries at a time, and goes on into the database."""
MOVING_SECONDS: Final = (0.01, 0.05)
"""After the files are opened: records flow by then, and there is no checkpoint yet."""
NO_FAULTS: Final = FaultMix((), 0.0, 1.0, 0, 0.0, 0.0)


class Snapshot(StrEnum):
    """What a job goes on from."""

    SAVEPOINT = "savepoint"
    ALIGNED = "aligned checkpoint"
    UNALIGNED = "unaligned checkpoint"


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the matrix."""

    topology: Topology
    before: int
    after: int
    snapshot: Snapshot

    def __str__(self) -> str:
        return f"{self.topology} {self.before}-{self.after} from {self.snapshot}"


TOPOLOGIES: Final = (
    Topology.REBALANCED,
    Topology.UNION,
    Topology.TWO_INPUTS,
    Topology.STATES,
    Topology.TIMERS,
    Topology.EVENT_TIME,
    Topology.BROADCAST,
    Topology.KEYED_MAP,
)
PARALLELISMS: Final = ((1, 2), (2, 3), (3, 7), (4, 8), (7, 3))
CELLS: Final = tuple(
    Cell(topology, before, after, snapshot)
    for topology, (before, after), snapshot in product(TOPOLOGIES, PARALLELISMS, Snapshot)
)


def shape_of(cell: Cell, draw: Random) -> JobShape:
    """A job of a cell: some hundred records, behind slow sinks."""
    is_savepoint, is_unaligned = cell.snapshot is Snapshot.SAVEPOINT, cell.snapshot is Snapshot.UNALIGNED
    settings = Settings(
        parallelism=cell.before,
        workers=min(2, cell.before),
        max_parallelism=128,
        batch_size=8,
        checkpoint=CheckpointSettings(
            # Until a savepoint is cut nothing is committed: all output so far travels inside of it.
            interval=NEVER if is_savepoint else INTERVAL,
            timeout=5.0,
            retained=2,
            # A savepoint is aligned, also where checkpoints are not.
            unaligned=is_unaligned or (is_savepoint and draw.random() < 0.5),
            storage=f"file://{STORAGE}",
        ),
        state=draw.choice(STATES),
        restart=RestartSettings(delay=0.1),
        heartbeat=HeartbeatSettings(interval=0.5, timeout=5.0),
    )
    sources, sinks = _widths(cell)
    return JobShape(
        cell.topology,
        RECORDS,
        40,
        round(RECORDS / SOURCE_SECONDS),
        settings,
        source_parallelism=sources,
        sink_parallelism=sinks,
        sink_delay=(sinks or cell.before) * SINK_SECONDS / RECORDS,
    )


def _widths(cell: Cell) -> tuple[int | None, int | None]:
    """The parallelisms of sources and sinks, where they have one of their own so that records can be overtaken.

    With one subtask everywhere all is one chain, and nothing is under way between subtasks. A barrier waits for those of a
    broadcast edge, so it has to overtake what is on another edge behind it.
    """
    if cell.topology is Topology.BROADCAST:
        return None, 1 if cell.before > 1 else 2
    if cell.before > 1:
        return None, None
    # The operator of two inputs is as wide as its sources.
    return (None, 2) if cell.topology is Topology.TWO_INPUTS else (2, None)


class RescaleScenario(JobScenario):
    """One seed's cell."""

    def __init__(self, seed: int) -> None:
        self.cell = CELLS[seed % len(CELLS)]
        self._draw = Random(f"{seed}:rescale")
        super().__init__(seed, shape=shape_of(self.cell, self._draw), mix=NO_FAULTS)
        self.name = str(self.cell)
        self._world: SimWorld
        self._is_cut = False
        self._lost_worker_of = 0
        self._is_opened = False

    def set_up(self, world: SimWorld) -> None:
        super().set_up(world)
        self._world = world
        world.watch_points(self._on_point)
        if self.cell.snapshot is Snapshot.SAVEPOINT:
            world.loop.call_later(self._draw.uniform(0.2, 0.4), self._ask)

    def judge(self, world: SimWorld) -> None:
        super().judge(world)
        if not self._lost_worker_of:
            raise InvariantBroken("the job was not cut, or took no checkpoint at its other parallelism")

    def _ask(self) -> None:
        """Ask for the savepoint; once more where the answer was that the job is still being deployed."""
        if self._is_cut:
            return
        if all(request.done() for request in self._programs.requests):
            self._programs.ask(FaultKind.ASK_SAVEPOINT)
        self._world.loop.call_later(ASK_SECONDS, self._ask)

    def _on_point(self, point: Point) -> None:
        """Files are opened at the other parallelism, or an entry is in the commit log: its writer has not even heard so."""
        if self._is_cut and not self._is_opened and (point.phase, point.operation) == ("after", "disk.open"):
            self._is_opened = True
            # An empty context: the kill belongs to the world, not to the process that caused it.
            self._world.loop.call_later(self._draw.uniform(*MOVING_SECONDS), self._kill_a_mover, context=Context())
        newest = self._storage.newest if self._storage is not None else None
        if (
            newest is None
            or (point.phase, point.operation) != ("after", "disk.link")
            or "/commits/" not in point.subject
        ):
            return
        if not self._is_cut:
            if self._is_the_cut(newest):
                self._cut(newest)
        elif newest.kind == CHECKPOINT and not newest.taken_from and not self._lost_worker_of:
            self._lost_worker_of = newest.attempt
            self._kill_a_worker()

    def _is_the_cut(self, newest: Commit) -> bool:
        """Whether this snapshot is one to go on from. It has uncommitted output, and where it may, records under way."""
        if self.cell.snapshot is Snapshot.SAVEPOINT:
            return newest.kind == "savepoint"
        if newest.kind != CHECKPOINT:
            return False
        subtasks = _subtasks_of(self._world, f"{STORAGE}/{newest.directory}")
        has_output = any(one.get("committables") for one in subtasks)
        has_records = any(one.get("channels") for one in subtasks)
        return has_output and has_records is (self.cell.snapshot is Snapshot.UNALIGNED)

    def _cut(self, newest: Commit) -> None:
        """Everybody dies, and the person goes on from here at the other parallelism."""
        self._is_cut = True
        self._world.trace.mark(f"cut {self.cell.snapshot}")
        settings = replace(self._programs.settings, parallelism=self.cell.after, workers=min(3, self.cell.after))
        if newest.savepoint:
            if not any(one.get("exports") for one in _subtasks_of(self._world, newest.savepoint)):
                raise InvariantBroken(f"savepoint {newest.savepoint} holds no uncommitted output")
            settings = replace(settings, checkpoint=replace(settings.checkpoint, interval=INTERVAL))
            claim = self._draw.random() < 0.5
            self._programs.wishes_once = Wishes(source=newest.savepoint, claim=claim, take_output=True)
        self._programs.settings = settings
        for process in self._world.living():
            self._world.kill(process, "at the cut")

    def _kill_a_mover(self) -> None:
        movers = [process for process in self._world.living() if process.opened]
        if movers:
            self._world.kill(self._draw.choice(movers), "while state still moves")

    def _kill_a_worker(self) -> None:
        workers = [process for process in self._world.living() if process.role == "worker"]
        self._world.kill(self._draw.choice(workers), "after the first checkpoint at the other parallelism")


def _subtasks_of(world: SimWorld, directory: str) -> list[dict[str, Any]]:
    """What a snapshot's manifest says of all subtasks."""
    operators = json.loads(bytes(world.files.file(f"{directory}/manifest.json").data))["operators"]
    return [subtask for operator in operators.values() for subtask in operator["subtasks"]]
