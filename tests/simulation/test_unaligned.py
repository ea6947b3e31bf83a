"""Records under way as part of checkpoints, in whole jobs: taken in once, whatever dies and however it is rescaled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.jobs import JobShape, Topology, draw_shape
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import JobScenario

KILLS = (FaultKind.KILL_WORKER, FaultKind.KILL_WORKERS)
CARRIED, RESTORED, DECLINED = "checkpoint with channel state", "restored channel state", "declined while restoring"


def busy_shape(seed: int, topology: Topology, parallelism: int, **checkpoint: object) -> JobShape:
    """A job behind a slow sink, so that its queues are full when a barrier comes."""
    drawn = draw_shape(Random(f"{seed}:unaligned"))
    settings = replace(
        drawn.settings,
        parallelism=parallelism,
        workers=2,
        max_parallelism=128,
        batch_size=16,
        checkpoint=replace(
            drawn.settings.checkpoint,
            **{
                "interval": 0.05,
                "timeout": 5.0,
                "max_concurrent": 1,
                "mode": "exactly_once",
                "min_pause": 0.0,
                "unaligned": True,
                "aligned_timeout": 0.0,
                **checkpoint,
            },
        ),
    )
    return JobShape(topology, 800, 5, None, settings, sink_delay=0.002)


class Rescaled(JobScenario):
    """Each time the coordinator is started again it is at the next of some parallelisms."""

    def __init__(self, seed: int, topology: Topology, parallelisms: tuple[int, ...]) -> None:
        shape = busy_shape(seed, topology, parallelisms[0], retained=2)
        mix = FaultMix((FaultKind.KILL_COORDINATOR,), 0.3, 0.7, 4, 0.0, 0.0)
        super().__init__(seed, shape=shape, mix=mix)
        self._parallelisms = parallelisms
        self._starts = 0

    def root(self):
        parallelism = self._parallelisms[self._starts % len(self._parallelisms)]
        self._starts += 1
        self._programs.settings = replace(self._programs.settings, parallelism=parallelism)
        return super().root()


def outcomes_of(make, seeds=4):
    """Run some seeds; what was reached in all of them together."""
    marks: Counter[str] = Counter()
    for seed in range(seeds):
        outcome = simulate(seed, make)
        assert outcome.ok, outcome.tell()
        marks.update(outcome.marks)
    return marks


@pytest.mark.parametrize("topology", [Topology.REBALANCED, Topology.TWO_KEYED, Topology.UNION])
def test_ac15_records_under_way_are_taken_in_once_after_kills(topology):
    mix = FaultMix(KILLS, 0.3, 0.5, 4, 0.0, 0.0)
    marks = outcomes_of(lambda seed: JobScenario(seed, shape=busy_shape(seed, topology, 3), mix=mix))
    assert marks[CARRIED] > 0
    assert marks[RESTORED] > 0


@pytest.mark.parametrize("unaligned", [True, False], ids=["unaligned", "aligned since"])
def test_ac16_checkpoints_during_recovery_are_declined_and_every_record_comes_once(unaligned):
    class Switched(JobScenario):
        """The first run is unaligned; later ones are, or are not."""

        def root(self):
            settings = self._programs.settings
            if self._started_before:
                checkpoint = replace(settings.checkpoint, unaligned=unaligned)
                self._programs.settings = replace(settings, checkpoint=checkpoint)
            self._started_before = True
            return super().root()

        _started_before = False

    mix = FaultMix((*KILLS, FaultKind.KILL_COORDINATOR, FaultKind.ASK_CHECKPOINT), 0.2, 0.3, 6, 0.0, 0.0)
    shape = lambda seed: busy_shape(seed, Topology.REBALANCED, 2, interval=0.03)  # noqa: E731
    marks = outcomes_of(lambda seed: Switched(seed, shape=shape(seed), mix=mix))
    assert marks[RESTORED] > 0
    assert marks[DECLINED] > 0


class AskedWhileRestoring(JobScenario):
    """A worker dies once records are under way in a checkpoint; a person asks for something as soon as records flow."""

    def __init__(self, seed: int, request: FaultKind) -> None:
        super().__init__(seed, shape=busy_shape(seed, Topology.REBALANCED, 2), mix=FaultMix((), 0.0, 1.0, 0, 0.0, 0.0))
        self._request = request
        self._has_died = False

    def set_up(self, world):
        super().set_up(world)
        mark = world.trace.mark

        def look(point):
            is_commit = (point.phase, point.operation) == ("after", "disk.link") and "/commits/" in point.subject
            if is_commit and world.trace.marks[CARRIED] and not self._has_died:
                self._has_died = True
                world.kill(next(one for one in world.living() if one.role == "worker"), "once")

        def ask(name):
            mark(name)
            if name == "event running" and self._has_died:
                self._programs.ask(self._request)

        world.watch_points(look)
        world.trace.mark = ask


@pytest.mark.parametrize("request_", [FaultKind.ASK_CHECKPOINT, FaultKind.ASK_SAVEPOINT])
def test_who_asks_for_a_checkpoint_while_records_are_restored_gets_one_as_soon_as_that_can_be(request_):
    for seed in range(3):
        outcome = simulate(seed, lambda seed: AskedWhileRestoring(seed, request_))

        assert outcome.ok, outcome.tell()
        assert outcome.marks[DECLINED], outcome.tell()
        assert outcome.marks[f"done {request_}"] == 1, outcome.tell()


@pytest.mark.parametrize("topology", [Topology.KEYED_MAP, Topology.REBALANCED, Topology.TWO_KEYED])
@pytest.mark.parametrize("parallelisms", [(3, 5, 3), (5, 3), (2, 1), (1, 2), (4, 7, 2)], ids=str)
def test_ac17_rescaling_deals_records_under_way_out_anew(topology, parallelisms):
    marks = outcomes_of(lambda seed: Rescaled(seed, topology, parallelisms), seeds=3)
    assert marks[RESTORED] > 0 or parallelisms[0] == 1


def test_at_least_once_loses_nothing_and_holds_nothing_back():
    mix = FaultMix(KILLS, 0.3, 0.5, 4, 0.0, 0.0)
    shape = lambda seed: busy_shape(seed, Topology.TWO_KEYED, 3, mode="at_least_once", unaligned=False)  # noqa: E731
    marks = outcomes_of(lambda seed: JobScenario(seed, shape=shape(seed), mix=mix))
    assert marks["event restored"] > 0


def test_concurrent_checkpoints_leave_no_file_that_no_retained_one_names():
    mix = FaultMix((*KILLS, FaultKind.STALL_LINKS, FaultKind.DISK_SLOW), 0.1, 0.2, 12, 0.0, 0.0)
    # Any number of failures is tolerated: under stalls of this size whole attempts may pass without one that completes.
    concurrent = {
        "max_concurrent": 3,
        "unaligned": False,
        "timeout": 0.15,
        "tolerable_failures": 1000,
        "interval": 0.03,
    }

    def make(seed):
        # Faster than else: aligned checkpoints have to come about within their timeout.
        return JobScenario(
            seed, shape=replace(busy_shape(seed, Topology.TWO_KEYED, 2, **concurrent), sink_delay=0.0005), mix=mix
        )

    marks = outcomes_of(make, seeds=6)
    assert marks["event checkpoint_failed"] > 0
