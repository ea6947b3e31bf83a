"""A job whose code changes while it is down comes out exact, also when it dies again while it converts its state."""

from __future__ import annotations

from collections import Counter

import pytest

from flowpoint.sim.changed_job import ChangedJobScenario
from flowpoint.sim.report import Campaign
from flowpoint.sim.run import simulate
from tests.simulation.stage import Stage, settings

SEEDS = 8
REACHED = (
    "version 1 goes on",
    "version 2 goes on",
    "killed while it restores",
    "killed after its code has changed",
    "restored channel state",
)


@pytest.mark.timeout(300)
def test_seeds_of_changed_jobs_are_clean_and_reach_every_version() -> None:
    campaign = Campaign()

    for seed in range(SEEDS):
        campaign.add(simulate(seed, ChangedJobScenario))

    assert [outcome.tell() for outcome in campaign.failures] == []
    assert [mark for mark in REACHED if mark not in campaign.marks] == []


BRANCHES = """\
numbers = job.source(SequenceSource(0, 400, rate=400), uid="numbers")
a = numbers.key_by(lambda n: n % 5).count(uid="a").map(lambda pair: ("a", *pair), uid="rows_a")
b = numbers.key_by(lambda n: n % 3).count(uid="b").map(lambda pair: ("b", *pair), uid="rows_b")
a.union(b).sink(SINK)
"""
OTHERWISE = """\
numbers = job.source(SequenceSource(0, 400, rate=400), uid="numbers").rebalance().map(lambda n: n, uid="more")
b = numbers.key_by(lambda n: n % 3).count(uid="b", parallelism=1).map(lambda pair: ("b", *pair), uid="rows_b")
a = numbers.key_by(lambda n: n % 5).count(uid="a").map(lambda pair: pair, uid="extra")
a.map(lambda pair: ("a", *pair), uid="rows_a").union(b).sink(SINK)
"""


def test_operators_in_another_order_and_chained_otherwise_find_their_state_by_uid() -> None:
    stage = Stage(BRANCHES, settings(2))

    async def script() -> None:
        stage.start()
        await stage.until(lambda: stage.completed(3))
        stage.kill_all()
        await stage.all_dead()
        stage.rewrite(OTHERWISE)
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("deploys attempt 2, from checkpoint")
    expected = Counter(("a", n % 5, n // 5 + 1) for n in range(400)) + Counter(
        ("b", n % 3, n // 3 + 1) for n in range(400)
    )
    assert stage.output() == expected
