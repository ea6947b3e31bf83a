"""A command that is given once more after its job has finished."""

from __future__ import annotations

from tests.e2e.shell import Shell

JOB = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink

job = Job("words")
words = job.source(CollectionSource(["a", "b", "a"]), uid="in").key_by(lambda word: word).count(uid="counts")
words.sink(FileSink("out", format="jsonl"), uid="out")
"""


def test_what_a_coordinator_left_that_was_killed_while_it_cleaned_up_is_removed_by_the_next_run(shell: Shell) -> None:
    shell.write("words.py", JOB)
    shell.run_ok("run", "words.py")
    storage = shell.home.checkpoints("words")
    kept = sorted(path for path in storage.rglob("*") if path.is_file())
    for leftover in ("shared/counts-0-a1-99.delta", ".chk-9-a1.0123456789abcdef.tmp"):
        (storage / leftover).touch()
    (shell.home.work("words") / "local" / "shared").mkdir(parents=True)

    again = shell.run_ok("run", "words.py")

    assert "finished before" in again.out
    assert sorted(path for path in storage.rglob("*") if path.is_file()) == kept
    assert not shell.home.work("words").exists()
