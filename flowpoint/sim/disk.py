"""The disk as one simulated process sees it: the machine's files behind delays, injected errors and sudden death.

An operation takes effect some time after the call and answers some time after that. Both are timers of the process:
when it dies between them, the effect may be there and the answer never comes. As with a thread in the real world, an
operation whose caller was cancelled still takes effect.

`DiskFaults` holds what is wrong with the disk at the moment; `faults` switches it on and off. What is injected follows
the budget that stands there.

Invariant: each operation is indivisible, except for a write on a full disk, which may leave a part of its bytes.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVar

from flowpoint.host.base import DiskFile, FileStat
from flowpoint.sim.files import File, FileSystem

if TYPE_CHECKING:
    from flowpoint.sim.world import SimProcess

T = TypeVar("T")

EFFECT_DELAY = (0.00002, 0.0004)
ANSWER_DELAY = (0.00001, 0.0002)
SYNC_FACTOR = 8.0
_LONG = frozenset({"disk.sync", "disk.sync_dir"})
_SPACE_NEEDED = frozenset({"disk.create", "disk.link", "disk.make_dirs"})


@dataclass(slots=True)
class DiskFaults:
    """What is wrong with the disk now. Rates are chances per operation; `slowness` multiplies every delay.

    volume_full: only the file system of its own has no room (`FileSystem.volume`).
    """

    error_rate: float = 0.0
    lost_answer_rate: float = 0.0
    full: bool = False
    volume_full: bool = False
    slowness: float = 1.0

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.error_rate = self.lost_answer_rate = 0.0
        self.full = self.volume_full = False
        self.slowness = 1.0


class SimDisk:
    """Implements `host.base.Disk` for one process."""

    def __init__(self, process: SimProcess, files: FileSystem, faults: DiskFaults, random: Random) -> None:
        self._process = process
        self._files = files
        self._faults = faults
        self._random = random

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        def effect() -> bytes:
            data = self._files.file(path).data
            return bytes(data[offset:] if size < 0 else data[offset : offset + size])

        return await self.operate("disk.read", path, effect)

    async def open(self, path: str) -> SimOpenFile:
        made: list[SimOpenFile] = []
        is_given_up = False

        def effect() -> SimOpenFile:
            made.append(SimOpenFile(self._files.file(path), path, self._process.opened))
            if is_given_up:
                made[0].close()
            return made[0]

        try:
            return await self.operate("disk.open", path, effect)
        except (asyncio.CancelledError, OSError):
            is_given_up = True
            for file in made:
                file.close()
            raise

    async def create(self, path: str, *, private: bool = True) -> DiskFile:
        made: list[File] = []
        is_given_up = False

        def effect() -> File:
            made.append(self._files.create(path, None if is_given_up else self._process))
            return made[0]

        try:
            return SimDiskFile(self, await self.operate("disk.create", path, effect), path)
        except (asyncio.CancelledError, OSError):
            # The file may be made all the same, but nobody has it open: what nobody holds is closed by the system.
            is_given_up = True
            for file in made:
                file.writer = None
            raise

    async def link(self, source: str, target: str) -> None:
        await self.operate("disk.link", target, lambda: self._files.link(source, target))

    async def rename(self, source: str, target: str) -> None:
        await self.operate("disk.rename", target, lambda: self._files.rename(source, target))

    async def remove(self, path: str) -> bool:
        return await self.operate("disk.remove", path, lambda: self._files.remove(path))

    async def remove_tree(self, path: str) -> None:
        await self.operate("disk.remove_tree", path, lambda: self._files.remove_tree(path))

    async def list(self, path: str) -> list[str]:
        return await self.operate("disk.list", path, lambda: self._files.list(path))

    async def stat(self, path: str) -> FileStat | None:
        return await self.operate("disk.stat", path, lambda: self._files.stat(path))

    async def is_link(self, path: str) -> bool:
        """There are none here, so nothing is looked at."""
        return False

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        await self.operate("disk.make_dirs", path, lambda: self._files.make_dirs(path))

    async def sync_dir(self, path: str) -> None:
        await self.operate("disk.sync_dir", path, lambda: self._files.sync_dir(path))

    async def append(self, file: File, path: str, data: bytes) -> None:
        """Write for a `SimDiskFile`. A full disk may take a part of the bytes."""

        def effect() -> None:
            if self._has_no_room(path):
                self._files.append(file, data[: self._random.randint(0, len(data))])
                raise _no_space(path)
            self._files.append(file, data)

        await self.operate("disk.write", path, effect)

    async def sync(self, file: File, path: str) -> None:
        """Sync for a `SimDiskFile`. After an injected error the unsynced bytes are lost for good."""

        def lose() -> None:
            file.lost = file.lost or not file.durable

        await self.operate("disk.sync", path, lambda: self._files.sync(file, path), on_error=lose)

    async def operate(
        self, name: str, path: str, effect: Callable[[], T], on_error: Callable[[], None] | None = None
    ) -> T:
        """Let `effect` happen after a while and its result be known after another.

        Args:
            name: What it is, for the story and for kills at this very point.
            path: What it is done to.
            effect: Does it. May raise OSError.
            on_error: What an injected error does to the world instead.
        """
        process, draw = self._process, self._random
        process.require_alive(name)
        error = self._draw_error(name, path)
        answer_lost = error is None and draw.random() < self._faults.lost_answer_rate
        scale = self._faults.slowness * (SYNC_FACTOR if name in _LONG else 1.0)
        effect_delay = draw.uniform(*EFFECT_DELAY) * scale
        answer_delay = draw.uniform(*ANSWER_DELAY) * scale

        def attempt() -> T:
            if error is not None:
                if on_error is not None:
                    on_error()
                raise error
            result = effect()
            if answer_lost:
                raise OSError(errno.EIO, "input/output error (injected; it was done, the answer was lost)", path)
            return result

        return await process.perform(name, path, attempt, effect_delay, answer_delay)

    def _has_no_room(self, path: str) -> bool:
        return self._faults.full or (self._faults.volume_full and self._files.is_on_volume(path))

    def _draw_error(self, name: str, path: str) -> OSError | None:
        if name in _SPACE_NEEDED and self._has_no_room(path):
            return _no_space(path)
        if self._random.random() < self._faults.error_rate:
            return OSError(errno.EIO, "input/output error (injected)", path)
        return None


class SimOpenFile:
    """Implements `host.base.OpenFile`: reads take no time, and do not fail. `opened`: those that its process has open."""

    def __init__(self, file: File, path: str, opened: set[SimOpenFile]) -> None:
        self.path = path
        self._file: File | None = file
        self._opened = opened
        opened.add(self)

    @property
    def content(self) -> bytes:
        """All of it, for checkers."""
        return b"" if self._file is None else bytes(self._file.data)

    def read_at(self, offset: int, size: int) -> bytes:
        if self._file is None:
            raise OSError(errno.EBADF, "the file is closed")
        return bytes(self._file.data[offset : offset + size])

    def close(self) -> None:
        self._file = None
        self._opened.discard(self)


class SimDiskFile:
    """Implements `host.base.DiskFile`."""

    def __init__(self, disk: SimDisk, file: File, path: str) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self._closed = False

    async def write(self, data: bytes) -> None:
        self._require_open()
        await self._disk.append(self._file, self._path, bytes(data))

    async def sync(self) -> None:
        self._require_open()
        await self._disk.sync(self._file, self._path)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True

        def effect() -> None:
            self._file.writer = None

        try:
            # Also a close that reports an error has closed the file.
            await self._disk.operate("disk.close", self._path, effect, on_error=effect)
        except asyncio.CancelledError:
            effect()
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)


def _no_space(path: str) -> OSError:
    return OSError(errno.ENOSPC, "no space left on device (injected)", path)
