"""A copy of a state file has the stored blocks that count of it, proved, with an index of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import xxhash

from flowpoint.codec.values import Codec
from flowpoint.errors import SnapshotError
from flowpoint.model.manifest import StateFile, joined, within
from flowpoint.snapshot.copies import copy_state
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.snapshot.writer import write_state
from flowpoint.state.file_format import FileReader
from flowpoint.state.heap import HeapBackend
from flowpoint.state.spec import StateSpec
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk

MAX = 16
VALUE = StateSpec("counts", "value")
MANY = 20_000


class World:
    """A storage with one state file, and one to copy to."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        host = FakeHost(self.disk, "c")
        self.source = FolderStorage(self.disk, host.new_id, "/job")
        self.target = FolderStorage(self.disk, host.new_id, "/saved")

    async def write(self) -> StateFile:
        backend = HeapBackend(Codec(), MAX)
        for n in range(MANY):
            backend.table(VALUE).put(n, f"{n:0100d}")
        [file] = await write_state(self.source, backend.freeze(), "shared/x.base", groups=(0, MAX - 1))
        return file

    async def contents(self, file: StateFile) -> dict[object, object]:
        data = await self.target.get(file.path)
        assert (len(data), xxhash.xxh3_64_hexdigest(data)) == (file.bytes, file.checksum)
        backend = HeapBackend(Codec(), MAX)
        backend.restore([(file, data)], (0, MAX - 1))
        return dict(backend.table(VALUE).items())


async def test_a_copy_has_all_of_a_file_byte_for_byte() -> None:
    world = World()
    file = await world.write()

    copy = await copy_state(world.source, file, world.target, "data/x.0")

    assert replace(copy, path=file.path) == file
    assert await world.target.get("data/x.0") == await world.source.get(file.path)


async def test_a_copy_of_a_part_has_only_the_blocks_of_its_key_groups() -> None:
    world = World()
    whole = await world.write()
    [file] = within([whole], (3, 5))

    copy = await copy_state(world.source, file, world.target, "data/x.0")

    assert copy.groups == (3, 5)
    assert copy.bytes < whole.bytes / 4
    data = await world.target.get("data/x.0")
    reader = FileReader(copy.path, data, copy.bytes, str(copy.extra["seal"]))
    assert reader.entries == copy.entries < MANY / 4
    found = await world.contents(copy)
    assert found == {n: f"{n:0100d}" for n in found}
    backend = HeapBackend(Codec(), MAX)
    backend.restore([(file, await world.source.get(file.path))], (0, MAX - 1))
    assert found == dict(backend.table(VALUE).items())


async def test_damage_is_not_copied() -> None:
    world = World()
    file = await world.write()
    [path] = [path for path in world.disk.files() if path.startswith("/job/")]
    inode = world.disk._inode(path)
    inode.data = inode.data[:500] + b"?" + inode.data[501:]

    with pytest.raises(SnapshotError, match=r"shared/x\.base: the block at byte"):
        await copy_state(world.source, file, world.target, "data/x.0")

    assert not [path for path in world.disk.files() if path.startswith("/saved/")]


def test_the_chains_of_two_halves_of_one_file_become_one_chain() -> None:
    base = StateFile("b", "base", 10, "", 0, (0, 15))
    first, second = replace(base, groups=(0, 7)), replace(base, groups=(8, 15))
    deltas = [StateFile("d1", "delta", 1, "", 0, (0, 7)), StateFile("d2", "delta", 1, "", 0, (8, 15))]

    assert joined([first, deltas[0], second, deltas[1]]) == [base, *deltas]
    assert joined([first, replace(base, groups=(9, 15))]) == [first, replace(base, groups=(9, 15))]
