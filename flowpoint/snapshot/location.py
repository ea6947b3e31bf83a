"""Where a snapshot on this machine is: the storage that its files are in, and the folder of its manifest in there.

A checkpoint is a folder in the storage of its job, and its files are named relative to that storage. A savepoint is a
storage of its own, with the manifest at its root. From a `SnapshotLocation` on there is no difference.

Invariants: finding a snapshot reads its manifest and nothing else. A manifest that is too big to be one is not read.

Not here: what is in the snapshot (`opened`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from flowpoint.errors import NotFoundError, SnapshotError
from flowpoint.host.blocking import BlockingDisk, new_id, run_now
from flowpoint.model.manifest import SAVEPOINT, Manifest
from flowpoint.snapshot import names
from flowpoint.snapshot.manifests import read_manifest
from flowpoint.snapshot.storage import FolderStorage, Storage, refused

_FILE_SCHEME = "file://"
_MANIFEST_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class SnapshotLocation:
    """A snapshot in a storage. `directory` is "" for a savepoint; `path` is the folder as a person names it."""

    storage: Storage
    directory: str
    path: str


def local_storage(folder: str) -> FolderStorage:
    """A folder as storage, for `run_now`."""
    return FolderStorage(BlockingDisk(), new_id, folder)


def locate(path: str | os.PathLike[str]) -> tuple[SnapshotLocation, Manifest]:
    """Find a snapshot by its folder, or by the manifest in it.

    Raises:
        NotFoundError: there is none.
        SnapshotError: its manifest is damaged.
        StorageError: it cannot be read.
    """
    folder = os.path.abspath(os.path.expanduser(os.fspath(path).removeprefix(_FILE_SCHEME)))
    if os.path.basename(folder) == names.MANIFEST and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    _check_there(folder)
    manifest = run_now(read_manifest(local_storage(folder), ""))
    if manifest.kind == SAVEPOINT:
        return SnapshotLocation(local_storage(folder), "", folder), manifest
    root, directory = os.path.split(folder)
    return SnapshotLocation(local_storage(root), directory, folder), manifest


def _check_there(folder: str) -> None:
    file = os.path.join(folder, names.MANIFEST)
    try:
        size = os.stat(file).st_size
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no snapshot at {folder}: {_what_is_there(folder)}") from None
    except OSError as error:
        raise refused("look at", file, error) from error
    if size > _MANIFEST_BYTES_MAX:
        raise SnapshotError(
            f"the manifest {file} is damaged: it has {size} bytes; put back an intact copy of this file"
        )


def _what_is_there(folder: str) -> str:
    """What was seen in place of a snapshot, and what to do."""
    if not os.path.isdir(folder):
        return "no such folder; `flowpoint checkpoints JOB` shows the paths of a job's checkpoints"
    inside = [name for name in sorted(os.listdir(folder)) if os.path.isfile(f"{folder}/{name}/{names.MANIFEST}")]
    if inside:
        return f"name one of the snapshots in this folder: {', '.join(inside[-5:])}"
    return f"the folder has no {names.MANIFEST}: the snapshot is incomplete, was removed, or is somewhere else"
