"""Chooses the checkpoint that an attempt is restored from: looks at one after the other until the rules are content.

    commit log -> `protocol.recovery` names one -> it is looked at -> what is wrong with it -> ... -> chosen, or refused

Which one is next, and what may be passed over, is decided there. How closely one is looked at depends on what this
coordinator has seen: checksums are checked by the workers, when they read, which may be long after the start. So only the
manifest and the sizes of files are looked at, until workers have found damage.

Invariant: a checkpoint that has proved damaged under this coordinator is not chosen again by it.

Not here: the rules (`protocol.recovery`), local files (`local_recovery`), entries in the commit log (`prepare`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from flowpoint.coordinator.local_recovery import LocalRecovery, LocalUse
from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.model.manifest import Manifest
from flowpoint.protocol.recovery import AlreadyFinished, Examine, Refuse, Restore, StartEmpty, choose
from flowpoint.snapshot import names
from flowpoint.snapshot.manifests import read_manifest, verify
from flowpoint.snapshot.storage import Storage


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an attempt is restored from. As it is by default: from nothing.

    directory: of the checkpoint. skipped: directories of damaged newer ones, newest first, whose output is taken back.
    older: directories of the checkpoints that are left if this one turns out to be damaged.
    """

    manifest: Manifest | None = None
    directory: str = ""
    skipped: tuple[str, ...] = ()
    older: tuple[str, ...] = ()


class Choosing:
    """What one coordinator knows of the checkpoints of its job. `warn` gets one line for a person."""

    def __init__(self, storage: Storage, local: LocalRecovery, warn: Callable[[str], None]) -> None:
        self._storage = storage
        self._local = local
        self._warn = warn
        self._damaged: dict[str, str] = {}  # directory -> what workers found, which a look at sizes does not show

    def found_damage(self, directory: str, local: LocalUse, how: str) -> None:
        """Workers have found damage in what an attempt was restored with: a checkpoint, read with or without local files.

        The next attempt is given another checkpoint, if the rules allow it; or the same one, if local files may be all
        that is damaged.
        """
        if local is LocalUse.OPENED:
            self._local.doubt(how)
        else:
            self._damaged[directory] = how

    async def choose(
        self, entries: Sequence[CommitEntry], lineage: str, *, can_take_back: bool, accept_duplicates: bool
    ) -> Chosen:
        """What to restore. `entries`: the commit log; `lineage`: the one that goes on; for the rest see `protocol.recovery`.

        Raises:
            IncompatibleStateError: nothing may be restored; the message says what would help.
            UnreadableError: a checkpoint cannot be looked at, so nothing is known of it.
        """
        health: dict[str, str | None] = dict(self._damaged)
        manifests: dict[str, Manifest] = {}
        while True:
            match choose(entries, health, can_take_back=can_take_back, accept_duplicates=accept_duplicates):
                case Examine(entry):
                    health[entry.directory] = await self._examine(entry.directory, manifests)
                case Restore(entry, passed_over):
                    for lost in passed_over:
                        self._warn(f"checkpoint {lost.directory} is damaged and is skipped: {health[lost.directory]}")
                    skipped = tuple(lost.directory for lost in passed_over)
                    older = _older(entries, lineage, (entry.directory, *skipped), await self._manifests())
                    return Chosen(manifests[entry.directory], entry.directory, skipped, older)
                case StartEmpty():
                    return Chosen()
                case Refuse(reason):
                    raise IncompatibleStateError(reason)
                case AlreadyFinished(entry):
                    raise AssertionError(f"a finished job was begun again: {entry}")

    async def _examine(self, directory: str, manifests: dict[str, Manifest]) -> str | None:
        """What is wrong with a checkpoint, or None.

        Once workers have found damage every byte is looked at: the damaged file may well be part of other checkpoints, too.
        """
        try:
            manifest = await read_manifest(self._storage, directory)
            damages = await verify(self._storage, manifest, deep=bool(self._damaged) or self._local.is_doubted)
        except SnapshotError as error:
            return str(error)
        manifests[directory] = manifest
        return "; ".join(f"{damage.path}: {damage.problem}" for damage in damages) or None

    async def _manifests(self) -> frozenset[str]:
        return frozenset(await self._storage.list(names.CHECKPOINTS))


def _older(
    entries: Sequence[CommitEntry], lineage: str, but: Collection[str], manifests: Collection[str]
) -> tuple[str, ...]:
    """The other checkpoints of a lineage that could be fallen back to; those without a manifest cannot."""
    return tuple(
        entry.directory
        for entry in entries
        if entry.kind == CommitKind.CHECKPOINT
        and entry.lineage == lineage
        and entry.directory not in but
        and names.manifest_of(entry.directory) in manifests
    )
