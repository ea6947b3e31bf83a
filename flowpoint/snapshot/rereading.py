"""Reading a storage patiently: what it refuses is asked for again a few times, ever later, before it is given up.

A disk, a mount and a limit of open files recover, and a start must not depend on the moment. What cannot be read is no
damage either: nothing is known of it, it may well be whole, and an older checkpoint in its place would let the job go on
behind what its sinks have committed (rule 1). So there is an error of its own for it, and nobody takes that for damage.

Invariants: each read waits `sum(PAUSES)` seconds at most; what is not there is said at once (FileNotFoundError); writing
and deleting are handed through, since a write that failed may have happened.

Not here: what becomes of an attempt that cannot read (`protocol.restart`). Reading without a loop: a person tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowpoint.errors import StorageError, UnreadableError
from flowpoint.host.base import OpenFile
from flowpoint.snapshot.storage import Chunks, Names, Storage

T = TypeVar("T")

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds before each further try."""


async def patiently(read: Callable[[], Awaitable[T]]) -> T:
    """What `read` gives, as soon as the storage lets it.

    Raises:
        UnreadableError: each try was refused; the message is that of the last one.
    """
    for pause in PAUSES:
        try:
            return await read()
        except StorageError:
            # Pauses are time of the loop's clock: who is cancelled, or whose attempt ends, does not wait on.
            await asyncio.sleep(pause)
    try:
        return await read()
    except StorageError as error:
        raise UnreadableError(
            f"{error} (tried {len(PAUSES) + 1} times within {sum(PAUSES):.0f} s; what is stored there may well be whole, so "
            "nothing older is used in its place)"
        ) from error


class PatientStorage:
    """Another storage, read patiently. See `Storage`."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        """See `Storage`. Raises UnreadableError."""
        return await patiently(lambda: self._inner.get(name, offset, size))

    async def open(self, name: str) -> OpenFile | None:
        """See `Storage`. Raises UnreadableError."""
        return await patiently(lambda: self._inner.open(name))

    async def list(self, prefix: str, *, unfinished: bool = False) -> Names:
        """See `Storage`. Raises UnreadableError."""
        return await patiently(lambda: self._inner.list(prefix, unfinished=unfinished))

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        """See `Storage`."""
        return await self._inner.put_if_absent(name, chunks)

    async def delete(self, *doomed: str) -> bool:
        """See `Storage`."""
        return await self._inner.delete(*doomed)

    async def adopt(self, local_path: str, name: str) -> bool:
        """See `Storage`."""
        return await self._inner.adopt(local_path, name)

    def close(self) -> None:
        """See `Storage`."""
        self._inner.close()
