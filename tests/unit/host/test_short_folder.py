"""The short folder for sockets: one for all runs of a job, private, and gone when the job's owner says so."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flowpoint.errors import UsageError
from flowpoint.host import short_folder


def test_every_process_of_a_job_and_its_next_run_mean_the_same_one(tmp_path: Path) -> None:
    job = str(tmp_path / "job")
    made = short_folder.make_for(job)
    (Path(made) / "left-by-a-kill.sock").touch()

    assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
    assert short_folder.make_for(job) == made
    assert short_folder.path_for(str(tmp_path / "other")) != made

    short_folder.clear_for(job)
    assert not Path(made).exists()
    short_folder.clear_for(job)


@pytest.mark.parametrize("open_to", [0o755, 0o701, 0o770])
def test_one_that_others_can_enter_is_not_used(tmp_path: Path, open_to: int) -> None:
    made = Path(short_folder.make_for(str(tmp_path / "job")))
    made.chmod(open_to)

    with pytest.raises(UsageError, match="is not a folder that only this user can enter"):
        short_folder.make_for(str(tmp_path / "job"))
    with pytest.raises(UsageError, match="is not a folder that only this user can enter"):
        short_folder.clear_for(str(tmp_path / "job"))
    made.rmdir()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path = Path(short_folder.path_for(str(tmp_path / "job")))
    path.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError):
        short_folder.make_for(str(tmp_path / "job"))
    with pytest.raises(UsageError):
        short_folder.clear_for(str(tmp_path / "job"))
    path.unlink()
