"""Jobs whose checkpoints are in the coordinator's memory: workers die and links break, the output stays exact."""

from __future__ import annotations

from flowpoint.sim.report import Campaign
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import MemoryScenario

SEEDS = range(100, 112)
REACHED = (
    "checkpoint with channel state",
    "event restored",
    "event worker_lost",
    "fault cut_link",
    "fault kill_workers",
)


def test_jobs_with_checkpoints_in_memory_are_exact_while_workers_and_links_fail():
    campaign = Campaign()
    for seed in SEEDS:
        campaign.add(simulate(seed, MemoryScenario))

    assert [outcome.tell() for outcome in campaign.failures] == []
    assert [mark for mark in REACHED if mark not in campaign.marks] == []
