"""Random jobs and faults: what is drawn makes sense, and the judge tells right from wrong."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from flowpoint.sim.faults import ALL_FAULTS, KILLS, MACHINE_FAULTS, draw_mix
from flowpoint.sim.job_text import job_text
from flowpoint.sim.jobs import Topology, draw_shape
from flowpoint.sim.references import check_output, reference
from flowpoint.sim.scenario import JobScenario
from flowpoint.sim.world import InvariantBroken

SHAPES = [draw_shape(Random(seed)) for seed in range(100)]


def shape_of(topology: Topology):
    fitting = (shape for shape in SHAPES if shape.topology is topology and shape.records >= 50 and shape.keys > 1)
    return next(shape for shape in fitting if shape.settings.checkpoint.mode == "exactly_once")


def test_every_mix_kills_and_over_many_runs_every_allowed_kind_occurs():
    for allowed in MACHINE_FAULTS, ALL_FAULTS:
        mixes = [draw_mix(Random(seed), allowed) for seed in range(200)]

        assert all(KILLS.intersection(mix.kinds) for mix in mixes)
        assert {kind for mix in mixes for kind in mix.kinds} == allowed


def test_shapes_cover_every_topology_and_parallelism():
    assert {shape.topology for shape in SHAPES} == set(Topology)
    assert {shape.settings.parallelism for shape in SHAPES} == {1, 2, 3, 4}
    assert all(1 <= shape.settings.workers <= shape.settings.parallelism for shape in SHAPES)


@pytest.mark.parametrize("topology", list(Topology))
def test_job_files_compile_and_name_every_operator(topology):
    text = job_text(shape_of(topology))

    compile(text, "job.py", "exec")
    assert 'uid="numbers"' in text
    assert 'uid="out"' in text


@pytest.mark.parametrize("topology", list(Topology))
def test_the_judge_accepts_the_reference_and_refuses_one_row_less_or_more(topology):
    shape = shape_of(topology)
    right = reference(shape)
    row = next(iter(right))

    check_output(shape, right)
    for wrong in right - Counter({row: 1}), right + Counter({row: 1}), right + Counter({("strange",): 1}):
        with pytest.raises(InvariantBroken, match="the output is wrong"):
            check_output(shape, wrong)


def test_a_timer_fires_exactly_once_per_key():
    shape = shape_of(Topology.TIMERS)
    right = reference(shape)

    assert right["timer", 0] == 1
    for wrong in right + Counter({("timer", 0): 1}), right - Counter({("timer", 0): 1}):
        with pytest.raises(InvariantBroken, match="the output is wrong"):
            check_output(shape, wrong)


def test_a_seed_draws_the_same_scenario_every_time():
    first, second = JobScenario(5), JobScenario(5)

    assert (first.shape, first.mix) == (second.shape, second.mix)
    assert JobScenario(6).shape != first.shape
