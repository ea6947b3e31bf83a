"""A folder as storage, on a disk that fails and loses power at any call: an object is whole or it is not there."""

from __future__ import annotations

import errno

import pytest

from flowpoint.errors import OutcomeUnknown, StorageError, StorageFull
from flowpoint.snapshot.storage import FolderStorage
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk, PowerLoss
from tests.unit.snapshot.faults import Fault, Interleaver, in_every_order, with_every_fault

NAME = "shared/counts-0-a1-1.delta"
PATH = f"/storage/{NAME}"
DATA = b"abcdef"


def storage_on(disk: MemoryDisk, host: str = "h") -> FolderStorage:
    return FolderStorage(disk, FakeHost(disk, host).new_id, "/storage")


@pytest.mark.parametrize("adopting", [False, True], ids=["put", "adopt"])
async def test_whatever_fails_the_object_is_whole_or_not_there(adopting: bool) -> None:
    async def scenario(fault: Fault) -> MemoryDisk:
        disk = MemoryDisk()
        storage = storage_on(disk)
        await disk.make_dirs("/work")
        file = await disk.create("/work/table.sst")
        await file.write(DATA)
        await file.sync()
        await disk.sync_dir("/work")
        fault.arm(disk)
        outcome = ""
        try:
            await (
                storage.adopt("/work/table.sst", NAME) if adopting else storage.put_if_absent(NAME, [b"abc", b"def"])
            )
            outcome = "created"
        except OutcomeUnknown:
            outcome = "unknown"
        except StorageError:
            outcome = "refused"
        except PowerLoss:
            outcome = "lost power"
        seen = disk.files()
        assert seen.get(PATH) in (None, DATA)
        disk.lose_power()
        durable = disk.files()
        assert durable.get(PATH) in (None, DATA)
        if outcome == "created":
            assert durable[PATH] == DATA
        if outcome == "refused" and fault.mode == "before":
            assert PATH not in seen and PATH not in durable
        # Whatever was left behind, it is not listed, and the same name can be written or is there already.
        again = storage_on(disk, "again")
        assert await again.list("") == ([NAME] if PATH in durable else [])
        assert await again.put_if_absent(NAME, [DATA]) is (PATH not in durable)
        return disk

    assert await with_every_fault(scenario) > 30


async def test_a_full_disk_is_said_so() -> None:
    for error in (errno.ENOSPC, errno.EDQUOT):
        disk = MemoryDisk()
        disk.faults.fail(1, "before", error=error, counted=frozenset({"write"}))
        with pytest.raises(StorageFull, match=r"cannot write /storage/shared/.*the disk is full; free some space"):
            await storage_on(disk).put_if_absent(NAME, [DATA])
        assert disk.files() == {}


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("create", errno.EACCES, "the right to write"),
        ("write", errno.EROFS, "the right to write"),
        ("sync", errno.EIO, "check the disk"),
        ("link", errno.EIO, "cannot publish"),
        ("make_dirs", errno.EACCES, "cannot make the folder"),
    ],
)
async def test_a_refusal_names_the_file_and_what_to_do(kind: str, error: int, says: str) -> None:
    disk = MemoryDisk()
    disk.faults.fail(1, "before", error=error, counted=frozenset({kind}))
    with pytest.raises(StorageError, match=says) as caught:
        await storage_on(disk).put_if_absent(NAME, [DATA])
    assert "/storage/shared" in str(caught.value)


async def test_a_failed_sync_of_the_folder_is_an_unknown_outcome() -> None:
    disk = MemoryDisk()
    storage = storage_on(disk)
    await storage.put_if_absent("shared/first-0-a1-1.delta", [DATA])
    disk.faults.fail(1, "before", counted=frozenset({"sync_dir"}))
    with pytest.raises(OutcomeUnknown, match="cannot tell whether /storage/shared/counts-0-a1-1.delta is durable"):
        await storage.put_if_absent(NAME, [DATA])


@pytest.mark.parametrize("adopting", [False, True], ids=["put", "adopt"])
async def test_what_exists_already_is_durable_when_that_is_said(adopting: bool) -> None:
    disk = MemoryDisk()
    await storage_on(disk).put_if_absent("work/table.sst", [DATA])
    disk.faults.fail(1, "crash after", counted=frozenset({"link"}))
    with pytest.raises(PowerLoss):
        await storage_on(disk).put_if_absent(NAME, [DATA])
    disk.faults.clear()
    # The process died, not the machine: the next one sees a name that no power loss would leave.
    storage = storage_on(disk, "next")
    again = storage.adopt("/storage/work/table.sst", NAME) if adopting else storage.put_if_absent(NAME, [DATA])
    assert not await again
    disk.lose_power()
    assert disk.files()[PATH] == DATA


async def test_a_folder_that_a_dying_process_made_is_made_durable_by_the_next() -> None:
    disk = MemoryDisk()
    await disk.make_dirs("/storage")
    disk.faults.fail(1, "crash before", counted=frozenset({"make_dirs"}))
    with pytest.raises(PowerLoss):
        await storage_on(disk).put_if_absent(NAME, [DATA])
    disk.faults.clear()
    assert "/storage/shared" in disk.folders
    assert await storage_on(disk, "next").put_if_absent(NAME, [DATA])
    disk.lose_power()
    assert disk.files() == {PATH: DATA}


async def test_leftovers_are_shown_only_when_asked_for() -> None:
    disk = MemoryDisk()
    disk.faults.fail(1, "crash before", counted=frozenset({"sync"}))
    with pytest.raises(PowerLoss):
        await storage_on(disk).put_if_absent(NAME, [DATA])
    disk.faults.clear()
    await disk.make_dirs("/storage/chk-1-a1")
    storage = storage_on(disk, "next")
    assert await storage.list("") == []
    left = await storage.list("", unfinished=True)
    assert len(left) == 2 and left[0] == "chk-1-a1/" and left[1].startswith("shared/.counts-0-a1-1.delta.")
    assert await storage.list("commits/", unfinished=True) == []
    assert await storage.delete(*left)
    assert disk.files() == {} and await storage.list("chk-", unfinished=True) == []


async def test_a_put_under_way_is_no_leftover() -> None:
    disk = MemoryDisk()
    storage = storage_on(disk)
    seen: list[list[str]] = []

    class Chunks:
        done = False

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            if self.done:
                raise StopAsyncIteration
            self.done = True
            seen.append(await storage.list("", unfinished=True))
            seen.append(await storage_on(disk, "other").list("", unfinished=True))
            return DATA

    await storage.put_if_absent(NAME, Chunks())
    assert seen[0] == [] and len(seen[1]) == 1


async def test_a_user_error_in_the_chunks_passes_and_leaves_nothing() -> None:
    def chunks() -> object:
        yield DATA
        raise KeyError("mine")

    disk = MemoryDisk()
    with pytest.raises(KeyError):
        await storage_on(disk).put_if_absent(NAME, chunks())
    assert disk.files() == {}


async def test_every_doomed_object_is_tried_and_the_failure_named() -> None:
    disk = MemoryDisk()
    storage = storage_on(disk)
    for name in ("shared/a.x", "shared/b.x", "shared/c.x"):
        await storage.put_if_absent(name, [DATA])
    disk.faults.fail(2, "before", counted=frozenset({"remove"}))
    with pytest.raises(StorageError, match="cannot remove /storage/shared/b.x"):
        await storage.delete("shared/a.x", "shared/b.x", "shared/c.x")
    assert await storage.list("") == ["shared/b.x"]


async def test_a_deletion_is_durable_also_when_its_sync_failed_at_first() -> None:
    disk = MemoryDisk()
    storage = storage_on(disk)
    await storage.put_if_absent(NAME, [DATA])
    disk.faults.fail(1, "before", counted=frozenset({"sync_dir"}))
    with pytest.raises(StorageError, match="make durable what was removed"):
        await storage.delete(NAME)
    assert not await storage.delete(NAME)
    disk.lose_power()
    assert disk.files() == {}


async def test_two_writers_in_every_order_have_one_winner() -> None:
    async def scenario(interleaver: Interleaver) -> None:
        disk = MemoryDisk()
        one, other = storage_on(disk, "one"), storage_on(disk, "other")
        disk.gate = interleaver.gate(frozenset({"create", "sync", "link", "remove", "sync_dir"}))
        results = await interleaver.run(one.put_if_absent(NAME, [b"one"]), other.put_if_absent(NAME, [b"other"]))
        assert sorted(results) == [False, True]
        assert disk.files() == {PATH: b"one" if results[0] else b"other"}
        assert disk.files(durable=True) == disk.files()

    assert await in_every_order(scenario) > 500
