"""What every storage must do, whatever it is made of. A new storage adds how it is opened to `STORAGES`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from flowpoint.errors import InternalError
from flowpoint.host.system import SystemHost
from flowpoint.snapshot.memory import MemoryObjects, MemoryStorage
from flowpoint.snapshot.memory_client import CoordinatorStorage
from flowpoint.snapshot.memory_server import MemoryServer
from flowpoint.snapshot.storage import FolderStorage, Storage
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk

LIMIT = 1_000_000


@asynccontextmanager
async def folder(disk: MemoryDisk, _: Path) -> AsyncIterator[Storage]:
    yield FolderStorage(disk, FakeHost(disk).new_id, "/storage/job")


@asynccontextmanager
async def own_memory(disk: MemoryDisk, _: Path) -> AsyncIterator[Storage]:
    """As the coordinator uses it."""
    objects = MemoryObjects(LIMIT)
    yield MemoryStorage(objects, disk)
    assert objects.held == sum(len(objects.read(name, 0, -1)) for name in objects.listed(""))


@asynccontextmanager
async def coordinators_memory(disk: MemoryDisk, sockets: Path) -> AsyncIterator[Storage]:
    """As a worker uses it."""
    objects = MemoryObjects(LIMIT)
    coordinator, worker = SystemHost("coordinator", str(sockets / "c")), SystemHost("worker", str(sockets / "w"))
    worker.disk = disk
    server = MemoryServer(coordinator, objects)
    storage = CoordinatorStorage(worker, await server.listen())
    yield storage
    storage.close()
    await worker.close()
    server.close()
    await coordinator.close()
    assert objects.held == sum(len(objects.read(name, 0, -1)) for name in objects.listed(""))


Opened = Callable[[MemoryDisk, Path], AbstractAsyncContextManager[Storage]]
STORAGES: list[Opened] = [folder, own_memory, coordinators_memory]


@pytest.fixture(params=STORAGES, ids=lambda opened: opened.__name__)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Storage, MemoryDisk]]:
    """A new storage, and the disk that `adopt` takes files from."""
    disk = MemoryDisk()
    opened: Opened = request.param
    async with opened(disk, tmp_path) as storage:
        yield storage, disk


@pytest.fixture
def storage(world: tuple[Storage, MemoryDisk]) -> Storage:
    return world[0]


async def test_what_was_put_can_be_got_whole_and_in_parts(storage: Storage) -> None:
    assert await storage.put_if_absent("shared/a.delta", [b"abc", b"", b"defg"])
    assert await storage.get("shared/a.delta") == b"abcdefg"
    assert await storage.get("shared/a.delta", 2) == b"cdefg"
    assert await storage.get("shared/a.delta", 2, 3) == b"cde"
    assert await storage.get("shared/a.delta", 5, 100) == b"fg"
    assert await storage.get("shared/a.delta", 100, 1) == b""


async def test_chunks_may_come_asynchronously(storage: Storage) -> None:
    class Chunks:
        def __init__(self) -> None:
            self.left = [b"1", b"2", b"3"]

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            await asyncio.sleep(0)
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert await storage.put_if_absent("a.json", Chunks())
    assert await storage.get("a.json") == b"123"


async def test_an_object_is_never_overwritten(storage: Storage) -> None:
    assert await storage.put_if_absent("a.json", [b"first"])
    assert not await storage.put_if_absent("a.json", [b"second"])
    assert await storage.get("a.json") == b"first"


async def test_an_object_may_be_empty(storage: Storage) -> None:
    assert await storage.put_if_absent("empty.json", [])
    assert await storage.get("empty.json") == b""


async def test_a_missing_object_is_file_not_found(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        await storage.get("chk-1-a1/manifest.json")
    await storage.put_if_absent("chk-1-a1/manifest.json", [b"{}"])
    with pytest.raises(FileNotFoundError):
        await storage.get("chk-1-a1/other.json")


async def test_a_folder_in_the_place_of_an_object_is_no_object(tmp_path: Path) -> None:
    host = SystemHost("coordinator", str(tmp_path / "run"))
    (tmp_path / "storage/chk-1-a1/manifest.json").mkdir(parents=True)
    storage = FolderStorage(host.disk, host.new_id, str(tmp_path / "storage"))

    with pytest.raises(FileNotFoundError):
        await storage.get("chk-1-a1/manifest.json")
    with pytest.raises(FileNotFoundError):
        await storage.open("chk-1-a1/manifest.json")
    await host.close()


async def test_an_object_is_opened_or_has_to_be_got(storage: Storage) -> None:
    with pytest.raises(FileNotFoundError):
        await storage.open("shared/a.base")
    await storage.put_if_absent("shared/a.base", [b"abcdef"])

    opened = await storage.open("shared/a.base")

    if opened is not None:
        assert opened.read_at(2, 3) == b"cde"
        opened.close()


async def test_listing_is_sorted_and_by_prefix(storage: Storage) -> None:
    everything = ["chk-1-a1/manifest.json", "chk-12-a1/manifest.json", "commits/00000001.json", "shared/a.base"]
    for name in reversed(everything):
        await storage.put_if_absent(name, [b"x"])
    assert await storage.list("") == sorted(everything)
    assert await storage.list("commits/") == ["commits/00000001.json"]
    assert await storage.list("commits/00000002") == []
    assert await storage.list("chk-1") == ["chk-1-a1/manifest.json", "chk-12-a1/manifest.json"]
    assert await storage.list("chk-1-") == ["chk-1-a1/manifest.json"]
    assert await storage.list("nothing/") == []


async def test_deleting_says_whether_it_was_there(storage: Storage) -> None:
    await storage.put_if_absent("shared/a.delta", [b"x"])
    await storage.put_if_absent("shared/b.delta", [b"x"])
    assert await storage.delete("shared/a.delta")
    assert not await storage.delete("shared/a.delta")
    assert await storage.delete("shared/missing.delta", "shared/b.delta")
    assert await storage.list("") == []
    assert await storage.put_if_absent("shared/a.delta", [b"again"])


async def test_a_folder_is_deleted_with_all_below_and_can_be_written_again(storage: Storage) -> None:
    await storage.put_if_absent("chk-1-a1/manifest.json", [b"x"])
    await storage.put_if_absent("chk-11-a1/manifest.json", [b"x"])
    assert await storage.delete("chk-1-a1/")
    assert not await storage.delete("chk-1-a1/")
    assert await storage.list("") == ["chk-11-a1/manifest.json"]
    assert await storage.put_if_absent("chk-1-a1/manifest.json", [b"y"])
    assert await storage.get("chk-1-a1/manifest.json") == b"y"


@pytest.mark.parametrize("links", [True, False], ids=["linked", "copied"])
async def test_a_local_file_is_adopted_once(world: tuple[Storage, MemoryDisk], links: bool) -> None:
    storage, disk = world
    await disk.make_dirs("/work")
    file = await disk.create("/work/000123.sst")
    await file.write(b"table" * 1000)
    await file.sync()
    await disk.sync_dir("/work")
    disk.devices = () if links else ("/work",)
    assert await storage.adopt("/work/000123.sst", "shared/a-0-a1-1.base.0")
    assert not await storage.adopt("/work/000123.sst", "shared/a-0-a1-1.base.0")
    assert await storage.delete("shared/")
    assert await storage.adopt("/work/000123.sst", "shared/a-0-a1-1.base.0")
    await disk.remove("/work/000123.sst")
    assert await storage.get("shared/a-0-a1-1.base.0") == b"table" * 1000


async def test_of_two_writers_of_a_name_exactly_one_wins(storage: Storage) -> None:
    results = await asyncio.gather(*(storage.put_if_absent("a.json", [b"%d" % i] * 10) for i in range(8)))
    assert results.count(True) == 1
    assert await storage.get("a.json") == b"%d" % results.index(True) * 10


async def test_the_loop_gets_a_turn_between_chunks(storage: Storage) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    await storage.put_if_absent("shared/a.delta", [b"x"] * 50)
    counter.cancel()
    assert turns >= 50


async def test_an_object_of_many_pieces_is_read_from_anywhere(storage: Storage) -> None:
    pieces = [bytes([n]) * (n % 7) for n in range(100)]
    whole = b"".join(pieces)
    assert await storage.put_if_absent("shared/a.base", pieces)
    for offset in range(0, len(whole) + 2, 13):
        assert await storage.get("shared/a.base", offset, 40) == whole[offset : offset + 40]
        assert await storage.get("shared/a.base", offset) == whole[offset:]


async def test_when_the_source_of_the_bytes_fails_then_there_is_no_object(storage: Storage) -> None:
    def broken():
        yield b"x"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await storage.put_if_absent("a.json", broken())
    assert await storage.list("") == []
    assert await storage.put_if_absent("a.json", [b"whole"])
    assert await storage.get("a.json") == b"whole"


async def test_a_cancelled_put_leaves_no_object(storage: Storage) -> None:
    class Endless:
        def __iter__(self) -> Endless:
            return self

        def __next__(self) -> bytes:
            return b"x"

    put = asyncio.create_task(storage.put_if_absent("shared/a.delta", Endless()))
    for _ in range(20):
        await asyncio.sleep(0)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert await storage.list("") == []
    assert await storage.list("", unfinished=True) in ([], ["shared/"])


@pytest.mark.parametrize(
    "name", ["", "a", "/a.json", "../a.json", "a/../b.json", "a//b.json", ".a.json", "v1.2/a.json"]
)
async def test_a_name_that_could_lead_elsewhere_is_refused(storage: Storage, name: str) -> None:
    with pytest.raises(InternalError):
        await storage.put_if_absent(name, [b"x"])
    with pytest.raises(InternalError):
        await storage.get(name)


@pytest.mark.parametrize("name", ["", "/", "..", "../", "a/../", "/a/", "a//"])
async def test_nothing_outside_and_not_the_storage_itself_is_deleted_or_listed(storage: Storage, name: str) -> None:
    await storage.put_if_absent("a.json", [b"x"])
    with pytest.raises(InternalError):
        await storage.delete("a.json", name)
    if "/" in name:
        with pytest.raises(InternalError):
            await storage.list(name)
    assert await storage.list("") == ["a.json"]
