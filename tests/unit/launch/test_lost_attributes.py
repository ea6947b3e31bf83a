"""What a keyed function keeps in `self`, where nothing is kept, is said before it is lost."""

from __future__ import annotations

import textwrap

import pytest

from flowpoint.launch.jobfile import JobSource, build_job
from flowpoint.launch.lost_attributes import lost_attributes
from flowpoint.plan.compile import compile_graph

JOB = """
from flowpoint import Job, KeyedProcessFunction, ProcessFunction, ValueState
from flowpoint.connectors import CollectionSource, FileSink

class Counter(KeyedProcessFunction):
    total = 0
    kept = ValueState("kept", default=0)

    def __init__(self):
        self.limit = 10

    def open(self, ctx):
        self.opened = True

    def process(self, value, ctx):
BODY
        yield value

job = Job("keeping")
job.source(CollectionSource([1]), uid="a").key_by(str).process(Counter(), uid="counter").sink(FileSink("out"), uid="c")
"""


def said(body: str, text: str = JOB) -> list[str]:
    content = text.replace("BODY", textwrap.indent(textwrap.dedent(body), " " * 8))
    compiled = compile_graph(build_job(JobSource("/jobs/job.py", content.encode()), {}).graph(), 1, 128)
    return list(lost_attributes(compiled))


@pytest.mark.parametrize(
    "body",
    [
        "self.total += 1",
        "self.total = 1",
        "for self.total in [1]:\n    pass",
        "self.a, self.total = 1, 2",
        "self.total: int = 3",
    ],
)
def test_what_is_assigned_for_a_record_is_told_with_what_to_declare(body: str) -> None:
    (sentence,) = said(body)

    assert sentence.startswith("operator 'counter': Counter assigns to ")
    assert "self.total" in sentence
    assert "= ValueState(" in sentence


@pytest.mark.parametrize(
    "body", ["pass", "self.kept.value += 1", "self.kept = 1", "self._cache = 1", "other = value\nother.total = 1"]
)
def test_state_caches_and_other_objects_are_left_alone(body: str) -> None:
    assert said(body) == []


def test_a_function_without_keys_keeps_what_it_likes() -> None:
    plain = (
        JOB.replace(".key_by(str)", "")
        .replace("(KeyedProcessFunction)", "(ProcessFunction)")
        .replace("    kept =", "    _kept =")
    )

    assert said("self.total += 1", plain.replace('ValueState("kept", default=0)', "0")) == []
