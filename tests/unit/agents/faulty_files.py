"""A disk in memory that fails where it is told to, and that forgets what was not synced when the power goes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from flowpoint.agents.files import Files


class PowerLost(BaseException):
    """The machine is off: nothing that runs on it can catch this."""


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass
class MemoryFiles(Files):
    """Names and inodes, each as they are now and as they are on the disk."""

    names: dict[str, int] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)
    durable_names: dict[str, int] = field(default_factory=dict)
    durable_data: dict[int, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    durable_folders: set[str] = field(default_factory=set)
    calls: int = 0
    fail_at: int = 0
    error: int = errno.EIO
    after: bool = False
    """Whether what fails has happened all the same."""
    lasting: bool = False
    fired: bool = False
    meanwhile: Callable[[], None] | None = None
    """What another process does, once, when so many calls are left before it."""
    calls_before: int = 0

    def copied(self) -> MemoryFiles:
        """Another disk with the same on it."""
        copy = MemoryFiles()
        copy.restore(self)
        return copy

    def restore(self, other: MemoryFiles) -> None:
        """Hold what another disk holds."""
        self.names, self.data, self.folders = dict(other.names), dict(other.data), set(other.folders)
        self.durable_names, self.durable_data = dict(other.durable_names), dict(other.durable_data)
        self.durable_folders = set(other.durable_folders)

    def lose_power(self) -> None:
        """Only what was synced is left."""
        self.names = {name: inode for name, inode in self.durable_names.items() if inode in self.durable_data}
        # A name that is durable without its data would be a torn file.
        assert self.names == self.durable_names
        self.data = dict(self.durable_data)
        self.folders = set(self.durable_folders)
        self.fail_at, self.fired = 0, False

    @contextmanager
    def _call(self) -> Iterator[None]:
        self.calls += 1
        self._let_others()
        hit = self.fail_at and (self.calls == self.fail_at or (self.lasting and self.calls > self.fail_at))
        if hit:
            self.fired = True
        if hit and not self.after:
            self._fail()
        yield
        if hit:
            self._fail()

    def _let_others(self) -> None:
        if self.meanwhile is None:
            return
        self.calls_before -= 1
        if self.calls_before < 0:
            others, self.meanwhile = self.meanwhile, None
            others()

    def _fail(self) -> None:
        if not self.error:
            raise PowerLost
        raise OSError(self.error, os.strerror(self.error))

    def read(self, path: str) -> bytes:
        with self._call():
            if path not in self.names:
                raise FileNotFoundError(errno.ENOENT, "missing", path)
            return self.data[self.names[path]]

    def write(self, path: str, data: bytes) -> None:
        with self._call():
            assert path not in self.names, path
            self._look_for(_folder_of(path))
            inode = max(self.data, default=0) + 1
            self.names[path] = inode
            self.data[inode] = self.durable_data[inode] = data

    def link(self, source: str, target: str) -> None:
        with self._call():
            if target in self.names:
                raise FileExistsError(errno.EEXIST, "exists", target)
            self.names[target] = self.names[source]

    def remove(self, path: str) -> None:
        with self._call():
            if path not in self.names:
                raise FileNotFoundError(errno.ENOENT, "missing", path)
            del self.names[path]

    def exists(self, path: str) -> bool:
        with self._call():
            return path in self.names or path in self.folders

    def changed(self, path: str) -> Hashable:
        with self._call():
            return frozenset(item for item in self.names.items() if _folder_of(item[0]) == path)

    def list(self, path: str) -> list[Any]:
        with self._call():
            inside = [(name, False) for name in self.names if _folder_of(name) == path]
            inside += [(name, True) for name in self.folders if _folder_of(name) == path]
            return [
                SimpleNamespace(name=os.path.basename(name), is_dir=lambda is_dir=is_dir: is_dir)
                for name, is_dir in inside
            ]

    def make_folder(self, path: str) -> None:
        with self._call():
            self._look_for(_folder_of(path))
            self.folders.add(path)

    def remove_folder(self, path: str) -> bool:
        with self._call():
            if any(_folder_of(name) == path for name in (*self.names, *self.folders)):
                return False
            self.folders.discard(path)
            return True

    def _look_for(self, folder: str) -> None:
        if folder not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "missing", folder)

    def sync_folder(self, path: str) -> None:
        with self._call():
            self._look_for(path)
            here = {name: inode for name, inode in self.names.items() if _folder_of(name) == path}
            rest = {name: inode for name, inode in self.durable_names.items() if _folder_of(name) != path}
            self.durable_names = rest | here
            if path in self.durable_folders:
                there = {one for one in self.folders if _folder_of(one) == path}
                gone = {one for one in self.durable_folders if _folder_of(one) == path} - there
                self._lose({f"{one}/" for one in gone})
                self.durable_folders = (self.durable_folders - gone) | there

    def _lose(self, prefixes: set[str]) -> None:
        """A removed folder takes with it what is on the disk below it."""
        self.durable_names = {
            name: inode for name, inode in self.durable_names.items() if not any(map(name.startswith, prefixes))
        }
        self.durable_folders = {one for one in self.durable_folders if not any(map(one.startswith, prefixes))}

    def hold(self, path: str) -> int:
        return -1

    def hold_alone(self, held: int) -> bool:
        return True

    def release(self, held: int) -> None: ...

    @contextmanager
    def locked(self, path: str, alone: bool) -> Iterator[None]:
        with self._call():
            pass
        yield
