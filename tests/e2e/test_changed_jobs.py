"""A job file that was changed between two runs: what continues as it was is said, not passed over."""

from __future__ import annotations

from tests.e2e.shell import Done, Shell

JOB = """
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("changing")
(
    job.source(SequenceSource(0, 1_000_000, rate=1000), uid="numbers")
    .key_by(lambda n: n % 10)
    .count(uid="counts")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def run_for_a_while(shell: Shell, text: str, *options: str) -> Done:
    """Run the job with this text until records have come out, and stop it."""
    shell.write("job.py", text)
    running = shell.start("run", "job.py", "-p", "1", *options)
    shell.wait_for_status("changing", lambda status: status["records_out"])
    shell.run_ok("stop", "changing")
    return running.wait()


def test_another_source_and_another_key_are_warned_of_once(shell: Shell) -> None:
    changed = JOB.replace("1_000_000", "2_000_000").replace("n % 10", "n % 11")

    first = run_for_a_while(shell, JOB)
    second = run_for_a_while(shell, changed)
    third = run_for_a_while(shell, changed)

    assert "warning" not in first.out
    assert "warning: source 'numbers' was SequenceSource(0, 1000000, rate=1000) in the run before" in second.out
    assert "warning: key_by(<lambda>) at job.py:8 before 'counts' is not the function of the run before" in second.out
    assert "warning" not in third.out


def test_who_starts_over_is_not_warned(shell: Shell) -> None:
    run_for_a_while(shell, JOB)

    over = run_for_a_while(shell, JOB.replace("1_000_000", "2_000_000"), "--fresh", "--take-output")

    assert "in the run before" not in over.out


def test_a_parameter_that_nobody_asks_for_is_warned_of(shell: Shell) -> None:
    text = "def build(params):\n    params.get('input')\n    return job\n" + JOB.replace("job =", "it =").replace(
        "job.s", "it.s"
    )
    done = run_for_a_while(shell, text.replace("return job", "return it"), "--param", "inptu=1")

    assert "warning: --param inptu is not used" in done.out
    assert "did you mean input?" in done.out
