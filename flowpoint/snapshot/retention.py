"""What may be deleted, and deleting it: old checkpoints while a job runs, leftovers of dead attempts when one starts.

`plan` decides from the commit log and the manifests alone; `Cleaner` carries it out. Old checkpoints go in the order
commit entry, manifest, files, each step durable before the next, so that a crash in between leaves garbage but never
a commit that names what is gone (rule 6). Garbage is found by `sweep`, by the attempt in its name (rule 9).

Invariants:
- A file that a kept checkpoint's manifest names is never deleted; while one such manifest cannot be read, no file is.
- The newest entry of the log is never deleted, nor any newer than the oldest kept checkpoint but dropped checkpoints'.
- Savepoints are a person's: neither they nor their entries are touched; a claimed snapshot goes with its checkpoint.
- What belongs to another lineage is never deleted, nor what an attempt wrote that is not older than this one.
- The last `ATTEMPTS_KEPT` "attempt" entries stay: an older coordinator that wakes up late finds the number it wants
  to take still taken, since the first entry after its own last one is the "attempt" entry of its successor.

Not here: which checkpoint to restore (`protocol.recovery`), sinks' leftovers (`Sink.clean`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.model.manifest import Manifest
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import read_manifest
from flowpoint.snapshot.storage import Storage

ATTEMPTS_KEPT = 64

Named = Mapping[str, frozenset[str] | None]
"""A checkpoint's directory -> the files its manifest names; None (or no key): the manifest cannot be read."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """What may go, in this order. `commits` are numbers, `manifests` and `files` names in storage ("/": a folder)."""

    commits: tuple[int, ...] = ()
    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.commits or self.manifests or self.files)

    def __add__(self, other: Deletions) -> Deletions:
        """Both, each name once."""
        return Deletions(
            tuple(sorted({*self.commits, *other.commits})),
            tuple(sorted({*self.manifests, *other.manifests})),
            tuple(sorted({*self.files, *other.files})),
        )


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What a run of the cleaner did, and what it could not do and will try again."""

    deleted: int = 0
    problems: tuple[str, ...] = ()


def files_of(manifest: Manifest) -> frozenset[str]:
    """The names of all files that a manifest needs."""
    return frozenset(file.path for file in manifest.files())


def kept_directories(
    entries: Sequence[CommitEntry], lineage: str, retained: int, pinned: Collection[str] = ()
) -> list[str]:
    """The checkpoints that stay, by directory: the `retained` best of `lineage`, all of others, and the pinned.

    Args:
        entries: the whole log, oldest first.
        lineage: the lineage whose old checkpoints may go.
        retained: how many to keep, at least 1.
        pinned: directories that stay in any case: being restored, base of a pending one, source of `--from` (rule 14).
    """
    others = [entry.directory for entry in entries if entry.kind == CommitKind.CHECKPOINT and entry.lineage != lineage]
    newest = [entries[-1].directory] if entries else []
    kept = dict.fromkeys([*_ranked(entries, lineage)[: max(retained, 1)], *others, *newest, *pinned])
    return [directory for directory in kept if directory]


def _ranked(entries: Sequence[CommitEntry], lineage: str) -> list[str]:
    """The checkpoints of a lineage, by directory, those first that recovery would use first.

    That is the newest and its ancestors, by their parents. What comes after them was abandoned: taken after an older
    one than the newest, which recovery fell back behind.
    """
    own = [entry for entry in entries if entry.lineage == lineage]
    left = {entry.checkpoint: entry for entry in own if entry.kind == CommitKind.CHECKPOINT}
    ranked: list[str] = []
    entry = left.pop(own[-1].checkpoint, None) if own else None
    while entry is not None:
        ranked.append(entry.directory)
        entry = left.pop(entry.parent, None)
    return [*ranked, *(entry.directory for entry in reversed(left.values()))]


def plan(
    entries: Sequence[CommitEntry],
    named: Named,
    *,
    lineage: str,
    retained: int,
    pinned: Collection[str] = (),
) -> Deletions:
    """What retention may delete. Pure.

    Args:
        entries: the whole log, oldest first.
        named: the files that each checkpoint's manifest names.
        lineage: see `kept_directories`, as `retained` and `pinned`.
        retained: how many checkpoints to keep.
        pinned: directories that stay in any case.
    """
    kept = kept_directories(entries, lineage, retained, pinned)
    own = [entry for entry in entries if entry.kind == CommitKind.CHECKPOINT and entry.lineage == lineage]
    dropped = list(dict.fromkeys(entry.directory for entry in own if entry.directory not in kept))
    return Deletions(
        tuple(entry.number for entry in _deletable(entries, set(kept), lineage)),
        tuple(names.manifest_of(directory) for directory in dropped),
        _deletable_files(dropped, kept, named),
    )


def _deletable(entries: Sequence[CommitEntry], kept: set[str], lineage: str) -> list[CommitEntry]:
    """The entries that may go."""
    own = [entry for entry in entries[:-1] if entry.lineage == lineage]
    horizon = min(
        (entry.number for entry in own if entry.kind == CommitKind.CHECKPOINT and entry.directory in kept),
        default=entries[-1].number if entries else 0,
    )
    attempts = [entry.number for entry in entries if entry.kind == CommitKind.ATTEMPT][-ATTEMPTS_KEPT:]
    oldest_attempt = attempts[0] if attempts else horizon

    def may_go(entry: CommitEntry) -> bool:
        match entry.kind:
            case CommitKind.CHECKPOINT:
                return entry.directory not in kept
            case CommitKind.ATTEMPT:
                return entry.number < min(horizon, oldest_attempt)
            case CommitKind.SAVEPOINT:
                return False
            case _:
                return entry.number < horizon

    return [entry for entry in own if may_go(entry)]


def _deletable_files(dropped: Sequence[str], kept: Sequence[str], named: Named) -> tuple[str, ...]:
    """The files and folders that only dropped checkpoints need; none while a kept one's needs are not known."""
    needed: set[str] = set()
    for directory in kept:
        files = named.get(directory)
        if files is None:
            return ()
        needed |= files
    doomed = {file for directory in dropped for file in named.get(directory) or ()} - needed
    folders = {f"{directory}/" for directory in dropped if not _holds_any(directory, needed)}
    return (*sorted(doomed), *sorted(folders))


def _holds_any(directory: str, files: Iterable[str]) -> bool:
    return any(file.startswith(f"{directory}/") for file in files)


class Cleaner:
    """Deletes what may go, for one attempt of one job. There is one cleaner at a time, the coordinator's (rule 9)."""

    def __init__(
        self,
        storage: Storage,
        log: CommitLog,
        *,
        lineage: str,
        attempt: int,
        retained: int,
        remove_claimed: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`retained` is how many completed checkpoints to keep.

        `remove_claimed` removes a snapshot that the job has claimed, by its path: it goes with the checkpoint that was
        made of it.
        """
        self._storage = storage
        self._log = log
        self._lineage = lineage
        self._attempt = attempt
        self._retained = retained
        self._remove_claimed = remove_claimed
        self._named: dict[str, frozenset[str]] = {}
        self._owed = Deletions()

    async def run(self, pinned: Collection[str] = (), abandoned: Collection[str] = ()) -> CleanReport:
        """Delete old checkpoints, as after each completed one. What fails is reported, and tried again next time.

        Args:
            pinned: directories of checkpoints that stay in any case (rule 14).
            abandoned: files of failed checkpoints, which go unless a kept one names them.
        """
        try:
            entries = await self._log.entries()
            named, problems = await self._read_named(
                [*(entry.directory for entry in entries if entry.kind == CommitKind.CHECKPOINT), *pinned]
            )
        except (StorageError, SnapshotError) as error:
            return CleanReport(problems=(str(error),))
        self._owed += Deletions(files=tuple(abandoned))
        fresh = plan(entries, named, lineage=self._lineage, retained=self._retained, pinned=pinned)
        stuck = await self._release_claimed([entry for entry in entries if entry.number in fresh.commits])
        if stuck:
            # The checkpoint stays with its entry, so that it is tried again; all others go.
            pinned = [*pinned, *stuck]
            fresh = plan(entries, named, lineage=self._lineage, retained=self._retained, pinned=pinned)
            problems += stuck.values()
        kept = kept_directories(entries, self._lineage, self._retained, pinned)
        waiting = self._waiting(fresh, kept, named)
        report = await self._delete(self._owed_still(kept, named) + fresh)
        self._owed += waiting
        self._named = {directory: files for directory, files in self._named.items() if directory in kept}
        return CleanReport(report.deleted, (*problems, *report.problems))

    async def _release_claimed(self, dropped: Sequence[CommitEntry]) -> dict[str, str]:
        """Remove what was claimed for checkpoints that go. Gives those for which that failed, and what was seen."""
        stuck: dict[str, str] = {}
        for entry in dropped:
            if entry.kind == CommitKind.CHECKPOINT and entry.extra.get("claim") and self._remove_claimed is not None:
                try:
                    await self._remove_claimed(entry.extra["from"])
                except (StorageError, SnapshotError) as error:
                    stuck[entry.directory] = str(error)
        return stuck

    async def sweep(self, pinned: Collection[str] = (), *, is_over: bool = False) -> CleanReport:
        """Delete what older attempts of this lineage left and no kept checkpoint needs; with `is_over` this one, too.

        Called once when an attempt starts: after it has begun in the log, after the processes of older attempts are
        dead, and after the sinks have committed what the restored checkpoint holds (rules 7 to 9). And once when the
        job is over and no process of this attempt is left.
        """
        before = self._attempt + 1 if is_over else self._attempt
        try:
            entries = await self._log.entries()
            kept = kept_directories(entries, self._lineage, len(entries), pinned)
            named, problems = await self._read_named(kept)
            left = await self._storage.list("", unfinished=True)
            visible = [*await self._storage.list(names.SHARED), *await self._storage.list(names.CHECKPOINTS)]
        except (StorageError, SnapshotError) as error:
            return CleanReport(problems=(str(error),))
        others = {entry.attempt for entry in entries if entry.lineage != self._lineage}
        needed = {name for files in named.values() for name in files or ()}
        needed |= {names.manifest_of(directory) for directory in kept}
        doomed = [name for name in left if self._is_leftover(name, before, others)]
        if problems:
            # What the kept checkpoints need is not known: only what never got its name may go.
            report = await self._delete(Deletions(files=tuple(doomed)))
        else:
            doomed += [name for name in visible if name not in needed and self._is_leftover(name, before, others)]
            report = await self._delete(_in_order(doomed, needed))
        return CleanReport(report.deleted, (*problems, *report.problems))

    def _is_leftover(self, name: str, before: int, others: Collection[int]) -> bool:
        """Whether an attempt of this lineage before `before` wrote this; an unfinished commit entry counts as such."""
        attempt = names.attempt_of(name)
        if attempt is None:
            target = names.finished(name)
            return target is not None and names.parse_commit_entry(target) is not None
        return attempt < before and attempt not in others

    def _owed_still(self, kept: Collection[str], named: Named) -> Deletions:
        """What earlier runs could not delete, less what is needed; files wait while that is not known."""
        if any(named.get(directory) is None for directory in kept):
            return Deletions(self._owed.commits, self._owed.manifests)
        needed = {name for directory in kept for name in named.get(directory) or ()}
        files = tuple(
            name for name in self._owed.files if name not in needed and not _holds_any(name.rstrip("/"), needed)
        )
        return Deletions(self._owed.commits, self._owed.manifests, files)

    def _waiting(self, fresh: Deletions, kept: Collection[str], named: Named) -> Deletions:
        """While it is not known what the kept checkpoints need: the files that are owed, and those of what goes now."""
        if all(named.get(directory) is not None for directory in kept):
            return Deletions()
        dropped = [manifest.removesuffix(f"/{names.MANIFEST}") for manifest in fresh.manifests]
        files = {file for directory in dropped for file in named.get(directory) or ()}
        return Deletions(files=(*self._owed.files, *sorted(files), *(f"{directory}/" for directory in dropped)))

    async def _read_named(self, directories: Iterable[str]) -> tuple[Named, list[str]]:
        """What the manifests of these checkpoints name, and what is wrong with those that cannot be read."""
        named: dict[str, frozenset[str] | None] = {}
        problems: list[str] = []
        for directory in dict.fromkeys(directories):
            if not directory:
                continue
            try:
                if directory not in self._named:
                    self._named[directory] = files_of(await read_manifest(self._storage, directory))
                named[directory] = self._named[directory]
            except (SnapshotError, StorageError) as error:
                named[directory] = None
                problems.append(str(error))
        return named, problems

    async def _delete(self, doomed: Deletions) -> CleanReport:
        """Delete step by step; a step that fails keeps the later ones waiting, and all of them are owed."""
        commits = tuple(names.commit_entry(number) for number in doomed.commits)
        deleted = 0
        for step in (commits, doomed.manifests, doomed.files):
            try:
                if step:
                    await self._storage.delete(*step)
                    deleted += len(step)
            except StorageError as error:
                self._owed = doomed
                return CleanReport(deleted, (str(error),))
        self._owed = Deletions()
        return CleanReport(deleted)


async def sweep_finished(storage: Storage, log: CommitLog, finished: CommitEntry) -> CleanReport:
    """Delete what a job left that died when it had finished, and before it had removed it. No process of it may be left."""
    cleaner = Cleaner(storage, log, lineage=finished.lineage, attempt=finished.attempt, retained=1)
    return await cleaner.sweep(is_over=True)


def _in_order(doomed: Collection[str], needed: Collection[str]) -> Deletions:
    """Leftovers as deletions: manifests before files, and whole folders where nothing in them is needed."""
    folders = {
        f"{top}/"
        for top in (name.split("/", 1)[0] for name in doomed)
        if names.parse_checkpoint_directory(top) and not _holds_any(top, needed)
    }
    manifests = tuple(sorted(name for name in doomed if name.endswith(f"/{names.MANIFEST}")))
    files = {name for name in doomed if f"{name.split('/', 1)[0]}/" not in folders} - set(manifests)
    return Deletions((), manifests, (*sorted(files), *sorted(folders)))
