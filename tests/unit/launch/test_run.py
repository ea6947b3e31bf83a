"""`run_job_file`: what it leaves behind when it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowpoint.errors import StorageError
from flowpoint.launch import run
from flowpoint.launch.claim import claim_job
from flowpoint.launch.control import RunOptions
from flowpoint.launch.home import Home
from tests.unit.cli.fake_job import this_process

JOB = """
from flowpoint import Job
from flowpoint.connectors import CollectionSource, PrintSink

job = Job("words")
job.source(CollectionSource([1]), uid="in").sink(PrintSink(), uid="out")
"""


class NoView:
    """Looks at nothing: there is no run."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called, though nothing has been started")


def test_a_run_that_cannot_be_put_together_lets_go_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise StorageError("the disk says no")

    (tmp_path / "words.py").write_text(JOB)
    monkeypatch.setenv("FLOWPOINT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(run, "open_place", refused)

    with pytest.raises(StorageError, match="the disk says no"):
        run.run_job_file(RunOptions(str(tmp_path / "words.py")), NoView(), lambda: None)

    home = Home(tmp_path / "home")
    assert home.known_jobs() == []
    claim_job(home, "words", this_process()).let_go()
