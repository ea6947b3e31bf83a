"""Read state files back: whole (`load`), or open to be read piece by piece (`open_files`).

A whole file is proved by its size and checksum before anybody sees a byte of it. Of an open one, each piece is proved
when it is read: the manifest has its seal, which proves its index, which proves its blocks (`state.file_format`).

Invariants:
- Bytes that are returned are exactly those that were written; anything else is a SnapshotError naming the file.
- Files keep the order in which they were given: for one old subtask that is oldest first.

Not here: which files a subtask takes over (`protocol.assignment`), what is in them (`state`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xxhash import xxh3_64

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.host.base import OpenFile
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot.storage import SLICE_BYTES, Storage
from flowpoint.state.file_format import ReadRange


async def load(storage: Storage, files: Iterable[StateFile]) -> list[tuple[StateFile, bytes]]:
    """The bytes of files, each proved against its size and checksum.

    Raises:
        SnapshotError: a file is missing or differs.
        StorageError: a file cannot be read at the moment.
    """
    return [(file, await _load(storage, file)) for file in files]


async def _load(storage: Storage, file: StateFile) -> bytes:
    digest = xxh3_64()
    data = bytearray()
    try:
        while part := await storage.get(file.path, len(data), SLICE_BYTES):
            digest.update(part)
            data += part
            await asyncio.sleep(0)
    except FileNotFoundError as error:
        raise _damaged(file, "it is missing") from error
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


async def open_files(storage: Storage, files: Iterable[StateFile]) -> OpenedFiles:
    """Files to be read piece by piece; those that cannot be proved by pieces are read whole instead.

    Raises:
        SnapshotError: a file is missing, or differs as far as it was read.
        StorageError: a file cannot be read at the moment.
    """
    opened: list[tuple[StateFile, bytes | ReadRange]] = []
    handles: list[OpenFile] = []
    try:
        for file in files:
            handle = await _open(storage, file) if file.extra.get(SEAL) else None
            if handle is None:
                opened.append((file, await _load(storage, file)))
            else:
                handles.append(handle)
                opened.append((file, _range_of(file.path, handle)))
    except BaseException:
        OpenedFiles((), handles).close()
        raise
    return OpenedFiles(opened, handles)


async def _open(storage: Storage, file: StateFile) -> OpenFile | None:
    try:
        return await storage.open(file.path)
    except FileNotFoundError as error:
        raise _damaged(file, "it is missing") from error


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


def _damaged(file: StateFile, seen: str) -> SnapshotError:
    return SnapshotError(
        f"the state file {file.path} is damaged: {seen}; restore it from a backup, or use another snapshot"
    )
