"""Everything that can be wrong with a graph, one by one, each with the sentence its author reads."""

from __future__ import annotations

import functools
import re

import pytest

from flowpoint.api.functions import KeyedProcessFunction
from flowpoint.api.job import Job
from flowpoint.errors import PlanError
from flowpoint.plan.validate import validate
from flowpoint.runtime.contracts import Sink, Source


class Spec:
    def __init__(self, name: str) -> None:
        self.name = name
        self.default = None


class State:
    """Has the shape of a state kind."""

    def __init__(self, name: str) -> None:
        self.spec = Spec(name)


class Remember(KeyedProcessFunction):
    seen = State("seen")

    def process(self, value, ctx):
        yield value


def refused(job: Job, sentence: str, *, parallelism: int = 1, max_parallelism: int = 128) -> None:
    """The graph is refused, with this (regular expression) at the start of the message."""
    with pytest.raises(PlanError) as caught:
        validate(job.graph(), parallelism, max_parallelism)
    assert re.match(sentence, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert " 0x" not in str(caught.value)


def test_a_whole_job_passes(job, source, sink):
    job.source(source).flat_map(lambda n: (m for m in [n])).key_by(abs).process(Remember()).sink(sink)

    validate(job.graph(), 1, 128)


def test_a_stream_that_goes_nowhere_is_fine(job, source, sink):
    numbers = job.source(source)
    numbers.map(abs)
    numbers.sink(sink)

    validate(job.graph(), 1, 128)


def test_a_job_without_source_is_refused(job):
    refused(job, r"job 'demo' has no source: begin with job.source")


def test_a_job_without_sink_is_refused(job, source):
    job.source(source).map(abs)

    refused(job, r"job 'demo' has no sink, so nothing would come out of it")


def test_two_operators_with_one_uid_are_both_named(job, source, sink):
    job.source(source, uid="x").map(abs, uid="y").sink(sink, uid="y")

    refused(
        job,
        r"two operators have the uid 'y': map 'y' at test_validate.py:\d+ and sink 'y' at test_validate.py:\d+;",
    )


def test_uids_that_differ_in_case_only_are_refused(job, source, sink):
    job.source(source, uid="Lines").sink(sink, uid="lines")

    refused(job, r"two operators have the uid 'lines': source 'Lines' .* and sink 'lines'")


@pytest.mark.parametrize(
    "name", ["", "a/b", "a\\b", "..", ".hidden", "a b", "-p", "a\0", "a\n", "a:b", "a#1", "x" * 101]
)
def test_names_that_cannot_be_in_a_path_are_refused(name, source, sink):
    named = Job(name)
    named.source(source, uid="a").sink(sink)
    refused(named, r"the job's name .* cannot be part of a path: use letters, digits")

    uid = Job("demo")
    uid.source(source, uid=name).sink(sink)
    refused(uid, r"the uid of source at test_validate.py:\d+, .* cannot be part of a path")


@pytest.mark.parametrize("name", ["a", "word-count_2.x+y", "Zähler", "7", "_x"])
def test_ordinary_names_pass(name, source, sink):
    job = Job(name)
    job.source(source, uid=name).sink(sink)

    validate(job.graph(), 1, 128)


def test_a_name_that_is_no_string_is_refused(source, sink):
    job = Job(7)
    job.source(source).sink(sink)

    refused(job, r"the job's name is 7, of type int: it must be a string")


@pytest.mark.parametrize("name", ["two\nlines", "bell\a", 3])
def test_a_display_name_must_fit_on_a_line(job, source, sink, name):
    job.source(source).sink(sink, name=name)

    refused(job, r"sink .* has the name .*: a name must be printable text on one line")


@pytest.mark.parametrize("max_parallelism", [0, -1, 32769])
def test_max_parallelism_has_bounds(job, max_parallelism):
    refused(job, r"max_parallelism is -?\d+: it must be between 1 and 32768", max_parallelism=max_parallelism)


@pytest.mark.parametrize("parallelism", [0, -2, 5])
def test_parallelism_is_between_one_and_max_parallelism(source, sink, parallelism):
    one = Job("demo")
    one.source(source, uid="in", parallelism=parallelism).sink(sink)
    refused(
        one,
        rf"the parallelism of source 'in' at test_validate.py:\d+ is {parallelism}: it must be between 1 and"
        " max_parallelism, which is 4",
        max_parallelism=4,
    )

    refused(Job("demo"), rf"the job's parallelism is {parallelism}", parallelism=parallelism, max_parallelism=4)


@pytest.mark.parametrize("parallelism", ["2", 2.0, True])
def test_parallelism_is_a_whole_number(job, source, sink, parallelism):
    job.source(source, parallelism=parallelism).sink(sink)

    refused(job, r"the parallelism of source at .* is .*: it must be a whole number")


def test_a_source_that_is_no_source_is_refused_with_what_it_lacks(job, sink):
    job.source([1, 2, 3], uid="in").sink(sink)

    refused(
        job, r"source 'in' at test_validate.py:\d+ got a list, which is not a Source: it has no splits, open; a Source"
    )


def test_a_sink_that_lacks_one_method_is_refused_with_its_name(job, source):
    class Half(Sink):
        commit = None

    job.source(source).sink(Half(), uid="out")

    refused(job, r"sink 'out' at .* got a Half, which is not a Sink: it has no commit; a Sink has open, commit, abort$")


def test_a_sink_that_is_no_sink_is_refused_with_all_of_the_contract_that_it_lacks(job, source):
    class Written:
        def commit(self, committable):
            pass

    job.source(source).sink(Written(), uid="out")

    refused(
        job,
        r"sink 'out' at .* got a Written, which is not a Sink: it has no open, abort; a Sink has open, commit, abort$",
    )


def test_a_sink_whose_property_raises_is_not_asked(job, source):
    class Careful(Sink):
        @property
        def can_take_back(self):
            raise RuntimeError("asked too early")

    job.source(source).sink(Careful())

    validate(job.graph(), 1, 128)


def test_classes_in_place_of_source_and_sink_are_refused(job, source, sink):
    job.source(type(source)).sink(sink)
    refused(job, r"source at .* got the class Numbers: pass an instance, Numbers\(...\)")

    other = Job("demo")
    other.source(source).sink(type(sink))
    refused(other, r"sink at .* got the class Nowhere: pass an instance")


@pytest.mark.parametrize("method", ["map", "filter", "flat_map"])
def test_what_is_not_callable_is_refused(job, source, sink, method):
    getattr(job.source(source), method)("upper", uid="up").sink(sink)

    refused(job, rf"{method} 'up' at test_validate.py:\d+ got a str, which is not callable: pass a function")


@pytest.mark.parametrize("method", ["sum", "reduce"])
def test_what_a_keyed_operator_cannot_call_is_refused(job, source, sink, method):
    getattr(job.source(source).key_by(abs), method)("upper").sink(sink)

    refused(job, rf"{method} at .* got a str, which is not callable")


def test_a_key_that_is_not_callable_is_refused(job, source, sink):
    job.source(source).key_by("user").count().sink(sink)

    refused(job, r"key_by at test_validate.py:\d+ got a str, which is not callable")


def test_a_process_function_given_to_map_is_told_where_it_belongs(job, source, sink):
    job.source(source).map(Remember()).sink(sink)

    refused(job, r"map at .* got a Remember, which is not callable: .*goes to key_by\(...\).process\(...\)")


async def wait(value):
    return value


def two(value, other):
    return value


class Two:
    def __call__(self, value, other):
        return value


@pytest.mark.parametrize(
    "function", [two, lambda: 1, functools.partial(two, 1, 2), Two(), Two().__call__, lambda value, *, option: value]
)
def test_a_function_that_cannot_be_called_with_a_record_is_refused(job, source, sink, function):
    job.source(source).map(function, uid="m").sink(sink)

    refused(job, r"map 'm' at .* is called as \S+\(record\), and takes \(.*\): ")


def test_a_key_function_and_that_of_a_reduce_are_called_with_as_many_arguments(job, source, sink):
    keyed = job.source(source).key_by(lambda value: value)
    keyed.reduce(lambda value: value, uid="r").sink(sink)
    refused(job, r"reduce 'r' at .* is called as <lambda>\(value, record\), and takes \(value\)")


def through(function):
    @functools.wraps(function)
    def called(value):
        return function(value, 1)

    return called


@pytest.mark.parametrize(
    "function",
    [
        through(two),
        functools.partial(two, 1),
        lambda *values: 1,
        lambda value, other=1: value,
        str.upper,
        int,
        print,
        Spec,
    ],
)
def test_a_function_that_can_be_called_with_a_record_passes(job, source, sink, function):
    job.source(source).map(function, uid="m").sink(sink)

    validate(job.graph(), 1, 128)


@pytest.mark.parametrize("method", ["process", "on_timer"])
def test_a_method_with_other_parameters_is_refused(job, source, sink, method):
    class Forgetful(KeyedProcessFunction):
        def process(self, value, ctx):
            yield value

    setattr(Forgetful, method, lambda self, value: value)
    job.source(source).key_by(lambda value: value).process(Forgetful(), uid="p").sink(sink)

    refused(job, rf"process 'p' at .*: Forgetful\.{method} is called as .*, ctx\), and takes \(value\)")


def many(value):
    yield value


class Many:
    def __call__(self, value):
        yield value


@pytest.mark.parametrize("function", [many, functools.partial(many), Many(), Many().__call__])
def test_a_generator_function_is_refused_where_its_result_is_the_record(job, source, sink, function):
    job.source(source).map(function, uid="m").sink(sink)

    refused(job, r"map 'm' at .* got the generator function '\w+', .*: use return in place of yield, or flat_map$")


def test_a_generator_function_is_refused_as_a_condition(job, source, sink):
    job.source(source).filter(many).sink(sink)

    refused(job, r"filter at .* got the generator function 'many'.*: use return in place of yield$")


async def wait_often(value):
    yield value


class Waits:
    async def __call__(self, value):
        return value


@pytest.mark.parametrize("function", [wait, wait_often, Waits(), functools.partial(wait)])
def test_async_functions_are_refused_for_now(job, source, sink, function):
    job.source(source).map(function, uid="slow").sink(sink)

    refused(job, r"map 'slow' at .* got the async function '\w+': only plain functions are supported yet")


def test_a_class_in_place_of_a_process_function_is_refused(job, source, sink):
    job.source(source).key_by(abs).process(Remember).sink(sink)

    refused(job, r"process at .* got the class Remember: pass an instance, Remember\(...\)")


def test_a_plain_function_given_to_process_is_refused(job, source, sink):
    job.source(source).key_by(abs).process(wait).sink(sink)

    refused(job, r"process at .* got the function 'wait', which has no process method: pass an instance")


@pytest.mark.parametrize("method", ["process", "on_timer", "open", "close"])
def test_async_methods_of_a_process_function_are_refused_for_now(job, source, sink, method):
    cls = type("Slow", (Remember,), {method: wait})
    job.source(source).key_by(abs).process(cls()).sink(sink)

    refused(job, rf"process at .*: Slow.{method} is an async function: only plain functions are supported yet")


def test_one_state_name_declared_twice_is_refused(job, source, sink):
    class Twice(Remember):
        again = State("seen")

    job.source(source).key_by(abs).process(Twice(), uid="p").sink(sink)

    refused(job, r"process 'p' at .*: Twice declares the state 'seen' twice, as seen and again: give each its own name")


def test_a_state_that_a_subclass_declares_anew_counts_once(job, source, sink):
    class Again(Remember):
        seen = State("seen")

    job.source(source).key_by(abs).process(Again()).sink(sink)

    validate(job.graph(), 1, 128)


def test_a_state_made_in_the_constructor_is_refused(job, source, sink):
    class Late(Remember):
        def __init__(self):
            self.count = State("count")

    job.source(source).key_by(abs).process(Late()).sink(sink)

    refused(job, r"process at .*: Late sets self.count to the state 'count': declare it in the class body")


def test_a_state_name_must_fit_into_a_path(job, source, sink):
    class Odd(Remember):
        odd = State("a/b")

    job.source(source).key_by(abs).process(Odd()).sink(sink)

    refused(job, r"process at .*: the state name Odd.odd = 'a/b' cannot be part of a path")


def test_a_key_by_that_nothing_follows_is_refused(job, source, sink):
    numbers = job.source(source)
    numbers.key_by(abs)
    numbers.sink(sink)

    refused(job, r"key_by\(abs\) at test_validate.py:\d+ is followed by no operator: add count, sum")


def test_types_that_are_no_classes_are_refused(source, sink):
    job = Job("demo", types=["Point"])
    job.source(source).sink(sink)

    refused(job, r"types= of job 'demo' has 'Point', which is not a class")


def test_a_source_needs_no_base_class(job, sink):
    class Own:
        def splits(self):
            return []

        async def open(self, split, position, ctx):
            raise NotImplementedError

    job.source(Own()).sink(sink)

    validate(job.graph(), 1, 128)
    assert not isinstance(Own(), type(Source))
