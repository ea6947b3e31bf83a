"""With a safeguard switched off, the campaign finds the damage: by what checkers see, and by the output alone."""

from __future__ import annotations

import pytest

from flowpoint.sim.run import simulate
from tests.simulation.ablations import ABLATIONS, Ablation

SEEDS_MAX = 200
SEEDS_INTACT = 2


def first_failure(ablation: Ablation, checked: bool):
    return next(
        (one for one in (simulate(seed, ablation.scenario(checked)) for seed in range(SEEDS_MAX)) if not one.ok), None
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
@pytest.mark.parametrize("checked", [True, False], ids=["with checkers", "by the output alone"])
def test_a_missing_safeguard_is_found_within_200_seeds(ablation, checked, monkeypatch):
    ablation.switch_off(monkeypatch)

    outcome = first_failure(ablation, checked)

    assert outcome is not None
    print(f"{ablation.name}: seed {outcome.seed}: {outcome.failure}")


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_with_all_safeguards_the_same_runs_are_clean(ablation):
    outcomes = [simulate(seed, ablation.scenario(checked=True)) for seed in range(SEEDS_INTACT)]

    assert [outcome.failure for outcome in outcomes] == [""] * SEEDS_INTACT
