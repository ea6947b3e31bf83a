"""A worker's way to the storage of its job that keeps a local file of each state file it writes (`local_files`).

A storage that is a folder is written as ever, and then the new file gets a local name: no byte is written twice, and
nothing is synced for it, since a name that is lost with the power is only missed. Where there can be no link, because the
work folder is on another file system, or the storage is no folder, the bytes are written down locally, too: from the
storage's file, or as they pass.

The coordinator uses it to delete: first in the storage, then locally, so that a link which is being made at that moment
either finds nothing to link to or is removed.

Invariants:
- What the storage can write is written, whatever becomes of the local file.
- A copy gets its name when it is whole and durable.
- Reading goes to the storage: only a restore knows what proves a local file (`reader`).

Not here: opening local files, and letting go of them (`local_files`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from flowpoint.errors import StorageError
from flowpoint.host.base import DiskFile, OpenFile
from flowpoint.snapshot.local_files import LocalFiles
from flowpoint.snapshot.storage import NO_LINK, Chunks, LocalFile, Names, Storage, one_by_one


class LocallyKept:
    """Another storage, with local files. See `Storage`."""

    def __init__(self, inner: Storage, local: LocalFiles, root: str | None) -> None:
        """`root` is the folder that the inner storage is, None when it is no folder."""
        self._inner = inner
        self._local = local
        self._root = root

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """See `Storage`."""
        if not self._local.takes(name):
            return await self._inner.put_if_absent(name, chunks)
        if self._root is None:
            return await self._put_and_copy(name, chunks)
        is_created = await self._inner.put_if_absent(name, chunks)
        if is_created:
            await self._link(f"{self._root}/{name}", name)
        return is_created

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """See `Storage`."""
        return await self._inner.get(name, offset, size)

    async def open(self, name: str) -> OpenFile | None:
        """See `Storage`."""
        return await self._inner.open(name)

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """See `Storage`."""
        return await self._inner.list(prefix, unfinished=unfinished)

    async def delete(self, *doomed: str) -> bool:
        """See `Storage`."""
        is_removed = await self._inner.delete(*doomed)
        await self._local.forget(doomed)
        return is_removed

    async def adopt(self, local_path: str, name: str) -> bool:
        """See `Storage`. What was a file before has no local one: no state is written so, so far."""
        return await self._inner.adopt(local_path, name)

    def close(self) -> None:
        """See `Storage`."""
        self._inner.close()

    # ------------------------------------------------------------------ keeping local files

    async def _put_and_copy(self, name: str, chunks: Chunks) -> bool:
        copy = _Copy(self._local, name, chunks)
        try:
            is_created = await self._inner.put_if_absent(name, copy)
            if is_created:
                await copy.keep()
            return is_created
        finally:
            await copy.close()

    async def _link(self, path: str, name: str) -> None:
        """Give a durable file of the storage a local name; where that is not possible, copy it."""
        disk, target = self._local.disk, self._local.path(name)
        try:
            try:
                await disk.link(path, target)
            except FileNotFoundError:
                await disk.make_dirs(_parent(target))
                await disk.link(path, target)
            except FileExistsError:
                # Another run has left it, whose attempts were counted as this one's are.
                await self._replace(path, name)
        except OSError as error:
            if error.errno in NO_LINK:
                await self._copy(path, name)
            else:
                self._local.complain(error)

    async def _replace(self, path: str, name: str) -> None:
        """Let a local name stand for a file of the storage, whatever it stood for.

        Nothing is removed under that name: should it lead into the storage itself, that would be the file.
        """
        disk, temporary = self._local.disk, self._local.unfinished(name)
        await disk.link(path, temporary)
        try:
            await disk.rename(temporary, self._local.path(name))
        finally:
            # A second name of the same file is left where it is.
            await disk.remove(temporary)

    async def _copy(self, path: str, name: str) -> None:
        copy = _Copy(self._local, name, LocalFile(self._local.disk, path))
        try:
            async for _ in copy:
                continue
            await copy.keep()
        except (OSError, StorageError) as error:
            self._local.complain(error)
        finally:
            await copy.close()


class _Copy:
    """The chunks of a file on their way to somewhere, written down locally as they pass. What fails of that ends only it."""

    def __init__(self, local: LocalFiles, name: str, chunks: Chunks) -> None:
        self._local = local
        self._disk = local.disk
        self._temporary = local.unfinished(name)
        self._path = local.path(name)
        self._chunks = one_by_one(chunks)
        self._file: DiskFile | None = None
        self._is_given_up = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        if not self._is_given_up:
            try:
                await self._write(chunk)
            except OSError as error:
                self._give_up(error)
        return chunk

    async def keep(self) -> None:
        """All chunks have passed, and their file counts: give the copy its name."""
        if self._file is None or self._is_given_up:
            return
        try:
            await self._file.sync()
            await self._file.close()
            await self._disk.rename(self._temporary, self._path)
            self._file = None
        except OSError as error:
            self._give_up(error)

    async def close(self) -> None:
        """Let go of what has no name yet. A temporary file that cannot be removed goes before the next attempt."""
        await self._chunks.aclose()
        if self._file is None:
            return
        try:
            await self._file.close()
            await self._disk.remove(self._temporary)
        except OSError as error:
            self._local.complain(error)

    async def _write(self, chunk: bytes) -> None:
        if self._file is None:
            self._file = await self._create()
        await self._file.write(chunk)

    async def _create(self) -> DiskFile:
        try:
            return await self._disk.create(self._temporary)
        except FileNotFoundError:
            await self._disk.make_dirs(_parent(self._temporary))
            return await self._disk.create(self._temporary)

    def _give_up(self, error: OSError) -> None:
        self._is_given_up = True
        self._local.complain(error)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
