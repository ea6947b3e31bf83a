"""A job whose code changes while it is down comes out exact, also when it dies again while it converts its state."""

from __future__ import annotations

import pytest

from flowpoint.sim.changed_job import ChangedJobScenario
from flowpoint.sim.report import Campaign
from flowpoint.sim.run import simulate

SEEDS = 12
REACHED = ("version 1 goes on", "version 2 goes on", "killed while it restores", "restored channel state")


@pytest.mark.timeout(300)
def test_seeds_of_changed_jobs_are_clean_and_reach_every_version() -> None:
    campaign = Campaign()

    for seed in range(SEEDS):
        campaign.add(simulate(seed, ChangedJobScenario))

    assert [outcome.tell() for outcome in campaign.failures] == []
    assert [mark for mark in REACHED if mark not in campaign.marks] == []
