"""What a job prints: a beginner who writes `print(...)` finds it."""

from __future__ import annotations

from tests.e2e.shell import Shell

JOB = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, PrintSink


def double(n):
    print("doubling", n)
    return n * 2


job = Job("printing")
job.source(CollectionSource([1, 2, 3]), uid="numbers").map(double, uid="double").sink(PrintSink(), uid="out")
"""
PRINTED = ["doubling 1", "doubling 2", "doubling 3", "2", "4", "6"]


def test_run_says_where_it_goes_and_shows_its_end(shell: Shell) -> None:
    shell.write("job.py", JOB)

    out = shell.run_ok("run", "job.py", "-p", "1").out

    assert "`flowpoint logs printing`" in out.splitlines()[0]
    assert "printed output, 6 lines (all: `flowpoint logs printing`):" in out
    assert sorted(line.strip() for line in out.splitlines() if line.startswith("    ")) == sorted(PRINTED)
    assert "finished" in out.splitlines()[-1]


def test_for_programs_the_last_event_has_it(shell: Shell) -> None:
    shell.write("job.py", JOB)
    run = shell.start("run", "job.py", "-p", "1", "--json")
    run.wait()

    last = run.events()[-1]
    repeats = [event["text"] for event in run.events("warning") if "at-least-once" in event["text"]]

    assert len(repeats) == 1
    assert "PrintSink" in repeats[0]
    assert last["event"] == "finished"
    assert last["data"]["printed"]["lines"] == 6
    assert sorted(last["data"]["printed"]["last"]) == sorted(PRINTED)


def test_what_was_printed_before_a_kill_is_in_the_log(shell: Shell) -> None:
    dying = JOB.replace(
        "return n * 2", "if n == 2:\n        import os\n        os.kill(os.getpid(), 9)\n    return n * 2"
    )
    shell.write("job.py", dying)

    done = shell.run("run", "job.py", "-p", "1", "--set", "restart.strategy=none")

    assert done.code == 1, done
    assert "    doubling 2" in done.out.splitlines()
