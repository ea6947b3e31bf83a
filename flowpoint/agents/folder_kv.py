"""Keys and values as files in a folder: many processes of one machine at once, no server.

An entry is a file, its key the path: written under a temporary dot-name, synced, then linked to its name, which fails
when the name is taken. So of all who create one key, one is told True. Every file begins with a checksum of the rest.

Processes share a thread through locks on its folder: whoever reads or appends holds it shared, whoever removes holds it
alone. The kernel lets go of a lock when its process ends, however that happens. Within a process, one at a time is in a
section of a thread.

Invariants: a file under its name is whole, for ever; it is never changed, only removed. What `create`
returned from is synced, and so is its name. An entry whose name could not be synced is reported as OutcomeUnknown, never
as done. A folder below that of a thread goes with its last entry.

Not here: what the entries mean; system calls (`files`). Not for network file systems: their locks and links are not to
be relied upon.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, NoReturn

import xxhash

from flowpoint.agents.files import Files
from flowpoint.agents.folder_holders import FolderHolders
from flowpoint.agents.holders import Holders
from flowpoint.agents.kinds import require_folder_or_none
from flowpoint.agents.kv import Entry, Part, Section
from flowpoint.agents.remembered import Remembered
from flowpoint.errors import DamagedStoreError, OutcomeUnknown, StorageError, StorageFull, StoreInUseError, UsageError

_CHECKSUM_BYTES: Final = 8
_STRIPES: Final = 256
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MADE_MAX: Final = 10_000
_LASTING_MAX: Final = 20_000
_THREAD_DEPTH: Final = 2  # of t/<thread>


class _Opening(NamedTuple):
    """That a store is open for writing: the lock on its folder, and the file that says whose it is."""

    held: int
    mark: str


class FolderKv:
    """See the module."""

    indexed = False

    def __init__(self, path: str | os.PathLike[str], *, files: Files | None = None, read_only: bool = False) -> None:
        """`read_only`: nothing is changed, and no right to change anything is needed.

        Raises:
            UsageError: there is no store, and it is to be read; or it is one of another kind.
            StorageError: it cannot be made.
        """
        self.remembered = Remembered()
        self._root = os.path.abspath(path)
        self.holders: Holders = FolderHolders(self._root)
        self._files = files or Files()
        self._read_only = read_only
        self._pid = os.getpid()
        self._closed = False
        self._made: set[str] = set()
        self._lasting: set[str] = set()
        """Keys of which it is known that they are synced, as far as they were asked for."""
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]
        self._opening: _Opening | None = None
        require_folder_or_none(self._root)
        if not read_only:
            self._make_folder(f"{self._root}/t")
            self._opening = self._opened_for_writing()
        elif not self.has("t"):
            raise UsageError(f"cannot open {self._root}: there is no store of threads; check the path")

    def _opened_for_writing(self) -> _Opening:
        mark = f"{self._root}/.open.{self._pid}.{secrets.token_hex(4)}"
        try:
            held = self._files.hold(self._root)
        except OSError as error:
            _refuse("open", self._root, error)
        try:
            self._files.write(mark, b"")
        except OSError as error:
            self._files.release(held)
            _refuse("open", self._root, error)
        return _Opening(held, mark)

    def claim(self) -> None:
        """Be the only one who has the store open.

        Raises:
            StoreInUseError: somebody else has.
        """
        if self._opening is None or self._files.hold_alone(self._opening.held):
            return
        marks = [entry.name.split(".") for entry in self._files.list(self._root) if entry.name.startswith(".open.")]
        pids = sorted({int(mark[2]) for mark in marks} - {self._pid})
        owners = ", ".join(str(pid) for pid in pids if _is_alive(pid)) or "another one"
        self.close()
        raise StoreInUseError(
            f"cannot change {self._root}: it is open in process {owners}; end it, or wait until it has ended"
        )

    def get(self, key: str) -> bytes | None:
        """See `Kv`."""
        path = self._path(key)
        try:
            data = self._files.read(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            _refuse("read", path, error)
        value = data[_CHECKSUM_BYTES:]
        if data[:_CHECKSUM_BYTES] != _checksum(value):
            raise DamagedStoreError(
                f"cannot read {path}: its bytes do not match its checksum; restore it from a good copy"
            )
        return value

    def has(self, key: str) -> bool:
        """See `Kv`."""
        path = self._path(key)
        try:
            return self._files.exists(path)
        except OSError as error:
            _refuse("look for", path, error)

    def scan(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[Entry]:
        """See `Kv`. What is removed meanwhile is left out."""
        for key in self.keys(prefix, start=start, reverse=reverse):
            value = self.get(key)
            if value is not None:
                yield key, value

    def keys(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[str]:
        """See `Kv`. `prefix` ends with "/"."""
        assert prefix.endswith("/")
        return self._walk(prefix, start, reverse)

    def changed(self, prefix: str) -> Hashable:
        """See `Kv`."""
        path = self._path(prefix)
        try:
            return self._files.changed(path)
        except OSError as error:
            _refuse("look at", path, error)

    def _walk(self, folder: str, start: str, reverse: bool) -> Iterator[str]:
        try:
            entries = self._files.list(self._path(folder))
        except OSError as error:
            _refuse("list", self._path(folder), error)
        # A folder's name is followed by "/" in the keys below it, which decides its place among them.
        names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries if entry.name[0] != "."]
        names.sort(reverse=reverse)
        if not start and not any(entry.is_dir() for entry in entries):
            yield from map(folder.__add__, names)  # as of a long log, which is listed often
            return
        for name in names:
            key = folder + name
            if reverse:
                if start and key >= start and not start.startswith(key):
                    continue
            elif key < start and not start.startswith(key):
                continue
            if key.endswith("/"):
                yield from self._walk(key, start, reverse)
            elif key != start or not reverse:
                yield key

    def create(
        self,
        key: str,
        value: bytes,
        *,
        beside: Sequence[Entry] = (),
        gone: Sequence[str] = (),
        sync: bool = True,
        looked: bool = False,
    ) -> bool:
        """See `Kv`. Always synced: a file that is not may be torn after a loss of power.

        Raises:
            StorageFull: no space left; the key was not created.
            OutcomeUnknown: the key may be there, but perhaps not for good.
        """
        self._writable()
        for folder in {self._put(name, data)[1] for name, data in beside}:
            self._sync_folder(folder)
        self._lasts(name for name, _data in beside)
        created, folder = self._put(key, value)
        self._sync_folder(folder)
        self._remove(gone)
        return created

    def write(self, puts: Iterable[Entry], deletes: Iterable[str] = (), *, sync: bool = True) -> None:
        """See `Kv`. Entries never change here, so a key that is there already has its value."""
        self._writable()
        for folder in {self._put(name, data)[1] for name, data in puts}:
            self._sync_folder(folder)
        self._remove(deletes)

    def settle(self, keys: Iterable[str], *, sync: bool) -> None:
        """See `Kv`: a name that another has made, or tried to, may not be synced."""
        unknown = set(keys) - self._lasting
        for folder in {os.path.dirname(self._path(key)) for key in unknown}:
            self._sync_folder(folder)
        self._lasts(unknown)

    @contextmanager
    def section(self, thread: Part, kind: Section) -> Iterator[None]:
        """See `Kv`."""
        if kind is Section.READ:
            self._opened()
        else:
            self._writable()
        path = self._path(f"t/{thread}")
        if kind is Section.APPEND and path not in self._made:
            self._make_folder(path)
        with self._stripes[hash(path) % _STRIPES]:
            try:
                lock = self._files.locked(path, kind is Section.CUT)
                lock.__enter__()
            except OSError as error:
                _refuse("lock", path, error)
            try:
                yield
            finally:
                lock.__exit__(None, None, None)

    def close(self) -> None:
        """See `Kv`."""
        if not self._closed:
            self._closed = True
            if self._opening is not None:
                self._files.release(self._opening.held)
                if os.getpid() == self._pid:
                    self._discard(self._opening.mark)

    # ------------------------------------------------------------------ files

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/")

    def _opened(self) -> None:
        if self._closed:
            raise UsageError(f"cannot use the saver of {self._root}: it is closed")
        if os.getpid() != self._pid:
            raise UsageError(
                f"cannot use the saver of {self._root} in process {os.getpid()}: it was opened by process "
                f"{self._pid} before a fork; open one after the fork"
            )

    def _writable(self) -> None:
        self._opened()
        if self._read_only:
            raise UsageError(f"cannot write to {self._root}: it was opened read-only; open it for writing")

    def _put(self, key: str, value: bytes) -> tuple[bool, str]:
        """Create an entry, its name not synced yet; whether it is new, and its folder."""
        path = self._path(key)
        folder, _, name = path.rpartition("/")
        self._make_folder(folder)
        if self.has(key):
            return False, folder
        temporary = f"{folder}/.{name}.{secrets.token_hex(8)}"
        try:
            self._write(folder, temporary, _checksum(value) + value)
        except OSError as error:
            self._discard(temporary)
            _refuse("write", temporary, error)
        try:
            self._files.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        except OSError as error:
            _refuse("create", path, error)
        finally:
            self._discard(temporary)
        return created, folder

    def _write(self, folder: str, path: str, data: bytes) -> None:
        try:
            self._files.write(path, data)
        except FileNotFoundError:
            # Somebody has removed all that was in the folder, and the folder with it.
            self._made.clear()
            self._make_folder(folder)
            self._files.write(path, data)

    def _make_folder(self, path: str) -> None:
        """Make a folder durable, once per store: an earlier process may have died before it synced it."""
        if path in self._made:
            return
        parent = os.path.dirname(path)
        try:
            if path != self._root:
                self._make_folder(parent)
                self._make_in(parent, path)
                self._files.sync_folder(parent)
            elif not self._files.exists(path):
                os.makedirs(path, mode=0o700, exist_ok=True)
                self._files.sync_folder(parent)
        except OSError as error:
            _refuse("make the folder", path, error)
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        self._made.add(path)

    def _make_in(self, parent: str, path: str) -> None:
        try:
            self._files.make_folder(path)
        except FileNotFoundError:  # as in _write
            self._made.clear()
            self._make_folder(parent)
            self._files.make_folder(path)

    def _lasts(self, keys: Iterable[str]) -> None:
        """Remember that they are synced."""
        if len(self._lasting) >= _LASTING_MAX:
            self._lasting.clear()
        self._lasting.update(keys)

    def _sync_folder(self, path: str) -> None:
        try:
            self._files.sync_folder(path)
        except OSError as error:
            raise OutcomeUnknown(
                f"cannot tell whether what was put into {path} is durable: syncing the folder failed "
                f"({error.strerror}); check the disk and its messages in the system log"
            ) from error

    def _remove(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in keys:
            path = self._path(key)
            self._lasting.discard(key)
            folders.add(os.path.dirname(path))
            try:
                self._files.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                _refuse("remove", path, error)
        for folder in sorted(folders):
            try:
                self._files.sync_folder(self._left_of(folder))
            except OSError as error:
                _refuse("make durable what was removed from", folder, error)

    def _left_of(self, folder: str) -> str:
        """Remove a folder below a thread's if it is empty, and so on upwards; the one that is left."""
        while folder.count("/", len(self._root)) > _THREAD_DEPTH and self._files.remove_folder(folder):
            folder = os.path.dirname(folder)
        return folder

    def _discard(self, temporary: str) -> None:
        """Remove a temporary file; one that cannot be removed is seen by nobody."""
        with suppress(OSError):
            self._files.remove(temporary)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _checksum(data: bytes) -> bytes:
    digest: bytes = xxhash.xxh3_64_digest(data)
    return digest


def _refuse(what: str, path: str, error: OSError) -> NoReturn:
    reason = error.strerror or type(error).__name__
    if error.errno in _FULL:
        raise StorageFull(f"cannot {what} {path}: the disk is full; free some space there") from error
    raise StorageError(f"cannot {what} {path}: {reason}; check the disk and the rights of this user there") from error
