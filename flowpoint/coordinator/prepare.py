"""Prepares an attempt: fence what is older, decide what to restore, claim the sinks, make the `Deploy` message.

    entries -> "attempt k begins" -> newest good checkpoint -> state dealt out -> sinks begin

Nothing that was read counts before the attempt's own entry is durable: only then is everything older fenced. The
decision itself is pure (`protocol.recovery`, `protocol.assignment`).

Not here: sending anything to workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flowpoint.coordinator.job import JobToRun
from flowpoint.errors import IncompatibleStateError, JobError, SnapshotError, UserCodeError
from flowpoint.host.base import Host
from flowpoint.model.commits import CommitEntry
from flowpoint.model.manifest import Manifest
from flowpoint.model.plan import OperatorKind, SubtaskId
from flowpoint.protocol.assignment import RestoreMap, assign_state, initial_splits
from flowpoint.protocol.recovery import (
    AlreadyFinished,
    CommitKind,
    Examine,
    Refuse,
    Restore,
    StartEmpty,
    choose,
    next_checkpoint_id,
)
from flowpoint.runtime.contracts import ConnectorContext, HostClock, Sink
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import read_manifest, verify
from flowpoint.snapshot.retention import Cleaner
from flowpoint.snapshot.storage import Storage


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """Everything an attempt starts from. `restored` is its manifest, None when it starts empty."""

    number: int
    lineage: str
    restored: Manifest | None
    restored_directory: str
    skipped: tuple[str, ...]
    restore: RestoreMap
    next_checkpoint: int
    assignment: Mapping[SubtaskId, int]
    cleaner: Cleaner

    @property
    def restored_checkpoint(self) -> int:
        """The id of the restored checkpoint, 0 when it starts empty."""
        return self.restored.id if self.restored is not None else 0


@dataclass(frozen=True, slots=True)
class JobIsDone:
    """The commit log says that the job has finished: there is nothing to run."""

    entry: CommitEntry


class Preparation:
    """Prepares one attempt after another for one job."""

    def __init__(
        self, host: Host, job: JobToRun, storage: Storage, log: CommitLog, warn: Callable[[str], None]
    ) -> None:
        self._host = host
        self._job = job
        self._storage = storage
        self._log = log
        self._warn = warn
        self._lineage: str | None = None
        self._splits: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._is_first = True
        self.damaged: dict[str, str] = {}
        """Checkpoint directories that proved damaged, and how (workers find what a look at sizes does not show)."""

    async def prepare(self) -> PreparedAttempt | JobIsDone:
        """Begin the next attempt.

        Raises:
            JobError, SnapshotError: no attempt can start from what is there.
            StorageError, OutcomeUnknown: trying again may help.
            Fenced: a newer coordinator is at work.
        """
        entries = await self._log.entries()
        if (finished := self._finished(entries)) is not None:
            return JobIsDone(finished)
        if self._lineage is None:
            is_new = self._job.wishes.fresh or not entries
            self._lineage = self._host.new_id() if is_new else entries[-1].lineage
        begun = await self._log.begin_attempt(self._lineage)
        restored, directory, skipped = await self._choose(await self._log.entries())
        if restored is not None and skipped:
            # Before anything is taken back: from here on the skipped checkpoints never count again.
            await self._log.append(
                CommitKind.RESTORED,
                begun.attempt,
                checkpoint=restored.id,
                directory=directory,
                parent=restored.parent,
                extra={"skipped": list(skipped)},
            )
        restore = await self._deal_out(restored)
        prepared = PreparedAttempt(
            number=begun.attempt,
            lineage=self._lineage,
            restored=restored,
            restored_directory=directory,
            skipped=skipped,
            restore=restore,
            next_checkpoint=next_checkpoint_id(await self._log.entries()),
            assignment=self._place(),
            cleaner=Cleaner(
                self._storage,
                self._log,
                lineage=self._lineage,
                attempt=begun.attempt,
                retained=self._job.settings.checkpoint.retained,
            ),
        )
        for uid, sink in self.sinks():
            await sink.begin(self._sink_context(uid, prepared))
        self._is_first = False
        return prepared

    def _finished(self, entries: list[CommitEntry]) -> CommitEntry | None:
        """The entry that says that the job has finished, when its lineage is the newest one.

        Looked for before each attempt: "finished" may have been appended by one that did not hear of it.
        """
        is_own = bool(entries) and entries[-1].lineage == self._lineage
        if not (is_own or (self._lineage is None and not self._job.wishes.fresh)):
            return None
        decision = self._decide(entries, {})
        return decision.entry if isinstance(decision, AlreadyFinished) else None

    async def clean(self, prepared: PreparedAttempt) -> None:
        """After every sink has committed what was restored: remove what dead attempts left behind (rules 7 to 9)."""
        report = await prepared.cleaner.sweep([prepared.restored_directory] if prepared.restored_directory else [])
        for problem in report.problems:
            self._warn(f"cannot clean up after older attempts: {problem}")
        for uid, sink in self.sinks():
            await sink.clean(self._sink_context(uid, prepared))

    def sinks(self) -> list[tuple[str, Sink]]:
        """The sinks of the job, by uid."""
        return [
            (spec.uid, self._job.operators[spec.uid].function)
            for spec in self._job.plan.operators
            if spec.kind is OperatorKind.SINK
        ]

    def _sink_context(self, uid: str, prepared: PreparedAttempt) -> ConnectorContext:
        return ConnectorContext(
            uid=uid,
            subtask=0,
            parallelism=self._job.plan.operator(uid).parallelism,
            job=self._job.plan.job,
            lineage=prepared.lineage,
            attempt=prepared.number,
            disk=self._host.disk,
            clock=HostClock(self._host),
            restored_checkpoint=prepared.restored_checkpoint,
            # Once: another job that takes the target over meanwhile is not to be robbed by a restart.
            take_output=self._job.wishes.take_output and self._is_first,
            skip_lost_input=self._job.wishes.skip_lost_input,
            log=self._warn,
        )

    # ------------------------------------------------------------------ what to restore

    def _decide(
        self, entries: list[CommitEntry], health: Mapping[str, str | None]
    ) -> Restore | StartEmpty | AlreadyFinished | Refuse | Examine:
        return choose(
            entries,
            health,
            can_take_back=all(sink.can_take_back for _, sink in self.sinks()),
            accept_duplicates=self._job.wishes.accept_duplicates,
        )

    async def _choose(self, entries: list[CommitEntry]) -> tuple[Manifest | None, str, tuple[str, ...]]:
        health: dict[str, str | None] = dict(self.damaged)
        manifests: dict[str, Manifest] = {}
        while True:
            match self._decide(entries, health):
                case Examine(entry):
                    health[entry.directory] = await self._examine(entry.directory, manifests)
                case Restore(entry, skipped):
                    for lost in skipped:
                        self._warn(f"checkpoint {lost.directory} is damaged and is skipped: {health[lost.directory]}")
                    return manifests[entry.directory], entry.directory, tuple(lost.directory for lost in skipped)
                case StartEmpty():
                    return None, "", ()
                case Refuse(reason):
                    raise IncompatibleStateError(reason)
                case AlreadyFinished(entry):
                    raise AssertionError(f"a finished job was begun again: {entry}")

    async def _examine(self, directory: str, manifests: dict[str, Manifest]) -> str | None:
        """What is wrong with a checkpoint, or None. Checksums are checked by the workers, when they read."""
        try:
            manifest = await read_manifest(self._storage, directory)
            damages = await verify(self._storage, manifest, deep=False)
        except SnapshotError as error:
            return str(error)
        manifests[directory] = manifest
        return "; ".join(f"{damage.path}: {damage.problem}" for damage in damages) or None

    async def _deal_out(self, restored: Manifest | None) -> RestoreMap:
        plan = self._job.plan
        restore: RestoreMap = {}
        if restored is not None:
            restore = assign_state(
                restored.operators,
                plan,
                max_parallelism=restored.plan["max_parallelism"],
                allow_non_restored=self._job.wishes.allow_non_restored,
            )
        for spec in plan.operators:
            if spec.kind is OperatorKind.SOURCE and spec.uid not in restore:
                restore[spec.uid] = initial_splits(await self._enumerate(spec.uid), spec.parallelism)
        return restore

    async def _enumerate(self, uid: str) -> list[tuple[str, dict[str, Any]]]:
        """The splits of a source, enumerated once (rule 19)."""
        if uid not in self._splits:
            source = self._job.operators[uid].function
            try:
                splits = await self._host.run_blocking(source.splits)
            except JobError as error:
                error.operator = error.operator or uid
                raise
            except Exception as error:  # a user's source may raise anything
                raise UserCodeError(
                    f"source '{uid}' could not enumerate its splits: {type(error).__name__}: {error}"
                ) from error
            self._splits[uid] = [(split.id, split.data) for split in splits]
        return self._splits[uid]

    def _place(self) -> dict[SubtaskId, int]:
        """Subtask i of every task goes to worker i modulo workers."""
        return {subtask: subtask.index % self._job.workers for subtask in self._job.plan.subtasks()}
