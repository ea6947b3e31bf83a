"""With a safeguard switched off, the campaign finds the damage: by what checkers see, and by the output alone."""

from __future__ import annotations

import pytest

from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import JobScenario
from tests.simulation.ablations import ABLATIONS, Ablation

SEEDS_MAX = 200
SEEDS_INTACT = 2


def is_damage(outcome):
    """Wrong output, a checker that objects, a job that has to give up.

    A process that crashes is none: so ends a switch that does not fit the code any more, and it would prove nothing.
    """
    crashed = ("unhandled errors", "found a bug in itself")
    return outcome.failure.startswith("InvariantBroken") and not any(words in outcome.failure for words in crashed)


def first_damage(ablation: Ablation, checked: bool):
    def hasty(seed: int) -> JobScenario:
        scenario = ablation.scenario(checked)(seed)
        # A job that never ends is not the damage that is looked for: it is given up early.
        scenario.liveness_seconds = 15.0
        return scenario

    seeds = range(ablation.first_seed, ablation.first_seed + SEEDS_MAX)
    outcomes = (simulate(seed, hasty) for seed in seeds)
    return next(filter(is_damage, outcomes), None)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
@pytest.mark.parametrize("checked", [True, False], ids=["with checkers", "by the output alone"])
def test_a_missing_safeguard_is_found_within_200_seeds(ablation, checked, monkeypatch):
    ablation.trouble(monkeypatch)
    ablation.switch_off(monkeypatch)

    outcome = first_damage(ablation, checked)

    assert outcome is not None
    print(f"{ablation.name}: seed {outcome.seed}: {outcome.failure}")


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_with_all_safeguards_the_same_runs_are_clean(ablation, monkeypatch):
    ablation.trouble(monkeypatch)

    seeds = range(ablation.first_seed, ablation.first_seed + SEEDS_INTACT)
    outcomes = [simulate(seed, ablation.scenario(checked=True)) for seed in seeds]

    assert [outcome.failure for outcome in outcomes] == [""] * SEEDS_INTACT
