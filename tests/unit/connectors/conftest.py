"""What the connectors' tests run in: a disk that can fail and forget, a clock that jumps, contexts that collect logs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flowpoint.host.base import FileStat
from flowpoint.host.disk import stat_path
from flowpoint.runtime.contracts import END, ConnectorContext


class Crash(BaseException):
    """The process ends here; nobody may catch it."""


class _Inode:
    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.synced = b""


class _MemoryFile:
    def __init__(self, disk: ForgetfulDisk, inode: _Inode, path: str) -> None:
        self._disk, self._inode, self._path = disk, inode, path

    async def write(self, data: bytes) -> None:
        self._disk.operation("write", self._path)
        self._inode.data += data

    async def sync(self) -> None:
        self._disk.operation("sync", self._path)
        self._inode.synced = self._inode.data

    async def close(self) -> None:
        pass


class ForgetfulDisk:
    """A disk in memory. What was not synced is lost at `crash`, names (up to a point of choice) as well as bytes."""

    def __init__(self) -> None:
        self._names: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}
        self._pending: list[tuple[str, _Inode | None]] = []
        self.before: Callable[[str, str], None] = lambda name, path: None
        self.operations = 0
        self.take_turns = False
        """Whether others get their turn before each step of a write, as on a real disk."""

    def operation(self, name: str, path: str) -> None:
        self.operations += 1
        self.before(name, path)

    def fail_at(self, count: int, error: BaseException, name: str = "") -> None:
        """The count-th operation from now (of that name) raises instead of happening."""
        left = count

        def before(operation: str, path: str) -> None:
            nonlocal left
            if not name or operation == name:
                left -= 1
                if left == 0:
                    raise error

        self.before = before

    def crash(self, keep: float = 0.0) -> None:
        """Loses power. `keep` is the share of the unsynced changes of names that had reached the disk by themselves."""
        for path, inode in self._pending[: round(len(self._pending) * keep)]:
            self._apply(self._durable, path, inode)
        self._names = dict(self._durable)
        self._pending.clear()
        for inode in self._names.values():
            inode.data = inode.synced
        self.before = lambda name, path: None

    def kill(self) -> None:
        """Ends the process only: the kernel keeps everything."""
        self.before = lambda name, path: None

    def put(self, path: str, data: bytes) -> None:
        self._durable[path] = self._names[path] = inode = _Inode(data)
        inode.synced = data

    def visible(self, folder: str) -> dict[str, bytes]:
        return {
            os.path.basename(path): inode.data
            for path, inode in sorted(self._names.items())
            if os.path.dirname(path) == folder and not os.path.basename(path).startswith(".")
        }

    def hidden_parts(self, folder: str) -> list[str]:
        return sorted(os.path.basename(path) for path in self._names if path.startswith(f"{folder}/.part-"))

    def _change(self, path: str, inode: _Inode | None) -> None:
        self._apply(self._names, path, inode)
        self._pending.append((path, inode))

    @staticmethod
    def _apply(names: dict[str, _Inode], path: str, inode: _Inode | None) -> None:
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        self.operation("read", path)
        if path not in self._names:
            raise FileNotFoundError(path)
        data = self._names[path].data[offset:]
        return data if size < 0 else data[:size]

    async def create(self, path: str, *, private: bool = True) -> _MemoryFile:
        if self.take_turns:
            await asyncio.sleep(0)
        self.operation("create", path)
        if path in self._names:
            raise FileExistsError(path)
        inode = _Inode()
        self._change(path, inode)
        return _MemoryFile(self, inode, path)

    async def link(self, source: str, target: str) -> None:
        self.operation("link", target)
        if target in self._names:
            raise FileExistsError(target)
        self._change(target, self._names[source])

    async def rename(self, source: str, target: str) -> None:
        if self.take_turns:
            await asyncio.sleep(0)
        self.operation("rename", target)
        if source not in self._names:
            raise FileNotFoundError(source)
        inode = self._names.pop(source)
        self._names[target] = inode
        # One change, as on a file system with a journal: never both names, never none.
        self._pending.append((target, inode))
        self._pending.append((source, None))

    async def remove(self, path: str) -> bool:
        self.operation("remove", path)
        there = path in self._names
        if there:
            self._change(path, None)
        return there

    async def remove_tree(self, path: str) -> None:
        for name in [name for name in self._names if name.startswith(path + "/")]:
            self._change(name, None)

    async def list(self, path: str) -> list[str]:
        self.operation("list", path)
        return sorted(os.path.basename(name) for name in self._names if os.path.dirname(name) == path)

    async def stat(self, path: str) -> FileStat | None:
        self.operation("stat", path)
        if any(name.startswith(path + "/") for name in self._names):
            return FileStat(0, 0, True)
        inode = self._names.get(path)
        return None if inode is None else FileStat(len(inode.data), 0, False)

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        self.operation("make_dirs", path)

    async def sync_dir(self, path: str) -> None:
        self.operation("sync_dir", path)
        left = []
        for change in self._pending:
            if os.path.dirname(change[0]) == path:
                self._apply(self._durable, *change)
            else:
                left.append(change)
        self._pending = left


class FolderDisk:
    """The real file system, as far as a source reads it."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        self.reads += 1
        with open(path, "rb") as file:  # noqa: ASYNC230 - a test need not stay responsive
            file.seek(offset)
            return file.read(size)

    async def stat(self, path: str) -> FileStat | None:
        return stat_path(path)


class JumpingClock:
    """Time that passes only when somebody sleeps or `now` is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class World:
    """Makes contexts on one disk and one clock, and keeps what they log."""

    def __init__(self, disk: Any) -> None:
        self.disk = disk
        self.clock = JumpingClock()
        self.logged: list[str] = []
        self._context = ConnectorContext(
            uid="out",
            subtask=0,
            parallelism=1,
            lineage="lin1",
            attempt=1,
            disk=disk,
            clock=self.clock,
            log=self.logged.append,
            job="wordcount",
        )

    def context(self, **changes: Any) -> ConnectorContext:
        return replace(self._context, metrics={}, shared={}, **changes)


@pytest.fixture
def memory() -> World:
    """A world on a disk that forgets."""
    return World(ForgetfulDisk())


@pytest.fixture
def folder() -> World:
    """A world on the real file system."""
    return World(FolderDisk())


@pytest.fixture
def crash() -> type[Crash]:
    return Crash


@pytest.fixture
def read_all() -> Callable[..., Any]:
    """Reads a reader to its end, `n` records at a time."""

    async def read(reader: Any, n: int = 1000) -> list[Any]:
        records: list[Any] = []
        while (batch := await reader.read(n)) is not END:
            records += batch
        return records

    return read
