"""Checkpoints are looked at as closely as is called for, and what has proved damaged is passed over from then on."""

from __future__ import annotations

import pytest

from flowpoint.coordinator.choosing import Choosing, Chosen
from flowpoint.coordinator.local_recovery import LocalRecovery, LocalUse
from flowpoint.errors import IncompatibleStateError
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk
from tests.unit.snapshot.worlds import ROOT, Coordinator

HOW = "the block at byte 12 does not match its checksum"


class World:
    """A job with three checkpoints, and what its coordinator knows of them."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.job = Coordinator(self.disk)
        self.told: list[str] = []
        host = FakeHost(self.disk)
        self.local = LocalRecovery(host, "/work/job", self.told.append)  # type: ignore[arg-type]  # disk and ids only
        self.choosing = Choosing(self.job.storage, self.local, self.told.append)

    async def begin(self) -> None:
        await self.job.begin()
        for checkpoint in (1, 2, 3):
            await self.job.complete(checkpoint, full=True)

    async def choose(self, *, can_take_back: bool = True) -> Chosen:
        entries = await self.job.log.entries()
        return await self.choosing.choose(entries, "L1", can_take_back=can_take_back, accept_duplicates=False)

    async def rot(self, checkpoint: int) -> None:
        """A byte of the state of a checkpoint is another one; its size is what it was."""
        path = next(path for path in self.disk.files() if path.endswith(f"-{checkpoint}.base"))
        data = await self.disk.read(path)
        await self.disk.remove(path)
        file = await self.disk.create(path)
        await file.write(bytes([data[0] ^ 1]) + data[1:])
        await file.sync()


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def test_the_newest_is_chosen_and_the_others_are_what_is_left(world: World) -> None:
    chosen = await world.choose()

    assert (chosen.directory, chosen.skipped, chosen.older) == ("chk-3-a1", (), ("chk-1-a1", "chk-2-a1"))
    assert chosen.manifest == world.job.manifest(3)
    assert world.told == []


async def test_a_job_without_checkpoints_is_restored_from_nothing() -> None:
    world = World()
    await world.job.begin()

    assert await world.choose() == Chosen()


async def test_one_without_a_manifest_is_skipped_aloud_and_no_other_is_left_of_it(world: World) -> None:
    await world.disk.remove(f"{ROOT}/chk-3-a1/manifest.json")
    await world.disk.remove(f"{ROOT}/chk-1-a1/manifest.json")

    chosen = await world.choose()

    assert (chosen.directory, chosen.skipped, chosen.older) == ("chk-2-a1", ("chk-3-a1",), ())
    (told,) = world.told
    assert told.startswith("checkpoint chk-3-a1 is damaged and is skipped: there is no chk-3-a1/manifest.json: ")


async def test_what_workers_found_damaged_is_passed_over_and_every_byte_of_the_others_looked_at(world: World) -> None:
    await world.rot(2)
    assert (await world.choose()).directory == "chk-3-a1"

    world.choosing.found_damage("chk-3-a1", LocalUse.MADE, HOW)
    chosen = await world.choose()

    assert (chosen.directory, chosen.skipped) == ("chk-1-a1", ("chk-3-a1", "chk-2-a1"))
    assert world.told[0] == f"checkpoint chk-3-a1 is damaged and is skipped: {HOW}"
    assert "shared/counts-0-a1-2.base: checksum" in world.told[1]


async def test_damage_that_may_be_that_of_local_files_says_nothing_of_the_checkpoint(world: World) -> None:
    world.choosing.found_damage("chk-3-a1", LocalUse.OPENED, HOW)

    assert (await world.choose()).directory == "chk-3-a1"
    assert world.local.is_doubted


async def test_while_local_files_are_doubted_every_byte_in_the_storage_is_looked_at(world: World) -> None:
    await world.rot(3)
    world.choosing.found_damage("chk-3-a1", LocalUse.OPENED, HOW)

    assert (await world.choose()).directory == "chk-2-a1"


async def test_where_a_sink_cannot_take_back_nothing_older_is_chosen(world: World) -> None:
    world.choosing.found_damage("chk-3-a1", LocalUse.NONE, HOW)

    with pytest.raises(IncompatibleStateError, match="--accept-duplicates"):
        await world.choose(can_take_back=False)
