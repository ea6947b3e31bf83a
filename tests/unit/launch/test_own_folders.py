"""No snapshot goes where FlowPoint itself removes things, or where a job's output is."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.errors import ConfigError, UsageError
from flowpoint.launch.home import Home
from flowpoint.launch.own_folders import refuse_own_folder, refuse_removed_place
from flowpoint.model.markers import OWNER_FILE


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.mark.parametrize("own", ["checkpoints", "checkpoints/words", "jobs/words", "work", "work/words/deep/in/it"])
def test_a_folder_that_flowpoint_cleans_is_refused_with_the_reason(home: Home, own: str) -> None:
    with pytest.raises(UsageError, match=r"FlowPoint keeps .*, and removes what is there by itself; name a folder"):
        refuse_own_folder(str(home.root / own), home)


def test_the_place_of_the_jobs_checkpoints_is_refused_wherever_it_is(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "disk" / "words"

    refuse_own_folder(str(place.parent), home, str(place))
    with pytest.raises(UsageError, match="the checkpoints of this job"):
        refuse_own_folder(str(place / "chk-1-a1"), home, str(place))


@pytest.mark.parametrize("inside", [".", "savepoints/mine"])
def test_the_output_folder_of_a_job_is_refused(home: Home, tmp_path: Path, inside: str) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / OWNER_FILE).write_text("{}")

    with pytest.raises(UsageError, match=r"out is the output folder of a job"):
        refuse_own_folder(str(out / inside), home)


def test_another_name_of_such_a_folder_is_no_way_around(home: Home, tmp_path: Path) -> None:
    (home.root / "checkpoints").mkdir(parents=True)
    link = tmp_path / "elsewhere"
    link.symlink_to(home.root / "checkpoints")

    with pytest.raises(UsageError, match="FlowPoint keeps checkpoints"):
        refuse_own_folder(str(link / "sub"), home)


@pytest.mark.parametrize("mine", ["backup", "home/savepoints", "home/savepoints/old", "home/mine"])
def test_any_other_folder_will_do(home: Home, tmp_path: Path, mine: str) -> None:
    refuse_own_folder(str(tmp_path / mine), home, "memory")


@pytest.mark.parametrize("storage", ["work", "work/deeper", "linked", "linked/deeper"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_checkpoints_are_not_kept_where_each_run_empties_a_folder(home: Home, storage: str, scheme: str) -> None:
    (home.root / "work").mkdir(parents=True, exist_ok=True)
    (home.root / "linked").symlink_to(home.root / "work")

    with pytest.raises(ConfigError, match="which FlowPoint empties at the end of each run; set it to a folder"):
        refuse_removed_place(f"{scheme}{home.root / storage}", home)


def test_where_the_work_folder_is_a_link_its_target_is_no_place_either(home: Home, tmp_path: Path) -> None:
    (tmp_path / "fast").mkdir()
    home.root.mkdir(parents=True, exist_ok=True)
    (home.root / "work").symlink_to(tmp_path / "fast")

    with pytest.raises(ConfigError, match="empties"):
        refuse_removed_place(str(tmp_path / "fast"), home)


@pytest.mark.parametrize("storage", ["", "memory", "elsewhere", "home/checkpoints"])
def test_checkpoints_are_kept_anywhere_else(home: Home, storage: str) -> None:
    refuse_removed_place(storage, home)
