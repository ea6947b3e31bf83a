"""Compilation: uids, chains, edges, fingerprint, by example and for graphs that hypothesis draws."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.api.job import Job
from flowpoint.connectors import CallbackSink, FileSink, PrintSink
from flowpoint.errors import PlanError
from flowpoint.model.plan import EdgeSpec, JobPlan, OperatorKind, Partition
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.graph import StreamGraph
from flowpoint.runtime.contracts import Sink, Source


class Numbers(Source):
    pass


class Nowhere(Sink):
    pass


class Color(Enum):
    RED = 1


@dataclass
class Declared:
    n: int


@dataclass
class Annotated:
    n: int


def to_record(n: int) -> Annotated:
    return Annotated(n)


def key_of(record: Annotated) -> Color:
    return Color.RED


def tasks(plan: JobPlan) -> list[tuple[str, ...]]:
    return [task.operators for task in plan.tasks]


def edges(plan: JobPlan) -> list[tuple[int, int, Partition]]:
    return [(edge.source, edge.target, edge.partition) for edge in plan.edges]


def wordcount(job, source, sink):
    lines = job.source(source, uid="lines").flat_map(str.split, uid="words")
    lines.key_by(str.lower).count(uid="counts").sink(sink, uid="out")
    return job.graph()


def test_at_parallelism_one_a_whole_job_is_one_task(job, source, sink):
    plan = compile_graph(wordcount(job, source, sink), 1, 128).plan

    assert tasks(plan) == [("lines", "words", "counts", "out")]
    assert plan.edges == ()


def test_at_parallelism_two_a_key_by_starts_a_new_task(job, source, sink):
    plan = compile_graph(wordcount(job, source, sink), 2, 128).plan

    assert tasks(plan) == [("lines", "words"), ("counts", "out")]
    assert plan.edges == (EdgeSpec(0, 0, 1, Partition.HASH),)
    assert [task.parallelism for task in plan.tasks] == [2, 2]


def test_a_change_of_parallelism_without_key_is_rebalanced(job, source, sink):
    job.source(source, uid="a", parallelism=1).map(abs, uid="b").sink(sink, uid="c", parallelism=3)

    plan = compile_graph(job.graph(), 2, 128).plan

    assert tasks(plan) == [("a",), ("b",), ("c",)]
    assert edges(plan) == [(0, 1, Partition.REBALANCE), (1, 2, Partition.REBALANCE)]


def test_a_stream_with_two_consumers_ends_its_task(job, source, sink):
    numbers = job.source(source, uid="a").map(abs, uid="b")
    numbers.sink(sink, uid="c")
    numbers.key_by(abs).count(uid="d").sink(sink, uid="e")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert tasks(plan) == [("a", "b"), ("c",), ("d", "e")]
    assert edges(plan) == [(0, 1, Partition.FORWARD), (0, 2, Partition.HASH)]


def test_a_union_is_one_operator_with_several_edges_and_sources_come_first(job, source, sink):
    first = job.source(source, uid="a").map(abs, uid="b", parallelism=1)
    second = job.source(source, uid="c")
    first.union(second).map(abs, uid="d").sink(sink, uid="e")

    plan = compile_graph(job.graph(), 2, 128).plan

    assert tasks(plan) == [("a",), ("c",), ("b",), ("d", "e")]
    assert edges(plan) == [
        (0, 2, Partition.REBALANCE),
        (2, 3, Partition.REBALANCE),
        (1, 3, Partition.FORWARD),
    ]


def test_a_key_by_after_a_union_keys_every_edge(job, source, sink):
    union = job.source(source, uid="a").union(job.source(source, uid="b"))
    union.key_by(abs).count(uid="c").sink(sink, uid="d")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert edges(plan) == [(0, 2, Partition.HASH), (1, 2, Partition.HASH)]


def test_a_stream_in_union_with_itself_has_two_edges(job, source, sink):
    numbers = job.source(source, uid="a")
    numbers.union(numbers).sink(sink, uid="b")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert edges(plan) == [(0, 1, Partition.FORWARD), (0, 1, Partition.FORWARD)]


def test_two_keyed_operators_in_a_row_are_two_exchanges(job, source, sink):
    counted = job.source(source, uid="a").key_by(abs).count(uid="b")
    counted.map(len, uid="c").key_by(abs).reduce(max, uid="d").sink(sink, uid="e")

    plan = compile_graph(job.graph(), 3, 128).plan

    assert tasks(plan) == [("a",), ("b", "c"), ("d", "e")]
    assert edges(plan) == [(0, 1, Partition.HASH), (1, 2, Partition.HASH)]


def test_a_keyed_operator_carries_its_key_function_and_says_where_it_stands(job, source, sink):
    compiled = compile_graph(wordcount(job, source, sink), 2, 128)

    assert compiled.operators["counts"].key is str.lower
    assert compiled.operators["words"].key is None
    assert compiled.plan.operator("counts").key_name.startswith("key_by(lower) at test_compile.py:")
    assert compiled.plan.operator("words").key_name == ""


def test_definitions_hold_the_users_own_objects(job, source, sink):
    compiled = compile_graph(wordcount(job, source, sink), 2, 128)

    assert compiled.operators["lines"].function is source
    assert compiled.operators["words"].function is str.split
    assert compiled.operators["counts"].function is None
    assert compiled.operators["out"].function is sink
    assert list(compiled.operators) == ["lines", "words", "counts", "out"]


def test_a_sum_without_function_has_none_and_with_one_has_it(job, source, sink):
    keyed = job.source(source, uid="a").key_by(abs)
    keyed.sum(uid="plain").sink(sink, uid="b")
    keyed.sum(len, uid="sized").sink(sink, uid="c")

    compiled = compile_graph(job.graph(), 1, 128)

    assert compiled.operators["plain"].function is None
    assert compiled.operators["sized"].function is len


def test_generated_uids_tell_kind_and_position(job, source, sink):
    job.source(source).map(abs).key_by(abs).count().sink(sink, uid="out")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert tasks(plan) == [("source-1", "map-2", "count-3", "out")]
    assert [spec.uid_is_generated for spec in plan.operators] == [True, True, True, False]


def test_a_generated_uid_gives_way_to_a_given_one(job, source, sink):
    job.source(source, uid="MAP-2").map(abs).sink(sink, uid="out")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert tasks(plan) == [("MAP-2", "map-2-generated", "out")]


def test_only_stateful_operators_without_uid_are_warned_about(job, source, sink):
    job.source(source).map(abs).key_by(abs).count(name="totals").sink(sink)

    (warning,) = compile_graph(job.graph(), 1, 128).warnings

    assert warning.startswith("give these operators a uid=...")
    called = warning.partition(": ")[2].split(", ")
    assert [one.split(" at ")[0] for one in called] == ["source", "count 'totals'", "sink"]
    assert called[1].endswith("('count-3')")


def test_sinks_that_get_records_again_after_a_failure_are_warned_about_together(job, source, sink):
    numbers = job.source(source, uid="numbers")
    numbers.sink(PrintSink(), uid="printed")
    numbers.sink(CallbackSink(print), uid="called")
    numbers.sink(FileSink("out"), uid="exact")
    numbers.sink(sink, uid="silent")

    (warning,) = compile_graph(job.graph(), 1, 128).warnings

    assert warning == (
        "at-least-once, so after a failure records since the last checkpoint come again:"
        " sink 'printed' (PrintSink), 'called' (CallbackSink)"
    )


def test_names_default_to_kind_and_function(job, source, sink):
    job.source(source, uid="a").map(abs, uid="b", name="size").map(lambda n: n, uid="c").sink(sink, uid="d")

    plan = compile_graph(job.graph(), 1, 128).plan

    assert [spec.name for spec in plan.operators] == ["source(Numbers)", "size", "map(<lambda>)", "sink(Nowhere)"]


def test_another_name_for_the_job_changes_the_plan_and_not_the_graph(job, source, sink):
    graph = wordcount(job, source, sink)

    assert compile_graph(graph, 1, 128, name="other").plan.job == "other"
    assert compile_graph(graph, 1, 128).plan.job == graph.job == "demo"


def test_another_name_for_the_job_is_judged(job, source, sink):
    with pytest.raises(PlanError, match="name 'a/b' cannot be part of a path"):
        compile_graph(wordcount(job, source, sink), 1, 128, name="a/b")


def test_declared_and_annotated_types_go_with_the_operators(source, sink):
    job = Job("demo", types=[Declared])
    job.source(source, uid="a").map(to_record, uid="b").key_by(key_of).count(uid="c").sink(sink, uid="d")

    operators = compile_graph(job.graph(), 1, 128).operators

    assert operators["a"].types == (Declared,)
    assert operators["b"].types == (Declared, Annotated)
    assert operators["c"].types == (Declared, Annotated, Color)


def test_the_plan_survives_being_sent(job, source, sink):
    plan = compile_graph(wordcount(job, source, sink), 2, 128).plan

    assert JobPlan.from_data(plan.to_data()) == plan


@pytest.mark.parametrize(("parallelism", "max_parallelism", "name"), [(3, 128, None), (2, 64, None), (2, 128, "other")])
def test_the_fingerprint_tells_plans_apart(job, source, sink, parallelism, max_parallelism, name):
    graph = wordcount(job, source, sink)
    plan = compile_graph(graph, 2, 128).plan

    other = compile_graph(graph, parallelism, max_parallelism, name=name).plan

    assert plan.fingerprint != other.fingerprint
    assert plan.fingerprint == compile_graph(graph, 2, 128).plan.fingerprint


PROGRAM = """
from functools import partial
from operator import itemgetter
from flowpoint.api.job import Job
from flowpoint.connectors import CallbackSink, FileSink, PrintSink
from flowpoint.plan.compile import compile_graph
from flowpoint.runtime.contracts import Sink, Source
class Numbers(Source): pass
class Nowhere(Sink): pass
job = Job("demo")
stream = job.source(Numbers()).map(lambda n: n).map(partial(int, base=2)).flat_map(itemgetter(1))
stream.key_by(itemgetter(0)).count().sink(Nowhere())
print(compile_graph(job.graph(), 2, 128).plan.fingerprint)
"""


def test_the_fingerprint_is_the_same_in_every_process():
    seen = set()
    for seed in ("0", "77"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
        seen.add(run.stdout)

    assert len(seen) == 1


# ------------------------------------------------------------------ for any graph


@st.composite
def graphs(draw: st.DrawFn) -> StreamGraph:
    """A graph with one to three sources anywhere in it, unions, keys, fan-out, mixed parallelism, and a sink."""
    graph = StreamGraph("drawn")
    for index in range(draw(st.integers(1, 12))):
        parallelism = draw(st.sampled_from([None, 1, 2, 3]))
        if index == 0 or draw(st.integers(0, 5)) == 0:
            graph.add(OperatorKind.SOURCE, Numbers(), place="x:1", parallelism=parallelism)
            continue
        inputs = tuple(draw(st.lists(st.integers(0, index - 1), min_size=1, max_size=3)))
        keyed = draw(st.booleans())
        key = graph.add_key(abs, "x:1") if keyed else None
        kind = OperatorKind.COUNT if keyed else OperatorKind.MAP
        graph.add(kind, None if keyed else abs, inputs, place="x:1", key=key, parallelism=parallelism)
    graph.add(OperatorKind.SINK, Nowhere(), (len(graph.operators) - 1,), place="x:1")
    return graph


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_in_any_plan_every_link_of_the_graph_is_a_step_in_a_chain_or_an_edge(graph, parallelism):
    compiled = compile_graph(graph, parallelism, 128)
    plan = compiled.plan
    uids = [spec.uid for spec in plan.operators]

    links = sorted((uids[source], uids[op.index]) for op in graph.operators for source in op.inputs)
    steps = [pair for task in plan.tasks for pair in zip(task.operators, task.operators[1:], strict=False)]
    hops = [(plan.tasks[e.source].operators[-1], plan.tasks[e.target].operators[0]) for e in plan.edges]

    assert sorted(steps + hops) == links
    assert sorted(uid for task in plan.tasks for uid in task.operators) == sorted(uids)
    assert len(set(uids)) == len(uids)


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_in_any_plan_tasks_are_topological_with_sources_first_and_indexes_are_positions(graph, parallelism):
    plan = compile_graph(graph, parallelism, 128).plan
    is_source = [plan.operator(task.operators[0]).kind is OperatorKind.SOURCE for task in plan.tasks]

    assert all(edge.source < edge.target for edge in plan.edges)
    assert is_source == sorted(is_source, reverse=True)
    assert [task.index for task in plan.tasks] == list(range(len(plan.tasks)))
    assert [edge.index for edge in plan.edges] == list(range(len(plan.edges)))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_in_any_plan_records_move_exactly_where_they_must(graph, parallelism):
    plan = compile_graph(graph, parallelism, 128).plan

    for task in plan.tasks:
        assert {plan.operator(uid).parallelism for uid in task.operators} == {task.parallelism}
        inside = [plan.operator(uid) for uid in task.operators[1:]]
        assert task.parallelism == 1 or not any(spec.key_name for spec in inside)
    for edge in plan.edges:
        target = plan.operator(plan.tasks[edge.target].operators[0])
        equal = plan.tasks[edge.source].parallelism == plan.tasks[edge.target].parallelism
        unkeyed = Partition.FORWARD if equal else Partition.REBALANCE
        assert edge.partition is (Partition.HASH if target.key_name else unkeyed)
