"""What `run --from` means beside a commit log: a new branch, or what came of that very snapshot before.

The same command line is given again after a kill, by a person or by a supervisor. When the job has already gone on from
that snapshot, its own checkpoints are newer than it, and its output is there: then it goes on from those, and says so.
Beginning from the snapshot once more needs another name and another output folder.

Invariant: a snapshot is taken for the one that a lineage began from only when lineage, id and time of creation agree; a
child that `edit` wrote to the same path is another one. One that is gone counts only when the lineage had claimed it.

Not here: making a branch (`takeover`).
"""

from __future__ import annotations

from collections.abc import Sequence

from flowpoint.coordinator.origin import Origin, has_checkpoint, origin_of
from flowpoint.errors import NotFoundError
from flowpoint.host.base import Host
from flowpoint.model.commits import CommitEntry
from flowpoint.snapshot.savepoints import FoundSnapshot, find_snapshot, snapshot_path


def origin_in(found: FoundSnapshot, *, claim: bool) -> Origin:
    """What a lineage that begins from this snapshot keeps of it."""
    manifest = found.manifest
    return Origin(found.path, manifest.lineage, manifest.id, claim, manifest.handed_on, manifest.created)


async def has_gone_on(host: Host, entries: Sequence[CommitEntry], source: str) -> bool:
    """Whether the newest lineage began from the snapshot at `source` and has taken checkpoints of its own since.

    Raises:
        SnapshotError: the manifest of the snapshot is damaged.
        StorageError: it cannot be read at the moment.
    """
    newest = entries[-1].lineage if entries else ""
    began = origin_of(entries, newest)
    if began is None or not has_checkpoint(entries, newest, beyond=began.checkpoint):
        return False
    try:
        found = await find_snapshot(host.disk, host.new_id, source)
    except NotFoundError:
        # Retention has removed it together with the checkpoint that was made of it.
        return began.claim and began.path == snapshot_path(source)
    return origin_in(found, claim=began.claim).is_same_snapshot(began)


def branch_note(found: FoundSnapshot) -> str:
    """What a person is told of the output when a branch is made."""
    manifest = found.manifest
    return (
        f"this is a branch from {manifest.kind} {manifest.id} of job {manifest.job!r}: it writes what comes after it, and"
        " what was written before stays where it is"
    )


def gone_on_note(job: str, source: str, checkpoint: int) -> str:
    """What a person is told who asks for it once more."""
    return (
        f"job {job!r} has already gone on from {source} to its checkpoint {checkpoint}, and continues from there; to "
        "begin from that snapshot once more, give the job another --name and another output folder"
    )
