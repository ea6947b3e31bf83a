"""A start is known before its job is: by the file of the job, or by the name that was given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowpoint.launch.home import Home, JobFolder, ProcessId, RunRecord
from flowpoint.launch.starting import announced, is_starting

KILLED = """
import os, sys
from pathlib import Path
from flowpoint.launch.home import Home
from flowpoint.launch.starting import announced
with announced(Home(Path(sys.argv[1])), "/jobs/words.py", None):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create_job("words")
    return home


def run_before(name: str, job_file: str = "/jobs/words.py") -> RunRecord:
    return RunRecord(name, ProcessId(1, 1.0), job_file, outcome="stopped")


def known(home: Home, name: str = "words", job_file: str = "/jobs/words.py") -> bool:
    return is_starting(home.job(name), run_before(name, job_file))


def test_a_start_of_the_file_that_was_run_before_is_known_until_the_job_is_held(home: Home) -> None:
    assert not known(home)
    with announced(home, "/jobs/words.py", None) as on_claimed:
        assert known(home)
        on_claimed()
        assert not known(home)


def test_a_start_that_is_refused_is_over(home: Home) -> None:
    with pytest.raises(ZeroDivisionError), announced(home, "/jobs/words.py", None):
        raise ZeroDivisionError

    assert not known(home)


def test_a_name_that_was_given_counts_and_not_the_file(home: Home) -> None:
    with announced(home, "/jobs/words.py", "branch"):
        assert not known(home)
        assert known(home, "branch", "/jobs/another.py")


def test_other_files_and_jobs_that_never_ran_are_not_meant(home: Home) -> None:
    with announced(home, "/jobs/words.py", None):
        assert not known(home, "lines", "/jobs/lines.py")
        assert not is_starting(home.job("words"), None)


def test_a_start_that_was_killed_is_none_and_leaves_nothing(home: Home) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(home.root)], check=False)
    folder = JobFolder(home.root / "jobs" / ".starting").path
    assert len(list(folder.iterdir())) == 1

    assert not known(home)
    assert list(folder.iterdir()) == []


def test_the_folder_of_starts_is_no_job(home: Home) -> None:
    with announced(home, "/jobs/words.py", None):
        assert home.known_jobs() == ["words"]


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with announced(Home(tmp_path / "none"), "/jobs/words.py", None) as on_claimed:
        on_claimed()

    assert not (tmp_path / "none").exists()
