"""What the doctor sees on machines that are well and on those that are not, and what it tells to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowpoint.launch import doctor
from flowpoint.launch.claim import claim_job
from flowpoint.launch.doctor import Finding, Level
from flowpoint.launch.home import Home, ProcessId, RunRecord

LONG_GONE = ProcessId(2**22 + 1, 1.0)


@pytest.fixture
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="fp") as folder:
        yield Home(Path(folder) / "home")


def record(home: Home, name: str, **more: object) -> None:
    """A run of a job whose process has died."""
    claim = claim_job(home, name, LONG_GONE)
    claim.record(RunRecord(name, LONG_GONE, f"{name}.py", resume=f"flowpoint run {name}.py", **more))  # type: ignore[arg-type]
    os.close(claim._lock)


@pytest.mark.parametrize(
    ("finding", "level", "said"),
    [
        (doctor.judge_python((3, 11, 2)), Level.OK, ""),
        (doctor.judge_python((3, 10, 9)), Level.ERROR, "3.11"),
        (doctor.judge_packages({"a": "1.10"}, {"a": "1.10.0"}), Level.OK, ""),
        (doctor.judge_packages({"a": "1.10"}, {"a": "1.9"}), Level.ERROR, "'a>=1.10'"),
        (doctor.judge_packages({"a": "1", "b": "2"}, {"a": "1", "b": None}), Level.ERROR, "pip install 'b>=2'"),
        (doctor.judge_cores(2), Level.OK, ""),
        (doctor.judge_cores(1), Level.WARNING, "more"),
        (doctor.judge_open_files(-1, -1), Level.OK, ""),
        (doctor.judge_open_files(4096, -1), Level.OK, ""),
        (doctor.judge_open_files(256, -1), Level.WARNING, "ulimit -n 4096"),
        (doctor.judge_open_files(64, 2048), Level.ERROR, "ulimit -n 2048"),
        (doctor.judge_room(2 << 30), Level.OK, ""),
        (doctor.judge_room(500 << 20), Level.WARNING, "make room"),
        (doctor.judge_room(1 << 20), Level.ERROR, "make room"),
        (doctor.judge_sync(0.01), Level.OK, ""),
        (doctor.judge_sync(2.0), Level.WARNING, "faster disk"),
    ],
)
def test_what_is_seen_is_judged_and_whatever_is_wrong_comes_with_what_to_do(
    finding: Finding, level: Level, said: str
) -> None:
    assert finding.level is level
    assert said in finding.advice
    assert bool(finding.advice) is (level is not Level.OK)


def test_every_check_is_made_on_this_machine_and_nothing_is_left_behind(home: Home) -> None:
    found = {finding.check: finding for finding in doctor.examine(home)}

    assert list(found) == [
        *("python", "packages", "uvloop", "cores", "open files"),
        *("home", "disk space", "sockets", "fsync", "rocksdb", "jobs"),
    ]
    for check in ("python", "uvloop", "home", "sockets", "rocksdb", "jobs"):
        assert found[check].level is Level.OK, found[check]
    assert list(home.root.parent.iterdir()) == []


def test_a_home_that_others_can_read_is_a_warning_and_one_that_is_no_folder_an_error(home: Home) -> None:
    home.root.mkdir(mode=0o755)
    home.root.chmod(0o755)
    open_to_all = doctor.check_home(home.root)
    home.root.chmod(0o700)
    private = doctor.check_home(home.root)
    home.root.rmdir()
    home.root.write_text("")

    assert (open_to_all.level, open_to_all.advice) == (Level.WARNING, f"chmod 700 {home.root}")
    assert private.level is Level.OK
    assert doctor.check_home(home.root).level is Level.ERROR


def test_a_path_that_is_too_long_for_sockets_is_said_to_be_moved(home: Home) -> None:
    deep = Home(home.root / ("x" * 100))
    deep.root.mkdir(parents=True)

    beside, moved = doctor.check_sockets(home, home.root.parent), doctor.check_sockets(deep, deep.root)

    assert beside.seen.startswith("beside the job")
    assert moved.seen.startswith(f"in {tempfile.gettempdir()}")
    assert moved.level is Level.OK


def test_a_job_whose_process_has_died_is_told_with_the_command_that_goes_on_with_it(home: Home) -> None:
    record(home, "counts")

    finding = doctor.check_jobs(home)

    assert (finding.level, finding.advice) == (Level.WARNING, "go on where they were: flowpoint run counts.py")


def test_a_worker_that_outlived_its_job_is_an_error_with_its_pid(home: Home) -> None:
    import psutil

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        record(home, "counts", workers=(ProcessId(worker.pid, psutil.Process(worker.pid).create_time()),))

        finding = doctor.check_jobs(home)

        worker.communicate(b"\n")
    assert finding.level is Level.ERROR
    assert f"counts: {worker.pid}" in finding.seen


def test_a_check_that_cannot_be_made_is_an_error_and_the_others_are_made(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)

    found = {finding.check: finding for finding in doctor.examine(home)}

    assert found["fsync"].level is Level.ERROR
    assert "Input/output error" in found["fsync"].seen
    assert found["jobs"].level is Level.OK


def test_a_home_that_cannot_be_made_is_the_one_thing_that_is_told_of_it() -> None:
    found = doctor.examine(Home(Path("/proc/flowpoint")))

    bad = [finding for finding in found if finding.level is Level.ERROR]
    assert [finding.check for finding in bad] == ["home"]
    assert "cannot be made" in bad[0].seen and "FLOWPOINT_HOME" in bad[0].advice
    assert found[-1] is bad[0]
