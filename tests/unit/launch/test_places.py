"""What a person is told of where the checkpoints are, and of those of the run before."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowpoint.errors import ConfigError, UsageError
from flowpoint.host.system import SystemHost
from flowpoint.launch.places import check_place, check_target, open_place, place_notes
from flowpoint.model.settings import CheckpointSettings


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ("/folder/job", "", []),
        ("/folder/job", "/folder/job", []),
        ("memory", "", ["in the memory of this process"]),
        ("memory", "memory", ["in the memory of this process", "are gone with it"]),
        ("/folder/job", "memory", ["are gone with it"]),
        ("memory", "/folder/job", ["in the memory of this process", "in /folder/job and are not continued from"]),
    ],
)
def test_what_does_not_outlive_a_run_is_said(now: str, before: str, said: list[str]) -> None:
    notes = place_notes(now, before)

    assert len(notes) == len(said)
    for part, note in zip(said, notes, strict=True):
        assert part in note


@pytest.mark.parametrize(
    ("storage", "name", "path"),
    [
        ("", "/home/checkpoints/counts", "/home/checkpoints/counts/chk-1-a1"),
        ("/data", "/data/counts", "/data/counts/chk-1-a1"),
        ("file:///data", "/data/counts", "/data/counts/chk-1-a1"),
        ("memory", "memory", ""),
    ],
)
async def test_the_setting_names_the_place(storage: str, name: str, path: str) -> None:
    host = SystemHost("test", "/nowhere")

    place = open_place(host, CheckpointSettings(storage=storage), "counts", "/home/checkpoints/counts")

    assert (place.name, place.path("chk-1-a1")) == (name, path)
    await host.close()


def test_a_folder_that_cannot_be_made_is_refused_and_memory_needs_none() -> None:
    check_place("memory")
    check_place("")
    with pytest.raises(ConfigError, match="checkpoint.storage = '/proc/nowhere'"):
        check_place("/proc/nowhere")


@pytest.mark.parametrize("folder", ["/proc/savepoints", f"/tmp/{'x' * 300}"])
def test_a_folder_for_savepoints_in_which_nothing_can_be_written_is_refused(folder: str) -> None:
    with pytest.raises(UsageError, match=f"cannot make a savepoint in {folder}: nothing can be written there"):
        check_target(folder)


@pytest.mark.parametrize("below", ["", "/below", "/far/below"])
def test_a_savepoint_is_not_begun_where_a_file_is_in_the_way(tmp_path: Path, below: str) -> None:
    (tmp_path / "notes.txt").touch()

    with pytest.raises(UsageError, match=r"notes.txt is not a folder; name one, or a path that is free"):
        check_target(f"{tmp_path}/notes.txt{below}")


def test_a_folder_for_savepoints_is_made_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    check_target(str(tmp_path / "new" / "savepoints"))

    assert list((tmp_path / "new" / "savepoints").iterdir()) == []
