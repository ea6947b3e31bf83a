"""Where snapshots are kept: objects by name, with put-if-absent, get, list and delete. A folder, here.

These four are all that coordinator and workers know of a storage, whatever it is made of (`places` says which one a job
has). `adopt` is a put of a local file, which a folder may make a hard link; and only a folder has paths, by which a
person opens a snapshot.

Names are relative, parts divided by "/": `chk-17-a7/manifest.json`. A name that ends with "/" stands for everything
below it. `FolderStorage` publishes an object as rule 6 says: temporary file, fsync, `link(2)` to the final
name, fsync of the folder. `link` fails when the name is taken, which makes it the compare-and-swap.

Invariants:
- An object under its name is whole, for ever: it is never overwritten and never appended to.
- When `put_if_absent` or `adopt` returns, True or False, the object is durable.
- When they raise StorageError, reading back tells whether it is there. When they raise OutcomeUnknown, reading proves
  nothing: a name whose fsync failed can be read until the power goes (rule 23).
- Unfinished objects have dot-names; `list` never shows them unless asked for them alone.

Not here: what the objects mean, and which may go (`commit_log`, `manifests`, `retention`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Protocol

from flowpoint.errors import OutcomeUnknown, StorageError, StorageFull
from flowpoint.host.base import Disk, DiskFile, OpenFile
from flowpoint.snapshot import names

Chunks = Iterable[bytes] | AsyncIterable[bytes]
Names = list[str]

SLICE_BYTES = 1024 * 1024
"""How much is read or copied between two turns of the loop."""

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""What a path is answered with at which there is no file: a folder in its place is damage, not trouble of the disk."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_HANDLES = frozenset({errno.EMFILE, errno.ENFILE})
_READS = frozenset({"read", "open", "list", "look at"})
NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""What `Disk.link` fails with where a copy may do."""


class Storage(Protocol):
    """Named objects. See the module's invariants; every implementation keeps them."""

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """Create an object; False when there is one of that name. The loop gets a turn between chunks.

        Raises:
            StorageFull: no space; nothing was created.
            StorageError: refused; reading back tells whether it was created all the same.
            OutcomeUnknown: it may be there, but perhaps not for good.
        """

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """Bytes from `offset`, at most `size` (-1: all). FileNotFoundError when there is no such object."""

    async def open(self, name: str) -> OpenFile | None:
        """An object to be read piece by piece without waiting, and which outlives its removal; None: not possible here.

        FileNotFoundError when there is no such object.
        """

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """The names that start with `prefix`, sorted.

        `unfinished`: instead, what interrupted writers left: objects that never got their name, and empty folders
        (with "/" at the end). What this very object is writing at the moment is not among them.
        """

    async def delete(self, *doomed: str) -> bool:
        """Remove objects, durably; False when none was there. With "/" at the end: everything below, unfinished too.

        Every name is tried; StorageError then tells of those that could not be removed.
        """

    async def adopt(self, local_path: str, name: str) -> bool:
        """Like `put_if_absent`, from a durable local file that never changes: linked if possible, else copied.

        FileNotFoundError when there is no such file.
        """

    def close(self) -> None:
        """Let go of connections. What is under way fails, and no call comes after."""


class FolderStorage:
    """Storage in a local folder, which need not exist yet."""

    def __init__(self, disk: Disk, new_id: Callable[[], str], root: str) -> None:
        """`new_id` gives unique names for temporary files (`Host.new_id`); `root` is an absolute path."""
        self._disk = disk
        self._new_id = new_id
        self._root = root.rstrip("/")
        self._made: set[str] = set()
        self._in_flight: set[str] = set()

    @property
    def root(self) -> str:
        """The folder, as an absolute path."""
        return self._root

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """See `Storage`."""
        folder, base = _split(name)
        temporary = names.unfinished(folder, base, self._new_id())
        self._in_flight.add(temporary)
        try:
            file = await self._create(folder, temporary)
            await self._fill(file, temporary, chunks)
            return await self._publish(temporary, name)
        except (Exception, asyncio.CancelledError):
            await self._discard(temporary)
            raise
        finally:
            self._in_flight.discard(temporary)

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """See `Storage`."""
        _split(name)
        path = self._path(name)
        try:
            return await self._disk.read(path, offset, size)
        except _NO_FILE:
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from None
        except OSError as error:
            raise refused("read", path, error) from error

    async def open(self, name: str) -> OpenFile:
        """See `Storage`. Always possible."""
        _split(name)
        path = self._path(name)
        try:
            return await self._disk.open(path)
        except _NO_FILE:
            raise FileNotFoundError(errno.ENOENT, "no such object", path) from None
        except OSError as error:
            raise refused("open", path, error) from error

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """See `Storage`."""
        found: Names = []
        names.require_prefix(prefix)
        await self._walk(prefix[: prefix.rfind("/") + 1], prefix, unfinished, found)
        return sorted(found)

    async def delete(self, *doomed: str) -> bool:
        """See `Storage`."""
        for name in doomed:
            names.require_inside(name)
        removed = False
        failed: list[StorageError] = []
        for name in doomed:
            try:
                removed |= await self._remove(name)
            except OSError as error:
                failed.append(refused("remove", self._path(name), error))
        # Also where nothing was there any more: an earlier call may have removed it and then failed to sync.
        for folder in sorted({_parent(name) for name in doomed}):
            try:
                await self._disk.sync_dir(self._path(folder))
            except FileNotFoundError:
                continue
            except OSError as error:
                failed.append(refused("make durable what was removed from", self._path(folder), error))
        if failed:
            more = f" ({len(failed) - 1} more like it)" if len(failed) > 1 else ""
            raise StorageError(f"{failed[0]}{more}") from failed[0]
        return removed

    async def adopt(self, local_path: str, name: str) -> bool:
        """See `Storage`."""
        folder, _ = _split(name)
        await self._make_folder(folder)
        try:
            await self._disk.link(local_path, self._path(name))
        except FileExistsError:
            await self._sync_folder(folder, name)
            return False
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in NO_LINK:
                return await self.put_if_absent(name, LocalFile(self._disk, local_path))
            raise refused(f"link {local_path} to", self._path(name), error) from error
        await self._sync_folder(folder, name)
        return True

    def close(self) -> None:
        """See `Storage`. A folder holds nothing open."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    async def _create(self, folder: str, temporary: str) -> DiskFile:
        await self._make_folder(folder)
        path = self._path(temporary)
        try:
            try:
                return await self._disk.create(path)
            except FileNotFoundError:
                # A cleaner took the folder away since it was made.
                self._made.discard(folder)
                await self._make_folder(folder)
                return await self._disk.create(path)
        except OSError as error:
            raise refused("create", path, error) from error

    async def _make_folder(self, folder: str) -> None:
        """Make a folder durable once per storage object: an earlier process may have died before it synced it."""
        if folder in self._made:
            return
        path = self._path(folder)
        try:
            await self._disk.make_dirs(path)
            while path != self._root:
                path = path.rpartition("/")[0]
                await self._disk.sync_dir(path)
        except OSError as error:
            raise refused("make the folder", path, error) from error
        self._made.add(folder)

    async def _fill(self, file: DiskFile, temporary: str, chunks: Chunks) -> None:
        try:
            async for chunk in one_by_one(chunks):
                await file.write(chunk)
                await asyncio.sleep(0)
            await file.sync()
        except OSError as error:
            await _close(file)
            raise refused("write", self._path(temporary), error) from error
        except (Exception, asyncio.CancelledError):
            await _close(file)
            raise
        try:
            await file.close()
        except OSError as error:
            raise refused("close", self._path(temporary), error) from error

    async def _publish(self, temporary: str, name: str) -> bool:
        folder, _ = _split(name)
        try:
            await self._disk.link(self._path(temporary), self._path(name))
            created = True
        except FileExistsError:
            created = False
        except OSError as error:
            raise refused("publish", self._path(name), error) from error
        # From here on the object can be seen, and it is whole.
        await self._discard(temporary)
        await self._sync_folder(folder, name)
        return created

    async def _sync_folder(self, folder: str, name: str) -> None:
        try:
            await self._disk.sync_dir(self._path(folder))
        except OSError as error:
            raise OutcomeUnknown(
                f"cannot tell whether {self._path(name)} is durable: syncing its folder failed ({reason_of(error)}); "
                "check the disk and its messages in the system log"
            ) from error

    async def _discard(self, temporary: str) -> None:
        """Remove a temporary file. One that cannot be removed is invisible and left to the cleaner's sweep."""
        try:
            await self._disk.remove(self._path(temporary))
        except OSError:
            return

    async def _remove(self, name: str) -> bool:
        if not name.endswith("/"):
            return await self._disk.remove(self._path(name))
        path = self._path(name)
        if await self._disk.stat(path) is None:
            return False
        self._made.discard(name)
        await self._disk.remove_tree(path)
        return True

    async def _walk(self, folder: str, prefix: str, unfinished: bool, found: Names) -> bool:
        """Collect what is in a folder and below; whether the folder has anything in it."""
        try:
            inside = await self._disk.list(self._path(folder))
            for base in inside:
                name = folder + base
                target = names.finished(name)
                if target is not None:
                    if unfinished and target.startswith(prefix) and name not in self._in_flight:
                        found.append(name)
                elif base.startswith(".") or not name.startswith(prefix):
                    continue
                elif await self._is_folder(name):
                    if not await self._walk(f"{name}/", prefix, unfinished, found) and unfinished:
                        found.append(f"{name}/")
                elif not unfinished:
                    found.append(name)
        except OSError as error:
            raise refused("list", self._path(folder), error) from error
        return bool(inside)

    async def _is_folder(self, name: str) -> bool:
        """Whether a name is a folder's, which never has a dot: so the many objects need no look at the disk."""
        if "." in name.rpartition("/")[2]:
            return False
        stat = await self._disk.stat(self._path(name))
        return stat is not None and stat.is_dir


class LocalFile:
    """The bytes of a local file, slice by slice. The first one raises FileNotFoundError when there is none."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._offset = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._disk.read(self._path, self._offset, SLICE_BYTES)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise refused("read", self._path, error) from error
        if not data:
            raise StopAsyncIteration
        self._offset += len(data)
        return data


async def one_by_one(chunks: Chunks) -> AsyncGenerator[bytes]:
    """The chunks of an object, however they come."""
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk


async def _close(file: DiskFile) -> None:
    """Close a file that is given up; that it failed already is the news."""
    try:
        await file.close()
    except OSError:
        return


def _split(name: str) -> tuple[str, str]:
    """A checked name as (folder with "/" or "", last part)."""
    names.require_object(name)
    folder, slash, base = name.rpartition("/")
    return folder + slash, base


def _parent(name: str) -> str:
    folder, slash, _ = name.rstrip("/").rpartition("/")
    return folder + slash


def reason_of(error: OSError) -> str:
    """What the system said, with its symbol."""
    symbol = errno.errorcode.get(error.errno or 0, "")
    return f"{error.strerror or type(error).__name__}{symbol and f' ({symbol})'}"


def refused(what: str, path: str, error: OSError) -> StorageError:
    """The StorageError for an OSError: what could not be done, what was seen, what to do."""
    if error.errno in _FULL:
        return StorageFull(f"cannot {what} {path}: the disk is full; free some space there")
    if error.errno in _NO_HANDLES:
        advice = "raise the limit of open files (`ulimit -n`)"
    elif error.errno == errno.EFBIG:
        advice = "raise the limit of the size of files (`ulimit -f`), or use a disk that takes files of this size"
    elif error.errno in (errno.EACCES, errno.EPERM) and what in _READS:
        advice = "give this user the right to read there"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "give this user the right to write there, or choose another checkpoint.storage"
    elif error.errno == errno.ENOENT:
        advice = "something else removed it or its folder; let nothing else write there"
    else:
        advice = "check the disk and its messages in the system log"
    return StorageError(f"cannot {what} {path}: {reason_of(error)}; {advice}")
