"""A whole job in the world: clean when it is right, found when a mistake is planted, the same every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flowpoint.sim.report import Campaign
from flowpoint.sim.run import simulate
from tests.simulation.toy import CORRECT, toy

ROOT = Path(__file__).resolve().parents[2]
DIGESTS = """
from flowpoint.sim.run import simulate
from tests.simulation.toy import CORRECT
print([simulate(seed, CORRECT).digest for seed in range(6)])
"""


def first_failure(factory, seeds):
    return next((outcome for outcome in (simulate(seed, factory) for seed in seeds) if not outcome.ok), None)


def test_100_seeds_of_a_correct_job_are_clean_and_reach_every_kind_of_fault():
    campaign = Campaign()

    for seed in range(100):
        campaign.add(simulate(seed, CORRECT))

    assert [outcome.tell() for outcome in campaign.failures] == []
    hit = " ".join(campaign.marks)
    for mark in "kill_coordinator", "power_failure", "lost_answers", "trapped coordinator", "trapped summer":
        assert mark in hit


@pytest.mark.parametrize("bug", ["ack_without_sync", "no_alignment", "ack_missing"])
@pytest.mark.parametrize("checked", [True, False], ids=["with checkers", "by the output alone"])
def test_a_planted_bug_is_found_within_200_seeds(bug, checked):
    outcome = first_failure(toy(bug, checked), range(200))

    assert outcome is not None
    assert f"replay: scripts/sim --seed {outcome.seed}" in outcome.tell()


def test_a_seed_gives_the_same_run_every_time_and_other_seeds_other_runs():
    first = [simulate(seed, CORRECT).digest for seed in range(6)]

    assert [simulate(seed, CORRECT).digest for seed in reversed(range(6))] == first[::-1]
    assert len(set(first)) == 6


def test_a_seed_gives_the_same_run_in_interpreters_with_other_hash_seeds():
    def digests(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGESTS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    here = str([simulate(seed, CORRECT).digest for seed in range(6)])

    assert [digests(hash_seed) for hash_seed in ("0", "77")] == [here, here]
