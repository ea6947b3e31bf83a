"""Savepoints as folders: found by their path, published last, removed without a trace or not at all."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from flowpoint.errors import NotFoundError, SnapshotError, StorageError
from flowpoint.host.base import FileStat
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot import names
from flowpoint.snapshot.savepoints import discard_savepoint, find_snapshot, publish_savepoint, remove_claimed
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.snapshot.writer import write_state
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk
from tests.unit.snapshot.worlds import ROOT, UID, Coordinator, Frozen, manifest_of

FOLDER = "/backup/savepoint-job-7"


class Savepoint:
    """A savepoint that one attempt makes."""

    def __init__(self, disk: MemoryDisk, attempt: int = 2) -> None:
        self.host = FakeHost(disk, f"w{attempt}")
        self.storage = FolderStorage(disk, self.host.new_id, FOLDER)
        self.attempt = attempt

    async def write(self) -> Manifest:
        name = names.savepoint_state(UID, 0, "L1", self.attempt, 0)
        files = await write_state(self.storage, Frozen(full=True), name, groups=(0, 127))
        return replace(manifest_of(7, self.attempt, "L1", files), kind="savepoint")

    async def discard(self) -> None:
        await discard_savepoint(self.host.disk, self.host.new_id, FOLDER, "L1", self.attempt)

    def found(self, path: str = FOLDER):
        return find_snapshot(self.host.disk, self.host.new_id, path)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.mark.parametrize("path", [FOLDER, f"{FOLDER}/", f"{FOLDER}/manifest.json"])
async def test_a_savepoint_is_found_once_it_is_published(disk: MemoryDisk, path: str) -> None:
    savepoint = Savepoint(disk)
    manifest = await savepoint.write()
    with pytest.raises(NotFoundError, match="there is no snapshot at"):
        await savepoint.found(path)

    await publish_savepoint(savepoint.storage, manifest)

    found = await savepoint.found(path)
    assert (found.path, found.directory, found.manifest) == (FOLDER, "", manifest)
    assert await disk.stat(found.local_path(manifest.files()[0].path)) is not None


async def test_a_checkpoint_is_found_in_the_storage_of_its_job(disk: MemoryDisk) -> None:
    job = Coordinator(disk)
    await job.begin()
    entry = await job.complete(3)

    found = await find_snapshot(disk, FakeHost(disk, "x").new_id, f"{ROOT}/{entry.directory}")

    assert (found.storage.root, found.directory, found.manifest.id) == (ROOT, entry.directory, 3)


async def test_a_second_savepoint_in_the_same_folder_is_refused(disk: MemoryDisk) -> None:
    first, second = Savepoint(disk, 2), Savepoint(disk, 3)
    await publish_savepoint(first.storage, await first.write())

    with pytest.raises(SnapshotError, match="another manifest is there already"):
        await publish_savepoint(second.storage, await second.write())


def strays(lineage: str = "L1") -> list[str]:
    """Files that no manifest names: output that was committed meanwhile, and what a try before this one has left."""
    return [names.savepoint_output("out", 0, lineage, attempt) + ".1" for attempt in (1, 2)]


async def test_a_published_savepoint_has_what_its_manifest_names_and_nothing_else(disk: MemoryDisk) -> None:
    savepoint = Savepoint(disk)
    manifest = await savepoint.write()
    for name in strays():
        await savepoint.storage.put_if_absent(name, [b"output"])

    await publish_savepoint(savepoint.storage, manifest)

    assert await savepoint.storage.list("") == sorted([*(file.path for file in manifest.files()), names.MANIFEST])


async def test_a_savepoint_that_is_refused_takes_nothing_of_the_one_that_is_there(disk: MemoryDisk) -> None:
    first, second = Savepoint(disk, 2), Savepoint(disk, 3)
    manifest = await first.write()
    await publish_savepoint(first.storage, manifest)

    with pytest.raises(SnapshotError):
        await publish_savepoint(second.storage, await second.write())

    assert {file.path for file in manifest.files()} <= set(await first.storage.list(""))


async def test_a_claimed_savepoint_goes_with_what_its_manifest_does_not_name(disk: MemoryDisk) -> None:
    savepoint = Savepoint(disk)
    await publish_savepoint(savepoint.storage, await savepoint.write())
    for name in strays():
        await savepoint.storage.put_if_absent(name, [b"output"])

    await remove_claimed(savepoint.host, FOLDER)

    assert await disk.stat(FOLDER) is None


@pytest.mark.parametrize("is_published", [False, True])
async def test_a_discarded_savepoint_leaves_nothing(disk: MemoryDisk, is_published: bool) -> None:
    savepoint = Savepoint(disk)
    manifest = await savepoint.write()
    if is_published:
        await publish_savepoint(savepoint.storage, manifest)

    await savepoint.discard()
    await savepoint.discard()

    assert await disk.stat(FOLDER) is None


async def test_discarding_one_try_leaves_the_savepoint_of_another_alone(disk: MemoryDisk) -> None:
    good, failed = Savepoint(disk, 2), Savepoint(disk, 3)
    await publish_savepoint(good.storage, await good.write())
    await failed.write()

    await failed.discard()

    assert (await good.found()).manifest.attempt == 2
    assert await disk.stat(f"{FOLDER}/{names.savepoint_state(UID, 0, 'L1', 2, 0)}") is not None


async def test_a_claimed_savepoint_goes_with_all_its_files_but_not_with_what_a_person_put_there(
    disk: MemoryDisk,
) -> None:
    savepoint = Savepoint(disk)
    await publish_savepoint(savepoint.storage, await savepoint.write())
    await savepoint.storage.put_if_absent("notes.txt", [b"mine"])

    await remove_claimed(savepoint.host, FOLDER)
    await remove_claimed(savepoint.host, FOLDER)

    assert await savepoint.storage.list("") == ["notes.txt"]


@pytest.mark.parametrize("refused", ["stat", "remove_tree"])
async def test_a_claimed_savepoint_that_the_disk_does_not_let_go_is_a_storage_error(refused: str) -> None:
    class Guarded(MemoryDisk):
        async def stat(self, path: str) -> FileStat | None:
            return self._refuse(path) if refused == "stat" and armed else await super().stat(path)

        async def remove_tree(self, path: str) -> None:
            self._refuse(path) if refused == "remove_tree" else await super().remove_tree(path)

        def _refuse(self, path: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", path)

    armed = False
    savepoint = Savepoint(Guarded())
    await publish_savepoint(savepoint.storage, await savepoint.write())
    armed = True

    with pytest.raises(StorageError, match=f"cannot .*{FOLDER}.*Permission denied"):
        await remove_claimed(savepoint.host, FOLDER)


async def test_a_claimed_checkpoint_goes_without_the_files_that_others_need(disk: MemoryDisk) -> None:
    job = Coordinator(disk)
    await job.begin()
    first = await job.complete(1, full=True)
    base = job.files[0].path
    second = await job.complete(2)
    host = FakeHost(disk, "x")

    await remove_claimed(host, f"{ROOT}/{first.directory}")
    await remove_claimed(host, f"{ROOT}/{second.directory}")

    assert [entry.checkpoint for entry in await Coordinator(disk, "other").log.entries()] == [0, 2]
    assert await disk.stat(f"{ROOT}/{base}") is not None


def test_output_that_travels_stands_among_the_files_of_a_manifest() -> None:
    export = StateFile("data/out-0-L1-a2.output.1", "output", 4, "0" * 16)
    state = SubtaskState(committables=({"checkpoint": 7, "data": {}, "files": [export.path]},), exports=(export,))
    manifest = replace(manifest_of(7, 2, "L1", []), operators={"out": OperatorState(1, (state,))})

    assert manifest.files() == [export]
    assert SubtaskState.from_data(state.to_data()) == state
