"""What a continued job file says otherwise than before, and what is no change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from flowpoint.launch.jobfile import JobSource, build_job
from flowpoint.launch.traits import Traits, changes, traits_of
from flowpoint.plan.compile import CompiledJob, compile_graph

JOB = """
from operator import itemgetter
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink, SequenceSource

job = Job("traits")
job.source(SequenceSource(0, 10), uid="numbers").key_by(lambda n: n % 10).count(uid="counts").sink(FileSink("out"), uid="out")
"""


def compiled(text: str) -> CompiledJob:
    return compile_graph(build_job(JobSource("/jobs/job.py", text.encode()), {}).graph(), 1, 128)


def said(before: str, after: str) -> list[str]:
    return list(changes(compiled(after), traits_of(compiled(before))))


def test_the_same_file_says_nothing() -> None:
    assert said(JOB, JOB) == []


def test_another_source_is_told_with_both_descriptions() -> None:
    (sentence,) = said(JOB, JOB.replace("SequenceSource(0, 10)", "SequenceSource(5, 10)"))

    assert sentence.startswith(
        "source 'numbers' was SequenceSource(0, 10) in the run before and is SequenceSource(5, 10)"
    )
    assert "--fresh" in sentence


def test_another_key_function_is_told_with_its_place_and_operator() -> None:
    (sentence,) = said(JOB, JOB.replace("n % 10)", "n % 11)"))

    assert sentence.startswith("key_by(<lambda>) at job.py:7 before 'counts' is not the function of the run before")


def test_key_functions_that_are_not_written_in_python_are_told_apart() -> None:
    first, second = (JOB.replace("lambda n: n % 10", f"itemgetter({n})") for n in (0, 1))

    assert said(first, first) == []
    assert len(said(first, second)) == 1


def test_names_of_variables_comments_and_lines_are_no_change() -> None:
    assert said(JOB, "# a comment\n\n" + JOB.replace("lambda n: n % 10", "lambda number: number % 10")) == []


def test_code_of_another_python_is_not_compared() -> None:
    before: Traits = {uid: trait.replace("cpython", "cpython-2") for uid, trait in traits_of(compiled(JOB)).items()}

    assert list(changes(compiled(JOB), before)) == []


def test_new_and_vanished_operators_are_no_change() -> None:
    assert said(JOB, JOB.replace('uid="counts"', 'uid="other"')) == []


def test_a_source_without_a_description_of_its_own_is_left_alone() -> None:
    own = "from flowpoint import Source\nclass Own(Source): pass\n" + JOB.replace("SequenceSource(0, 10)", "Own()")

    assert "numbers" not in traits_of(compiled(own))


def test_traits_are_the_same_in_every_process() -> None:
    program = (
        "from flowpoint.state.key_functions import key_digest\n"
        "print(key_digest([lambda n: n in {'a', 'b', 'c', 'd', 'e'}, str.lower]))\n"
    )
    root = str(Path(__file__).parents[3])
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": root},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(runs) == 1
