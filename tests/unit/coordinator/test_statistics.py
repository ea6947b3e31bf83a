"""The figures of a running job, as workers report them."""

from __future__ import annotations

import pytest

from flowpoint.api.job import Job
from flowpoint.connectors import FileSink
from flowpoint.connectors.collection import CollectionSource
from flowpoint.coordinator.statistics import Statistics
from flowpoint.model.messages import Stats
from flowpoint.plan.compile import compile_graph


@pytest.fixture
def statistics() -> Statistics:
    job = Job("job")
    job.source(CollectionSource(["a"]), uid="words").map(str.upper, uid="upper").sink(FileSink("/out"), uid="out")
    return Statistics(compile_graph(job.graph(), 2, 128).plan)


def report(records_in: int, uids: tuple[str, ...] = ("words", "upper"), **metrics: int) -> Stats:
    """Of a worker that runs both subtasks of one chain."""
    numbers = {"task": 0, "records_in": records_in, "records_out": records_in, "busy": 0.0, "blocked": 0.0}
    return Stats(1, 0, {f"{uid}#{i}": {**numbers, "metrics": dict(metrics)} for uid in uids for i in range(2)})


def test_the_rate_of_a_worker_is_that_of_all_its_subtasks_each_counted_once(statistics: Statistics) -> None:
    statistics.add(0, report(0), 10.0)
    statistics.add(0, report(100), 11.0)

    assert statistics.worker_rate(0) == 200.0


def test_what_connectors_count_is_added_up_per_operator(statistics: Statistics) -> None:
    statistics.add(0, report(0, ("words",), lines_skipped=3), 10.0)

    assert [(one["uid"], one["metrics"]) for one in statistics.operators()] == [
        ("words", {"lines_skipped": 6}),
        ("upper", {}),
        ("out", {}),
    ]
