"""Which run has a thread of a folder store, among all processes of the machine.

A run has a thread while it has the lock on the file `.runs/<thread>`, which says its name. The kernel lets go of a lock
when its process ends, however that happens. Whoever looks has to try the lock, which for a moment would keep it from
others: so looking, taking and leaving are done one at a time, under the lock on the folder `.runs`.

Invariants: a file is opened, removed and its lock taken only under the lock on the folder, which nobody holds for longer
than a few system calls. Nothing here needs to outlive a loss of power.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from flowpoint.agents.holders import Leave
from flowpoint.errors import StorageError

_NAME_BYTES_MAX: Final = 200


class FolderHolders:
    """See the module."""

    def __init__(self, root: str) -> None:
        self._folder = f"{root}/.runs"

    def holder(self, thread: str) -> str | None:
        """See `Holders`. Where no run has ever told that it is going this is one system call."""
        path = f"{self._folder}/{thread}"
        with self._telling(path):
            try:
                os.stat(path)
                with self._alone():
                    return _holder(path)
            except FileNotFoundError:
                return None

    def take(self, thread: str, run: str) -> Leave | None:
        """See `Holders`."""
        path = f"{self._folder}/{thread}"
        with self._telling(path):
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            with self._alone():
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    if not _locked(descriptor):
                        os.close(descriptor)
                        return None
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, run.encode(), 0)
                except BaseException:
                    os.close(descriptor)
                    raise
        return partial(self._leave, path, descriptor, os.getpid())

    def _leave(self, path: str, descriptor: int, pid: int) -> None:
        try:
            # In the child of a fork the lock is the parent's, too.
            if os.getpid() == pid:
                with self._telling(path), suppress(FileNotFoundError), self._alone():
                    os.unlink(path)
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    @contextmanager
    def _telling(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"cannot tell which run has a thread by {path}: {error.strerror}; check the disk and the rights of this "
                "user there"
            ) from error


def _holder(path: str) -> str | None:
    """The name in a file whose lock is taken. One whose lock is free was left by a process that died."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _locked(descriptor):
            os.unlink(path)
            return None
        return os.read(descriptor, _NAME_BYTES_MAX).decode()
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
