"""Jobs of every topology go on at another parallelism from every kind of snapshot, and their output stays exact.

A wider set: scripts/sim --scenario flowpoint.sim.rescales:RescaleScenario --seeds 1000
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from flowpoint.sim.database import EVICTED
from flowpoint.sim.report import Outcome
from flowpoint.sim.rescales import CELLS, RescaleScenario, Snapshot
from flowpoint.sim.run import simulate
from flowpoint.sim.world import MOVING

PROCESSES = 2


def run_cells(seeds: range) -> list[Outcome]:
    return [simulate(seed, RescaleScenario) for seed in seeds]


@pytest.mark.timeout(600)
def test_every_cell_of_the_rescale_matrix_is_exact_and_was_cut_where_it_should_be():
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        batches = list(pool.map(run_cells, [range(first, len(CELLS), 8) for first in range(8)]))

    outcomes = [outcome for batch in batches for outcome in batch]
    assert [outcome.tell() for outcome in outcomes if not outcome.ok] == []
    assert all(outcome.marks[MOVING] for outcome in outcomes)
    assert any(outcome.marks[EVICTED] for outcome in outcomes)
    for snapshot in Snapshot:
        cells = [outcome for outcome in outcomes if outcome.marks[f"cut {snapshot}"]]
        assert len(cells) == len(CELLS) // len(Snapshot)
        assert all(outcome.marks["event restored"] >= 2 for outcome in cells)
        if snapshot is Snapshot.UNALIGNED:
            assert all(outcome.marks["restored channel state"] for outcome in cells)
