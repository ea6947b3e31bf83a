"""Storage in the memory of the coordinator, for tests and small state. It ends with the coordinator.

`MemoryObjects` holds the objects and acts at once; `MemoryStorage` is the coordinator's way to them as `Storage`, and
`memory_server` that of the workers. An object is kept in the pieces it came in, so that nothing is ever copied whole.

The limit is for all that is held: every retained snapshot, and what is being written. Who runs into it is refused and
keeps running; entries of the commit log are never refused, as the log must be able to tell what has happened.

Invariants:
- An object under its name is whole and never changes; what is being written has no name, and nobody can see it.
- Bytes that were given up, or whose name was taken meanwhile, count no longer.

Not here: who may write what. Names carry the attempt (rule 4), as in a folder.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from contextlib import aclosing

from flowpoint.errors import StorageLimit
from flowpoint.host.base import Disk
from flowpoint.snapshot import names
from flowpoint.snapshot.storage import Chunks, LocalFile, Names, one_by_one


class MemoryObjects:
    """Objects by name, within a limit of bytes."""

    def __init__(self, limit: int) -> None:
        self._objects: dict[str, Pieces] = {}
        self._room = _Room(limit)

    @property
    def held(self) -> int:
        """Bytes of all objects, and of what is being written."""
        return self._room.held

    def begin(self, name: str) -> Unpublished | None:
        """Begin to write an object; None when the name is taken."""
        names.require_object(name)
        return None if name in self._objects else Unpublished(name, self._room, self._keep)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes of an object from `offset`, at most `size` (-1: all). FileNotFoundError when there is none."""
        names.require_object(name)
        pieces = self._objects.get(name)
        if pieces is None:
            raise FileNotFoundError(f"no such object in the coordinator's memory: {name}")
        return pieces.read(offset, size)

    def listed(self, prefix: str) -> Names:
        """The names that begin with `prefix`, sorted."""
        names.require_prefix(prefix)
        return sorted(name for name in self._objects if name.startswith(prefix))

    def remove(self, *doomed: str) -> bool:
        """Remove objects, or all below a name that ends with "/"; whether there was any."""
        for name in doomed:
            names.require_inside(name)
        found = {name for one in doomed for name in (self.listed(one) if one.endswith("/") else (one,))}
        return sum(self._remove(name) for name in sorted(found)) > 0

    def _keep(self, name: str, pieces: Pieces) -> bool:
        """Give an object its name; False when that is taken."""
        return self._objects.setdefault(name, pieces) is pieces

    def _remove(self, name: str) -> bool:
        pieces = self._objects.pop(name, None)
        if pieces is None:
            return False
        self._room.give_back(pieces.bytes)
        return True


class Unpublished:
    """An object that is being written."""

    def __init__(self, name: str, room: _Room, keep: Callable[[str, Pieces], bool]) -> None:
        """`room` is what it takes its bytes from; `keep` gives it its name."""
        self._name = name
        self._room = room
        self._keep = keep
        self._pieces: Pieces | None = Pieces()

    def append(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            StorageLimit: it is reached. What came before is kept until `discard`.
        """
        assert self._pieces is not None, f"{self._name} is written after its end"
        self._room.take(self._name, len(piece))
        self._pieces.append(piece)

    def publish(self) -> bool:
        """Give it its name; False when that was taken meanwhile, and the bytes are forgotten."""
        assert self._pieces is not None, f"{self._name} is published after its end"
        if self._keep(self._name, self._pieces):
            self._pieces = None
            return True
        self.discard()
        return False

    def discard(self) -> None:
        """Forget it, unless it was published."""
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            self._room.give_back(pieces.bytes)


class _Room:
    """The bytes that may be held, and those that are."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, name: str, size: int) -> None:
        """Count bytes that are about to be kept for `name`.

        Raises:
            StorageLimit: there is no room for them.
        """
        wanted = self.held + size
        if wanted > self._limit and not name.startswith(names.COMMITS):
            raise StorageLimit(
                f"cannot keep {name} in the coordinator's memory: with it there would be {wanted:,} bytes of snapshots, "
                f"and checkpoint.memory_limit is {self._limit:,}; raise checkpoint.memory_limit, lower "
                "checkpoint.retained, or set checkpoint.storage to a folder"
            )
        self.held = wanted

    def give_back(self, size: int) -> None:
        self.held -= size


class Pieces:
    """The bytes of an object, as they came."""

    def __init__(self) -> None:
        self.bytes = 0
        self._pieces: list[bytes] = []
        self._starts: list[int] = []

    def append(self, piece: bytes) -> None:
        if piece:
            self._starts.append(self.bytes)
            self._pieces.append(piece)
            self.bytes += len(piece)

    def read(self, offset: int, size: int) -> bytes:
        end = self.bytes if size < 0 else min(offset + size, self.bytes)
        found: list[bytes] = []
        at = max(bisect_right(self._starts, offset) - 1, 0)
        while offset < end:
            piece, start = self._pieces[at], self._starts[at]
            found.append(piece[offset - start : end - start])
            offset = start + len(piece)
            at += 1
        return b"".join(found)


class MemoryStorage:
    """The objects as `Storage`, for the process that holds them. `disk` is where `adopt` finds its files."""

    def __init__(self, objects: MemoryObjects, disk: Disk) -> None:
        self._objects = objects
        self._disk = disk

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """See `Storage`. StorageLimit when that is reached."""
        unpublished = self._objects.begin(name)
        if unpublished is None:
            return False
        try:
            async with aclosing(one_by_one(chunks)) as pieces:
                async for piece in pieces:
                    unpublished.append(piece)
                    await asyncio.sleep(0)
            return unpublished.publish()
        finally:
            unpublished.discard()

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """See `Storage`."""
        return self._objects.read(name, offset, size)

    async def open(self, name: str) -> None:
        """See `Storage`. An object that is removed is gone, so it has to be read whole."""
        self._objects.read(name, 0, 0)

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """See `Storage`. Interrupted writers leave nothing."""
        names.require_prefix(prefix)
        return [] if unfinished else self._objects.listed(prefix)

    async def delete(self, *doomed: str) -> bool:
        """See `Storage`."""
        return self._objects.remove(*doomed)

    async def adopt(self, local_path: str, name: str) -> bool:
        """See `Storage`. Always a copy."""
        return await self.put_if_absent(name, LocalFile(self._disk, local_path))

    def close(self) -> None:
        """See `Storage`. The objects stay as long as this process does."""
