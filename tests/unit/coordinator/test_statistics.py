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

    assert statistics.worker_rate(0, 11.0) == 200.0


def test_what_connectors_count_is_added_up_per_operator(statistics: Statistics) -> None:
    statistics.add(0, report(0, ("words",), lines_skipped=3), 10.0)

    assert [(one["uid"], one["metrics"]) for one in statistics.operators(12.0)] == [
        ("words", {"lines_skipped": 6}),
        ("upper", {}),
        ("out", {}),
    ]


def of_sinks(*watermarks: int | None) -> Stats:
    numbers = {"task": 1, "records_in": 0, "records_out": 0, "busy": 0.0, "blocked": 0.0}
    return Stats(1, 0, {f"out#{i}": {**numbers, "watermark": one} for i, one in enumerate(watermarks)})


def test_event_time_of_the_job_is_that_of_the_sink_that_is_furthest_behind(statistics: Statistics) -> None:
    statistics.add(0, of_sinks(2000, 1000), 10.0)

    assert statistics.watermark() == 1000


def test_a_job_has_no_event_time_while_one_of_its_sinks_has_none(statistics: Statistics) -> None:
    assert statistics.watermark() is None

    statistics.add(0, of_sinks(2000, None), 10.0)

    assert statistics.watermark() is None


def test_backpressure_is_that_of_the_subtask_which_waits_most(statistics: Statistics) -> None:
    def blocked(*seconds: float) -> Stats:
        numbers = {"task": 0, "records_in": 0, "records_out": 0, "busy": 0.0}
        return Stats(1, 0, {f"words#{i}": {**numbers, "blocked": one} for i, one in enumerate(seconds)})

    statistics.add(0, blocked(0.0, 0.0), 10.0)
    statistics.add(0, blocked(0.2, 1.0), 12.0)

    assert statistics.backpressure(12.0) == pytest.approx(0.5)
    assert [one["backpressure"] for one in statistics.operators(12.0)] == [0.5, 0.0, 0.0]


def test_a_subtask_that_works_on_the_same_records_for_long_is_stalled(statistics: Statistics) -> None:
    def at_work(seconds: float) -> Stats:
        numbers = {"task": 0, "records_in": 9, "records_out": 0, "busy": 1.0 + seconds, "blocked": 0.0}
        return Stats(1, 0, {"words#0": {**numbers, "at_work": seconds}})

    statistics.add(0, at_work(0.0), 10.0)
    statistics.add(0, at_work(2.0), 12.0)
    assert next((one["busy"], one["stalled"]) for one in statistics.operators(12.0)) == (1.0, None)

    statistics.add(0, at_work(7.0), 17.0)
    assert next((one["busy"], one["stalled"]) for one in statistics.operators(17.0)) == (1.0, 7.0)


def test_what_a_silent_worker_runs_is_stalled_and_its_rate_fades(statistics: Statistics) -> None:
    statistics.add(0, report(0), 10.0)
    statistics.add(0, report(100), 11.0)

    assert statistics.rate(12.0) == 200.0
    assert statistics.rate(30.0) == 10.0
    assert [one["stalled"] for one in statistics.operators(30.0)] == [19.0, 19.0, None]
