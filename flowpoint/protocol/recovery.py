"""From which checkpoint an attempt starts, decided from the commit log alone (never from a listing of folders).

Nothing is stored about "the newest good checkpoint": it is derived each time. `choose` names the checkpoint that has
to be examined next, the caller examines it (manifest, sizes, checksums) and asks again, until it gets a decision:

    newest commit of the lineage is "finished"     AlreadyFinished
    newest commit says that output is handed on    Refuse: whoever starts from the savepoint goes on
    no checkpoint in the lineage                   StartEmpty
    the newest checkpoint is good                  Restore
    it is damaged                                  its ancestors in turn, but only where that loses or doubles nothing:
                                                   the sinks can take back, or duplicates are accepted; else Refuse
    all are damaged                                Refuse (never start over silently)

Ancestors, not merely older ones: after a fall-back from 17 to 16 the sinks have taken back what 17 committed, so 17
must not be restored any more, even if it can be read again. 18 was taken after 16, so 17 is not an ancestor of it.
(`CommitEntry.parent` is the *id* of the checkpoint that was restored or completed last before this one.)

A fall-back is itself an entry ("restored"), appended before the sinks take anything back: should the attempt die right
then, the next one starts from there too, whatever can be read by then.

Savepoints are not candidates: they commit no sinks, and their output is not this lineage's (rule 3).

Not here: reading anything; dealing state out to subtasks (`assignment`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowpoint.model.commits import CommitEntry, CommitKind


@dataclass(frozen=True, slots=True)
class Examine:
    """Look at this checkpoint, put what is wrong with it (or None) into `health`, and ask again."""

    entry: CommitEntry


@dataclass(frozen=True, slots=True)
class Restore:
    """Start from this checkpoint. `skipped` are damaged newer ones, newest first, whose output is taken back."""

    entry: CommitEntry
    skipped: tuple[CommitEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class StartEmpty:
    """There is no checkpoint: start from the beginning of the input. `lineage` is "" when there is none yet."""

    lineage: str


@dataclass(frozen=True, slots=True)
class AlreadyFinished:
    """There is nothing left to do."""

    entry: CommitEntry


@dataclass(frozen=True, slots=True)
class Refuse:
    """Going on could lose or double records; the reason says what would accept that."""

    reason: str


RestoreDecision = Restore | StartEmpty | AlreadyFinished | Refuse


def choose(
    commits: Sequence[CommitEntry],
    health: Mapping[str, str | None],
    *,
    can_take_back: bool,
    accept_duplicates: bool = False,
) -> RestoreDecision | Examine:
    """What to restore.

    Args:
        commits: the whole log, in any order.
        health: per checkpoint directory that was examined: what is wrong with it, or None when it is good.
        can_take_back: whether every sink can undo commits that are newer than the restored checkpoint.
        accept_duplicates: the shell's `--accept-duplicates`.

    Example:
        >>> choose([], {}, can_take_back=False)
        StartEmpty(lineage='')
    """
    log = standing(commits)
    if not log:
        return StartEmpty("")
    if (end := end_of(log)) is not None:
        return end
    lineage = log[-1].lineage
    chain = _chain([entry for entry in log if entry.lineage == lineage])
    if not chain:
        return StartEmpty(lineage)
    for position, entry in enumerate(chain):
        if position and not (can_take_back or accept_duplicates):
            return _refuse_older(chain, health)
        if entry.directory not in health:
            return Examine(entry)
        if health[entry.directory] is None:
            return Restore(entry, tuple(chain[:position]))
    return _refuse_all(chain, health)


def end_of(log: Sequence[CommitEntry]) -> AlreadyFinished | Refuse | None:
    """Why nothing goes on with the newest lineage, whatever its checkpoints are like; None when something may.

    Args:
        log: what `standing` gave.
    """
    if not log:
        return None
    if log[-1].kind == CommitKind.STOPPED and log[-1].extra.get("savepoint"):
        return _refuse_handed_on(log[-1])
    own = (entry for entry in log if entry.lineage == log[-1].lineage)
    finished = next((entry for entry in own if entry.kind == CommitKind.FINISHED), None)
    return None if finished is None else AlreadyFinished(finished)


def standing(commits: Sequence[CommitEntry]) -> list[CommitEntry]:
    """The log without lineages that were abandoned before they had begun, oldest entry first."""
    abandoned = {entry.lineage for entry in commits if entry.kind == CommitKind.ABANDONED}
    return sorted((entry for entry in commits if entry.lineage not in abandoned), key=lambda entry: entry.number)


def next_checkpoint_id(commits: Sequence[CommitEntry]) -> int:
    """The id of the next checkpoint or savepoint; ids rise over all attempts, also after a fall-back.

    Failed checkpoints are not in the log: whoever has given an id out keeps that in mind. Ids of checkpoints that failed
    under an earlier coordinator may come again; their folders differ by the attempt.
    """
    ids = (max(entry.checkpoint, int(entry.extra.get("id", 0))) for entry in commits)
    return max(ids, default=0) + 1


def _chain(own: Sequence[CommitEntry]) -> list[CommitEntry]:
    """The newest checkpoint of a lineage and its ancestors that are still in the log, newest first."""
    checkpoints = [entry for entry in own if entry.kind == CommitKind.CHECKPOINT]
    by_id = {entry.checkpoint: entry for entry in checkpoints}
    assert len(by_id) == len(checkpoints), f"two commits of one checkpoint id: {checkpoints}"
    chain: list[CommitEntry] = []
    heads = [entry for entry in own if entry.kind in (CommitKind.CHECKPOINT, CommitKind.RESTORED)]
    entry = by_id.get(heads[-1].checkpoint) if heads else None
    while entry:
        chain.append(entry)
        assert entry.parent < entry.checkpoint, f"a checkpoint is newer than its parent: {entry}"
        entry = by_id.get(entry.parent)
    return chain


def _damage(chain: Sequence[CommitEntry], health: Mapping[str, str | None]) -> str:
    return "; ".join(f"{entry.directory}: {health[entry.directory]}" for entry in chain if entry.directory in health)


def _refuse_handed_on(entry: CommitEntry) -> Refuse:
    flags = "--from and --resume-drained, as its event time has ended" if entry.extra.get("drained") else "--from"
    return Refuse(
        f"cannot continue: the job was stopped with the savepoint {entry.extra['savepoint']}, which hands its output "
        f"on; continue from it with {flags}, or start over with --fresh"
    )


def _refuse_older(chain: Sequence[CommitEntry], health: Mapping[str, str | None]) -> Refuse:
    return Refuse(
        f"cannot continue from the newest checkpoint {chain[0].directory}: it is damaged ({_damage(chain, health)}); "
        f"its output is committed and a sink cannot take it back, so the older {chain[1].directory} would write it "
        "again; repair the files, or pass --accept-duplicates"
    )


def _refuse_all(chain: Sequence[CommitEntry], health: Mapping[str, str | None]) -> Refuse:
    # What a lineage began with is a copy: the snapshot that it was made of may be good still.
    source = chain[-1].extra.get("from")
    snapshot = (
        f"{source}, which the job began with, with --from and another --name" if source else "a savepoint with --from"
    )
    return Refuse(
        f"cannot continue: no retained checkpoint is good ({_damage(chain, health)}); repair the files, start from "
        f"{snapshot}, or start over with --fresh"
    )
