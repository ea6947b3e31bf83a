"""Read state files back: whole (`load`), or open to be read piece by piece (`open_files`).

A whole file is proved by its size and checksum before anybody sees a byte of it. Of an open one, each piece is proved
when it is read: the manifest has its seal, which proves its index, which proves its blocks (`state.file_format`).

Invariants:
- Bytes that are returned are exactly those that were written; anything else is a SnapshotError naming the file.
- A local file that is not proved to be the file in the manifest is not read: the storage is.
- Files keep the order in which they were given: for one old subtask that is oldest first.

Not here: which files a subtask takes over (`protocol.assignment`), what is in them (`state`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from xxhash import xxh3_64

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.host.base import OpenFile
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot.storage import SLICE_BYTES, Storage
from flowpoint.state.file_format import ReadRange


class LocalSource(Protocol):
    """Files beside this process, of which each that is given is proved to be the one in the manifest (`local_files`)."""

    async def open(self, file: StateFile) -> OpenFile | None:
        """A file to be read piece by piece; None: there is none that is proved."""

    async def load(self, file: StateFile) -> bytes | None:
        """The bytes of a file; None: there is none that is proved."""


async def load(
    storage: Storage, files: Iterable[StateFile], local: LocalSource | None = None
) -> list[tuple[StateFile, bytes]]:
    """The bytes of files, each proved against its size and checksum; those that are in `local` from there.

    Raises:
        SnapshotError: a file is missing or differs.
        StorageError: a file cannot be read at the moment.
    """
    return [(file, await _load(storage, file, local)) for file in files]


async def _load(storage: Storage, file: StateFile, local: LocalSource | None) -> bytes:
    if local is not None and (data := await local.load(file)) is not None:
        return data
    try:
        return await load_whole(storage, file)
    except FileNotFoundError as error:
        raise _damaged(file, "it is missing") from error


async def load_whole(storage: Storage, file: StateFile) -> bytes:
    """The bytes of one file, proved.

    Raises:
        FileNotFoundError: it is missing.
        SnapshotError: it differs.
        StorageError: it cannot be read at the moment.
    """
    digest = xxh3_64()
    data = bytearray()
    while part := await storage.get(file.path, len(data), SLICE_BYTES):
        digest.update(part)
        data += part
        await asyncio.sleep(0)
    if len(data) != file.bytes:
        raise _damaged(file, f"it has {len(data)} bytes instead of {file.bytes}")
    if digest.hexdigest() != file.checksum:
        raise _damaged(file, f"its checksum is {digest.hexdigest()} instead of {file.checksum}")
    return bytes(data)


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """Files, each with what gives its bytes. `close` when nothing is read from them any more."""

    files: Sequence[tuple[StateFile, bytes | ReadRange]]
    handles: Sequence[OpenFile]

    def close(self) -> None:
        """Close them. Idempotent."""
        for handle in self.handles:
            handle.close()


async def open_files(storage: Storage, files: Iterable[StateFile], local: LocalSource | None = None) -> OpenedFiles:
    """Files to be read piece by piece, those that are in `local` from there; what no pieces prove is read whole instead.

    Raises:
        SnapshotError: a file is missing, or differs as far as it was read.
        StorageError: a file cannot be read at the moment.
    """
    opened: list[tuple[StateFile, bytes | ReadRange]] = []
    handles: list[OpenFile] = []
    try:
        for file in files:
            is_sealed = bool(file.extra.get(SEAL))
            opening = _open(storage, file, local, handles) if is_sealed else _load(storage, file, local)
            opened.append((file, await opening))
    except BaseException:
        OpenedFiles((), handles).close()
        raise
    return OpenedFiles(opened, handles)


async def _open(
    storage: Storage, file: StateFile, local: LocalSource | None, handles: list[OpenFile]
) -> bytes | ReadRange:
    """What gives the bytes of a file piece by piece, or all of them; `handles` gets what is open."""
    if local is not None and (handle := await local.open(file)) is not None:
        handles.append(handle)
        return _range_of_local(file.path, handle)
    try:
        handle = await storage.open(file.path)
    except FileNotFoundError as error:
        raise _damaged(file, "it is missing") from error
    if handle is None:
        return await _load(storage, file, None)
    handles.append(handle)
    return _range_of(file.path, handle)


def _range_of(path: str, handle: OpenFile) -> ReadRange:
    def read(offset: int, size: int) -> bytes:
        try:
            return handle.read_at(offset, size)
        except OSError as error:
            raise StorageError(
                f"cannot read {size} bytes at {offset} of {path}: {error.strerror or type(error).__name__}; check the "
                "disk and its messages in the system log"
            ) from error

    return read


def _range_of_local(path: str, handle: OpenFile) -> ReadRange:
    """As `_range_of`, but what cannot be read is damage of the local file: the storage can still be read."""

    def read(offset: int, size: int) -> bytes:
        try:
            return handle.read_at(offset, size)
        except OSError as error:
            raise SnapshotError(
                f"cannot read {size} bytes at {offset} of the local file of {path}: "
                f"{error.strerror or type(error).__name__}; check the disk and its messages in the system log"
            ) from error

    return read


def _damaged(file: StateFile, seen: str) -> SnapshotError:
    return SnapshotError(
        f"the state file {file.path} is damaged: {seen}; restore it from a backup, or use another snapshot"
    )
