"""Local files are trusted while nothing speaks against them, and go when damage was found that may be theirs."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

from flowpoint.coordinator.local_recovery import LocalRecovery, LocalUse
from flowpoint.model.manifest import Manifest, StateFile
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk
from tests.unit.snapshot.worlds import manifest_of

LOCAL = "/work/job/local/shared"
NAMED = StateFile("shared/counts-0-a1-1.base", "base", 5, "00")


@dataclass
class World:
    """A coordinator, and the disk on which its workers have left local files."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        host = FakeHost(self.disk)
        self.recovery = LocalRecovery(host, "/work/job", self.told.append)  # type: ignore[arg-type]  # disk and ids only

    @property
    def restored(self) -> Manifest:
        return manifest_of(3, 1, "L1", [NAMED])

    async def leave(self, *names: str) -> None:
        await self.disk.make_dirs(LOCAL)
        for name in names:
            await self.disk.create(f"{LOCAL}/{name}")

    async def refuse(self, kind: str, path: str) -> None:
        """For `MemoryDisk.gate`: nothing can be removed."""
        if kind == "remove":
            raise OSError(errno.EROFS, "read-only file system")


@pytest.fixture
def world() -> World:
    return World()


async def test_before_an_attempt_all_go_but_those_of_the_restored_checkpoint(world: World) -> None:
    await world.leave("counts-0-a1-1.base", "counts-0-a1-2.delta", ".counts-0-a1-3.delta.ab.tmp")

    assert await world.recovery.settle(world.restored) is LocalUse.OPENED

    assert list(world.disk.files()) == [f"{LOCAL}/counts-0-a1-1.base"]
    assert world.told == []


async def test_an_attempt_of_which_nothing_is_there_makes_local_files(world: World) -> None:
    assert await world.recovery.settle(world.restored) is LocalUse.MADE


async def test_an_attempt_that_starts_empty_keeps_none_of_them(world: World) -> None:
    await world.leave("counts-0-a1-1.base")

    assert await world.recovery.settle(None) is LocalUse.MADE

    assert world.disk.files() == {}


async def test_when_there_is_doubt_then_all_go_and_the_next_damage_is_the_storages(world: World) -> None:
    await world.leave("counts-0-a1-1.base")
    world.recovery.doubt("the block at byte 12 does not match its checksum")
    assert world.recovery.is_doubted

    assert await world.recovery.settle(world.restored) is LocalUse.MADE

    assert not world.recovery.is_doubted
    assert world.disk.files() == {}
    assert "the block at byte 12 does not match its checksum" in world.told[0]


async def test_an_attempt_goes_without_them_until_what_is_doubted_is_gone(world: World) -> None:
    await world.leave("counts-0-a1-1.base")
    world.recovery.doubt("a block does not match its checksum")
    world.disk.gate = world.refuse

    for _ in range(2):
        assert await world.recovery.settle(world.restored) is LocalUse.NONE
        assert world.recovery.is_doubted
    world.disk.gate = None

    assert await world.recovery.settle(world.restored) is LocalUse.MADE
    assert any("read-only file system" in told for told in world.told)
