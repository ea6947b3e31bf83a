"""State goes to files in slices and comes back proved."""

from __future__ import annotations

import asyncio
import errno

import pytest
import xxhash

from flowpoint.errors import SnapshotError, StorageError, StorageFull
from flowpoint.model.manifest import StateFile
from flowpoint.snapshot import names
from flowpoint.snapshot.reader import load
from flowpoint.snapshot.storage import SLICE_BYTES
from flowpoint.snapshot.writer import write_state
from tests.unit.snapshot.fakes import MemoryDisk
from tests.unit.snapshot.worlds import ROOT, Coordinator, Frozen

NAME = names.state_file("counts", 0, 1, 1, "delta")


@pytest.mark.parametrize(("full", "kind"), [(False, "delta"), (True, "base")])
async def test_a_state_file_is_what_was_written(full: bool, kind: str) -> None:
    storage = Coordinator(MemoryDisk()).storage
    slices = [b"abc", b"", b"defgh"]
    files = await write_state(storage, Frozen(slices, entries=7, full=full), NAME, groups=(3, 9))
    assert files == [StateFile(NAME, kind, 8, xxhash.xxh3_64_hexdigest(b"abcdefgh"), 7, (3, 9))]
    assert await load(storage, files) == [(files[0], b"abcdefgh")]


async def test_a_big_state_file_is_read_in_slices() -> None:
    coordinator = Coordinator(MemoryDisk())
    data = bytes(range(256)) * (SLICE_BYTES // 100)
    files = await write_state(coordinator.storage, Frozen([data, data]), NAME)
    assert (await load(coordinator.storage, files))[0][1] == data * 2


async def test_nothing_to_write_becomes_no_file() -> None:
    disk = MemoryDisk()
    assert await write_state(Coordinator(disk).storage, Frozen(entries=0), NAME) == []
    assert disk.files() == {}


async def test_native_files_are_taken_over_with_their_names() -> None:
    coordinator = Coordinator(MemoryDisk())
    disk = coordinator.disk
    await disk.make_dirs("/work")
    for name in ("000001.sst", "CURRENT"):
        file = await disk.create(f"/work/{name}")
        await file.write(name.encode())
    frozen = Frozen([b"rest"], entries=1, full=True, native=["/work/000001.sst", "/work/CURRENT"])
    files = await write_state(coordinator.storage, frozen, NAME)
    assert [(file.path, file.kind, file.extra) for file in files] == [
        (f"{NAME}.0", "native", {"file": "000001.sst"}),
        (f"{NAME}.1", "native", {"file": "CURRENT"}),
        (NAME, "base", {}),
    ]
    await disk.remove_tree("/work")
    assert [data for _, data in await load(coordinator.storage, files)] == [b"000001.sst", b"CURRENT", b"rest"]


async def test_a_state_file_is_durable_when_it_is_written() -> None:
    disk = MemoryDisk()
    files = await write_state(Coordinator(disk).storage, Frozen([b"abc"]), NAME)
    disk.lose_power()
    assert (await load(Coordinator(disk, "next").storage, files))[0][1] == b"abc"


async def test_a_name_is_written_once() -> None:
    storage = Coordinator(MemoryDisk()).storage
    await write_state(storage, Frozen(), NAME)
    with pytest.raises(StorageError, match="exists already; each write needs a new sequence number"):
        await write_state(storage, Frozen(), NAME)


async def test_a_full_disk_is_an_error_at_once_unless_somebody_listens() -> None:
    disk = MemoryDisk()
    disk.faults.fail(1, "before", error=errno.ENOSPC, counted=frozenset({"write"}))
    with pytest.raises(StorageFull):
        await write_state(Coordinator(disk).storage, Frozen(), NAME)


async def test_a_full_disk_is_waited_for_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowpoint.snapshot.writer._FULL_DISK_PAUSE", 0)
    disk = MemoryDisk()
    said: list[str] = []

    def on_full(message: str) -> None:
        said.append(message)
        if len(said) == 3:
            disk.faults.clear()

    disk.faults.fail(2, "before", error=errno.ENOSPC, persistent=True, counted=frozenset({"write"}))
    storage = Coordinator(disk).storage
    files = await write_state(storage, Frozen([b"abc", b"def"]), NAME, on_full=on_full)
    assert len(said) == 3 and all("the disk is full" in message for message in said)
    assert (await load(storage, files))[0][1] == b"abcdef"
    assert list(disk.files()) == [f"{ROOT}/{NAME}"]


async def test_waiting_for_a_full_disk_ends_with_its_cancellation() -> None:
    disk = MemoryDisk()
    disk.faults.fail(1, "before", error=errno.ENOSPC, persistent=True, counted=frozenset({"write"}))
    waiting = asyncio.Event()
    write = asyncio.create_task(
        write_state(Coordinator(disk).storage, Frozen(), NAME, on_full=lambda message: waiting.set())
    )
    await waiting.wait()
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    assert disk.files() == {}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"abcd", "4 bytes instead of 3"),
        (b"ab", "2 bytes instead of 3"),
        (b"abd", "its checksum is"),
        (None, "missing"),
    ],
)
async def test_a_damaged_state_file_is_named(data: bytes | None, says: str) -> None:
    disk = MemoryDisk()
    storage = Coordinator(disk).storage
    files = await write_state(storage, Frozen([b"abc"]), NAME)
    shared = disk.folders[f"{ROOT}/shared"].seen
    if data is None:
        shared.clear()
    else:
        next(iter(shared.values())).data = data
    with pytest.raises(SnapshotError, match=says) as caught:
        await load(storage, files)
    assert NAME in str(caught.value)


async def test_files_come_in_the_order_in_which_they_are_asked_for() -> None:
    storage = Coordinator(MemoryDisk()).storage
    files = []
    for sequence in range(3):
        name = names.state_file("counts", 0, 1, sequence, "delta")
        files += await write_state(storage, Frozen([f"{sequence}".encode()]), name)
    assert [data for _, data in await load(storage, [files[1], files[2], files[0]])] == [b"1", b"2", b"0"]
