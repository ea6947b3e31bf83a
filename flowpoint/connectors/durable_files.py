"""Small files that must be whole or absent after any crash, and errors of the file system as FlowPoint's errors.

`create_once` publishes by `link`, which fails when the name is taken: of several processes exactly one wins.
`replace_file` publishes by `rename`. Both write and sync a temporary file first and sync the folder afterwards.

Invariant: a reader of the final name sees the old content, the new content, or no file; never a part.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from flowpoint.errors import DamagedOutputError, StorageError
from flowpoint.host.base import Disk

COPY_BYTES: Final = 1024 * 1024
TEMPORARY: Final = ".tmp"
"""What the name of a temporary file begins with: the final name and the writer follow."""


_IN_THE_WAY: Final = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""What trying again meets again, until a person has tidied up."""


@contextmanager
def naming_errors(doing: str) -> Iterator[None]:
    """OSError becomes an error that says what could not be done: `doing` is "write /out/.part-...", say.

    Raises:
        DamagedOutputError: something stands in the way that is no file of FlowPoint's.
        StorageError: trying again may help.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise DamagedOutputError(
                f"cannot {doing}: {error.strerror}; look what stands in that place, and move it away"
            ) from error
        hint = "free some space on that disk" if error.errno == errno.ENOSPC else "check the disk and its permissions"
        raise StorageError(f"cannot {doing}: {error.strerror or error}; {hint}") from error


async def create_once(disk: Disk, path: str, content: dict[str, Any], writer: str) -> bool:
    """Writes a small JSON file if there is none; False when there is one.

    `writer` keeps the temporary files of those who may do this at the same time apart.
    """
    temporary = await _write_temporary(disk, path, content, writer)
    try:
        await disk.link(temporary, path)
        created = True
    except FileExistsError:
        created = False
    await disk.remove(temporary)
    await disk.sync_dir(os.path.dirname(path))
    return created


async def replace_file(disk: Disk, path: str, content: dict[str, Any], writer: str) -> None:
    """Writes a small JSON file, in place of what is there.

    `writer` keeps the temporary files of those who may do this at the same time apart.
    """
    temporary = await _write_temporary(disk, path, content, writer)
    await disk.rename(temporary, path)
    await disk.sync_dir(os.path.dirname(path))


async def copy_output(disk: Disk, source: str, target: str) -> None:
    """Copies output, durably, to a name that must be new. A copy, so that changing one never changes the other."""
    file = await disk.create(target, private=False)
    try:
        offset = 0
        while data := await disk.read(source, offset, COPY_BYTES):
            await file.write(data)
            offset += len(data)
        await file.sync()
    finally:
        await file.close()
    await disk.sync_dir(os.path.dirname(target))


async def read_json(disk: Disk, path: str, fields: dict[str, type], advice: str) -> dict[str, Any] | None:
    """The content of such a file, or None when there is none.

    Args:
        fields: what must be in it.
        advice: what a person may do when it is damaged.

    Raises:
        DamagedOutputError: it is not what was written. It never mends itself.
    """
    try:
        raw = await disk.read(path)
    except FileNotFoundError:
        return None
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and all(isinstance(content.get(name), kind) for name, kind in fields.items()):
        return content
    raise DamagedOutputError(f"cannot understand {path}: it is not what FlowPoint wrote ({_seen(raw)}); {advice}")


def _seen(raw: bytes) -> str:
    return f"it begins with {raw[:20]!r}" if raw else "it is empty"


async def _write_temporary(disk: Disk, path: str, content: dict[str, Any], writer: str) -> str:
    folder, name = os.path.split(path)
    # The name is the same at each try, so that what a crash leaves is removed by the next try.
    temporary = os.path.join(folder, f"{TEMPORARY}{name}-{writer}")
    await disk.remove(temporary)
    file = await disk.create(temporary)
    try:
        await file.write(json.dumps(content).encode() + b"\n")
        await file.sync()
    finally:
        await file.close()
    return temporary
