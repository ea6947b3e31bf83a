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


NOISY = """
from flowpoint import Job
from flowpoint.connectors import CallbackSink, SequenceSource

job = Job("noisy")
numbers = job.source(SequenceSource(0, 16_000, rate=8_000), uid="numbers")
numbers.key_by(lambda n: n).count(uid="counts").sink(CallbackSink(lambda pair: print("printed", *pair)), uid="out")
"""
SMALL_LOG = ("log.max_bytes=10KB", "log.backups=100", "heartbeat.interval=50ms", "heartbeat.timeout=300ms")


def test_all_that_workers_print_is_shown_line_by_line_from_a_log_in_many_files(shell: Shell) -> None:
    shell.write("job.py", NOISY)
    shell.environment["PYTHONUNBUFFERED"] = "1"
    settings = [word for setting in SMALL_LOG for word in ("--set", setting)]
    run = shell.start("run", "job.py", "-p", "2", *settings)
    shell.wait_for_status("noisy", lambda status: status["records_out"])

    followed = shell.run_ok("logs", "noisy", "-f", "-n", "1000000").out
    run.wait()
    shown = shell.run_ok("logs", "noisy").out

    printed = sorted(f"printed {n} 1" for n in range(16_000))
    assert len(list(shell.home.job("noisy").path.glob("log.*"))) > 2
    assert sorted(line for line in shown.splitlines() if "Z " not in line) == printed
    assert sorted(line for line in followed.splitlines() if "Z " not in line) == printed
