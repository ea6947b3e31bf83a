"""Reading a storage patiently: refused reads are tried again, later and later, and given up by an error of their own."""

from __future__ import annotations

import asyncio

import pytest

from flowpoint.errors import StorageError, UnreadableError
from flowpoint.snapshot.rereading import PAUSES, PatientStorage
from tests.unit.snapshot.fakes import MemoryDisk
from tests.unit.snapshot.worlds import Coordinator

READS = frozenset({"read", "open", "list"})


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was waited for; it takes no time."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def pass_by(seconds: float) -> None:
        if seconds:
            waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pass_by)
    return waited


@pytest.fixture
async def disk(pauses: list[float]) -> MemoryDisk:
    """A disk with one object in the storage."""
    coordinator = Coordinator(MemoryDisk())
    await coordinator.storage.put_if_absent("shared/one.delta", [b"data"])
    pauses.clear()
    return coordinator.disk


def storage_on(disk: MemoryDisk) -> PatientStorage:
    return PatientStorage(Coordinator(disk).storage)


async def test_what_is_refused_once_is_read_at_the_second_try(disk: MemoryDisk, pauses: list[float]) -> None:
    storage = storage_on(disk)

    for read in (
        lambda: storage.get("shared/one.delta"),
        lambda: storage.list("shared/"),
        lambda: storage.open("shared/one.delta"),
    ):
        disk.faults.fail(1, "before", counted=READS)
        assert await read()

    assert pauses == [PAUSES[0]] * 3


async def test_what_is_refused_each_time_is_given_up_with_file_and_errno_and_is_said_not_to_be_damage(
    disk: MemoryDisk, pauses: list[float]
) -> None:
    disk.faults.fail(1, "before", persistent=True, counted=READS)

    with pytest.raises(UnreadableError) as refused:
        await storage_on(disk).get("shared/one.delta")

    said = str(refused.value)
    assert said.startswith("cannot read /storage/job/shared/one.delta: Input/output error (EIO); check the disk")
    assert "tried 6 times within 3 s" in said and "may well be whole" in said
    assert pauses == list(PAUSES)


async def test_what_is_not_there_is_said_at_once(disk: MemoryDisk, pauses: list[float]) -> None:
    with pytest.raises(FileNotFoundError):
        await storage_on(disk).get("shared/two.delta")

    assert pauses == []


async def test_writing_and_deleting_are_never_tried_again(disk: MemoryDisk, pauses: list[float]) -> None:
    disk.faults.fail(1, "before", persistent=True)
    storage = storage_on(disk)

    for change in (storage.put_if_absent("shared/two.delta", [b"data"]), storage.delete("shared/one.delta")):
        with pytest.raises(StorageError) as refused:
            await change
        assert not isinstance(refused.value, UnreadableError)

    assert pauses == []
