"""What a folder store does to files, one system call or a few each; all of it can fail.

Invariants: a file is synced when `write` returns, its name only by `sync_folder`. Of all who `link` one name, one has
done it. The kernel lets go of a lock when its process ends, however that happens.
Not here: what is written, and in which order (`folder_kv`).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from flowpoint.host.disk import make_durable

_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class Files:
    """The files of this machine. Replaced by tests."""

    def read(self, path: str) -> bytes:
        """All bytes of a file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        """A new, synced file; its name is not synced."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            make_durable(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """A second name; FileExistsError when it is taken."""
        os.link(source, target)

    def remove(self, path: str) -> None:
        """Remove a name."""
        os.unlink(path)

    def exists(self, path: str) -> bool:
        """Whether there is such a name."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def changed(self, path: str) -> Hashable:
        """When names last came to a folder or went, to be compared with what was told before; None without a folder."""
        try:
            return os.stat(path).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, path: str) -> list[os.DirEntry[str]]:
        """What is in a folder; nothing when there is none."""
        try:
            with os.scandir(path) as found:
                return list(found)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: str) -> None:
        """A folder; nothing happens when it is there."""
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)

    def remove_folder(self, path: str) -> bool:
        """Remove a folder that is empty; whether it is gone."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return False
        return True

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            make_durable(descriptor)
        finally:
            os.close(descriptor)

    def hold(self, path: str) -> int:
        """Hold the lock of a folder, shared, until `release`; whose it is."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def hold_alone(self, held: int) -> bool:
        """Whether a lock could be made one that nobody else holds."""
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self, held: int) -> None:
        """Let go of a lock."""
        os.close(held)

    @contextmanager
    def locked(self, path: str, alone: bool) -> Iterator[None]:
        """Hold the lock of a folder; none when there is no such folder."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)
