"""State files are kept beside the workers too, and opened from there only when the manifest proves them."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from flowpoint.errors import SnapshotError, StorageError, StorageLimit
from flowpoint.host.blocking import BlockingDisk
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot.copies import copy_state
from flowpoint.snapshot.local_files import LocalFiles
from flowpoint.snapshot.locally_kept import LocallyKept
from flowpoint.snapshot.memory import MemoryObjects, MemoryStorage
from flowpoint.snapshot.reader import load, open_files
from flowpoint.snapshot.retention import Cleaner
from flowpoint.snapshot.storage import FolderStorage, Storage
from tests.unit.snapshot.fakes import FakeHost, Inode, MemoryDisk
from tests.unit.snapshot.made import Maker, fill
from tests.unit.snapshot.worlds import ROOT, Coordinator

WORK = "/work/job"
LOCAL = f"{WORK}/local"
NAME = "shared/counts-0-a1-1.delta"


@dataclass
class Worker:
    """A worker's storage and local files."""

    disk: MemoryDisk
    is_used: bool = True
    inner: Storage | None = None
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        new_id = FakeHost(self.disk, "w").new_id
        self.local = LocalFiles(self.disk, new_id, LOCAL, self.told.append, is_used=self.is_used)
        root = ROOT if self.inner is None else None
        self.storage = LocallyKept(self.inner or FolderStorage(self.disk, new_id, ROOT), self.local, root)


def linked() -> Worker:
    """Storage and work folder are on one file system."""
    return Worker(MemoryDisk())


def apart() -> Worker:
    """They are not."""
    disk = MemoryDisk()
    disk.devices = (WORK,)
    return Worker(disk)


def in_memory(limit: int = 1_000_000) -> Worker:
    """The storage is no folder."""
    disk = MemoryDisk()
    return Worker(disk, inner=MemoryStorage(MemoryObjects(limit), disk))


EVERYWHERE = pytest.mark.parametrize("make", [linked, apart, in_memory])
Make = Callable[[], Worker]


async def one_shot(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Chunks that can be had once."""
    for chunk in chunks:
        yield chunk


def local_files(worker: Worker) -> dict[str, bytes]:
    """What is in the folder of local files, unfinished ones too."""
    return {path: data for path, data in worker.disk.files().items() if path.startswith(LOCAL)}


def inode(worker: Worker, path: str) -> Inode:
    """What a name stands for."""
    return worker.disk.folders[os.path.dirname(path)].seen[os.path.basename(path)]


async def put_by_hand(disk: MemoryDisk, path: str, data: bytes) -> None:
    """A file that somebody has left there."""
    await disk.make_dirs(os.path.dirname(path))
    await disk.remove(path)
    file = await disk.create(path)
    await file.write(data)
    await file.sync()


# ---------------------------------------------------------------------- keeping


@EVERYWHERE
async def test_what_is_written_for_a_checkpoint_is_in_the_storage_and_beside_the_worker(make: Make) -> None:
    worker = make()

    assert await worker.storage.put_if_absent(NAME, one_shot([b"abc", b"", b"defg"]))

    assert await worker.storage.get(NAME) == b"abcdefg"
    assert local_files(worker) == {f"{LOCAL}/{NAME}": b"abcdefg"}
    assert worker.told == []


async def test_on_one_file_system_it_is_the_same_file_and_costs_one_call_and_no_sync() -> None:
    worker, disk = linked(), MemoryDisk()
    alone = FolderStorage(disk, FakeHost(disk, "w").new_id, ROOT)
    for name in ("shared/counts-0-a1-0.base", NAME):
        worker.disk.faults.trace.clear()
        disk.faults.trace.clear()
        await worker.storage.put_if_absent(name, [b"state"])
        await alone.put_if_absent(name, [b"state"])

    assert inode(worker, f"{LOCAL}/{NAME}") is inode(worker, f"{ROOT}/{NAME}")
    assert worker.disk.faults.trace == [*disk.faults.trace, "link"]


@pytest.mark.parametrize("make", [apart, in_memory])
async def test_a_copy_gets_its_name_when_it_is_durable(make: Make) -> None:
    worker = make()
    await worker.storage.put_if_absent(NAME, [b"state"])

    assert inode(worker, f"{LOCAL}/{NAME}").synced == b"state"


@EVERYWHERE
async def test_nothing_but_state_files_of_checkpoints_is_kept(make: Make) -> None:
    worker = make()

    for name in ("commits/00000001.json", "chk-1-a1/manifest.json", "chk-1-a1/0001-counts-0-L1-a1.base"):
        await worker.storage.put_if_absent(name, [b"data"])

    assert local_files(worker) == {}


@EVERYWHERE
async def test_an_attempt_that_goes_without_local_files_makes_none(make: Make) -> None:
    made = make()
    worker = Worker(made.disk, is_used=False, inner=made.inner)

    assert await worker.storage.put_if_absent(NAME, [b"state"])

    assert local_files(worker) == {}


@EVERYWHERE
async def test_what_another_run_has_left_under_the_name_is_replaced(make: Make) -> None:
    worker = make()
    await put_by_hand(worker.disk, f"{LOCAL}/{NAME}", b"of another run")

    await worker.storage.put_if_absent(NAME, [b"state"])

    assert local_files(worker) == {f"{LOCAL}/{NAME}": b"state"}


@EVERYWHERE
async def test_whatever_fails_of_the_local_file_the_storage_has_it_and_nothing_half_written_has_a_name(
    make: Make,
) -> None:
    for failing in range(1, 20):
        worker = make()
        calls = 0

        async def gate(_: str, path: str, failing: int = failing) -> None:
            nonlocal calls
            calls += path.startswith(WORK)
            if path.startswith(WORK) and calls == failing:
                raise OSError(errno.ENOSPC, "no space left on device")

        worker.disk.gate = gate
        assert await worker.storage.put_if_absent(NAME, one_shot([b"abc", b"defg"]))

        assert await worker.storage.get(NAME) == b"abcdefg"
        assert local_files(worker).get(f"{LOCAL}/{NAME}", b"abcdefg") == b"abcdefg"
        if calls < failing:
            assert worker.told == []
            return
        assert f"cannot keep local state files in {LOCAL}" in worker.told[0]
    pytest.fail("there was always one more call")


@EVERYWHERE
async def test_where_no_local_file_can_be_made_that_is_said_once(make: Make) -> None:
    worker = make()

    async def gate(kind: str, path: str) -> None:
        if path.startswith(WORK):
            raise OSError(errno.EROFS, "read-only file system")

    worker.disk.gate = gate
    for number in range(3):
        assert await worker.storage.put_if_absent(f"shared/counts-0-a1-{number}.delta", one_shot([b"state"]))

    assert len(worker.told) == 1
    assert "read-only file system" in worker.told[0]


async def test_a_file_that_the_storage_refuses_is_not_kept() -> None:
    worker = in_memory(limit=5)

    with pytest.raises(StorageLimit):
        await worker.storage.put_if_absent(NAME, [b"abc", b"defg"])

    assert local_files(worker) == {}


@EVERYWHERE
async def test_a_name_that_is_taken_in_the_storage_changes_no_local_file(make: Make) -> None:
    worker = make()
    await worker.storage.put_if_absent(NAME, [b"first"])

    assert not await worker.storage.put_if_absent(NAME, [b"second"])

    assert local_files(worker) == {f"{LOCAL}/{NAME}": b"first"}


# ---------------------------------------------------------------------- opening


@dataclass
class Stored:
    """A state file that a worker has written, as the manifest names it, and the bytes of another one."""

    worker: Worker
    file: StateFile
    data: bytes
    other: bytes

    async def leave(self, data: bytes) -> None:
        """Put something in the place of the local file."""
        await put_by_hand(self.worker.disk, f"{LOCAL}/{self.file.path}", data)

    async def read(self) -> tuple[bytes, int]:
        """The state as a restore gets it, and how many files it had to open in the storage for that."""
        opened: list[str] = []

        async def gate(kind: str, path: str) -> None:
            if path.startswith(ROOT) and kind in ("open", "read"):
                opened.append(path)

        self.worker.disk.gate = gate
        files = await open_files(self.worker.storage, [self.file], self.worker.local)
        [(_, source)] = files.files
        data = source(0, self.file.bytes) if callable(source) else source
        files.close()
        return data, len(set(opened))


@pytest.fixture
async def stored(tmp_path: Path) -> Stored:
    """A file that a worker has just written."""
    subtasks = Maker(tmp_path).states(fill).subtasks
    [file], [other] = subtasks[0].files, subtasks[1].files
    worker = linked()
    data = (tmp_path / file.path).read_bytes()
    await worker.storage.put_if_absent(file.path, [data])
    return Stored(worker, file, data, (tmp_path / other.path).read_bytes())


async def test_a_local_file_that_the_manifest_proves_is_opened_and_the_storage_is_not_asked(stored: Stored) -> None:
    assert await stored.read() == (stored.data, 0)
    assert (
        stored.worker.local.told()
        == f"state files opened locally: 1 ({len(stored.data):,} bytes), from the checkpoint storage: 0 (0 bytes)"
    )


async def test_where_there_is_no_local_file_the_storage_is_read(stored: Stored) -> None:
    await stored.worker.disk.remove(f"{LOCAL}/{stored.file.path}")

    assert await stored.read() == (stored.data, 1)
    assert stored.worker.told == []
    assert "opened locally: 0 (0 bytes), from the checkpoint storage: 1" in stored.worker.local.told()


def flipped(data: bytes, at: int) -> bytes:
    """One bit of it is another one."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


HARM: dict[str, Callable[[Stored], bytes]] = {
    "another state file": lambda stored: stored.other,
    "no state file": lambda _: b"something else",
    "nothing in it": lambda _: b"",
    "an end that is missing": lambda stored: stored.data[:-1],
    "a byte too many": lambda stored: stored.data + b"x",
    "a seal that is wrong": lambda stored: flipped(stored.data, len(stored.data) - 12),
    "an index that is wrong": lambda stored: flipped(stored.data, len(stored.data) - 40),
    "an index that begins elsewhere": lambda stored: flipped(stored.data, len(stored.data) - 17),
    "a beginning that is wrong": lambda stored: flipped(stored.data, 0),
    "zeros": lambda stored: bytes(len(stored.data)),
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
async def test_a_local_file_that_is_not_proved_is_refused_at_once_and_the_storage_read(
    stored: Stored, harm: Callable[[Stored], bytes]
) -> None:
    await stored.leave(harm(stored))

    assert await stored.read() == (stored.data, 1)
    assert f"the local file {LOCAL}/{stored.file.path} is not used" in stored.worker.told[0]


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
async def test_what_no_seal_proves_is_proved_by_all_of_its_bytes(
    stored: Stored, harm: Callable[[Stored], bytes]
) -> None:
    stored.file = replace(stored.file, extra={key: value for key, value in stored.file.extra.items() if key != SEAL})
    assert await stored.read() == (stored.data, 0)

    await stored.leave(harm(stored))

    assert await stored.read() == (stored.data, 1)
    assert [data for _, data in await load(stored.worker.storage, [stored.file], stored.worker.local)] == [stored.data]


async def test_a_local_file_that_cannot_be_opened_is_passed_over(stored: Stored) -> None:
    async def gate(kind: str, path: str) -> None:
        if path.startswith(LOCAL):
            raise OSError(errno.EIO, "input/output error")

    stored.worker.disk.gate = gate
    opened = await open_files(stored.worker.storage, [stored.file], stored.worker.local)

    assert len(opened.files) == 1
    assert "cannot open" in stored.worker.told[0]


async def test_when_one_of_several_files_cannot_be_opened_the_others_are_closed(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []

    def close(file: object) -> None:
        closed.append(file)

    monkeypatch.setattr("tests.unit.snapshot.fakes.MemoryOpenFile.close", close)
    missing = replace(stored.file, path="shared/counts-0-a1-99.delta")

    with pytest.raises(SnapshotError, match="it is missing"):
        await open_files(stored.worker.storage, [stored.file, missing], stored.worker.local)

    assert len(closed) == 1


async def test_what_cannot_be_read_of_a_local_file_later_is_damage_and_of_the_storage_it_is_not(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, offset: int, size: int) -> bytes:
        raise OSError(errno.EIO, "input/output error")

    for local, error in ((stored.worker.local, SnapshotError), (None, StorageError)):
        opened = await open_files(stored.worker.storage, [stored.file], local)
        [(_, source)] = opened.files
        assert callable(source)
        with monkeypatch.context() as patch:
            patch.setattr("tests.unit.snapshot.fakes.MemoryOpenFile.read_at", fail)
            with pytest.raises(error, match="check the disk"):
                source(0, 1)


async def test_files_in_the_coordinators_memory_are_read_piece_by_piece_where_there_are_local_ones(
    stored: Stored,
) -> None:
    worker = in_memory()
    await worker.storage.put_if_absent(stored.file.path, [stored.data])

    with_local = await open_files(worker.storage, [stored.file], worker.local)
    without = await open_files(worker.storage, [stored.file], Worker(worker.disk, is_used=False).local)

    assert callable(with_local.files[0][1])
    assert without.files[0][1] == stored.data


async def test_a_file_taken_over_from_another_snapshot_is_never_looked_for_locally(stored: Stored) -> None:
    imported = replace(stored.file, path="chk-2-a2/0001-counts.base")
    await stored.worker.storage.put_if_absent(imported.path, [stored.data])
    await put_by_hand(stored.worker.disk, f"{LOCAL}/{imported.path}", stored.data)

    await open_files(stored.worker.storage, [imported], stored.worker.local)

    assert "opened locally: 0" in stored.worker.local.told()


async def test_a_savepoint_copies_what_the_storage_has_and_never_looks_at_local_files(stored: Stored) -> None:
    await stored.leave(stored.other)
    saved = FolderStorage(stored.worker.disk, FakeHost(stored.worker.disk).new_id, "/saved")

    copy = await copy_state(stored.worker.storage, stored.file, saved, "data/counts-0.base")

    assert copy.entries == stored.file.entries
    assert stored.worker.local.told() == ""


async def test_an_attempt_with_nothing_to_restore_has_nothing_to_say() -> None:
    assert linked().local.told() == ""


# ---------------------------------------------------------------------- letting go


@EVERYWHERE
async def test_what_is_deleted_from_the_storage_is_gone_locally(make: Make) -> None:
    worker = make()
    await worker.storage.put_if_absent(NAME, [b"state"])

    assert await worker.storage.delete(NAME, "chk-1-a1/")

    assert local_files(worker) == {}


async def test_that_local_files_cannot_be_removed_is_said_once_and_holds_nothing_up() -> None:
    worker = linked()
    other = NAME.replace("a1-1", "a1-2")
    for name in (NAME, other):
        await worker.storage.put_if_absent(name, [b"state"])

    async def gate(kind: str, path: str) -> None:
        if path.startswith(LOCAL):
            raise OSError(errno.EIO, "input/output error")

    worker.disk.gate = gate
    assert await worker.storage.delete(NAME, other)

    assert len(worker.told) == 1
    assert f"cannot remove local state files yet, and their space is not free: {LOCAL}" in worker.told[0]


async def test_a_link_that_is_made_while_its_file_is_deleted_does_not_stay() -> None:
    """Else it would keep the space of the file, and nobody would ever look for it again."""
    worker = linked()
    await worker.storage.put_if_absent(NAME, [b"state"])
    await worker.disk.remove(f"{LOCAL}/{NAME}")

    async def link_at_the_last_moment(kind: str, path: str) -> None:
        if (kind, path) == ("remove", f"{ROOT}/{NAME}"):
            worker.disk.gate = None
            await worker.disk.link(f"{ROOT}/{NAME}", f"{LOCAL}/{NAME}")

    worker.disk.gate = link_at_the_last_moment
    await worker.storage.delete(NAME)

    assert local_files(worker) == {}


async def test_retention_lets_go_of_local_files_with_the_files_they_are_of() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    worker = Worker(coordinator.disk)
    coordinator.storage = worker.storage  # type: ignore[assignment]  # what a worker writes with
    await coordinator.begin()
    for checkpoint in (1, 2, 3):
        await coordinator.complete(checkpoint, full=True)
    cleaner = Cleaner(worker.storage, coordinator.log, lineage="L1", attempt=coordinator.attempt, retained=1)

    await cleaner.run()

    assert sorted(local_files(worker)) == [f"{LOCAL}/{file.path}" for file in coordinator.files]


@EVERYWHERE
async def test_of_all_local_files_only_those_stay_that_are_named(make: Make) -> None:
    worker = make()
    for number in (1, 2, 3):
        await worker.storage.put_if_absent(f"shared/counts-0-a1-{number}.delta", [b"state"])
    await put_by_hand(worker.disk, f"{LOCAL}/shared/.counts-0-a1-4.delta.ab.tmp", b"half")

    stay = await worker.local.keep_only({"shared/counts-0-a1-2.delta", "shared/never-0-a1-1.base"})

    assert stay == ["shared/counts-0-a1-2.delta"]
    assert list(local_files(worker)) == [f"{LOCAL}/shared/counts-0-a1-2.delta"]


async def test_a_name_that_is_lost_with_the_power_is_only_missed(stored: Stored) -> None:
    stored.worker.disk.lose_power()

    assert await stored.read() == (stored.data, 1)


@pytest.mark.parametrize("linked", ["local", "local/shared"])
async def test_where_the_local_folder_was_made_a_link_to_the_storage_nothing_of_it_is_removed(
    tmp_path: Path, linked: str
) -> None:
    """By a real disk, as only that has links."""
    root, work = tmp_path / "storage", tmp_path / "work"
    (root / "shared").mkdir(parents=True)
    (work / linked).parent.mkdir(parents=True)
    (work / linked).symlink_to(root / linked.partition("/")[2])
    disk, told, ids = BlockingDisk(), list[str](), map(str, itertools.count())
    local = LocalFiles(disk, lambda: next(ids), f"{work}/local", told.append)
    storage = LocallyKept(FolderStorage(disk, lambda: next(ids), str(root)), local, str(root))

    await storage.put_if_absent(NAME, [b"state"])
    with pytest.raises(OSError, match=f"{work / linked} is a link, which somebody else has put there: remove it"):
        await local.keep_only(())

    assert (root / NAME).read_bytes() == b"state"
    assert os.listdir(root / "shared") == [os.path.basename(NAME)]
    assert told == []
