"""A key function without annotation that gives keys of another type: refused before anything of it is committed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.shell import Done, Shell, committed

COUNT = """\
from flowpoint import Job, KeyedProcessFunction, ValueState
from flowpoint.connectors import FileSink, SequenceSource


class Count(KeyedProcessFunction):
    seen = ValueState("seen", default=0)

    def process(self, number, ctx):
        self.seen.value += 1
        yield [ctx.key, self.seen.value]


job = Job("keys")
(
    job.source(SequenceSource(0, 1_000_000, rate=500), uid="numbers")
    .key_by(lambda number: KEY)
    .STEP
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""
STEPS = {"a count": 'count(uid="counts")', "a process function": 'process(Count(), uid="counts")'}


def job_text(step: str, key: str) -> str:
    return COUNT.replace("KEY", key).replace("STEP", STEPS[step])


def run_for_a_while(shell: Shell, text: str) -> Done:
    """Run a version of the job until it has emitted more, and stop it."""
    shell.write("keys.py", text)
    running = shell.start("run", "keys.py", "-p", "2", "--plain")
    shell.wait_for_status("keys", lambda status: status["records_out"])
    shell.run_ok("stop", "keys")
    return running.wait()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("step", STEPS)
def test_keys_of_another_type_are_refused_before_anything_of_them_is_committed(shell: Shell, step: str) -> None:
    before = job_text(step, "str(number % 10)")
    run_for_a_while(shell, before)
    written = committed(shell.folder / "out")

    shell.write("keys.py", job_text(step, "number % 10"))
    refused = shell.run("run", "keys.py", "-p", "3", "--plain", "--set", "checkpoint.interval=200ms")

    assert refused.code == 1
    for part in ("operator 'counts'", "stored as str", "gives number", "--allow-non-restored"):
        assert part in refused.err
    assert committed(shell.folder / "out") == written
    run_for_a_while(shell, before)
    counts: Counter[str] = Counter(key for key, _ in committed(shell.folder / "out"))
    assert sorted(committed(shell.folder / "out")) == sorted([key, n + 1] for key in counts for n in range(counts[key]))


@pytest.mark.timeout(180)
def test_another_function_that_gives_keys_of_a_stored_type_goes_on(shell: Shell) -> None:
    mixed = "number % 10 if number % 2 else str(number % 10)"
    run_for_a_while(shell, job_text("a count", mixed))

    only_numbers = run_for_a_while(shell, job_text("a count", "number % 5"))
    once_more = run_for_a_while(shell, job_text("a count", "number % 5"))

    assert "is not the function of the run before" in only_numbers.out
    assert (only_numbers.code, once_more.code) == (0, 0)
