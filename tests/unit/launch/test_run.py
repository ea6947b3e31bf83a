"""`run_job_file`: what it leaves behind when it is refused, and when it is interrupted at its very end."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from flowpoint.cli.views import View
from flowpoint.errors import StorageError
from flowpoint.host.disk import SystemDisk
from flowpoint.launch import run
from flowpoint.launch.claim import Claim, claim_job
from flowpoint.launch.control import RunOptions
from flowpoint.launch.home import Home
from flowpoint.launch.job_log import JobLog
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


def test_an_interrupt_while_local_state_is_removed_changes_nothing_of_how_the_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_tree = SystemDisk.remove_tree

    async def interrupted(disk: SystemDisk, path: str) -> None:
        signal.raise_signal(signal.SIGINT)
        await remove_tree(disk, path)

    (tmp_path / "words.py").write_text(JOB)
    monkeypatch.setenv("FLOWPOINT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(SystemDisk, "remove_tree", interrupted)

    code = run.run_job_file(RunOptions(str(tmp_path / "words.py"), parallelism=1), View(), lambda: None)

    record = Home(tmp_path / "home").job("words").read_run()
    assert record is not None
    assert (code, record.outcome) == (0, "finished")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("owner", "last_step"), [(JobLog, "close"), (Claim, "release")])
def test_a_signal_that_comes_when_the_job_has_ended_does_not_change_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, owner: type, last_step: str
) -> None:
    original = getattr(owner, last_step)

    def interrupted(*args: Any, **options: Any) -> Any:
        for _ in range(2):
            signal.raise_signal(number)
        return original(*args, **options)

    (tmp_path / "words.py").write_text(JOB)
    monkeypatch.setenv("FLOWPOINT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(owner, last_step, interrupted)
    before = signal.getsignal(number)

    code = run.run_job_file(RunOptions(str(tmp_path / "words.py"), parallelism=1), View(), lambda: None)

    record = Home(tmp_path / "home").job("words").read_run()
    assert record is not None
    assert (code, record.outcome) == (0, "finished")
    assert signal.getsignal(number) is before
