"""Stopping with and without `--drain`: whether time ends before the last checkpoint, and who may go on from it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from flowpoint.coordinator.job import Wishes
from flowpoint.model import messages
from flowpoint.sim.faults import DRAINS, KILLS, FaultKind, FaultMix
from flowpoint.sim.jobs import Topology, draw_shape
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import JobScenario
from tests.simulation.stage import LOG, Stage, settings, witness

PANES = """
class Panes(KeyedProcessFunction):
    count = ValueState("count", default=0)

    def process(self, n, ctx):
        self.count.value += 1
        ctx.timers.event(ctx.key * 10 + 9)

    def on_timer(self, timestamp, ctx):
        yield (ctx.key, self.count.value)

(
    job.source(LogSource(), uid="log")
    .map(see, uid="see")
    .assign_timestamps(lambda n: n, max_out_of_orderness=0, uid="times")
    .key_by(lambda n: n // 10)
    .process(Panes(), uid="panes")
    .sink(SINK)
)
"""
RESUMED = Wishes(resume_drained=True)

parallel = pytest.mark.parametrize("parallelism", [1, 2])


def stage_of(parallelism: int) -> Stage:
    return Stage(PANES, settings(parallelism), files={LOG: b"1\n2\n3\n"})


async def run_and_ask(stage: Stage, request: FaultKind, code: int = 130) -> None:
    """Start the job, let it read 1, 2, 3, then stop it."""
    run = stage.start()
    await stage.until(lambda: witness.seen == [1, 2, 3] and stage.completed(2))
    stage.ask_for(request)
    await stage.finish(run, code=code)


async def go_on(stage: Stage) -> None:
    """Start it again; it reads 4 and 12, and then the input ends."""
    for line in (4, 12, "end"):
        stage.append(line)
    await stage.finish(stage.start())


@parallel
@pytest.mark.parametrize("request_", [FaultKind.ASK_STOP, FaultKind.ASK_STOP_TO])
def test_ac41_without_drain_no_timer_fires_at_the_stop_and_it_does_after_the_restore(parallelism, request_):
    stage = stage_of(parallelism)

    async def script():
        await run_and_ask(stage, request_)
        assert stage.output() == Counter()
        await go_on(stage)

    stage.play(script())

    assert stage.output() == Counter({(0, 4): 1, (1, 1): 1})


@parallel
@pytest.mark.parametrize("request_", sorted(DRAINS))
def test_ac41_with_drain_timers_fire_at_the_stop_and_what_they_emit_is_committed(parallelism, request_):
    stage = stage_of(parallelism)

    async def script():
        await run_and_ask(stage, request_)

    stage.play(script())

    assert stage.output() == Counter({(0, 3): 1})
    assert stage.story("the job is stopped")


@pytest.mark.parametrize("request_", sorted(DRAINS))
def test_a_drained_snapshot_is_gone_on_from_only_when_a_person_says_so_and_time_begins_anew(request_):
    stage = stage_of(2)

    async def script():
        await run_and_ask(stage, request_)
        await stage.finish(stage.start(), code=1)
        assert stage.output() == Counter({(0, 3): 1})
        stage.wish(RESUMED)
        await go_on(stage)

    stage.play(script())

    assert stage.story("the job is failed", "--resume-drained")
    assert stage.output() == Counter({(0, 3): 1, (0, 4): 1, (1, 1): 1})


@parallel
def test_a_drain_that_fails_goes_on_from_the_checkpoint_before_it_as_if_no_timer_had_fired(parallelism):
    stage = Stage(PANES, settings(parallelism, timeout=2.0), files={LOG: b"1\n2\n3\n"})
    drained: list[int] = []

    def hold_back(link, ack):
        if ack.checkpoint not in drained:
            return False
        link.stall(3.0)
        return True

    async def script():
        run = stage.start()
        await stage.until(lambda: witness.seen == [1, 2, 3] and stage.completed(2))
        stage.on_message(
            messages.Trigger, lambda _, trigger: drained.append(trigger.checkpoint) if trigger.drain else None
        )
        stage.on_message(messages.Ack, hold_back, once=True)
        stage.ask_for(FaultKind.ASK_DRAIN)
        await stage.until(lambda: stage.story("answers", "was not stopped and runs on"))
        for line in (4, 12, "end"):
            stage.append(line)
        await stage.finish(run)

    stage.play(script())

    assert stage.story("restarting at once", "checkpoint.timeout")
    assert stage.output() == Counter({(0, 4): 1, (1, 1): 1})


@pytest.mark.parametrize("request_", sorted(DRAINS))
def test_a_kill_after_the_drain_is_in_the_log_ends_in_a_stop_without_another_record(request_):
    stage = stage_of(2)
    asked: list[bool] = []

    def kill_one(link, message):
        if asked:
            stage.kill(stage.workers()[0])
        return bool(asked)

    stage.on_message(messages.Complete, kill_one, once=True)

    async def script():
        run = stage.start()
        await stage.until(lambda: witness.seen == [1, 2, 3] and stage.completed(2))
        stage.on_message(messages.Trigger, lambda _, trigger: asked.append(True) if trigger.drain else None)
        stage.ask_for(request_)
        await asyncio.sleep(0)
        await stage.finish(run, code=130)

    stage.play(script())

    assert stage.story("restarting at once")
    assert not stage.story("lets the records of attempt 2 flow")
    assert stage.story("the job is stopped")
    assert stage.output() == Counter({(0, 3): 1})


@pytest.mark.parametrize("request_", sorted(DRAINS))
def test_so_does_a_kill_before_the_coordinator_has_heard_that_the_drain_is_in_the_log(request_):
    stage = stage_of(2)
    is_watched: list[bool] = []

    def kill_one_before_the_answer(process):
        stage.world.disk_faults.slowness = 2000.0
        stage.kill(stage.workers()[0])

    def watch(link, trigger):
        if trigger.drain and not is_watched:
            is_watched.append(True)
            stage.on_point("disk.link", "/commits/", kill_one_before_the_answer)

    async def script():
        run = stage.start()
        await stage.until(lambda: witness.seen == [1, 2, 3] and stage.completed(2))
        stage.on_message(messages.Trigger, watch)
        stage.ask_for(request_)
        await stage.until(lambda: stage.story("restarting at once"))
        stage.world.heal()
        await stage.finish(run, code=130)

    stage.play(script())

    assert not stage.story("lets the records of attempt 2 flow")
    assert stage.story("the job is stopped")
    assert stage.output() == Counter({(0, 3): 1})


def drained_under_kills(seed: int) -> JobScenario:
    """A job whose output does not depend on time, drained again and again while it is being killed."""
    drawn = draw_shape(Random(f"{seed}:drained"))
    topology = Random(f"{seed}:topology").choice((Topology.COUNT, Topology.REBALANCED, Topology.UNION))
    shape = replace(drawn, topology=topology, records=600, rate=600, sink_delay=0.0)
    kinds = (*sorted(KILLS - {FaultKind.POWER_FAILURE}), *sorted(DRAINS) * 3)
    return JobScenario(seed, shape=shape, mix=FaultMix(kinds, 0.2, 0.25, 10, 0.3, 0.5))


def test_drains_among_kills_lose_and_double_nothing():
    marks: Counter[str] = Counter()
    for seed in range(1, 13):
        outcome = simulate(seed, drained_under_kills)
        assert outcome.ok, outcome
        marks.update(outcome.marks)

    assert marks["done ask_drain"]
    assert marks["done ask_drain_to"]
