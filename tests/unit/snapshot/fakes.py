"""A disk in memory that forgets what was not synced, and fails where it is told to; and a host with just that disk.

The disk knows two states of everything: as running processes see it, and as it would be after the power went. A failed
sync is final: what it should have made durable stays lost, however often it is synced again (the worst that real disks
do).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from flowpoint.host.base import FileStat

T = TypeVar("T")

MODIFYING = frozenset({"create", "write", "sync", "link", "rename", "remove", "remove_tree", "make_dirs", "sync_dir"})


class PowerLoss(BaseException):
    """The machine stopped here: nothing after it runs, and no error handling either."""


@dataclass
class Inode:
    """The bytes of a file: as seen, and as durable. `lost`: a sync failed."""

    data: bytes = b""
    synced: bytes = b""
    lost: bool = False


@dataclass
class Folder:
    """The names in a folder: as seen, and as durable. `lost`: names whose sync failed. `stays`: it is durable itself."""

    stays: bool = True
    seen: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


class Faults:
    """Which disk call fails, and how. Calls are counted from 1; `counted` says which kinds count."""

    def __init__(self) -> None:
        self.calls = 0
        self.fired = False
        self.trace: list[str] = []
        self._at = 0
        self._persistent = False
        self._mode = ""
        self._errno = errno.EIO
        self._counted: frozenset[str] = MODIFYING

    def fail(
        self,
        at: int,
        mode: str,
        *,
        error: int = errno.EIO,
        persistent: bool = False,
        counted: frozenset[str] = MODIFYING,
    ) -> None:
        """Fail the `at`th call from now.

        mode: "before" (an error, nothing was done), "after" (an error, but it was done), "crash before", "crash after".
        persistent: all later calls fail too.
        """
        self.calls = 0
        self.fired = False
        self._at, self._mode, self._errno, self._persistent, self._counted = at, mode, error, persistent, counted

    def clear(self) -> None:
        """No more faults."""
        self._at = 0

    def hit(self, kind: str) -> str:
        """Count a call; how it fails ("" for not)."""
        if kind not in self._counted:
            return ""
        self.calls += 1
        self.trace.append(kind)
        due = self._at and (self.calls == self._at or (self._persistent and self.calls > self._at))
        self.fired = self.fired or bool(due)
        return self._mode if due else ""

    def error(self) -> OSError:
        return OSError(self._errno, os.strerror(self._errno))


class MemoryOpenFile:
    """A file open for reading."""

    def __init__(self, inode: Inode) -> None:
        self._inode = inode
        self.is_closed = False

    def read_at(self, offset: int, size: int) -> bytes:
        assert not self.is_closed
        return self._inode.data[offset : offset + size]

    def close(self) -> None:
        self.is_closed = True


class MemoryDisk:
    """See the module.

    `gate`, when set, is awaited before each call: a test can hold or order calls there. `devices` are folders that
    cannot be linked into or out of.
    """

    def __init__(self) -> None:
        self.folders: dict[str, Folder] = {"/": Folder()}
        self.faults = Faults()
        self.gate: Callable[[str, str], Awaitable[None]] | None = None
        self.devices: tuple[str, ...] = ()

    def lose_power(self) -> None:
        """Forget everything that was not synced. The faults are over too."""
        self.faults.clear()
        self.folders = {path: folder for path, folder in self.folders.items() if folder.stays}
        for folder in self.folders.values():
            folder.seen = dict(folder.durable)
            folder.lost.clear()
            for inode in folder.seen.values():
                inode.data = inode.synced
                inode.lost = False

    def files(self, durable: bool = False) -> dict[str, bytes]:
        """All files by path."""
        return {
            f"{path}/{name}": inode.synced if durable else inode.data
            for path, folder in self.folders.items()
            for name, inode in (folder.durable if durable else folder.seen).items()
        }

    async def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        async def work() -> bytes:
            data = self._inode(path).data
            return data[offset:] if size < 0 else data[offset : offset + size]

        return await self._call("read", path, work)

    async def open(self, path: str) -> MemoryOpenFile:
        async def work() -> MemoryOpenFile:
            return MemoryOpenFile(self._inode(path))

        return await self._call("open", path, work)

    async def create(self, path: str, *, private: bool = True) -> MemoryFile:
        async def work() -> MemoryFile:
            folder, name = self._place(path)
            if name in folder.seen:
                raise FileExistsError(errno.EEXIST, "exists", path)
            folder.seen[name] = Inode()
            return MemoryFile(self, path, folder.seen[name])

        return await self._call("create", path, work)

    async def link(self, source: str, target: str) -> None:
        async def work() -> None:
            inode = self._inode(source)
            folder, name = self._place(target)
            if name in folder.seen:
                raise FileExistsError(errno.EEXIST, "exists", target)
            if any(source.startswith(device) != target.startswith(device) for device in self.devices):
                raise OSError(errno.EXDEV, "another device")
            folder.seen[name] = inode

        await self._call("link", target, work)

    async def rename(self, source: str, target: str) -> None:
        async def work() -> None:
            inode = self._inode(source)
            folder, name = self._place(target)
            folder.seen[name] = inode
            old, old_name = self._place(source)
            del old.seen[old_name]

        await self._call("rename", target, work)

    async def remove(self, path: str) -> bool:
        async def work() -> bool:
            folder = self.folders.get(os.path.dirname(path))
            return folder is not None and folder.seen.pop(os.path.basename(path), None) is not None

        return await self._call("remove", path, work)

    async def remove_tree(self, path: str) -> None:
        async def work() -> None:
            for name in [p for p in self.folders if p == path or p.startswith(f"{path}/")]:
                del self.folders[name]

        await self._call("remove_tree", path, work)

    async def list(self, path: str) -> list[str]:
        async def work() -> list[str]:
            folder = self.folders.get(path)
            below = [os.path.basename(name) for name in self.folders if os.path.dirname(name) == path and name != "/"]
            return sorted([*folder.seen, *below]) if folder else []

        return await self._call("list", path, work)

    async def stat(self, path: str) -> FileStat | None:
        async def work() -> FileStat | None:
            if path in self.folders:
                return FileStat(0, 0, True)
            try:
                return FileStat(len(self._inode(path).data), 0, False)
            except FileNotFoundError:
                return None

        return await self._call("stat", path, work)

    async def is_link(self, path: str) -> bool:
        return False

    async def make_dirs(self, path: str, *, private: bool = True) -> None:
        parts = path.split("/")
        parents = ["/".join(parts[:length]) for length in range(2, len(parts) + 1)]

        async def work() -> None:
            for parent in parents:
                self.folders.setdefault(parent, Folder())

        def made_but_not_synced() -> None:
            for parent in parents:
                self.folders.setdefault(parent, Folder(stays=False))

        await self._call("make_dirs", path, work, made_but_not_synced)

    async def sync_dir(self, path: str) -> None:
        async def work() -> None:
            folder = self.folders.get(path)
            if folder is None:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            folder.durable = {name: inode for name, inode in folder.seen.items() if name not in folder.lost}
            for child in self.folders:
                if os.path.dirname(child) == path:
                    self.folders[child].stays = True

        def failed() -> None:
            folder = self.folders.get(path, Folder())
            folder.lost |= {name for name in folder.seen if name not in folder.durable}

        await self._call("sync_dir", path, work, failed)

    async def _call(
        self, kind: str, path: str, work: Callable[[], Awaitable[T]], failed: Callable[[], None] | None = None
    ) -> T:
        if self.gate is not None:
            await self.gate(kind, path)
        match self.faults.hit(kind):
            case "before":
                if failed is not None:
                    failed()
                raise self.faults.error()
            case "after":
                await work()
                raise self.faults.error()
            case "crash before":
                if failed is not None:
                    failed()
                raise PowerLoss
            case "crash after":
                await work()
                raise PowerLoss
        return await work()

    def _place(self, path: str) -> tuple[Folder, str]:
        folder = self.folders.get(os.path.dirname(path))
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return folder, os.path.basename(path)

    def _inode(self, path: str) -> Inode:
        folder, name = self._place(path)
        if name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return folder.seen[name]


class MemoryFile:
    """A file of a `MemoryDisk`, open for writing."""

    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    async def write(self, data: bytes) -> None:
        async def work() -> None:
            self._inode.data += data

        def torn() -> None:
            self._inode.data += data[: len(data) // 2]

        await self._disk._call("write", self._path, work, torn)

    async def sync(self) -> None:
        async def work() -> None:
            if not self._inode.lost:
                self._inode.synced = self._inode.data

        def lost() -> None:
            self._inode.lost = True

        await self._disk._call("sync", self._path, work, lost)

    async def close(self) -> None:
        return None


class FakeHost:
    """As much of a host as this room uses. Ids are counted, not random; hosts have different names."""

    def __init__(self, disk: MemoryDisk, name: str = "host") -> None:
        self.disk = disk
        self.name = name
        self._ids = 0

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def new_id(self) -> str:
        self._ids += 1
        return f"{self.name.encode().hex()}{self._ids:04x}"
