"""Describing a job: what each method adds to the graph, and that describing starts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flowpoint
import flowpoint.api
import flowpoint.launch
from flowpoint.api.functions import KeyedProcessFunction
from flowpoint.api.job import Job
from flowpoint.api.stream import KeyedStream, Stream
from flowpoint.errors import PlanError
from flowpoint.model.plan import OperatorKind


class Pass(KeyedProcessFunction):
    def process(self, value, ctx):
        yield value


def operator(job: Job):
    """The operator added last."""
    return job.graph().operators[-1]


def test_a_job_keeps_its_name_config_and_types():
    config = {"checkpoint": {"interval": "1s"}}
    job = Job("demo", config=config, types=[int])

    assert (job.name, job.config, job.graph().types) == ("demo", config, (int,))
    assert job.config is not config
    assert Job("other").config == {}
    assert repr(job) == "Job('demo', 0 operators)"


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("map", [abs], OperatorKind.MAP),
        ("filter", [abs], OperatorKind.FILTER),
        ("flat_map", [abs], OperatorKind.FLAT_MAP),
        ("process", ["a function"], OperatorKind.PLAIN_PROCESS),
        ("sink", ["a sink"], OperatorKind.SINK),
    ],
)
def test_each_stream_method_adds_one_operator_with_everything_given(method, arguments, kind):
    job = Job("demo")

    getattr(job.source("a source"), method)(*arguments, uid="u", name="n", parallelism=3)

    added = operator(job)
    assert (added.kind, added.function, added.inputs, added.key) == (kind, arguments[0], (0,), None)
    assert (added.uid, added.name, added.parallelism) == ("u", "n", 3)


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("count", [], OperatorKind.COUNT),
        ("sum", [], OperatorKind.SUM),
        ("sum", [abs], OperatorKind.SUM),
        ("min", [], OperatorKind.MIN),
        ("max", [abs], OperatorKind.MAX),
        ("aggregate", ["an aggregate"], OperatorKind.AGGREGATE),
        ("reduce", [max], OperatorKind.REDUCE),
        ("process", [Pass()], OperatorKind.PROCESS),
    ],
)
def test_each_keyed_method_adds_one_operator_with_key_and_everything_given(method, arguments, kind):
    job = Job("demo")
    keyed = job.source("a source").key_by(len)

    stream = getattr(keyed, method)(*arguments, uid="u", name="n", parallelism=3)

    added = operator(job)
    assert isinstance(stream, Stream)
    assert (added.kind, added.function, added.inputs) == (kind, arguments[0] if arguments else None, (0,))
    assert (added.uid, added.name, added.parallelism) == ("u", "n", 3)
    assert added.key is not None
    assert added.key.function is len


def test_key_by_and_union_add_no_operator():
    job = Job("demo")
    union = job.source("one").union(job.source("two"), job.source("three"))
    keyed = union.key_by(len)

    assert isinstance(keyed, KeyedStream)
    assert len(job.graph().operators) == 3

    keyed.count()
    assert operator(job).inputs == (0, 1, 2)


def test_an_operator_knows_the_line_that_made_it_in_a_chain_over_several_lines():
    job = Job("demo")
    (
        job.source("a source")
        .map(abs)
        .key_by(len)
        .count()
    )  # fmt: skip

    first = sys._getframe().f_code.co_firstlineno
    places = [added.place for added in job.graph().operators]
    assert places == [f"test_job.py:{first + line}" for line in (3, 4, 6)]
    assert operator(job).key.place == f"test_job.py:{first + 5}"


def test_union_of_two_jobs_names_both():
    one, two = Job("one").source("a source"), Job("two").source("a source")

    with pytest.raises(PlanError, match=r"union at test_job.py:\d+ mixes streams of two jobs, 'one' and 'two'"):
        one.union(two)


def test_union_with_a_keyed_stream_says_what_is_missing():
    stream = Job("demo").source("a source")

    with pytest.raises(PlanError, match=r"got the result of key_by\(len\) at .*, which needs a keyed operator"):
        stream.union(stream.key_by(len))


def test_union_with_something_else_is_refused():
    with pytest.raises(PlanError, match=r"union at test_job.py:\d+ got a list: pass streams"):
        Job("demo").source("a source").union([1])


@pytest.mark.parametrize("method", ["count", "sum", "min", "max", "reduce", "aggregate"])
def test_a_keyed_method_without_key_by_says_what_is_missing(method):
    stream = Job("demo").source("a source").map(abs)

    with pytest.raises(
        PlanError, match=rf"{method} at test_job.py:\d+ needs a keyed stream.*key_by\(\.\.\.\)\.{method}\("
    ):
        getattr(stream, method)()


@pytest.mark.parametrize("method", ["map", "count", "sink", "key_by"])
def test_two_streams_take_nothing_but_process(method):
    job = Job("demo")
    connected = job.source("a source").connect(job.source("another"))

    with pytest.raises(PlanError, match=rf"{method} at test_job.py:\d+ cannot follow connect: .*process\("):
        getattr(connected, method)(abs)


@pytest.mark.parametrize("make", [lambda s: s, lambda s: s.key_by(len), lambda s: s.connect(s)])
def test_what_no_stream_has_is_an_ordinary_attribute_error(make):
    stream = make(Job("demo").source("a source"))

    assert not hasattr(stream, "windows_of")
    assert not hasattr(stream, "_anything")


def test_connectors_are_found_when_looked_for_in_the_wrong_place():
    with pytest.raises(ImportError, match="from flowpoint.connectors import FileSink"):
        from flowpoint import FileSink  # noqa: F401
    assert not hasattr(flowpoint, "NoSuchThing")


@pytest.mark.parametrize("method", ["rebalance", "key_by", "union", "sink"])
def test_a_stream_method_right_after_key_by_says_what_is_missing(method):
    keyed = Job("demo").source("a source").key_by(len)

    with pytest.raises(
        PlanError, match=rf"{method} at test_job.py:\d+ cannot follow key_by\(len\) at test_job.py:\d+:"
    ):
        getattr(keyed, method)(abs)


def test_an_unknown_method_after_key_by_is_an_ordinary_attribute_error():
    keyed = Job("demo").source("a source").key_by(len)

    assert not hasattr(keyed, "window")
    assert not hasattr(keyed, "__wrapped__")


def test_a_process_function_must_define_process():
    class Empty(KeyedProcessFunction):
        pass

    with pytest.raises(TypeError, match="abstract method process"):
        Empty()


def test_the_other_methods_of_a_process_function_are_optional():
    function = Pass()

    assert function.on_timer(0, None) is None
    assert function.open(None) is None
    assert function.close() is None


def test_run_hands_the_job_to_launch(monkeypatch):
    started = []
    monkeypatch.setattr(flowpoint.launch, "run_job", lambda job, **flags: started.append((job, flags)), raising=False)
    job = Job("demo")
    assert started == []

    job.run(take_output=True)

    ((ran, flags),) = started
    assert ran is job
    assert [name for name, is_on in flags.items() if is_on] == ["take_output"]


def test_the_public_names_are_the_same_wherever_they_are_imported_from():
    pytest.importorskip("flowpoint.state.kinds")

    assert set(flowpoint.__all__) <= set(flowpoint.api.__all__)
    for name in flowpoint.api.__all__:
        assert getattr(flowpoint.api, name) is not None
    for name in flowpoint.__all__:
        assert getattr(flowpoint, name) is getattr(flowpoint.api, name)


def test_the_public_names_can_be_listed_and_others_are_refused():
    assert set(flowpoint.__all__) <= set(dir(flowpoint))
    assert set(flowpoint.api.__all__) <= set(dir(flowpoint.api))
    with pytest.raises(AttributeError, match="module 'flowpoint' has no attribute 'Jobb'"):
        getattr(flowpoint, "Jobb")  # noqa: B009
    with pytest.raises(AttributeError, match="module 'flowpoint.api' has no attribute 'Jobb'"):
        getattr(flowpoint.api, "Jobb")  # noqa: B009


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_flowpoint_loads_nothing_else():
    ours = {name for name in loaded_after("import flowpoint") if name.startswith("flowpoint")}

    assert ours == {"flowpoint"}


def test_describing_a_job_does_not_load_what_runs_it():
    loaded = loaded_after("from flowpoint import Job; Job('demo')")

    assert not loaded & {"asyncio", "uvloop", "rocksdict", "msgpack", "rich", "click", "flowpoint.launch"}
