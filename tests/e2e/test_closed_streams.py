"""A shell or a supervisor may close the standard streams: the job runs all the same, and ends in order."""

from __future__ import annotations

import pytest

from tests.e2e.shell import Shell

JOB = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, FileSink

print("loading")
job = Job("silent")
numbers = job.source(CollectionSource([1, 2, 3]), uid="in")
numbers.map(lambda n: print(n) or n).sink(FileSink("out", format="jsonl"), uid="out")
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-", "<&-"])
@pytest.mark.parametrize("view", ["--plain", "--json"])
def test_a_job_runs_without_standard_streams(shell: Shell, closed: str, view: str) -> None:
    shell.write("silent.py", JOB)
    shell.prefix = ("sh", "-c", f'exec "$@" {closed}', "sh")

    done = shell.run("run", "silent.py", "-p", "2", view)

    assert done.code == 0, done
    assert "Traceback" not in done.err, done
    assert sorted("".join(part.read_text() for part in (shell.folder / "out").glob("[!.]*")).split()) == ["1", "2", "3"]


def test_a_wrong_command_without_standard_streams_ends_with_its_code(shell: Shell) -> None:
    shell.prefix = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")

    assert shell.run("run", "nowhere.py").code == 2
    assert shell.run("status", "nothing").code == 3


def test_a_function_may_close_the_stream_that_workers_log_to(shell: Shell) -> None:
    closing = JOB.replace("print(n) or n", "__import__('sys').stdout.close() or n")
    shell.write("silent.py", closing)

    done = shell.run("run", "silent.py")

    assert done.code == 0, done
    assert "Traceback" not in shell.run("logs", "silent").out
