"""Savepoints as folders of their own, and finding any snapshot by the path that a person gives.

A savepoint is a folder with a manifest and a `data` folder; everything in its manifest is relative to it, so it can be
moved as a whole. Its files are written by workers, its manifest last, by the coordinator. Names of files carry lineage
and attempt, so that files of a try that failed are never part of a later one in the same folder.

Invariant: when its manifest appears, its lineage has nothing in the folder that the manifest does not name.

Not here: what is in it (`runtime.parts`), starting from one (`coordinator.takeover`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flowpoint.errors import NotFoundError, SnapshotError
from flowpoint.host.base import Disk, Host
from flowpoint.model.commits import CommitKind
from flowpoint.model.manifest import SAVEPOINT, Manifest
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import read_manifest, write_manifest
from flowpoint.snapshot.rereading import patiently
from flowpoint.snapshot.storage import FolderStorage, Storage, refused


@dataclass(frozen=True, slots=True)
class FoundSnapshot:
    """A snapshot on disk. Its manifest's files are relative to `storage`; `directory` is "" for a savepoint."""

    path: str
    storage: FolderStorage
    directory: str
    manifest: Manifest

    def local_path(self, name: str) -> str:
        """Where one of its files is."""
        return f"{self.storage.root}/{name}"


def snapshot_path(path: str) -> str:
    """The folder of the snapshot that a person names by its folder or by the manifest in it."""
    return path.removesuffix(f"/{names.MANIFEST}").rstrip("/")


async def find_snapshot(disk: Disk, new_id: Callable[[], str], path: str) -> FoundSnapshot:
    """The checkpoint or savepoint at an absolute path: its folder, or the manifest in it.

    Raises:
        NotFoundError: there is none.
        SnapshotError: its manifest is damaged.
        UnreadableError: it cannot be read at the moment.
    """
    return await patiently(lambda: _find(disk, new_id, snapshot_path(path)))


async def _find(disk: Disk, new_id: Callable[[], str], path: str) -> FoundSnapshot:
    if not await _has_manifest(disk, path):
        raise NotFoundError(
            f"there is no snapshot at {path}: it has no {names.MANIFEST}; give the folder of a savepoint "
            f"(savepoint-<job>-<id>) or of a retained checkpoint (`flowpoint checkpoints` shows their paths)"
        )
    parent, _, base = path.rpartition("/")
    manifest = await read_manifest(FolderStorage(disk, new_id, path), "")
    if manifest.kind == SAVEPOINT:
        return FoundSnapshot(path, FolderStorage(disk, new_id, path), "", manifest)
    return FoundSnapshot(path, FolderStorage(disk, new_id, parent), base, manifest)


async def publish_savepoint(storage: FolderStorage, manifest: Manifest) -> None:
    """Make a savepoint of what the workers have written. Nothing else of theirs stays in its folder.

    Raises:
        SnapshotError: there is another one in its folder.
        StorageError: the manifest could not be written, or something could not be removed.
    """
    if not await storage.list(names.MANIFEST):
        await remove_unnamed(storage, manifest)
    await write_manifest(storage, manifest, "")


async def remove_unnamed(storage: Storage, manifest: Manifest) -> None:
    """Remove what the lineage of a savepoint has written into its folder and the manifest does not name.

    That is output which was committed while the savepoint was made, and what tries that failed have left.

    Raises:
        StorageError: something could not be removed.
    """
    named = {file.path for file in manifest.files()}
    tag = names.savepoint_lineage(manifest.lineage)
    there = [*await storage.list(names.SAVED), *await storage.list(names.SAVED, unfinished=True)]
    doomed = [name for name in there if tag in name and name not in named]
    if doomed:
        await storage.delete(*doomed)


async def discard_savepoint(disk: Disk, new_id: Callable[[], str], folder: str, lineage: str, attempt: int) -> None:
    """Remove what one attempt wrote for a savepoint that did not come about; the manifest first, should it be there.

    Raises:
        StorageError: something could not be removed.
    """
    storage = FolderStorage(disk, new_id, folder)
    if await _has_manifest(disk, folder):
        try:
            manifest = await read_manifest(storage, "")
        except SnapshotError:
            return
        if (manifest.lineage, manifest.attempt) != (lineage, attempt):
            return
        await storage.delete(names.MANIFEST)
    tag = names.savepoint_tag(lineage, attempt)
    left = [*await storage.list(names.SAVED), *await storage.list(names.SAVED, unfinished=True)]
    doomed = [name for name in left if tag in name]
    if doomed:
        await storage.delete(*doomed)
    await _remove_if_empty(disk, storage)


async def remove_claimed(host: Host, path: str) -> None:
    """Remove a snapshot that a job has claimed and has no more use for: manifest first, then what only it needs.

    The checkpoint of another job stays when it is the newest that its log tells of: a log never names what is gone.

    Raises:
        SnapshotError: its manifest, or one beside it, is damaged.
        StorageError: something could not be removed.
    """
    try:
        found = await find_snapshot(host.disk, host.new_id, path)
    except NotFoundError:
        return
    files = {file.path for file in found.manifest.files()}
    if found.manifest.kind == SAVEPOINT:
        await found.storage.delete(names.MANIFEST)
        if files:
            await found.storage.delete(*files)
        await remove_unnamed(found.storage, found.manifest)
        await _remove_if_empty(host.disk, found.storage)
        return
    entries = await CommitLog(found.storage, "", host).entries()
    if entries and entries[-1].directory == found.directory:
        return
    own = [entry for entry in entries if entry.directory == found.directory]
    numbers = [entry.number for entry in own if entry.kind == CommitKind.CHECKPOINT]
    for directory in {entry.directory for entry in entries} - {found.directory, ""}:
        files -= {file.path for file in (await read_manifest(found.storage, directory)).files()}
    if numbers:
        await found.storage.delete(*map(names.commit_entry, numbers))
    await found.storage.delete(names.manifest_of(found.directory))
    await found.storage.delete(*files, f"{found.directory}/")


async def _remove_if_empty(disk: Disk, storage: FolderStorage) -> None:
    """Remove the folder itself, unless a person has put something else into it."""
    unfinished = [name for name in await storage.list("", unfinished=True) if not name.endswith("/")]
    if not unfinished and not await storage.list(""):
        with _naming_errors("remove the folder", storage.root):
            await disk.remove_tree(storage.root)


async def _has_manifest(disk: Disk, folder: str) -> bool:
    path = f"{folder}/{names.MANIFEST}"
    with _naming_errors("look at", path):
        return await disk.stat(path) is not None


@contextmanager
def _naming_errors(what: str, path: str) -> Iterator[None]:
    """Where the disk is asked directly: what it refuses is a StorageError, as everywhere else in a storage."""
    try:
        yield
    except OSError as error:
        raise refused(what, path, error) from error
