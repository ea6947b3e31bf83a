"""What every world's disk must do. See `worlds` for how to add a world."""

from __future__ import annotations

import pytest

from flowpoint.host.base import Disk, Host
from tests.conformance.worlds import WORLDS, Check, World, checks_of


async def write(disk: Disk, path: str, data: bytes) -> None:
    file = await disk.create(path)
    await file.write(data)
    await file.sync()
    await file.close()


async def check_what_was_written_is_read_back(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    file = await a.disk.create(f"{folder}/f")
    for part in b"one", b"", b"two", b"x" * 1_000_000:
        await file.write(part)
    await file.sync()
    await file.close()

    assert await a.disk.read(f"{folder}/f") == b"onetwo" + b"x" * 1_000_000


async def check_a_part_of_a_file_can_be_read(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/f", b"0123456789")

    assert await a.disk.read(f"{folder}/f", 3) == b"3456789"
    assert await a.disk.read(f"{folder}/f", 3, 4) == b"3456"
    assert await a.disk.read(f"{folder}/f", 8, 100) == b"89"
    assert await a.disk.read(f"{folder}/f", 20, 5) == b""
    assert await a.disk.read(f"{folder}/f", 0, 0) == b""


async def check_a_folder_is_not_read_as_a_file(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)

    with pytest.raises(IsADirectoryError):
        await a.disk.read(folder)
    with pytest.raises(IsADirectoryError):
        await a.disk.open(folder)


async def check_reading_a_missing_file_fails(a: Host, b: Host, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        await a.disk.read(f"{folder}/none")


async def check_creating_a_file_that_exists_fails_and_leaves_it(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/f", b"first")

    with pytest.raises(FileExistsError):
        await a.disk.create(f"{folder}/f")

    assert await a.disk.read(f"{folder}/f") == b"first"


async def check_creating_in_a_missing_folder_fails(a: Host, b: Host, folder: str) -> None:
    with pytest.raises(FileNotFoundError):
        await a.disk.create(f"{folder}/none/f")


async def check_link_gives_a_second_name_that_outlives_the_first(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/temp", b"data")

    await a.disk.link(f"{folder}/temp", f"{folder}/final")
    assert await a.disk.remove(f"{folder}/temp")

    assert await a.disk.read(f"{folder}/final") == b"data"
    assert await a.disk.list(folder) == ["final"]


async def check_link_to_a_taken_name_fails_and_changes_nothing(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/mine", b"mine")
    await write(a.disk, f"{folder}/theirs", b"theirs")

    with pytest.raises(FileExistsError):
        await a.disk.link(f"{folder}/mine", f"{folder}/theirs")

    assert await a.disk.read(f"{folder}/theirs") == b"theirs"


async def check_link_of_a_missing_file_fails(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)

    with pytest.raises(FileNotFoundError):
        await a.disk.link(f"{folder}/none", f"{folder}/final")


async def check_rename_replaces_the_target(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/new", b"new")
    await write(a.disk, f"{folder}/old", b"old")

    await a.disk.rename(f"{folder}/new", f"{folder}/old")

    assert await a.disk.list(folder) == ["old"]
    assert await a.disk.read(f"{folder}/old") == b"new"


async def check_rename_of_a_missing_file_fails(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)

    with pytest.raises(FileNotFoundError):
        await a.disk.rename(f"{folder}/none", f"{folder}/target")


async def check_remove_says_whether_the_file_was_there(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/f", b"")

    assert await a.disk.remove(f"{folder}/f") is True
    assert await a.disk.remove(f"{folder}/f") is False


async def check_list_is_sorted_and_empty_for_a_missing_folder(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(f"{folder}/sub")
    for name in "c", "a", "b":
        await write(a.disk, f"{folder}/{name}", b"")

    assert await a.disk.list(folder) == ["a", "b", "c", "sub"]
    assert await a.disk.list(f"{folder}/none") == []


async def check_stat_tells_size_and_kind(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/f", b"12345")

    file, directory = await a.disk.stat(f"{folder}/f"), await a.disk.stat(folder)

    assert file is not None and (file.size, file.is_dir) == (5, False)
    assert directory is not None and directory.is_dir
    assert await a.disk.stat(f"{folder}/none") is None
    assert await a.disk.stat(f"{folder}/f/below") is None


async def check_make_dirs_makes_parents_and_may_be_repeated(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(f"{folder}/x/y")
    await a.disk.make_dirs(f"{folder}/x/y")
    await a.disk.make_dirs(f"{folder}/x/z")
    await a.disk.sync_dir(f"{folder}/x")

    assert await a.disk.list(f"{folder}/x") == ["y", "z"]


async def check_make_dirs_does_not_replace_a_file(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    await write(a.disk, f"{folder}/f", b"data")

    with pytest.raises(FileExistsError):
        await a.disk.make_dirs(f"{folder}/f")


async def check_remove_tree_removes_all_and_may_be_repeated(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(f"{folder}/x/y")
    await write(a.disk, f"{folder}/x/y/f", b"data")

    await a.disk.remove_tree(f"{folder}/x")
    await a.disk.remove_tree(f"{folder}/x")

    assert await a.disk.list(folder) == []


async def check_closing_a_file_twice_is_harmless(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    file = await a.disk.create(f"{folder}/f")

    await file.close()
    await file.close()

    assert await a.disk.read(f"{folder}/f") == b""


async def check_writing_to_a_closed_file_fails(a: Host, b: Host, folder: str) -> None:
    await a.disk.make_dirs(folder)
    file = await a.disk.create(f"{folder}/f")
    await file.close()

    with pytest.raises(OSError):
        await file.write(b"late")


@pytest.mark.parametrize("check", checks_of(globals()), ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_disk(world: World, check: Check) -> None:
    world.run(check)
