"""Rebalance, broadcast, side outputs, two inputs and event time: what plan they make, and what of them is refused."""

from __future__ import annotations

import re

import pytest

from flowpoint import (
    Aggregate,
    BroadcastState,
    CoProcessFunction,
    Job,
    KeyedProcessFunction,
    ProcessFunction,
    ValueState,
)
from flowpoint.errors import PlanError
from flowpoint.model.plan import JobPlan, OperatorKind, Partition
from flowpoint.plan.compile import compile_graph


class Pass(ProcessFunction):
    def process(self, value, ctx):
        yield value


class PassKeyed(KeyedProcessFunction):
    def process(self, value, ctx):
        yield value


class Both(CoProcessFunction):
    def process1(self, value, ctx):
        yield value

    def process2(self, value, ctx):
        yield value


class Rules(Both):
    rules = BroadcastState("rules")


class Counted(Both):
    seen = ValueState("seen", default=0)


class Total(Aggregate):
    def create(self):
        return 0

    def add(self, accumulator, value):
        return accumulator + value

    def result(self, accumulator):
        return accumulator


def plan_of(job, parallelism=2):
    return compile_graph(job.graph(), parallelism, 128).plan


def chains(plan):
    return [task.operators for task in plan.tasks]


def edge_to(plan, uid, port=0):
    (edge,) = [e for e in plan.edges if plan.tasks[e.target].operators[0] == uid and e.port == port]
    return edge


def refused(job, sentence):
    with pytest.raises(PlanError) as caught:
        compile_graph(job.graph(), 2, 128)
    assert re.match(sentence, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ how records move


@pytest.mark.parametrize("way", ["rebalance", "broadcast"])
def test_rebalance_and_broadcast_end_a_chain_also_at_equal_parallelism(job, source, sink, way):
    stream = job.source(source, uid="in")
    getattr(stream, way)().map(abs, uid="next").sink(sink, uid="out")
    plan = plan_of(job)

    assert chains(plan) == [("in",), ("next", "out")]
    assert edge_to(plan, "next").partition is Partition(way)


def test_a_key_decides_where_records_go_also_after_rebalance(job, source, sink):
    job.source(source).rebalance().key_by(abs).count(uid="count").sink(sink)

    assert edge_to(plan_of(job), "count").partition is Partition.HASH


def test_the_last_word_on_how_records_move_counts(job, source, sink):
    job.source(source).rebalance().broadcast().map(abs, uid="next").sink(sink)

    assert edge_to(plan_of(job), "next").partition is Partition.BROADCAST


def test_each_operator_may_have_a_parallelism_of_its_own(job, source, sink):
    job.source(source, uid="in", parallelism=1).map(abs, uid="m", parallelism=3).sink(sink, uid="out", parallelism=2)
    plan = plan_of(job)

    assert [task.parallelism for task in plan.tasks] == [1, 3, 2]
    assert {edge.partition for edge in plan.edges} == {Partition.REBALANCE}


def test_a_key_of_a_broadcast_stream_is_refused(job, source):
    with pytest.raises(PlanError, match=r"key_by at .* cannot follow broadcast"):
        job.source(source).broadcast().key_by(abs)


# ------------------------------------------------------------------ side outputs


def test_a_side_output_leaves_the_function_beside_its_main_output(job, source, sink):
    split = job.source(source, uid="in").process(Pass(), uid="split")
    split.map(abs, uid="main").union(split.side_output("odd")).sink(sink, uid="out")
    plan = plan_of(job)

    assert chains(plan) == [("in", "split"), ("main",), ("out",)]
    assert [(e.tag, plan.tasks[e.target].operators[0]) for e in plan.outputs(0)] == [("", "main"), ("odd", "out")]


def test_a_function_whose_side_output_alone_is_used_ends_its_chain(job, source, sink):
    job.source(source, uid="in").process(Pass(), uid="split").side_output("odd").sink(sink, uid="out")

    assert chains(plan_of(job)) == [("in", "split"), ("out",)]


@pytest.mark.parametrize(
    "stream",
    [
        lambda s: s.map(abs).side_output("t"),
        lambda s: s.process(Pass()).rebalance().side_output("t"),
        lambda s: s.process(Pass()).side_output("a").side_output("t"),
        lambda s: s.process(Pass()).union(s).side_output("t"),
    ],
    ids=["map", "rebalance", "side output", "union"],
)
def test_a_side_output_of_what_cannot_have_one_is_refused(job, source, stream):
    with pytest.raises(PlanError, match=r"side_output\('t'\) at .* does not stand right behind a process function"):
        stream(job.source(source))


@pytest.mark.parametrize("tag", ["", 3, "two\nlines"])
def test_a_tag_that_is_no_text_is_refused(job, source, tag):
    with pytest.raises(PlanError, match=r"side_output at .* got the tag"):
        job.source(source).process(Pass()).side_output(tag)


# ------------------------------------------------------------------ two inputs


def test_two_keyed_streams_meet_by_key_each_with_its_own(job, source, sink):
    first, second = job.source(source, uid="a").key_by(abs), job.source(source, uid="b").key_by(len)
    first.connect(second).process(Counted(), uid="both").sink(sink)
    compiled = compile_graph(job.graph(), 2, 128)
    spec = compiled.plan.operator("both")

    assert [edge_to(compiled.plan, "both", port).partition for port in (0, 1)] == [Partition.HASH] * 2
    assert spec.kind is OperatorKind.CO_PROCESS
    assert (spec.key_name[:11], spec.second_key_name[:11]) == ("key_by(abs)", "key_by(len)")
    assert (compiled.operators["both"].key, compiled.operators["both"].second_key) == (abs, len)


def test_a_broadcast_stream_goes_to_every_subtask_and_the_keyed_one_to_the_owner(job, source, sink):
    rules = job.source(source, uid="rules").broadcast()
    job.source(source, uid="a").key_by(abs).connect(rules).process(Rules(), uid="both").sink(sink)
    plan = plan_of(job)

    assert [edge_to(plan, "both", port).partition for port in (0, 1)] == [Partition.HASH, Partition.BROADCAST]


def test_the_broadcast_stream_may_be_the_first_one_and_the_other_without_keys(job, source, sink):
    numbers = job.source(source, uid="a")
    job.source(source, uid="rules").broadcast().connect(numbers).process(Rules(), uid="both").sink(sink)
    plan = plan_of(job)

    assert [edge_to(plan, "both", port).partition for port in (0, 1)] == [Partition.BROADCAST, Partition.FORWARD]
    assert plan.operator("both").kind is OperatorKind.PLAIN_CO_PROCESS


def test_a_stream_may_be_connected_with_itself_and_a_union_with_a_union(job, source, sink):
    numbers = job.source(source, uid="a")
    union = numbers.union(job.source(source, uid="b"))
    union.key_by(abs).connect(union.key_by(abs)).process(Counted(), uid="both").sink(sink)
    plan = plan_of(job)

    assert [(e.source, e.port) for e in plan.inputs(plan.task_of("both").index)] == [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    ("connect", "sentence"),
    [
        (lambda a, b: a.key_by(abs).connect(b).process(Both()), "process .* neither keyed nor broadcast"),
        (lambda a, b: a.connect(b.key_by(abs)).process(Both()), "process .* neither keyed nor broadcast"),
        (lambda a, b: a.broadcast().connect(b.broadcast()).process(Rules()), ".* connects two broadcast streams"),
        (lambda a, b: a.connect(b).process(Rules()), ".* Rules declares the broadcast state 'rules', and neither"),
        (lambda a, b: a.connect(b.broadcast()).process(Counted()), ".* Counted declares the state 'seen', and neither"),
        (lambda a, b: a.connect(b).process(Pass()), ".* got a Pass, which has no process1 method"),
        (lambda a, b: a.connect(b).process(Both), ".* got the class Both: pass an instance"),
        (lambda a, b: a.key_by(abs).connect(b.key_by("x")).process(Both()), "key_by at .* got a str"),
    ],
)
def test_what_cannot_be_connected_is_refused(job, source, sink, connect, sentence):
    connect(job.source(source), job.source(source)).sink(sink)

    refused(job, sentence)


@pytest.mark.parametrize(
    ("other", "sentence"), [(lambda: 3, "got an int"), (lambda: Job("x").source("s"), "mixes streams of two jobs")]
)
def test_connect_takes_streams_of_this_job_only(job, source, other, sentence):
    with pytest.raises(PlanError, match=sentence):
        job.source(source).connect(other())


def test_a_key_that_is_connected_with_nothing_is_refused(job, source, sink):
    numbers = job.source(source)
    numbers.key_by(abs).connect(numbers.key_by(abs))
    numbers.sink(sink)

    refused(job, r"key_by\(abs\) at .* is followed by no operator")


# ------------------------------------------------------------------ functions


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (
            lambda s: s.process(PassKeyed(), uid="p"),
            r"process 'p' at test_topologies.py:\d+: PassKeyed is a KeyedProcessFunction, and .*: call \.key_by",
        ),
        (
            lambda s: s.process(type("T", (Pass,), {"on_timer": print})()),
            ".* T has on_timer, and timers belong to a key: use key_by",
        ),
        (lambda s: s.process(Pass), ".* got the class Pass: pass an instance"),
        (lambda s: s.process(abs), ".* got the function 'abs', which has no process method"),
        (
            lambda s: s.key_by(abs).process(type("R", (PassKeyed,), {"rules": BroadcastState("rules")})()),
            ".* broadcast",
        ),
        (lambda s: s.process(type("S", (Pass,), {"seen": ValueState("seen")})()), ".* declares the state 'seen'"),
        (lambda s: s.key_by(abs).aggregate(Total), ".* got the class Total"),
        (lambda s: s.key_by(abs).aggregate(sum), ".* got the function 'sum', which has no create method"),
        (lambda s: s.key_by(abs).min("x"), "min at .* got a str, which is not callable"),
        (lambda s: s.assign_timestamps("x"), "assign_timestamps at .* got a str, which is not callable"),
    ],
)
def test_a_function_that_does_not_fit_is_refused(job, source, sink, stream, sentence):
    stream(job.source(source)).sink(sink)

    refused(job, sentence)


# ------------------------------------------------------------------ event time


def test_a_stream_has_timestamps_from_where_they_are_assigned(job, source, sink):
    times = job.source(source, uid="in").map(abs, uid="m", parallelism=1).assign_timestamps(abs, uid="t", parallelism=1)
    times.key_by(abs).count(uid="c").sink(sink, uid="out", parallelism=1)
    plan = plan_of(job)

    assert chains(plan) == [("in",), ("m", "t"), ("c",), ("out",)]
    assert [edge.timed for edge in plan.edges] == [False, True, True]


def test_what_was_said_of_timestamps_reaches_the_operator(job, source):
    job.source(source).assign_timestamps(abs, max_out_of_orderness="2s", idle_timeout="500ms")

    said = job.graph().operators[-1].function
    assert (said.function, said.max_out_of_orderness_ms, said.idle_timeout) == (abs, 2000, 0.5)


def test_records_may_be_two_seconds_late_and_nobody_idle_unless_said_otherwise(job, source):
    job.source(source).assign_timestamps(abs)

    said = job.graph().operators[-1].function
    assert (said.max_out_of_orderness_ms, said.idle_timeout) == (2000, None)


@pytest.mark.parametrize("wrong", [{"max_out_of_orderness": "2 parsecs"}, {"idle_timeout": -1}])
def test_a_duration_that_is_none_is_refused(job, source, wrong):
    (name,) = wrong
    with pytest.raises(PlanError, match=rf"assign_timestamps at .* got {name}=.*: it must be a duration"):
        job.source(source).assign_timestamps(abs, **wrong)


def test_the_plan_survives_being_written_down(job, source, sink):
    rules = job.source(source, uid="rules").broadcast()
    times = job.source(source, uid="a").assign_timestamps(abs, uid="t")
    both = times.key_by(abs).connect(rules).process(Rules(), uid="both")
    both.side_output("x").sink(sink, uid="out")
    plan = plan_of(job)

    assert JobPlan.from_data(plan.to_data()) == plan


@pytest.mark.parametrize("method", ["map", "filter", "flat_map"])
def test_a_stateless_operator_after_key_by_is_dealt_its_records_by_key_and_gives_a_plain_stream(
    job, source, sink, method
):
    keyed = job.source(source, uid="in").key_by(abs)
    getattr(keyed, method)(abs, uid="middle").key_by(abs).count(uid="counts").sink(sink, uid="out")

    plan = compile_graph(job.graph(), 3, 128).plan

    assert [task.operators for task in plan.tasks] == [("in",), ("middle",), ("counts", "out")]
    assert [edge.partition for edge in plan.edges] == [Partition.HASH, Partition.HASH]
    with pytest.raises(PlanError, match="needs a keyed stream"):
        keyed.map(abs).count()
