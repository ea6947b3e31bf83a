"""A worker runs the plan that the coordinator deploys, or none (rule 20)."""

from __future__ import annotations

import gc
import weakref

import pytest

from flowpoint import Job
from flowpoint.connectors import CollectionSource, PrintSink
from flowpoint.errors import PlanError
from flowpoint.launch.worker_main import load_with, settled
from flowpoint.model.messages import Deploy
from flowpoint.plan.compile import compile_graph


def graph_of(uid):
    """A small job, whose map has this uid."""
    job = Job("job")
    job.source(CollectionSource([1]), uid="in").map(str, uid=uid).sink(PrintSink(), uid="out")
    return job.graph()


def deploy(graph):
    """What a coordinator that has compiled `graph` sends."""
    return Deploy(
        attempt=1,
        job="job",
        lineage="L",
        plan=compile_graph(graph, 2, 128).plan.to_data(),
        settings={},
        source={"parallelism": 2},
        assignment={},
        peers={},
        restore={},
        restored_checkpoint=0,
        storage="",
        work_dir="",
    )


def test_the_functions_of_the_same_graph_are_loaded():
    operators = load_with(lambda source: graph_of("text"))(deploy(graph_of("text")))

    assert sorted(operators) == ["in", "out", "text"]


def test_a_job_file_that_builds_another_graph_in_a_worker_is_refused():
    load = load_with(lambda source: graph_of("text-of-another-process"))

    with pytest.raises(PlanError, match=r"the job file of 'job' builds another graph .* independent of time"):
        load(deploy(graph_of("text")))


def test_what_is_loaded_is_left_alone_by_the_collector_and_garbage_before_it_is_not_kept():
    class Ring:
        """Something that refers to itself."""

    ring = Ring()
    ring.me = ring
    gone = weakref.ref(ring)

    def load(_deploy):
        return {"in": object()}

    del ring
    before = gc.get_freeze_count()
    try:
        functions = settled(load)(deploy(graph_of("m")))
        assert list(functions) == ["in"]
        assert gc.get_freeze_count() > before
        assert gone() is None
    finally:
        gc.unfreeze()
