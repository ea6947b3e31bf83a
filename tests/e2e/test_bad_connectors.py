"""Sources and sinks of an author's own that are wrong: what is, and where, instead of a bug in FlowPoint."""

from __future__ import annotations

import pytest

from tests.e2e.shell import Shell

JOB = """
from flowpoint import END, Job, Sink, SinkWriter, Source, SourceReader, Split

class Numbers(Source):
    guarantee = "replayable"

    def splits(self):
        {splits}

    def open(self, split, position, ctx):
        return Reader()

class Reader(SourceReader):
    has_read = False

    def read(self, n):
        if self.has_read:
            return END
        self.has_read = True
        {read}

    def position(self):
        return self.has_read

class Nowhere(Sink):
    guarantee = "exactly-once"

    def open(self, ctx):
        return Writer()

    def commit(self, part, ctx):
        pass

    def abort(self, part, ctx):
        pass

class Writer(SinkWriter):
    def write(self, batch):
        {write}

    def prepare(self, checkpoint):
        return None

job = Job("own", config={{"restart.strategy": "none"}})
job.source(Numbers(), uid="numbers").sink(Nowhere(), uid="nowhere")
"""
SOUND = {"splits": 'return [Split("a")]', "read": "return [1]", "write": "pass"}


def test_the_job_of_these_tests_runs(shell: Shell) -> None:
    shell.write("own.py", JOB.format(**SOUND))
    assert shell.run("run", "own.py").code == 0


@pytest.mark.parametrize(
    "splits",
    ['return [Split("a", None)]', 'return [Split("a", {"o": object()})]', 'return ["a"]', "return 5"],
)
def test_splits_that_are_none_end_the_job_with_a_sentence(shell: Shell, splits: str) -> None:
    shell.write("own.py", JOB.format(**{**SOUND, "splits": splits}))

    done = shell.run("run", "own.py")

    assert done.code == 1, done
    assert "source 'numbers'" in done.sentence and "bug in FlowPoint" not in done.err, done
    assert "Traceback" not in done.err, done


@pytest.mark.parametrize("where", ["splits", "read", "write"])
@pytest.mark.parametrize("error", ["ValueError", "ConnectionError"])
def test_what_a_connector_raises_is_shown_with_its_line(shell: Shell, where: str, error: str) -> None:
    shell.write("own.py", JOB.format(**{**SOUND, where: f'raise {error}("no database")'}))

    done = shell.run("run", "own.py")

    assert done.code == 1 and f"{error}: no database" in done.sentence, done
    line = next(
        n for n, text in enumerate(shell.folder.joinpath("own.py").read_text().splitlines(), 1) if error in text
    )
    assert f'own.py", line {line}, in {where}' in done.err, done
    assert "flowpoint/" not in done.err.partition("Traceback")[2], done
