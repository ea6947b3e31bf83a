"""The size and checksum of an object, which a manifest states of each of its files.

Not here: comparing them (`manifests`), keeping the bytes (`reader`).
"""

from __future__ import annotations

import asyncio

from xxhash import xxh3_64

from flowpoint.snapshot.storage import SLICE_BYTES, Storage


async def measured(storage: Storage, name: str) -> tuple[int, str]:
    """The size and checksum of an object, read slice by slice; the loop gets a turn between two of them.

    Raises:
        FileNotFoundError: there is none.
        StorageError: it cannot be read.
    """
    digest = xxh3_64()
    size = 0
    while data := await storage.get(name, size, SLICE_BYTES):
        digest.update(data)
        size += len(data)
        await asyncio.sleep(0)
    return size, digest.hexdigest()
