"""The file system of the simulated machine: what is in it, and what of that would survive a crash.

A file's content counts as durable up to `synced`. A folder keeps the names as they are now, the names as of its last
sync, and the changes between them in order. A power failure keeps, per folder, a prefix of those changes, and per file
the synced bytes plus a part of the rest, possibly torn or filled with zeros. A killed process loses a tail of what it
was still writing. All of it is drawn from the random stream given.

Invariants:
- A rename inside a folder is one change: after a crash there is the old name or the new one, never neither.
- After a failed sync a file's unsynced bytes can never become durable any more, though later syncs "succeed" (rule 23).
- `watch` callbacks see every change of names and every sync, at once, before anybody else can run.

Not here: delays, injected errors and dead processes (`disk`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal, TypeAlias

from flowpoint.host.base import FileStat

ChangeKind: TypeAlias = Literal["create", "link", "rename", "remove", "sync", "sync_dir", "crash"]
ZERO_FILL_SHARE = 0.15


@dataclass(frozen=True, slots=True)
class Change:
    """Something happened to a path. `source` is the older name of a link or rename."""

    kind: ChangeKind
    path: str
    source: str = ""


@dataclass(eq=False, slots=True)
class File:
    """Content with any number of names. `writer` is who has it open; `lost` says that a sync of it has failed."""

    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    writer: object | None = None
    lost: bool = False
    mtime_ms: int = 0

    @property
    def durable(self) -> bool:
        """Whether a power failure would leave the content as it is."""
        return self.synced == len(self.data)


@dataclass(eq=False, slots=True)
class Folder:
    """Names now, names as of the last sync, and the changes from those to these."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    journal: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, updates: dict[str, Node | None]) -> None:
        """Apply one indivisible change of names."""
        _apply(self.names, updates)
        self.journal.append(updates)

    def sync(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.names)
        self.journal.clear()


Node: TypeAlias = File | Folder


class FileSystem:
    """All files of the simulated machine. Every method is instantaneous."""

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self.root = Folder()
        self.volume = ""
        """A folder that is a file system of its own: nothing can be linked into it, or out of it. "": there is none."""
        self._random = random
        self._now_ms = now_ms
        self._watchers: list[Callable[[Change], None]] = []

    def watch(self, callback: Callable[[Change], None]) -> None:
        """Call back after every change."""
        self._watchers.append(callback)

    # ------------------------------------------------------------------ names

    def create(self, path: str, writer: object | None) -> File:
        """A new, empty file, open for `writer`; None: closed."""
        folder, name = self._place(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        file = File(writer=writer, mtime_ms=self._now_ms())
        folder.change({name: file})
        self._tell(Change("create", path))
        return file

    def link(self, source: str, target: str) -> None:
        """A second name for a file."""
        file = self.file(source)
        folder, name = self._place(target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "file exists", target)
        if self.is_on_volume(source) != self.is_on_volume(target):
            raise OSError(errno.EXDEV, "invalid cross-device link", target)
        folder.change({name: file})
        self._tell(Change("link", target, source))

    def rename(self, source: str, target: str) -> None:
        """Rename inside one folder, replacing `target`."""
        folder, old = self._place(source)
        other, new = self._place(target)
        if other is not folder:
            # What a crash leaves of such a rename differs between file systems; no design should lean on it.
            raise NotImplementedError(f"cannot rename {source} to {target}: renames across folders are not simulated")
        node = folder.names.get(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if isinstance(folder.names.get(new), Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", target)
        if old != new:
            folder.change({old: None, new: node})
        self._tell(Change("rename", target, source))

    def remove(self, path: str) -> bool:
        """Remove a file; False when it was not there."""
        node = self.find(path)
        if node is None:
            return False
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        folder, name = self._place(path)
        folder.change({name: None})
        self._tell(Change("remove", path))
        return True

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it."""
        node = self.find(path)
        if node is None:
            return
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        for name in list(node.names):
            child = f"{path}/{name}"
            if isinstance(node.names[name], Folder):
                self.remove_tree(child)
            else:
                self.remove(child)
        folder, name = self._place(path)
        folder.change({name: None})

    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents, durably."""
        folder = self.root
        for name in _parts(path):
            node = folder.names.get(name)
            if node is None:
                node = Folder()
                folder.change({name: node})
                folder.sync()
            if isinstance(node, File):
                raise FileExistsError(errno.EEXIST, "a file is in the way of a folder", path)
            folder = node

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        self._folder(path).sync()
        self._tell(Change("sync_dir", path))

    # ------------------------------------------------------------------ content

    def append(self, file: File, data: bytes) -> None:
        """Add bytes to a file."""
        file.data += data
        file.mtime_ms = self._now_ms()

    def sync(self, file: File, path: str) -> None:
        """Make the content of a file durable, unless a sync of it has failed before."""
        if not file.lost:
            file.synced = len(file.data)
        self._tell(Change("sync", path))

    def write_whole(self, path: str, data: bytes) -> None:
        """Put a durable file there, as a person would who prepares the machine."""
        parent = os.path.dirname(path)
        self.make_dirs(parent)
        self._folder(parent).names[os.path.basename(path)] = File(bytearray(data), len(data), mtime_ms=self._now_ms())
        self._folder(parent).sync()

    # ------------------------------------------------------------------ looking

    def find(self, path: str) -> Node | None:
        """The file or folder at a path."""
        node: Node = self.root
        for name in _parts(path):
            child = node.names.get(name) if isinstance(node, Folder) else None
            if child is None:
                return None
            node = child
        return node

    def file(self, path: str) -> File:
        """The file at a path; an OSError when there is none."""
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return node

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty when it is not there."""
        node = self.find(path)
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return sorted(node.names) if node is not None else []

    def stat(self, path: str) -> FileStat | None:
        """Facts about a path."""
        node = self.find(path)
        if node is None:
            return None
        if isinstance(node, Folder):
            return FileStat(size=0, mtime_ms=0, is_dir=True)
        return FileStat(size=len(node.data), mtime_ms=node.mtime_ms, is_dir=False)

    def is_durable(self, path: str) -> bool:
        """Whether a power failure now would leave this file there, whole."""
        node: Node = self.root
        for name in _parts(path):
            if not isinstance(node, Folder):
                return False
            child = node.names.get(name)
            # A crash may cut the journal anywhere, so a name with a pending change is not safe whatever that is.
            if child is None or node.durable.get(name) is not child or any(name in one for one in node.journal):
                return False
            node = child
        return isinstance(node, File) and node.durable

    def is_on_volume(self, path: str) -> bool:
        """Whether a path is on the file system of its own."""
        return bool(self.volume) and f"{path}/".startswith(f"{self.volume}/")

    def walk(self, path: str) -> Iterator[tuple[str, File]]:
        """Every file below a folder with its path, in the order of names."""
        for name in self.list(path):
            child = f"{path.rstrip('/')}/{name}"
            node = self.find(child)
            if isinstance(node, File):
                yield child, node
            else:
                yield from self.walk(child)

    # ------------------------------------------------------------------ crashes

    def crash_writer(self, writer: object) -> None:
        """A process died: of each file that it had open, a tail of the unsynced bytes is lost."""
        for _, file in self.walk("/"):
            if file.writer is writer:
                file.writer = None
                del file.data[self._survivors(file) :]

    def power_failure(self) -> None:
        """Everything not durable is lost, kept in part, or torn."""
        self._crash_folder(self.root, set())
        self._tell(Change("crash", "/"))

    def damage(self, path: str) -> None:
        """Flip one bit of a file (bit rot)."""
        file = self.file(path)
        if file.data:
            # A new array: other names of the file see the damage, readers that hold bytes do not.
            file.data[self._random.randrange(len(file.data))] ^= 1 << self._random.randrange(8)

    def _crash_folder(self, folder: Folder, seen: set[int]) -> None:
        kept = _draw_length(self._random, 0, len(folder.journal))
        names = dict(folder.durable)
        for updates in folder.journal[:kept]:
            _apply(names, updates)
        folder.names = names
        folder.sync()
        for node in names.values():
            if isinstance(node, Folder):
                self._crash_folder(node, seen)
            elif id(node) not in seen:
                seen.add(id(node))
                self._crash_file(node)

    def _crash_file(self, file: File) -> None:
        kept, size = self._survivors(file), len(file.data)
        del file.data[kept:]
        if kept < size and self._random.random() < ZERO_FILL_SHARE:
            file.data += bytes(size - kept)
        file.synced, file.writer, file.lost = len(file.data), None, False

    def _survivors(self, file: File) -> int:
        return _draw_length(self._random, file.synced, len(file.data))

    # ------------------------------------------------------------------ paths

    def _tell(self, change: Change) -> None:
        for callback in self._watchers:
            callback(change)

    def _folder(self, path: str) -> Folder:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        parent, name = os.path.split(path.rstrip("/"))
        if not name:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return self._folder(parent), name


def _parts(path: str) -> list[str]:
    if not path.startswith("/"):
        raise ValueError(f"cannot use {path!r}: paths given to a Disk are absolute")
    return [part for part in path.split("/") if part and part != "."]


def _apply(names: dict[str, Node], updates: dict[str, Node | None]) -> None:
    for name, node in updates.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _draw_length(random: Random, least: int, most: int) -> int:
    """Nothing beyond the least, everything, or something between: each about as often."""
    if least == most:
        return most
    kind = random.randrange(3)
    return (least, most, random.randint(least, most))[kind]
