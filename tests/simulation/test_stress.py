"""What the newest checkpoint names is enough, however often everything else is lost."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from flowpoint.sim.report import Outcome
from flowpoint.sim.run import simulate
from flowpoint.sim.stress import GUARANTEES, ROUNDS_MIN, StressScenario

PROCESSES = 2


def run_one(seed: int, work_dir: str) -> Outcome:
    return simulate(seed, lambda it: StressScenario(it, work_dir))


@pytest.mark.timeout(600)
def test_what_the_newest_checkpoint_names_is_enough_round_after_round_and_nothing_else_is_left(tmp_path: Path):
    seeds = [*range(len(GUARANTEES))] * 2
    # State on the heap, and state in RocksDB.
    folders = [""] * len(GUARANTEES) + [str(tmp_path / str(seed)) for seed in range(len(GUARANTEES))]

    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        outcomes = list(pool.map(run_one, seeds, folders))

    assert [outcome.tell() for outcome in outcomes if not outcome.ok] == []
    assert all(outcome.marks["event restored"] >= ROUNDS_MIN - 1 for outcome in outcomes)
    reached = sum((outcome.marks for outcome in outcomes), start=outcomes[0].marks.copy())
    for mark in ("taken away: shared/process", "taken away: chk", "restored channel state", "event checkpoint_failed"):
        assert reached[mark], mark
