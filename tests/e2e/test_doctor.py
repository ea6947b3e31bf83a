"""`flowpoint doctor` tells what is wrong with the machine, for people and for programs."""

from __future__ import annotations

from tests.e2e.shell import Shell

JOB = """\
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("numbers")
job.source(SequenceSource(0, 1_000_000, rate=100), uid="numbers").sink(FileSink("out", format="jsonl"), uid="out")
"""


def test_the_doctor_finds_a_machine_fit_and_a_job_that_was_killed(shell: Shell) -> None:
    well = shell.run("doctor", "--json")
    shell.write("numbers.py", JOB)
    running = shell.start("run", "numbers.py", "-p", "1", "--plain")
    shell.wait_for_status("numbers", lambda status: status["records_out"])
    running.kill()

    killed = shell.run("doctor")

    assert well.code == 0, well
    assert {"check": "jobs", "level": "ok", "seen": "0 known, none of them dead", "advice": ""} in well.json()
    assert "1 ended without a word" in killed.out or "still run" in killed.out
    assert "flowpoint run" in killed.out or "kill -9" in killed.out


def test_a_home_that_cannot_be_used_is_an_error_with_what_to_do_and_exit_code_1(shell: Shell) -> None:
    shell.write("taken", "")
    shell.move_home("taken")

    done = shell.run("doctor")

    assert done.code == 1
    assert "error    home" in done.out
    assert "-> set FLOWPOINT_HOME" in done.out
