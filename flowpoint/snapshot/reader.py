"""Read state files back, proved by their sizes and checksums before anybody sees a byte of them.

Invariants:
- Bytes that are returned are exactly those that were written; anything else is a SnapshotError naming the file.
- Files keep the order in which they were given: for one old subtask that is oldest first.

Not here: which files a subtask takes over (`protocol.recovery`), what is in them (`state`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from xxhash import xxh3_64

from flowpoint.errors import SnapshotError
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.snapshot.storage import SLICE_BYTES, Storage


async def load_states(storage: Storage, states: Iterable[SubtaskState]) -> list[tuple[StateFile, bytes]]:
    """The files of all old subtasks that one new subtask takes over, each old one's oldest first. See `load`."""
    return await load(storage, [file for state in states for file in state.files])


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


def _damaged(file: StateFile, seen: str) -> SnapshotError:
    return SnapshotError(
        f"the state file {file.path} is damaged: {seen}; restore it from a backup, or use another snapshot"
    )
