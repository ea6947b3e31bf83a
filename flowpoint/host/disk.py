"""The local file system: `host.base.Disk` for the real world, on `aiofiles` and a small pool of threads.

Every operation is one hop to a thread (some 60 microseconds), so that a slow disk stops neither the loop nor the
stream. Files that are written stay open across many hops, through `aiofiles`, unbuffered: what `write` returned from is
in the kernel, and an error is raised by the very call that caused it.

Invariants:
- A write that fails leaves the file as it was, so that it can be tried again when a full disk has room.
- A file whose sync failed is lost for good: the kernel reports such an error once and then forgets the pages, so a
  second sync would succeed without anything being on the disk.
- An operation runs to its end even if its caller is cancelled, and the next one waits for it. A descriptor is never
  closed under a thread that still writes to it: it might belong to another file by then.

Not here: temp files and publishing (`snapshot.storage`), retries, what the bytes mean.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import aiofiles

from flowpoint.host.base import FileStat
from flowpoint.host.regular_files import open_existing

T = TypeVar("T")

_LOST_ERRORS: Final = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})
"""What a sync fails with that has lost pages; a file system that cannot sync so at all has other words for it."""


class _Handle(Protocol):
    """What is used of an `aiofiles` file opened for unbuffered writing."""

    async def write(self, data: memoryview) -> int: ...
    async def truncate(self, size: int) -> int: ...
    async def seek(self, offset: int) -> int: ...
    async def close(self) -> None: ...
    def fileno(self) -> int: ...


class SystemFile:
    """A file open for sequential writing."""

    def __init__(self, path: str, handle: _Handle, executor: Executor) -> None:
        self._path = path
        self._handle = handle
        self._executor = executor
        self._size = 0
        self._lost: str | None = None
        self._closed = False
        self._running: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """See `host.base.DiskFile`."""
        await self._alone(self._write(data))

    async def sync(self) -> None:
        """See `host.base.DiskFile`."""
        await self._alone(self._sync())

    async def close(self) -> None:
        """See `host.base.DiskFile`."""
        await self._alone(self._close())

    async def _alone(self, operation: Coroutine[Any, Any, None]) -> None:
        """Run one operation after the one before it, to its end, whatever happens to the caller."""
        previous = self._running
        self._running = running = asyncio.create_task(self._after(previous, operation))
        await asyncio.shield(running)

    @staticmethod
    async def _after(previous: asyncio.Task[None] | None, operation: Coroutine[Any, Any, None]) -> None:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        await operation

    async def _write(self, data: bytes) -> None:
        self._check_usable()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[await self._handle.write(rest) :]
        except OSError:
            await self._take_back()
            raise
        self._size += len(data)

    async def _take_back(self) -> None:
        """Cut off what a failed write left behind."""
        try:
            await self._handle.truncate(self._size)
            await self._handle.seek(self._size)
        except OSError as error:
            self._lost = f"a failed write could not be taken back ({error.strerror})"

    async def _sync(self) -> None:
        self._check_usable()
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, make_durable, self._handle.fileno())
        except OSError as error:
            self._lost = f"a sync failed ({error.strerror})"
            raise

    async def _close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._handle.close()

    def _check_usable(self) -> None:
        if self._lost is not None:
            raise OSError(errno.EIO, f"the file is lost since {self._lost}; write it anew", self._path)
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)


class SystemOpenFile:
    """A file open for reading."""

    def __init__(self, path: str) -> None:
        self._descriptor = open_existing(path)

    def read_at(self, offset: int, size: int) -> bytes:
        """See `host.base.OpenFile`."""
        data = os.pread(self._descriptor, size, offset)
        while 0 < len(data) < size and (more := os.pread(self._descriptor, size - len(data), offset + len(data))):
            data += more
        return data

    def close(self) -> None:
        """See `host.base.OpenFile`."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class SystemDisk:
    """The local file system. `executor` runs what blocks."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """See `host.base.Disk`."""
        return await self._run(read, path, offset, size)

    async def open(self, path: str) -> SystemOpenFile:
        """See `host.base.Disk`. What is opened after its caller was cancelled is closed again."""
        opening = asyncio.get_running_loop().run_in_executor(self._executor, SystemOpenFile, path)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    async def create(self, path: str, *, private: bool = True) -> SystemFile:
        """See `host.base.Disk`."""
        opener = partial(os.open, mode=0o600 if private else 0o666)
        handle: _Handle = await aiofiles.open(path, "xb", buffering=0, opener=opener, executor=self._executor)
        return SystemFile(path, handle, self._executor)

    async def link(self, source: str, target: str) -> None:
        """See `host.base.Disk`."""
        await self._run(os.link, source, target)

    async def rename(self, source: str, target: str) -> None:
        """See `host.base.Disk`."""
        await self._run(os.replace, source, target)

    async def remove(self, path: str) -> bool:
        """See `host.base.Disk`."""
        return await self._run(remove, path)

    async def remove_tree(self, path: str) -> None:
        """See `host.base.Disk`."""
        await self._run(remove_tree, path)

    async def list(self, path: str) -> list[str]:
        """See `host.base.Disk`."""
        return await self._run(list_names, path)

    async def stat(self, path: str) -> FileStat | None:
        """See `host.base.Disk`."""
        return await self._run(stat_path, path)

    async def is_link(self, path: str) -> bool:
        """See `host.base.Disk`."""
        return await self._run(is_link, path)

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        """See `host.base.Disk`."""
        await self._run(make_folders, path, 0o700 if private else 0o777)

    async def sync_dir(self, path: str) -> None:
        """See `host.base.Disk`."""
        await self._run(sync_folder, path)

    async def _run(self, fn: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(fn, *args))


def _close_opened(opening: asyncio.Future[SystemOpenFile]) -> None:
    """Nobody has got this file. One that could not be opened is no news to anybody either."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def make_durable(descriptor: int) -> None:
    """Wait until everything written to a file is on the disk itself (rule 23)."""
    if sys.platform == "darwin":
        # Here fsync only hands the data to the drive, which may lose it. Some network file systems know no better.
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno in _LOST_ERRORS:
                raise
    os.fsync(descriptor)


def read(path: str, offset: int, size: int) -> bytes:
    """Open, read and close in one hop: between two hops the loop may be busy with a batch for milliseconds."""
    with open(open_existing(path), "rb") as file:
        file.seek(offset)
        return file.read(size)


def sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        make_durable(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str, mode: int) -> None:
    """Make what is missing from the top down; each new name is durable before the next folder is made in it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, mode)
        except FileExistsError:
            # Somebody made it in between; a file of that name is an error.
            if not os.path.isdir(folder):
                raise
        sync_folder(os.path.dirname(folder))


def remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_tree(path: str) -> None:
    def pass_over_missing(
        _function: Callable[..., object], _path: str, info: tuple[type[BaseException], BaseException, TracebackType]
    ) -> None:
        if not isinstance(info[1], FileNotFoundError):
            raise info[1]

    shutil.rmtree(path, onerror=pass_over_missing)


def list_names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def is_link(path: str) -> bool:
    return os.path.islink(path)


def stat_path(path: str) -> FileStat | None:
    try:
        facts = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_dir, is_file = stat.S_ISDIR(facts.st_mode), stat.S_ISREG(facts.st_mode)
    return FileStat(facts.st_size, facts.st_mtime_ns // 1_000_000, is_dir, is_other=not is_dir and not is_file)
