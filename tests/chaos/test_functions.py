"""User functions that raise while the job runs, and what is exact all the same."""

from __future__ import annotations

import pytest

from tests.e2e.shell import Shell, committed

RAISING = """
import os
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource


def careful(n):
    if n == 1500 and (ALWAYS or not os.path.exists("raised")):
        open("raised", "a").write("x")
        raise ValueError("1500 is too much")
    return n


job = Job("raising")
(
    job.source(SequenceSource(0, 3000, rate=3000), uid="numbers")
    .map(careful, uid="careful")
    .key_by(lambda n: n % 7)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_when_a_function_raises_once_then_the_job_restarts_and_the_output_is_exact(shell: Shell, backend: str) -> None:
    shell.write("job.py", RAISING.replace("ALWAYS", "False"))
    settings = ("--set", "checkpoint.interval=100ms", "--set", f"state.backend={backend}")

    running = shell.start("run", "job.py", "--json", "-p", "2", *settings)
    done = running.wait()

    assert done.code == 0, done
    assert "1500 is too much" in running.events("restarting")[0]["text"]
    expected = [[n % 7, n // 7 + 1] for n in range(3000)]
    assert sorted(committed(shell.folder / "out")) == sorted(expected)


def test_when_a_function_always_raises_then_the_job_fails_with_its_traceback_after_three_times(shell: Shell) -> None:
    shell.write("job.py", RAISING.replace("ALWAYS", "True"))

    done = shell.run("run", "job.py", "-p", "2", "--set", "checkpoint.interval=100ms")

    assert done.code == 1, done
    for words in ("'careful'", "record 1500", "ValueError: 1500 is too much", "3 times"):
        assert words in done.sentence
    assert done.err.splitlines()[2].endswith("in careful"), done.err
    assert len((shell.folder / "raised").read_text()) >= 3
    output = committed(shell.folder / "out")
    assert len(output) == len({tuple(line) for line in output}), "something was committed twice"
