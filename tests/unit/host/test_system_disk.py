"""What the real disk does beyond the conformance suite: permissions, full disks, failed syncs, cancelled callers."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flowpoint.host import disk as disk_of_the_system
from flowpoint.host.disk import SystemDisk, make_durable, open_existing
from tests.unit.host.full_disk import file_size_limit


@pytest.fixture
def disk() -> Iterator[SystemDisk]:
    with ThreadPoolExecutor(2) as executor:
        yield SystemDisk(executor)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_new_files_and_folders_are_private(disk: SystemDisk, tmp_path: Path) -> None:
    await disk.make_dirs(str(tmp_path / "a" / "b"))
    await (await disk.create(str(tmp_path / "a" / "b" / "f"))).close()

    assert mode_of(tmp_path / "a") == mode_of(tmp_path / "a" / "b") == 0o700
    assert mode_of(tmp_path / "a" / "b" / "f") == 0o600


async def test_what_people_read_follows_their_umask(disk: SystemDisk, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        await disk.make_dirs(str(tmp_path / "out"), private=False)
        await (await disk.create(str(tmp_path / "out" / "part"), private=False)).close()
    finally:
        os.umask(before)

    assert (mode_of(tmp_path / "out"), mode_of(tmp_path / "out" / "part")) == (0o755, 0o644)


@pytest.mark.parametrize("how", ["read", "open"])
async def test_a_pipe_in_the_place_of_a_file_is_refused_and_keeps_nobody_waiting(
    disk: SystemDisk, tmp_path: Path, how: str
) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="not a regular file"):
        async with asyncio.timeout(5):
            await getattr(disk, how)(str(tmp_path / "pipe"))


async def test_a_write_that_fails_half_way_is_taken_back_and_can_be_tried_again(
    disk: SystemDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "f")
    file = await disk.create(path)
    await file.write(b"a" * 3000)

    with file_size_limit(4096), pytest.raises(OSError) as failure:
        await file.write(b"b" * 3000)
    assert failure.value.errno == errno.EFBIG
    assert os.path.getsize(path) == 3000

    await file.write(b"b" * 3000)
    await file.sync()
    await file.close()
    assert await disk.read(path) == b"a" * 3000 + b"b" * 3000


async def test_a_file_whose_sync_failed_is_lost_for_good(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await disk.create(str(tmp_path / "f"))
    await file.write(b"data")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("flowpoint.host.disk.make_durable", fail)
        with pytest.raises(OSError, match="Input/output"):
            await file.sync()

    with pytest.raises(OSError, match="lost since a sync failed"):
        await file.sync()
    with pytest.raises(OSError, match="lost since a sync failed"):
        await file.write(b"more")
    await file.close()


async def test_a_cancelled_write_still_ends_before_the_file_is_closed(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = await disk.create(path)
    data = os.urandom(8_000_000)

    writing = asyncio.create_task(file.write(data))
    await asyncio.sleep(0)
    writing.cancel()
    await file.close()

    assert await disk.read(path) == data
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_a_cancelled_write_does_not_move_what_is_written_next(disk: SystemDisk, tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = await disk.create(path)

    writing = asyncio.create_task(file.write(b"a" * 1_000_000))
    await asyncio.sleep(0)
    writing.cancel()
    await file.write(b"b")
    await file.sync()
    await file.close()

    assert await disk.read(path) == b"a" * 1_000_000 + b"b"


async def test_while_a_disk_is_slow_the_loop_and_other_files_go_on(
    disk: SystemDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Event(), threading.Event()

    def sync(descriptor: int) -> None:
        begun.set()
        assert free.wait(10), "the loop was stopped by a slow disk"

    monkeypatch.setattr("flowpoint.host.disk.make_durable", sync)
    slow, other = await disk.create(str(tmp_path / "slow")), await disk.create(str(tmp_path / "other"))

    syncing = asyncio.create_task(slow.sync())
    while not begun.is_set():
        await asyncio.sleep(0)
    await other.write(b"meanwhile")
    is_waiting = not syncing.done()
    free.set()
    await syncing

    assert is_waiting
    assert await disk.read(str(tmp_path / "other")) == b"meanwhile"
    await slow.close()
    await other.close()


async def test_a_file_that_was_opened_for_nobody_any_more_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"0123456789")
    may_open, opened = threading.Event(), []

    def open_late(path: str) -> int:
        may_open.wait()
        opened.append(open_existing(path))
        return opened[-1]

    monkeypatch.setattr(disk_of_the_system, "open_existing", open_late)
    with ThreadPoolExecutor(1) as executor:
        opening = asyncio.create_task(SystemDisk(executor).open(str(path)))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        may_open.set()
        await asyncio.get_running_loop().run_in_executor(executor, lambda: None)
        await asyncio.sleep(0)

    assert opening.cancelled()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(*opened)


async def test_an_open_file_stays_readable_when_its_name_is_removed(disk: SystemDisk, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"0123456789")
    file = await disk.open(str(path))

    path.unlink()

    assert file.read_at(3, 4) == b"3456"
    assert file.read_at(8, 10) == b"89"
    file.close()
    file.close()


async def test_a_file_that_is_not_there_cannot_be_opened(disk: SystemDisk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await disk.open(str(tmp_path / "nothing"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_on_macos_a_drive_that_fails_is_not_asked_a_second_time_and_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(_descriptor: int, _command: int) -> None:
        raise OSError(number, "the drive failed")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fail)

    with open(tmp_path / "file", "wb") as file, pytest.raises(OSError, match="the drive failed"):
        make_durable(file.fileno())


def test_on_macos_a_file_system_without_full_sync_is_synced_as_well_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int, _command: int) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    synced = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", fail)
    monkeypatch.setattr(os, "fsync", synced.append)

    make_durable(7)

    assert synced == [7]
