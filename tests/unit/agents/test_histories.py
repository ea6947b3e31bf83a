"""Histories by chance do what a model in plain dicts does. `scripts.agents.histories` runs many more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.agents.history_machine import STEPS, history, run_history

LENGTH = 60


@pytest.mark.parametrize(
    ("store", "seed"),
    [
        *(("memory", seed) for seed in range(16)),
        *(("disk", seed) for seed in range(8)),
        *(("rocks", seed) for seed in range(8)),
        *(("folder", seed) for seed in range(4)),
    ],
)
def test_a_history_by_chance_is_what_the_model_says(store: str, seed: int, tmp_path: Path) -> None:
    run_history(store, seed, history(seed, LENGTH), tmp_path)


def test_every_kind_of_step_happens() -> None:
    assert {step.name for seed in range(8) for step in history(seed, LENGTH)} == set(STEPS)
