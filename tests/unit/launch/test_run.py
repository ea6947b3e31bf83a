"""`run_job_file`: what it leaves behind when it is refused, or interrupted when all is over."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from flowpoint.errors import StorageError
from flowpoint.launch import run
from flowpoint.launch.claim import Claim, claim_job
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


class AnyView:
    """Takes everything, and shows no figures."""

    shows_figures = False

    def on_event(self, _event: Any) -> None:
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("late", ["_remove_work", "_end", "release"])
def test_a_signal_that_comes_when_the_job_has_ended_does_not_change_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, late: str
) -> None:
    owner: Any = Claim if late == "release" else run._Run
    original = getattr(owner, late)

    def interrupted(*args: Any, **options: Any) -> Any:
        for _ in range(2):
            os.kill(os.getpid(), number)
        return original(*args, **options)

    (tmp_path / "words.py").write_text(JOB.replace("words", f"words-{late.strip('_')}"))
    monkeypatch.setenv("FLOWPOINT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(owner, late, interrupted)
    before = signal.getsignal(number)

    assert run.run_job_file(RunOptions(str(tmp_path / "words.py"), parallelism=1), AnyView(), lambda: None) == 0

    claim = claim_job(Home(tmp_path / "home"), f"words-{late.strip('_')}", this_process())
    assert claim.previous is not None and claim.previous.outcome == "finished"
    claim.let_go()
    assert signal.getsignal(number) is before
