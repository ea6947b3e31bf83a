"""The checkpoints of a job that is not running, from its storage.

How it works: the commit log tells which checkpoints exist, each one's manifest what it holds. A checkpoint that the
log names and whose manifest is missing or damaged is shown as damaged: somebody should know before they need it. One
whose manifest cannot be read at the moment is shown as unreadable, which tells nothing of it.

Not here: pending and failed checkpoints; only the running job knows of them. Reading every file: that is `verify`.
"""

from __future__ import annotations

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.host.base import Host
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home
from flowpoint.launch.question import ask
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import read_manifest
from flowpoint.snapshot.places import MEMORY, FolderPlace, Place

_SNAPSHOTS = frozenset({CommitKind.CHECKPOINT, CommitKind.SAVEPOINT})


def list_checkpoints(home: Home, name: str) -> list[Data]:
    """The retained checkpoints of a job, oldest first, with the keys of `checkpoints --json`.

    Raises:
        SnapshotError: An entry of the commit log itself is damaged.
        StorageError: The commit log cannot be read at the moment.
    """
    record = home.job(name).read_run()
    root = record.storage if record is not None and record.storage else str(home.checkpoints(name))
    if root == MEMORY:
        # What was in memory went with the coordinator.
        return []

    async def look(host: Host) -> list[Data]:
        place = FolderPlace(host, root)
        return await describe_retained(place, CommitLog(place.storage, "", host))

    return ask(look, str(home.root))


async def describe_retained(place: Place, log: CommitLog) -> list[Data]:
    """What the commit log of a place says of its checkpoints, oldest first."""
    entries = await log.entries()
    return [await _describe(place, entry) for entry in entries if entry.kind in _SNAPSHOTS]


async def _describe(place: Place, entry: CommitEntry) -> Data:
    if entry.kind == CommitKind.SAVEPOINT:
        return _describe_savepoint(entry)
    data: Data = {
        "id": entry.checkpoint,
        "attempt": entry.attempt,
        "kind": entry.kind,
        "state": "completed",
        "started": entry.extra.get("started", entry.created),
        "duration_ms": entry.extra.get("duration_ms"),
        "bytes": entry.extra.get("bytes"),
        "parent": entry.parent,
        "path": place.path(entry.directory),
        "reason": "",
    }
    try:
        manifest = await read_manifest(place.storage, entry.directory)
    except SnapshotError as error:
        return data | {"state": "damaged", "reason": str(error)}
    except StorageError as error:
        return data | {"state": "unreadable", "reason": str(error)}
    if data["bytes"] is None:
        # One that was taken over from a snapshot, or logged by a release that did not say what it wrote.
        return data | {"started": manifest.created, "bytes": sum(file.bytes for file in manifest.files())}
    return data


def _describe_savepoint(entry: CommitEntry) -> Data:
    """Where it was made. It may have been moved since, so nobody looks there."""
    is_of_stop = entry.extra["id"] == entry.checkpoint  # written at the barrier of that checkpoint
    return {
        "id": entry.extra["id"],
        "attempt": entry.attempt,
        "kind": entry.kind,
        "state": "completed",
        "started": entry.extra.get("started", entry.created),
        "duration_ms": entry.extra.get("duration_ms"),
        "bytes": entry.extra["bytes"],
        "parent": entry.parent if is_of_stop else entry.checkpoint,
        "path": entry.extra["savepoint"],
        "reason": "",
    }
