"""`flowpoint stop` with and without `--drain`, through the shell, in real processes (AC-41)."""

from __future__ import annotations

from tests.e2e.shell import Running, Shell, committed

JOB = """
from flowpoint import Job, KeyedProcessFunction, ValueState
from flowpoint.connectors import FileSink, SequenceSource


class AtTheEnd(KeyedProcessFunction):
    seen = ValueState("seen", default=0)

    def process(self, n, ctx):
        self.seen.value += 1
        ctx.timers.event(10**12)

    def on_timer(self, timestamp, ctx):
        yield (ctx.key, self.seen.value)


job = Job("totals")
(
    job.source(SequenceSource(0, 1_000_000, rate=1000), uid="numbers")
    .assign_timestamps(lambda n: n, max_out_of_orderness="1s", uid="times")
    .key_by(lambda n: n % 5)
    .process(AtTheEnd(), uid="totals")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""


def start(shell: Shell, *more: str) -> Running:
    """Run it until a checkpoint of this run is there."""
    shell.write("totals.py", JOB)
    running = shell.start("run", "totals.py", "-p", "2", "--json", "--set", "checkpoint.interval=200ms", *more)
    running.wait_for("checkpoint_completed")
    return running


def totals(shell: Shell) -> list[list[int]]:
    return sorted(committed(shell.folder / "out"))


def test_ac41_a_stop_without_drain_fires_no_timer_and_one_with_drain_fires_all(shell: Shell) -> None:
    first = start(shell)
    shell.run_ok("stop", "totals")
    assert first.wait().code == 0
    assert totals(shell) == []

    second = start(shell)
    made = shell.run_ok("stop", "totals", "--drain", "--to", "backup", "--json").json()
    assert second.wait().code == 0

    assert [key for key, _ in totals(shell)] == [0, 1, 2, 3, 4]
    inspected = shell.run_ok("inspect", made["path"], "--json").json()
    assert inspected["drained"]
    # Every number that was read, in both runs, is in the totals: a split's position is how many it has given.
    splits = [split for one in inspected["operators"] if one["uid"] == "numbers" for split in one["splits"]]
    assert sum(total for _, total in totals(shell)) == sum(split["position"] for split in splits)


def test_a_drained_savepoint_is_started_from_only_with_the_flag_that_says_so(shell: Shell) -> None:
    running = start(shell)
    made = shell.run_ok("stop", "totals", "--drain", "--to", "backup", "--json").json()
    running.wait()

    refused = shell.run("run", "totals.py", "--from", made["path"])
    before = totals(shell)
    resumed = start(shell, "--from", made["path"], "--resume-drained")
    shell.run_ok("stop", "totals", "--drain")

    assert refused.code == 1
    assert "--resume-drained" in refused.sentence
    assert "timers have fired" in refused.sentence
    assert resumed.wait().code == 0
    assert len(totals(shell)) == len(before) + 5


def test_a_drained_job_is_run_again_only_with_the_flag_that_says_so(shell: Shell) -> None:
    running = start(shell)
    shell.run_ok("stop", "totals", "--drain")
    running.wait()

    advised = shell.run("checkpoint", "totals")
    refused = shell.run("run", "totals.py")
    resumed = start(shell, "--resume-drained")
    shell.run_ok("stop", "totals")

    assert advised.code == 3
    assert "--resume-drained` continues it" in advised.sentence
    assert refused.code == 1
    assert "--resume-drained" in refused.sentence
    assert resumed.wait().code == 0


def test_the_last_figures_count_what_the_drain_has_written(shell: Shell) -> None:
    running = start(shell)
    shell.run_ok("stop", "totals", "--drain")
    running.wait()

    ended = shell.run("status", "totals", "--json").json()

    assert ended["records_out"] == len(totals(shell))
    assert {one["rate"] for one in ended["operators"]} == {None}
