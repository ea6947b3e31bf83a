"""The real coordinator and workers: many seeds are clean, reach every kind of trouble, and are the same each time."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from flowpoint.sim.database import EVICTED
from flowpoint.sim.report import Campaign, Outcome
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import JobScenario
from flowpoint.sim.world import MOVING

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100
PROCESSES = 2
AGAIN = 4
DIGESTS = f"""
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import JobScenario
print([simulate(seed, JobScenario).digest for seed in reversed(range({AGAIN}))])
"""
REACHED = (
    "aborted output",
    EVICTED,
    "bit rot",
    "checkpoint with channel state",
    "declined while restoring",
    "event checkpoint_completed",
    "event checkpoint_failed",
    "event restored",
    "event stopping",
    "event cancelling",
    "event worker_lost",
    "fault disk_full",
    "fault kill_coordinator",
    "fault late_words",
    "fault lost_answers",
    "fault pause_worker",
    "fault user_errors",
    "killed coordinator in",
    "local file copied",
    "local file linked",
    "local files hurt",
    MOVING,
    "power failure: coordinator in",
    "restored channel state",
    "restored from local files",
    "trapped coordinator",
    "trapped worker",
    "work folder apart, full",
)


def run_seeds(seeds: range) -> list[Outcome]:
    gc.freeze()
    return [simulate(seed, JobScenario) for seed in seeds]


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """What became of each seed."""
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        found = pool.map(run_seeds, [range(first, SEEDS, 10) for first in range(10)])
        return sorted((outcome for some in found for outcome in some), key=lambda outcome: outcome.seed)


@pytest.mark.timeout(600)
def test_100_seeds_are_clean_and_reach_every_kind_of_trouble(outcomes):
    campaign = Campaign()
    for outcome in outcomes:
        campaign.add(outcome)

    assert len(outcomes) == SEEDS
    assert [outcome.tell() for outcome in campaign.failures] == []
    reached = "\n".join(campaign.marks)
    assert [mark for mark in REACHED if mark not in reached] == []


@pytest.mark.timeout(600)
def test_a_seed_is_the_same_run_in_any_order_and_in_interpreters_with_other_hash_seeds(outcomes):
    """The campaign ran each of these seeds after others, in an interpreter with a hash seed that nobody knows."""

    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGESTS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    there = [outcome.digest for outcome in outcomes[:AGAIN]]

    assert len(set(there)) == AGAIN
    assert [digests(hash_seed) for hash_seed in ("0", "77")] == [str(there[::-1])] * 2
