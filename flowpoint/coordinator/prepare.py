"""Prepares an attempt: fence what is older, say which lineage goes on, have a checkpoint chosen, claim the sinks.

    entries -> lineage -> "attempt k begins" -> a checkpoint is chosen -> its state dealt out -> sinks begin

A lineage that starts from a snapshot of somebody else first makes it its own checkpoint (`takeover`).

Nothing that was read counts before the attempt's own entry is durable: only then is everything older fenced.

Not here: which checkpoint is restored (`choosing`); what a worker gets of it (`protocol.assignment`); sending anything to
workers (`deployment`); removing what dead attempts left behind (`housekeeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flowpoint.coordinator.branch import branch_note, gone_on_note, has_gone_on, origin_in
from flowpoint.coordinator.changed_state import changes_of_state
from flowpoint.coordinator.choosing import Choosing, Chosen
from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.local_recovery import LocalRecovery, LocalUse
from flowpoint.coordinator.origin import Origin, facts, has_checkpoint, origin_of, rescaled_to
from flowpoint.coordinator.takeover import Takeover
from flowpoint.errors import (
    FINAL_ERRORS,
    IncompatibleStateError,
    LostLogError,
    NotFoundError,
    SnapshotError,
    StorageError,
    UnreadableError,
)
from flowpoint.host.base import Host
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.model.manifest import Manifest
from flowpoint.model.plan import OperatorKind, SubtaskId
from flowpoint.protocol.assignment import RestoreMap, assign_state, initial_splits
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.protocol.recovery import (
    AlreadyFinished,
    Refuse,
    end_of,
    newest_checkpoint,
    next_checkpoint_id,
    standing,
)
from flowpoint.runtime.contracts import ConnectorContext, HostClock, Sink
from flowpoint.runtime.failures import naming
from flowpoint.runtime.splits import checked_splits
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.retention import Cleaner, sweep_finished
from flowpoint.snapshot.savepoints import discard_savepoint, find_snapshot, remove_claimed
from flowpoint.snapshot.storage import Storage


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """Everything an attempt starts from."""

    number: int
    lineage: str
    chosen: Chosen
    restore: RestoreMap
    next_checkpoint: int
    assignment: Mapping[SubtaskId, int]
    cleaner: Cleaner
    first_is_full: bool = False
    local: LocalUse = LocalUse.NONE

    @property
    def restored_checkpoint(self) -> int:
        """The id of the restored checkpoint, 0 when it starts empty."""
        return self.chosen.manifest.id if self.chosen.manifest is not None else 0


@dataclass(frozen=True, slots=True)
class JobIsDone:
    """The commit log says that the job has finished: there is nothing to run."""

    entry: CommitEntry


class Preparation:
    """Prepares one attempt after another for one job."""

    def __init__(
        self,
        host: Host,
        job: JobToRun,
        storage: Storage,
        log: CommitLog,
        output: PreparedOutput,
        warn: Callable[[str], None],
    ) -> None:
        self._host = host
        self.job = job
        """As it is to be run; with another parallelism after a rescale."""
        self._storage = storage
        self._log = log
        self._output = output
        self._warn = warn
        self._lineage: str | None = None
        self._origin: Origin | None = None
        self._founds = False  # the lineage is this coordinator's own, and no attempt of it has been prepared yet
        self._splits: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._is_first = True
        self._told: set[str] = set()
        self._local = LocalRecovery(host, job.work_dir, self.warn_once)
        self._choosing = Choosing(storage, self._local, warn)

    def found_damage(self, prepared: PreparedAttempt, how: str) -> None:
        """Workers have found damage in what this attempt was restored with."""
        self._choosing.found_damage(prepared.chosen.directory, prepared.local, how)

    def warn_once(self, text: str) -> None:
        """Tell a person something that the next attempt, or another subtask, may find again."""
        if text not in self._told:
            self._told.add(text)
            self._warn(text)

    async def prepare(self) -> PreparedAttempt | JobIsDone:
        """Begin the next attempt.

        Raises:
            JobError, SnapshotError: no attempt can start from what is there, or it is not there any more.
            StorageError, OutcomeUnknown: trying again may help.
            Fenced: a newer coordinator is at work.
        """
        entries = await self._read_log()
        done = await self._settle_lineage(entries)
        if done is not None:
            return done
        assert self._lineage is not None
        # Once it was rescaled, later runs keep what this one uses: another one that a person gave it now, as well.
        is_rescaled = self.job.rescaled or rescaled_to(entries, self._lineage)
        rescaled = self.job.settings.parallelism if is_rescaled else 0
        begun = await self._log.begin_attempt(self._lineage, extra=facts(self._origin, rescaled))
        try:
            return await self._prepare(begun)
        except (*FINAL_ERRORS, UnreadableError):
            # Before an attempt was deployed, what cannot be read refuses the start, too.
            if self._founds and any(entry.lineage != self._lineage for entry in entries):
                await self._abandon(begun)
            raise

    async def _read_log(self) -> list[CommitEntry]:
        try:
            return standing(await self._log.entries())
        except LostLogError as error:
            # Never a new start: what this lineage has committed would be taken back, or come twice.
            raise LostLogError(f"cannot go on from the checkpoints in {self.job.place.name}: {error}") from error

    async def _abandon(self, begun: CommitEntry) -> None:
        """A start that is refused must not change what the next `run` continues."""
        try:
            await self._log.append(CommitKind.ABANDONED, begun.attempt)
        except StorageError as error:
            # What the start was refused for is what the person must hear.
            self._warn(f"the next run may begin from nothing, as this one was to: {error}")

    async def _prepare(self, begun: CommitEntry) -> PreparedAttempt:
        """What is left to do once the attempt has begun in the log."""
        assert self._lineage is not None
        entries = await self._log.entries()
        self._output.settle(newest_checkpoint(entries))
        await self._withdraw_handover(entries)
        if self._origin is not None and not has_checkpoint(entries, self._lineage):
            await self._take_over(self._origin, begun)
        entries = await self._log.entries()
        chosen = await self._choosing.choose(
            entries,
            self._lineage,
            can_take_back=self._can_take_back(),
            accept_duplicates=self.job.wishes.accept_duplicates,
        )
        restored = chosen.manifest
        if restored is not None and self._is_first:
            # A restart may start from what a stop of this very run has drained.
            self._require_time(restored, chosen.directory)
        if restored is not None and chosen.skipped:
            # Before anything is taken back: from here on the skipped checkpoints never count again.
            await self._log.append(
                CommitKind.RESTORED,
                begun.attempt,
                checkpoint=restored.id,
                directory=chosen.directory,
                parent=restored.parent,
                extra={"skipped": list(chosen.skipped)},
            )
        prepared = PreparedAttempt(
            number=begun.attempt,
            lineage=self._lineage,
            chosen=chosen,
            restore=await self._deal_out(restored),
            next_checkpoint=next_checkpoint_id(entries),
            assignment=self._place(),
            cleaner=Cleaner(
                self._local.followed_by(self._storage),
                self._log,
                lineage=self._lineage,
                attempt=begun.attempt,
                retained=self.job.settings.checkpoint.retained,
                remove_claimed=partial(remove_claimed, self._host),
            ),
            first_is_full=self._is_unclaimed(restored),
            local=await self._local.settle(restored),
        )
        for sink, ctx in self.sinks_in(prepared):
            with naming(ctx.uid, "begin()"):
                await sink.begin(ctx)
        self._is_first = self._founds = False
        return prepared

    async def _settle_lineage(self, entries: list[CommitEntry]) -> JobIsDone | None:
        """Which lineage this coordinator goes on with or founds, or that there is nothing left to do."""
        wishes = self.job.wishes
        if self._lineage is None and wishes.source:
            if not await has_gone_on(self._host, entries, wishes.source):
                await self._found_branch(entries)
                return None
            self.warn_once(gone_on_note(self.job.plan.job, wishes.source, entries[-1].checkpoint))
        if self._lineage is None and (wishes.fresh or not entries):
            self._lineage, self._founds = self._host.new_id(), True
            return None
        if self._lineage is not None and (not entries or entries[-1].lineage != self._lineage):
            return None
        # Looked for before each attempt: the end may have been recorded by one that did not hear of it.
        match end_of(entries):
            case AlreadyFinished(entry):
                for problem in (await sweep_finished(self._storage, self._log, entry)).problems:
                    self._warn(f"cannot clean up after the job: {problem}")
                return JobIsDone(entry)
            case Refuse(reason):
                raise IncompatibleStateError(reason)
        if self._lineage is None:
            self._lineage = entries[-1].lineage
            self._origin = origin_of(entries, self._lineage)
        return None

    async def _found_branch(self, entries: list[CommitEntry]) -> None:
        """A new lineage from a snapshot; or the newest one, when it began from that very one and got no further."""
        wishes = self.job.wishes
        found = await find_snapshot(self._host.disk, self._host.new_id, wishes.source)
        manifest = found.manifest
        self._require_time(manifest, found.path)
        origin = origin_in(found, claim=wishes.claim)
        newest = entries[-1].lineage if entries else ""
        is_again = origin_of(entries, newest) == origin and not has_checkpoint(entries, newest, beyond=manifest.id)
        self._lineage = newest if is_again else self._host.new_id()
        self._founds = not is_again
        self._origin = origin

    def _require_time(self, manifest: Manifest, path: str) -> None:
        if manifest.drained and not self.job.wishes.resume_drained:
            raise IncompatibleStateError(
                f"cannot go on from {path}: the job was stopped with --drain, so its event time has ended and all its "
                "timers have fired; --resume-drained goes on from it all the same, with event time beginning anew"
            )

    async def _take_over(self, origin: Origin, begun: CommitEntry) -> None:
        """Make the snapshot that the lineage starts from its first checkpoint."""
        try:
            await self._make_own(origin, begun)
        except (SnapshotError, NotFoundError) as error:
            # Trying again would find the same: another snapshot must be named.
            raise IncompatibleStateError(str(error)) from error

    async def _make_own(self, origin: Origin, begun: CommitEntry) -> None:
        found = await find_snapshot(self._host.disk, self._host.new_id, origin.path)
        is_branch = not origin.handed_on
        contexts = {}
        for uid, sink in self.sinks():
            ctx = self._sink_context(uid, begun.lineage, begun.attempt, origin.checkpoint)
            contexts[uid] = sink, replace(ctx, is_branch=is_branch)
        takeover = Takeover(self._host, found, self._storage, contexts, self._warn)
        await takeover.complete_parent()
        for uid, (sink, ctx) in contexts.items():
            with naming(uid, "begin()"):
                await sink.begin(ctx)
        if is_branch:
            self.warn_once(branch_note(found))
        # The output is this lineage's now: whatever happens to this start, the same command must find it again.
        self._founds = False
        own = await takeover.make_own(begun.lineage, begun.attempt)
        directory = names.checkpoint_directory(own.id, own.attempt)
        extra = {"from": origin.path, "claim": origin.claim}
        await self._log.append(CommitKind.CHECKPOINT, own.attempt, checkpoint=own.id, directory=directory, extra=extra)
        # From here on the lineage stands on its own: nothing depends on the source any more.

    async def _withdraw_handover(self, entries: list[CommitEntry]) -> None:
        """The job goes on although a stop had begun to hand its output on: nobody may start from that savepoint."""
        own = [entry for entry in entries if entry.kind == CommitKind.CHECKPOINT and entry.lineage == self._lineage]
        folder = own[-1].extra.get("savepoint") if own else None
        if folder and not any(entry.kind == CommitKind.STOPPED and entry.number > own[-1].number for entry in entries):
            disk, new_id = self._host.disk, self._host.new_id
            await discard_savepoint(disk, new_id, folder, own[-1].lineage, own[-1].attempt)

    def _is_unclaimed(self, restored: Manifest | None) -> bool:
        """Whether this attempt starts from what was taken over from a snapshot that is not the job's."""
        origin = self._origin
        return restored is not None and origin is not None and not origin.claim and restored.id == origin.checkpoint

    def sinks(self) -> list[tuple[str, Sink]]:
        """The sinks of the job, by uid."""
        return [
            (spec.uid, self.job.operators[spec.uid].function)
            for spec in self.job.plan.operators
            if spec.kind is OperatorKind.SINK
        ]

    def _can_take_back(self) -> bool:
        for uid, sink in self.sinks():
            with naming(uid, "can_take_back"):
                if not sink.can_take_back:
                    return False
        return True

    def sinks_in(self, prepared: PreparedAttempt) -> list[tuple[Sink, ConnectorContext]]:
        """The sinks of an attempt, each with its context; `uid` stands in that."""
        lineage, attempt, restored = prepared.lineage, prepared.number, prepared.restored_checkpoint
        return [(sink, self._sink_context(uid, lineage, attempt, restored)) for uid, sink in self.sinks()]

    def _sink_context(self, uid: str, lineage: str, attempt: int, restored_checkpoint: int) -> ConnectorContext:
        return ConnectorContext(
            uid=uid,
            subtask=0,
            parallelism=self.job.plan.operator(uid).parallelism,
            job=self.job.plan.job,
            lineage=lineage,
            attempt=attempt,
            disk=self._host.disk,
            clock=HostClock(self._host),
            restored_checkpoint=restored_checkpoint,
            # Once: another job that takes the target over meanwhile is not to be robbed by a restart.
            take_output=self.job.wishes.take_output and self._is_first,
            skip_lost_input=self.job.wishes.skip_lost_input,
            log=self._warn,
            inherits=self._origin.lineage if self._origin is not None and self._origin.handed_on else "",
        )

    async def _deal_out(self, restored: Manifest | None) -> RestoreMap:
        plan = self.job.plan
        restore: RestoreMap = {}
        if restored is not None:
            restore = assign_state(
                restored.operators,
                plan,
                max_parallelism=restored.plan["max_parallelism"],
                allow_non_restored=self.job.wishes.allow_non_restored,
                drained=restored.drained,
            )
            for note in changes_of_state(restored, self.job):
                self.warn_once(note)
        for spec in plan.operators:
            if spec.kind is OperatorKind.SOURCE and spec.uid not in restore:
                restore[spec.uid] = initial_splits(await self._enumerate(spec.uid), spec.parallelism)
        return restore

    async def _enumerate(self, uid: str) -> list[tuple[str, dict[str, Any]]]:
        """The splits of a source, enumerated once (rule 19)."""
        if uid not in self._splits:
            source = self.job.operators[uid].function
            with naming(uid, "splits()"):
                self._splits[uid] = checked_splits(uid, await self._host.run_blocking(source.splits))
        return self._splits[uid]

    def _place(self) -> dict[SubtaskId, int]:
        """Subtask i of every task goes to worker i modulo workers."""
        return {subtask: subtask.index % self.job.workers for subtask in self.job.plan.subtasks()}
