"""Savepoints, hand-overs and rescales in the simulation: every order of things comes out exact."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.jobs import STORAGE, JobShape, Topology, draw_shape
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import AskedScenario, JobScenario

NO_FAULTS = FaultMix((), 0.0, 1.0, 0, 0.0, 0.0)


def shape_of(topology: Topology, parallelism: int) -> JobShape:
    """A job that runs for about a second of virtual time."""
    shape = draw_shape(Random(1))
    checkpoint = replace(shape.settings.checkpoint, interval=0.2, timeout=5.0, max_concurrent=1)
    settings = replace(
        shape.settings,
        parallelism=parallelism,
        workers=0,
        max_parallelism=128,
        batch_size=16,
        checkpoint=checkpoint,
    )
    return JobShape(topology, 600, 40, 600, settings)


class Rescaled(JobScenario):
    """A job that is rescaled, once, in the middle, without faults."""

    def __init__(self, seed: int, topology: Topology, before: int, after: int) -> None:
        super().__init__(seed, shape=shape_of(topology, before), mix=NO_FAULTS)
        self.after = after

    def set_up(self, world):
        super().set_up(world)
        self._programs.draw = Constant(self.after)
        world.loop.call_later(0.6, self._programs.ask, FaultKind.ASK_RESCALE)

    def judge(self, world):
        super().judge(world)
        manifest = world.files.file(f"{STORAGE}/{self._storage.newest.directory}/manifest.json")
        operators = json.loads(bytes(manifest.data))["operators"].values()
        assert {operator["parallelism"] for operator in operators} == {self.after}


class Constant:
    """Draws always the same."""

    def __init__(self, value: int) -> None:
        self.value = value

    def randint(self, first: int, last: int) -> int:
        return self.value

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 7), (4, 8), (7, 3)])
@pytest.mark.parametrize("topology", [Topology.STATELESS, Topology.UNION, Topology.STATES, Topology.TIMERS])
def test_a_rescaled_job_gives_the_same_output(topology, before, after):
    outcome = simulate(1, lambda seed: Rescaled(seed, topology, before, after))

    assert outcome.ok, outcome.tell()
    assert outcome.marks["done ask_rescale"] == 1


def test_some_seeds_of_jobs_that_are_asked_for_much_are_clean():
    outcomes = [simulate(seed, AskedScenario) for seed in range(6)]

    assert [outcome.tell() for outcome in outcomes if not outcome.ok] == []
    marks = sum((outcome.marks for outcome in outcomes), start=outcomes[0].marks.copy())
    assert marks["done ask_rescale"]
    assert marks["done ask_stop_to"]
