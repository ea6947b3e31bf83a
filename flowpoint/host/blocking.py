"""The world for tools that have no loop: `host.base.Disk` by plain blocking calls, clock, ids, and `run_now`.

What reads and writes snapshots is written once, as coroutines over a `Disk`. Over a `BlockingDisk` none of them ever
waits, so `run_now` runs one to its end like a function: also in a notebook, whose loop is running already, and inside
another `run_now`.

Not here: anything that a job uses while it runs (`disk.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from flowpoint.errors import InternalError
from flowpoint.host import disk
from flowpoint.host.base import FileStat

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits. `asyncio.sleep(0)`, a turn for others, is passed over."""
    try:
        while True:
            if coroutine.send(None) is not None:
                coroutine.close()
                raise InternalError(f"{coroutine} waits for something, which needs a loop")
    except StopIteration as done:
        result: T = done.value
        return result


def wall_ms() -> int:
    """See `host.base.Host`."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """See `host.base.Host`."""
    return os.urandom(8).hex()


class BlockingFile:
    """A file open for sequential writing. Whoever uses it gives it up at the first error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_open = True

    async def write(self, data: bytes) -> None:
        """See `host.base.DiskFile`."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    async def sync(self) -> None:
        """See `host.base.DiskFile`."""
        disk.make_durable(self._descriptor)

    async def close(self) -> None:
        """See `host.base.DiskFile`."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)


class BlockingDisk:
    """The local file system; every call blocks until it is done."""

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """See `host.base.Disk`."""
        return disk.read(path, offset, size)

    async def open(self, path: str) -> disk.SystemOpenFile:
        """See `host.base.Disk`."""
        return disk.SystemOpenFile(path)

    async def create(self, path: str, *, private: bool = True) -> BlockingFile:
        """See `host.base.Disk`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return BlockingFile(os.open(path, flags, 0o600 if private else 0o666))

    async def link(self, source: str, target: str) -> None:
        """See `host.base.Disk`."""
        os.link(source, target)

    async def rename(self, source: str, target: str) -> None:
        """See `host.base.Disk`."""
        os.replace(source, target)

    async def remove(self, path: str) -> bool:
        """See `host.base.Disk`."""
        return disk.remove(path)

    async def remove_tree(self, path: str) -> None:
        """See `host.base.Disk`."""
        disk.remove_tree(path)

    async def list(self, path: str) -> list[str]:
        """See `host.base.Disk`."""
        return disk.list_names(path)

    async def stat(self, path: str) -> FileStat | None:
        """See `host.base.Disk`."""
        return disk.stat_path(path)

    async def is_link(self, path: str) -> bool:
        """See `host.base.Disk`."""
        return disk.is_link(path)

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        """See `host.base.Disk`."""
        disk.make_folders(path, 0o700 if private else 0o777)

    async def sync_dir(self, path: str) -> None:
        """See `host.base.Disk`."""
        disk.sync_folder(path)
