"""The jobs that chaos is let loose on, and what a plain Python loop says about their output.

A job file is text, because it runs in real processes that know nothing of the test. The jobs are bounded and have a
rate, so that there is time to kill something, and their right output is known without FlowPoint.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.e2e.shell import Running, Shell, committed

RECORDS = 3600
RATE = 3000

COUNTING = f"""
from flowpoint import Job
from flowpoint.connectors import FileSink, SequenceSource

job = Job("counting")
(
    job.source(SequenceSource(0, {RECORDS}, rate={RATE}), uid="numbers")
    .key_by(lambda n: f"key-{{n % 13}}")
    .count(uid="counts")
    .key_by(lambda counted: counted[1] % 5)
    .sum(lambda counted: counted[1], uid="sums")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""
"""Two keyed steps: a count per key, then the running sum of these counts by their remainder."""


def start_counting(shell: Shell, backend: str, parallelism: int, *options: str) -> Running:
    """Run COUNTING (the same command continues it) with frequent checkpoints."""
    shell.write("job.py", COUNTING)
    settings = ("--set", "checkpoint.interval=200ms", "--set", f"state.backend={backend}")
    return shell.start("run", "job.py", "--json", "-p", str(parallelism), *settings, *options)


def assert_counted(shell: Shell, folder: str = "out") -> None:
    """The committed output of COUNTING is what a plain loop makes of the same numbers, in whatever order they came."""
    output: list[tuple[int, int]] = [(remainder, total) for remainder, total in committed(shell.folder / folder)]
    summands: dict[int, list[int]] = defaultdict(list)
    seen: Counter[int] = Counter()
    for n in range(RECORDS):
        seen[n % 13] += 1
        summands[seen[n % 13] % 5].append(seen[n % 13])
    assert len(output) == RECORDS, f"{len(output)} lines of output for {RECORDS} records"
    for remainder, expected in summands.items():
        totals = sorted(total for key, total in output if key == remainder)
        steps = [after - before for before, after in zip([0, *totals], totals, strict=False)]
        assert Counter(steps) == Counter(expected), f"the sums of remainder {remainder} are wrong"


def said_of_opening(shell: Shell, job: str) -> list[str]:
    """What workers have said in a job's log about the state that they opened."""
    log = shell.home.job(job).log.read_text()
    return [line for line in log.splitlines() if "state files opened locally" in line]


def is_all_local(said: str) -> bool:
    """Whether a worker has opened state, and only from local files."""
    return "from the checkpoint storage: 0 (0 bytes)" in said and "opened locally: 0 " not in said


def newest_checkpoint(running: Running) -> dict[str, Any]:
    """What the last completed checkpoint of a run was."""
    newest: dict[str, Any] = running.events("checkpoint_completed")[-1]["data"]
    return newest
