"""A full disk is waited for with records under way too, as long as anybody wants their checkpoint."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from flowpoint.errors import CheckpointFailed, StorageError, StorageFull
from flowpoint.model.elements import Batch
from flowpoint.model.plan import SubtaskId
from flowpoint.runtime.channel_state import Recording
from flowpoint.runtime.state_files import StateFiles
from tests.unit.runtime.fakes import CODEC


class FullStorage:
    """Has no room for the first so many tries; `on_try` is called at each."""

    def __init__(self, tries, on_try=lambda: None):
        self.left = tries
        self.on_try = on_try
        self.written = []

    async def put_if_absent(self, name, slices):
        data = b"".join(slices)
        if self.left:
            self.left -= 1
            self.on_try()
            raise StorageFull("the disk is full; free some space there")
        self.written.append((name, data))
        return True


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr("flowpoint.snapshot.writer._FULL_DISK_PAUSE", 0)


def recording():
    made = Recording(7, CODEC)
    made.add(Batch([1, 2, 3]), 0, None)
    made.finish()
    return made


def writer(storage):
    reports = []
    around = SimpleNamespace(storage=storage, report=reports.append, worker=0)
    files = StateFiles(SimpleNamespace(attempt=3, lineage="line"), around)
    return files.channels("op", SubtaskId(1, 0), (0, 127)), reports


def test_records_under_way_wait_for_room_and_one_warning_says_so():
    storage = FullStorage(3)
    write, reports = writer(storage)

    uid, state = asyncio.run(write(recording()))

    assert uid == "op"
    assert [file.path for file in state.channels] == [name for name, _ in storage.written]
    assert state.channels[0].bytes == len(storage.written[0][1])
    assert len(reports) == 1
    assert "waits for room" in reports[0].text


def test_records_of_a_checkpoint_that_was_given_up_wait_no_longer():
    made = recording()
    storage = FullStorage(1000, on_try=made.discard)
    write, _ = writer(storage)

    with pytest.raises(CheckpointFailed):
        asyncio.run(write(made))

    assert storage.left == 999
    assert not storage.written


class OneFileStorage:
    """Takes one file and no other."""

    def __init__(self):
        self.names = []

    async def put_if_absent(self, name, slices):
        if self.names:
            raise StorageError("the disk says no")
        self.names.append(name)
        return True

    async def delete(self, *names):
        self.names = [name for name in self.names if name not in names]
        return True


def test_of_records_under_way_that_were_written_in_part_nothing_is_left():
    made = Recording(7, CODEC)
    made.add(Batch([1]), 0, SimpleNamespace(of=lambda values: [5] * len(values)))
    made.add(Batch([2]), 0, None)
    made.finish()
    storage = OneFileStorage()
    write, _ = writer(storage)

    with pytest.raises(StorageError, match="the disk says no"):
        asyncio.run(write(made))

    assert storage.names == []
