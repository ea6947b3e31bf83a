"""Storage in the coordinator's memory: its limit, and what happens when a worker or a link goes in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flowpoint.errors import StorageError
from flowpoint.host.system import SystemHost
from flowpoint.snapshot.memory import MemoryObjects, MemoryStorage
from flowpoint.snapshot.memory_client import CoordinatorStorage
from flowpoint.snapshot.memory_server import MemoryServer
from flowpoint.transport.storage_calls import PIECE_BYTES
from tests.unit.snapshot.fakes import MemoryDisk

LIMIT = 3 * PIECE_BYTES


class World:
    """A coordinator that serves its memory, and one worker after another."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = SystemHost("coordinator", str(folder / "c"))
        self.objects = MemoryObjects(LIMIT)
        self.server = MemoryServer(self.coordinator, self.objects)
        self.address = ""
        self._folder = folder
        self._workers: list[tuple[SystemHost, CoordinatorStorage]] = []

    def worker(self) -> CoordinatorStorage:
        host = SystemHost("worker", str(self._folder / "w"))
        self._workers.append((host, CoordinatorStorage(host, self.address)))
        return self._workers[-1][1]

    def kill(self, worker: CoordinatorStorage) -> None:
        """End a worker's links without a word."""
        for host, storage in self._workers:
            if storage is worker:
                for link in host.open_links:
                    link.abort()

    def break_link(self, worker: CoordinatorStorage) -> None:
        """Say something on a worker's link that nobody can follow: it is closed for that."""
        for host, storage in self._workers:
            if storage is worker:
                for link in host.open_links:
                    link.send_nowait(b"\xc1")

    async def until_held(self, size: int) -> None:
        async with asyncio.timeout(5):
            while self.objects.held != size:
                await asyncio.sleep(0)

    async def close(self) -> None:
        for host, storage in self._workers:
            storage.close()
            await host.close()
        self.server.close()
        await self.coordinator.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.address = await world.server.listen()
    yield world
    await world.close()


class Held:
    """The chunks of an object whose writer waits in the middle."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = [*chunks]
        self.go_on = asyncio.Event()

    def __aiter__(self) -> Held:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        await self.go_on.wait()
        raise StopAsyncIteration


async def test_beyond_the_limit_a_write_is_refused_with_size_limit_and_key(world: World) -> None:
    worker = world.worker()
    await worker.put_if_absent("shared/a.base", [bytes(LIMIT - 10)])

    with pytest.raises(
        StorageError, match=rf"shared/b.base .* {LIMIT + 1:,} bytes .*checkpoint.memory_limit is {LIMIT:,}"
    ):
        await worker.put_if_absent("shared/b.base", [bytes(5), bytes(6)])

    assert await worker.list("") == ["shared/a.base"]
    assert world.objects.held == LIMIT - 10
    assert await worker.put_if_absent("shared/b.base", [bytes(10)])


async def test_what_is_deleted_makes_room(world: World) -> None:
    worker = world.worker()
    await worker.put_if_absent("shared/a.base", [bytes(LIMIT)])
    await worker.delete("shared/a.base")

    assert await worker.put_if_absent("shared/b.base", [bytes(LIMIT)])


async def test_the_commit_log_is_never_refused(world: World) -> None:
    own = MemoryStorage(world.objects, MemoryDisk())
    await own.put_if_absent("shared/a.base", [bytes(LIMIT)])

    assert await own.put_if_absent("commits/00000001.json", [b"{}"])


async def test_what_a_dead_worker_had_begun_is_never_seen_and_frees_its_room(world: World) -> None:
    dead, other = world.worker(), world.worker()
    writing = asyncio.create_task(dead.put_if_absent("shared/a.base", Held(bytes(1000))))
    await world.until_held(1000)

    world.kill(dead)
    await world.until_held(0)

    assert await other.list("") == []
    writing.cancel()
    await asyncio.wait([writing])


async def test_what_a_cancelled_writer_had_begun_frees_its_room(world: World) -> None:
    worker = world.worker()
    writing = asyncio.create_task(worker.put_if_absent("shared/a.base", Held(bytes(1000))))
    await world.until_held(1000)

    writing.cancel()

    await world.until_held(0)
    assert await worker.put_if_absent("shared/a.base", [b"whole"])


async def test_a_write_whose_link_broke_in_the_middle_fails_and_can_be_made_again(world: World) -> None:
    worker = world.worker()
    held = Held(bytes(1000))
    writing = asyncio.create_task(worker.put_if_absent("shared/a.base", held))
    await world.until_held(1000)

    world.break_link(worker)
    await world.until_held(0)
    held.go_on.set()
    with pytest.raises(StorageError, match="the link"):
        await writing

    assert await worker.put_if_absent("shared/a.base", [b"whole"])
    assert await worker.get("shared/a.base") == b"whole"


async def test_of_two_workers_that_write_one_name_one_wins_and_the_other_leaves_nothing(world: World) -> None:
    first, second = world.worker(), world.worker()
    held = Held(bytes(1000))
    slow = asyncio.create_task(first.put_if_absent("shared/a.base", held))
    await world.until_held(1000)

    assert await second.put_if_absent("shared/a.base", [b"quick"])
    held.go_on.set()

    assert not await slow
    assert world.objects.held == 5
    assert await first.get("shared/a.base") == b"quick"


async def test_an_object_longer_than_a_piece_comes_back_whole(world: World) -> None:
    worker = world.worker()
    whole = bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"end"

    await worker.put_if_absent("shared/a.base", [whole])

    assert await worker.get("shared/a.base") == whole
    assert await worker.get("shared/a.base", PIECE_BYTES - 1, 2) == whole[PIECE_BYTES - 1 : PIECE_BYTES + 1]


async def test_a_writer_has_one_piece_under_way(world: World) -> None:
    """It makes the next one when the coordinator has taken the last one, however quick it is."""
    worker = world.worker()
    made = 0

    def chunks():
        nonlocal made
        while made < 100:
            assert made - world.objects.held // 10 <= 1
            made += 1
            yield bytes(10)

    assert await worker.put_if_absent("shared/a.base", chunks())
    assert made == 100


async def test_when_the_coordinator_has_gone_then_calls_fail_and_say_so(world: World) -> None:
    worker = world.worker()
    await worker.put_if_absent("a.json", [b"x"])

    world.server.close()

    with pytest.raises(StorageError, match="the coordinator's memory"):
        while True:
            await worker.get("a.json")


async def test_calls_of_many_writers_and_readers_at_once_do_not_mix(world: World) -> None:
    worker = world.worker()

    async def write_and_read(n: int) -> bytes:
        await worker.put_if_absent(f"shared/{n}.base", [b"%d" % n] * 20)
        return await worker.get(f"shared/{n}.base")

    assert await asyncio.gather(*map(write_and_read, range(30))) == [b"%d" % n * 20 for n in range(30)]
