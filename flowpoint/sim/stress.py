"""Die after a few checkpoints, lose every file that the newest one does not name, go on; many times in a row.

A checkpoint each 20 ms. What the newest checkpoint names has to be enough, whatever it was built on: deltas upon bases,
files of attempts that died long ago, records under way, checkpoints that overlapped or were given up. Everybody dies
at a random moment after the n-th commit entry of a run, so also in the middle of the next checkpoints and of retention.

    scripts/sim --scenario flowpoint.sim.stress:StressScenario --seeds 100

Not here: other faults (`scenario`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from random import Random
from typing import Final

from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings
from flowpoint.sim.faults import FaultMix
from flowpoint.sim.jobs import STORAGE, JobShape, Topology
from flowpoint.sim.scenario import JobScenario
from flowpoint.sim.stored_names import CHECKPOINT
from flowpoint.sim.world import InvariantBroken, Point, SimWorld
from flowpoint.state.database import Database

ROUNDS: Final = 12
ROUNDS_MIN: Final = 8
"""A job may come to its end before all of them, where its machine is a slow one, but not before these."""
RECORDS: Final = 3600
RATE: Final = 1200
SINK_DELAY: Final = 0.0003
NO_FAULTS: Final = FaultMix((), 0.0, 1.0, 0, 0.0, 0.0)
TOPOLOGIES: Final = (Topology.STATES, Topology.TWO_KEYED, Topology.BROADCAST, Topology.TIMERS, Topology.REBALANCED)
GUARANTEES: Final = (
    {"max_concurrent": 1},
    {"max_concurrent": 3},
    {"unaligned": True},
    {"unaligned": True, "aligned_timeout": 0.005},
)


def shape_of(seed: int, draw: Random, backend: str) -> JobShape:
    """A job with checkpoints that follow each other closely. Neighbouring seeds differ in all that matters."""
    guarantee = GUARANTEES[seed % len(GUARANTEES)]
    overtakes = "unaligned" in guarantee
    settings = Settings(
        parallelism=2,
        workers=2,
        batch_size=8,
        checkpoint=CheckpointSettings(
            interval=0.02,
            # Where records are waited for, a short one would let no checkpoint through.
            timeout=5.0 if overtakes else draw.choice((0.4, 5.0)),
            tolerable_failures=1000,
            retained=draw.choice((1, 2, 3)),
            storage=f"file://{STORAGE}",
            **guarantee,
        ),
        # RocksDB writes early when what changed is more than a part of this.
        state=StateSettings(backend=backend, cache_bytes=20_000),
        restart=RestartSettings(delay=0.1),
        heartbeat=HeartbeatSettings(interval=0.5, timeout=5.0),
    )
    topology = TOPOLOGIES[seed % len(TOPOLOGIES)]
    return JobShape(
        topology, RECORDS, draw.choice((7, 40, 400)), RATE, settings, sink_delay=SINK_DELAY if overtakes else 0.0
    )


class StressScenario(JobScenario):
    """One seed's job. With a `work_dir`, a folder of the real machine, its state is in RocksDB."""

    safety_seconds = 120.0

    def __init__(self, seed: int, work_dir: str = "") -> None:
        self._draw = Random(f"{seed}:stress")
        shape = shape_of(seed, self._draw, "rocksdb" if work_dir else "heap")
        super().__init__(seed, shape=shape, mix=NO_FAULTS)
        self._work_dir = work_dir
        self._world: SimWorld
        self._rounds = 0
        self._checkpoints_left = 0

    def set_up(self, world: SimWorld) -> None:
        super().set_up(world)
        self._world = world
        if self._work_dir:
            self._programs.work_dir, self._programs.open_database = self._work_dir, Database
        world.watch_points(self._on_point)

    def root(self) -> tuple[str, Sequence[str]]:
        """The person, before the next start, removes what looks superfluous."""
        assert self._storage is not None
        if self._rounds < ROUNDS:
            self._rounds += 1
            self._checkpoints_left = self._draw.randint(1, 4)
        if self._storage.retained():
            for name in self._storage.take_away_unnamed():
                self._world.trace.mark(f"taken away: {name.partition('-')[0]}")
        return super().root()

    def judge(self, world: SimWorld) -> None:
        super().judge(world)
        if self._rounds < ROUNDS_MIN:
            raise InvariantBroken(f"the job has finished in round {self._rounds}: it has too few records")

    def _on_point(self, point: Point) -> None:
        assert self._storage is not None
        newest = self._storage.newest
        is_commit = (point.phase, point.operation) == ("after", "disk.link") and "/commits/" in point.subject
        if is_commit and newest is not None and newest.kind == CHECKPOINT and self._checkpoints_left:
            self._checkpoints_left -= 1
            if not self._checkpoints_left:
                delay = self._draw.choice((0.0, self._draw.uniform(0.0, 0.03)))
                # An empty context: the kill belongs to the world, not to the process that caused it.
                self._world.loop.call_later(delay, self._kill_all, context=Context())

    def _kill_all(self) -> None:
        for process in self._world.living():
            self._world.kill(process, "in the stress loop")
