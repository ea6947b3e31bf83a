"""Dispose of a savepoint: its manifest first, then the files that it names or its lineage has left beside them, then the
folders that are empty.

Invariants: nothing is deleted but a savepoint, and nothing in its folder that its job has not written for it. Once the
manifest is gone there is no savepoint; what an interrupted `dispose` leaves is only files.

Not here: checkpoints, which belong to their job and its retention.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from flowpoint.errors import UsageError
from flowpoint.host.blocking import run_now
from flowpoint.model.manifest import SAVEPOINT
from flowpoint.snapshot import names
from flowpoint.snapshot.location import locate
from flowpoint.snapshot.savepoints import remove_unnamed


@dataclass(frozen=True, slots=True)
class Disposed:
    """What was deleted, and which names were left in the folder because they are not the savepoint's."""

    path: str
    id: int
    bytes: int
    left: tuple[str, ...]


def dispose(path: str | os.PathLike[str]) -> Disposed:
    """Delete a savepoint.

    Raises:
        NotFoundError: there is no snapshot.
        UsageError: it is not a savepoint.
        SnapshotError: its manifest is damaged, so that nobody knows which files are its own.
        StorageError: something could not be deleted.
    """
    location, manifest = locate(path)
    if manifest.kind != SAVEPOINT:
        raise UsageError(
            f"cannot dispose of {location.path}: it is a {manifest.kind} of job {manifest.job!r}, which deletes its "
            "checkpoints itself; only savepoints are disposed of"
        )
    if os.path.isdir(os.path.join(location.path, names.COMMITS)):
        raise UsageError(
            f"cannot dispose of {location.path}: it is the storage of a job (it has a commit log), not a savepoint"
        )
    run_now(location.storage.delete(names.MANIFEST))
    # From here on there is no savepoint.
    files = manifest.files()
    if files:
        run_now(location.storage.delete(*(file.path for file in files)))
    run_now(remove_unnamed(location.storage, manifest))
    left = remove_empty_folders(location.path)
    return Disposed(location.path, manifest.id, sum(file.bytes for file in files), left)


def remove_empty_folders(folder: str) -> tuple[str, ...]:
    """Remove the folders that are empty now, from the bottom up; what is left at the top."""
    for path, _, _ in os.walk(folder, topdown=False):
        # One that has something in it stays, and so does one that cannot be removed.
        with suppress(OSError):
            os.rmdir(path)
    return tuple(sorted(os.listdir(folder))) if os.path.isdir(folder) else ()
