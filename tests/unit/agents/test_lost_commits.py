"""A folder that files were lost from, seen by savers that have it open: damage by name, before anything is appended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flowpoint.agents.files import Files
from flowpoint.agents.folder import SIZES, FolderSaver
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.opening import core_on
from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import DamagedStoreError
from tests.unit.agents.stores import config, ids, put

LOG = Path("t/t/c")


def grow(saver: CoreSaver, *names: str) -> None:
    at = saver.get_tuple(config())
    for name in names:
        put(saver, config() if at is None else at.config, id=name)
        at = saver.get_tuple(config())


def lose(folder: Path, *numbers: int) -> None:
    for number in numbers:
        (folder / LOG / f"{number:012d}").unlink()


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "/.open." not in str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with FolderSaver(tmp_path) as saver:
        grow(saver, "1", "2", "3", "4")
        put(saver, config("other"), id="1")
    return tmp_path


@pytest.fixture
def open_for_long(folder: Path) -> Iterator[CoreSaver]:
    """A saver that has read the first four commits."""
    with FolderSaver(folder) as saver:
        assert ids(saver.list(config())) == ["4", "3", "2", "1"]
        yield saver


@pytest.mark.parametrize(
    ("appended_by_others", "lost", "named"),
    [
        pytest.param((), (2,), 2, id="read long ago"),
        pytest.param((), (4,), 4, id="the last one"),
        pytest.param((), (3, 4), 3, id="the last two"),
        pytest.param((), (1, 2, 3, 4), 1, id="all"),
        pytest.param(("5", "6"), (5,), 5, id="the next one"),
        pytest.param(("5", "6", "7", "8"), (5, 6, 7), 5, id="the next three"),
        pytest.param(("5", "6", "7"), (6,), 6, id="one that was not read yet"),
        pytest.param(("5",), (2,), 2, id="an old one, while others append"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda saver: put(saver, config(id="4"), {"a": "x" * 70_000}, id="mine"), id="put"),
        pytest.param(lambda saver: saver.get_tuple(config()), id="get_tuple"),
        pytest.param(lambda saver: list(saver.list(config())), id="list"),
        pytest.param(lambda saver: saver.prune(["t"]), id="prune"),
    ],
)
def test_who_has_the_store_open_is_told_of_lost_commits_and_writes_nothing(
    use: Callable[[CoreSaver], object],
    appended_by_others: tuple[str, ...],
    lost: tuple[int, ...],
    named: int,
    folder: Path,
    open_for_long: CoreSaver,
) -> None:
    with FolderSaver(folder) as other:
        grow(other, *appended_by_others)
    lose(folder, *lost)
    left = names_in(folder)

    for _ in range(2):
        with pytest.raises(DamagedStoreError, match=f"'t'.* commit {named} is missing"):
            use(open_for_long)

    assert names_in(folder) == left
    assert ids(open_for_long.list(config("other"))) == ["1"]
    open_for_long.delete_thread("t")
    put(open_for_long, config(), id="anew")
    with FolderSaver(folder) as again:
        assert ids(again.list(config())) == ["anew"]


def test_a_reader_beside_it_is_told_too(folder: Path) -> None:
    with FolderSaver(folder, read_only=True) as reader:
        assert reader.get_tuple(config()) is not None
        lose(folder, 2)
        with pytest.raises(DamagedStoreError, match="'t'.* commit 2 is missing"):
            reader.get_tuple(config())


def test_a_commit_that_a_pruned_thread_kept_is_missed_and_one_that_went_is_not(
    folder: Path, open_for_long: CoreSaver
) -> None:
    open_for_long.prune(["t"])
    grow(open_for_long, "5")
    with FolderSaver(folder) as other:
        grow(other, "6")
        assert ids(open_for_long.list(config())) == ["6", "5", "4"]
    lose(folder, 4)
    with pytest.raises(DamagedStoreError, match="'t'.* commit 4 is missing"):
        open_for_long.get_tuple(config())


def test_the_cut_that_says_what_was_removed_is_missed(folder: Path, open_for_long: CoreSaver) -> None:
    open_for_long.prune(["t"])
    grow(open_for_long, "5")
    lose(folder, 5)  # the cut, which has a number of its own
    left = names_in(folder)
    with pytest.raises(DamagedStoreError, match="'t'"):
        put(open_for_long, config(id="5"), id="mine")
    assert names_in(folder) == left


def test_a_thread_whose_lost_file_is_brought_back_is_read_again(folder: Path, open_for_long: CoreSaver) -> None:
    lost = folder / LOG / f"{2:012d}"
    copy = lost.read_bytes()
    lost.unlink()
    with pytest.raises(DamagedStoreError):
        open_for_long.get_tuple(config())
    lost.write_bytes(copy)

    grow(open_for_long, "5")
    assert ids(open_for_long.list(config())) == ["5", "4", "3", "2", "1"]


class LateListing(Files):
    """A listing that has a name which came meanwhile, and not the one that came before it, as file systems may do."""

    def __init__(self) -> None:
        self.left_out = 0

    def list(self, path: str) -> list[os.DirEntry[str]]:
        found = super().list(path)
        left_out, self.left_out = (self.left_out, 0) if path.endswith(str(LOG)) else (0, self.left_out)
        return [entry for entry in found if entry.name != f"{left_out:012d}"]


@pytest.mark.parametrize("has_read", [False, True], ids=["replayed", "followed"])
def test_a_listing_that_skips_a_commit_which_comes_meanwhile_is_no_damage(has_read: bool, folder: Path) -> None:
    files = LateListing()
    saver = CoreSaver(core_on(FolderKv(folder, files=files), SIZES, alone=False))
    with saver, FolderSaver(folder) as other:
        if has_read:
            saver.get_tuple(config())
        grow(other, "5", "6")
        files.left_out = 5
        assert ids(saver.list(config())) == ["6", "5", "4", "3", "2", "1"]
        assert files.left_out == 0


def test_who_appends_alone_never_lists_the_log_again(folder: Path) -> None:
    class Counting(Files):
        listed = 0

        def list(self, path: str) -> list[os.DirEntry[str]]:
            self.listed += path.endswith(str(LOG))
            return super().list(path)

    files = Counting()
    with CoreSaver(core_on(FolderKv(folder, files=files), SIZES, alone=False)) as saver:
        grow(saver, "5")
        files.listed = 0
        grow(saver, "6", "7", "8")
        assert files.listed == 0
