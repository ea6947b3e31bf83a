"""A function that can return nothing but None is told about when the job is compiled; no other one is."""

from __future__ import annotations

from functools import partial, wraps

import pytest

from flowpoint.api.functions import Aggregate
from flowpoint.api.job import Job
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.forgotten import returns_only_none


def forgetful(n):
    n * 2


def forgetful_in_branches(n):
    if n > 5:
        n += 1
        return
    with open("x") as file:
        file.write(str(n))


def bare(n):
    return None


class Forgetful:
    def __call__(self, n):
        n + 1

    def method(self, n):
        n + 1


@pytest.mark.parametrize(
    "function",
    [
        forgetful,
        forgetful_in_branches,
        bare,
        partial(forgetful, 1),
        partial(partial(forgetful)),
        Forgetful(),
        Forgetful().method,
    ],
)
def test_a_function_without_any_result_is_known(function):
    assert returns_only_none(function)


def returns_sometimes(n):  # noqa: RET503  as people write it
    if n > 5:
        return n


def or_none(n):
    return n or None


def and_none(n):
    return n and None


def either(n):
    return n if n else None  # noqa: FURB110  other byte code than `or`


def caught(n):
    try:
        return int(n)
    except ValueError:
        return None


def refuses(n):
    raise NotImplementedError


def yields(n):
    yield n


async def waits(n):
    pass


@wraps(forgetful)
def wrapper(n):
    return n


def nested(n):
    def inner():
        pass

    return inner()


@pytest.mark.parametrize(
    "function",
    [
        *(returns_sometimes, or_none, and_none, either, caught, refuses, yields, waits, wrapper, nested),
        *(lambda n: None, str.upper, int, print, None, 5),
    ],
)
def test_a_function_that_may_have_a_result_is_left_alone(function):
    assert not returns_only_none(function)


class Total(Aggregate):
    def create(self):
        return []

    def add(self, accumulator, value):
        accumulator.append(value)

    def result(self, accumulator):
        return accumulator


def warnings_of(job):
    return [text for text in compile_graph(job.graph(), 1, 128).warnings if "never returns" in text]


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("map", "map 'x' at test_forgotten.py:"),
        ("filter", "filter 'x' at test_forgotten.py:"),
    ],
)
def test_a_forgotten_return_is_told_with_operator_and_line(job, source, sink, method, sentence):
    getattr(job.source(source, uid="in"), method)(forgetful, uid="x").sink(sink, uid="out")

    (said,) = warnings_of(job)

    assert said.startswith(sentence)
    assert "forgetful never returns a value" in said
    assert said.endswith("is its `return` forgotten?")


def test_a_forgotten_return_of_a_key_of_a_reduce_and_of_an_aggregate_is_told(job: Job, source, sink):
    keyed = job.source(source, uid="in").key_by(forgetful)
    keyed.reduce(lambda a, b: a, uid="good").sink(sink, uid="out")
    keyed.reduce(lambda a, b: None, uid="meant").sink(sink, uid="out-2")
    keyed.aggregate(Total(), uid="total").sink(sink, uid="out-3")

    said = warnings_of(job)

    assert [text.partition(":")[0] for text in said] == [
        "aggregate 'total' at test_forgotten.py",
        "key_by at test_forgotten.py",
    ]
    assert "every accumulator becomes None" in said[0]
    assert "all records get the key None" in said[1]
