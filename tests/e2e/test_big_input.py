"""One big file keeps every subtask busy."""

from __future__ import annotations

from collections import Counter

from tests.e2e.shell import Shell, committed

READERS = """
import os
from flowpoint import Job
from flowpoint.connectors import FileSink, FileSource

job = Job("readers")
(
    job.source(FileSource("big.txt"), uid="lines")
    .map(lambda line: [os.getpid(), line[:6]], uid="who")
    .sink(FileSink("out", format="jsonl"), uid="out")
)
"""
LINES = 80_000
PARALLELISM = 3


def test_a_big_file_is_read_by_every_subtask_and_each_line_once(shell: Shell) -> None:
    shell.write("job.py", READERS)
    shell.write("big.txt", "".join(f"{n:06} {'x' * (n % 150)}\n" for n in range(LINES)))

    shell.run_ok("run", "job.py", "-p", str(PARALLELISM))

    output = committed(shell.folder / "out")
    assert Counter(line for _, line in output) == Counter(f"{n:06}" for n in range(LINES))
    shares = Counter(pid for pid, _ in output)
    assert len(shares) == PARALLELISM
    assert min(shares.values()) > LINES / PARALLELISM / 2
