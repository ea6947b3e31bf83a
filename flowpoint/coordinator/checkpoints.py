"""Drives the checkpoints of one attempt: trigger, collect, publish, tell the sinks, tidy up.

When to trigger is `protocol.schedule`, who is missing is `protocol.checkpoint`; here decisions are carried out. A
checkpoint's life:

    trigger -> acknowledgements -> manifest -> commit entry -> `Complete` to all workers -> retention

The line in `_publish` after which a checkpoint counts is marked. Publishing runs beside the mailbox; its outcome comes
back as a `Published` event, so that everything here changes only inside the coordinator's loop.

A savepoint lives the same life, but counts for nobody in this job: its manifest goes into a folder of its own, its
entry only says that it exists, no `Complete` goes out. The savepoint of a stop is written at the barrier of the stop's
checkpoint and published by `publish_handover`, when all that the checkpoint holds has been committed.

Not here: what a failed checkpoint means for the job (the caller gets `CheckpointEnd` and decides).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowpoint.errors import Fenced, FlowPointError, OutcomeUnknown
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.commits import CommitEntry
from flowpoint.model.manifest import Manifest, SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId
from flowpoint.model.settings import CheckpointSettings
from flowpoint.protocol.checkpoint import AckOutcome, CheckpointFailure, PendingCheckpoint, collect_operators
from flowpoint.protocol.schedule import CheckpointScheduler, Permission, TriggerKind
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import write_manifest
from flowpoint.snapshot.savepoints import SAVEPOINT, discard_savepoint, publish_savepoint
from flowpoint.snapshot.storage import FolderStorage, Storage

HISTORY_MAX = 100
LAST_KINDS = (TriggerKind.STOP, TriggerKind.RESCALE, TriggerKind.FINAL)
AGAIN_SECONDS = 0.1
"""A last checkpoint that came too early, while records of the restored one are still taken in, is asked for again."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a checkpoint of this attempt continues: the job's lineage, and the checkpoint it started from."""

    id: str
    restored_checkpoint: int
    restored_files: frozenset[str] = frozenset()


@dataclass(slots=True)
class CheckpointRecord:
    """A checkpoint as `flowpoint checkpoints` shows it. `started` is epoch ms.

    `savepoint` is the folder of the savepoint that is written at its barrier; one of a stop has `savepoint_bytes` once
    it exists.
    """

    id: int
    attempt: int
    kind: str
    started: int
    parent: int
    path: str
    state: str = "pending"
    duration_ms: int = 0
    bytes: int = 0
    alignment_ms: int = 0
    reason: str = ""
    savepoint: str = ""
    savepoint_bytes: int | None = None

    def to_data(self) -> dict[str, Any]:
        """With the keys of `checkpoints --json`."""
        names_ = ("id", "attempt", "kind", "state", "started", "duration_ms", "bytes", "parent", "path", "reason")
        return {name: getattr(self, name) for name in names_}


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest and the commit entry are durable, or one of them could not be written."""

    pending: PendingCheckpoint[messages.Ack]
    manifest: Manifest | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    """A checkpoint has completed (`failure` is None) or failed."""

    record: CheckpointRecord
    trigger: TriggerKind
    failure: CheckpointFailure | None


@dataclass(slots=True)
class _Running:
    pending: PendingCheckpoint[messages.Ack]
    trigger: TriggerKind
    record: CheckpointRecord
    request: _Request | None = None
    waiters: list[asyncio.Future[CheckpointRecord]] = field(default_factory=list)
    is_publishing: bool = False

    @property
    def is_savepoint(self) -> bool:
        return self.trigger is TriggerKind.SAVEPOINT


@dataclass(frozen=True, slots=True)
class _Request:
    kind: TriggerKind
    future: asyncio.Future[CheckpointRecord]
    savepoints: str


class Checkpoints:
    """All checkpoints of a coordinator; `begin` and `end` bracket an attempt."""

    def __init__(
        self,
        host: Host,
        job: str,
        settings: CheckpointSettings,
        storage: Storage,
        log: CommitLog,
        send: Callable[[messages.Message], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        post: Callable[[Published], None],
        ended: Callable[[CheckpointEnd], None],
    ) -> None:
        self._host = host
        self._job = job
        self._settings = settings
        self._storage = storage
        self._log = log
        self._send = send
        self._spawn = spawn
        self._post = post
        self._ended = ended
        self._scheduler = CheckpointScheduler(settings)
        self._running: dict[int, _Running] = {}
        self._requests: deque[_Request] = deque()
        self._to_publish: deque[_Running] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._next_id = 1
        self._again: tuple[_Request, float] | None = None
        self._abandoned: dict[str, int] = {}
        self._attempt = 0
        self._plan: JobPlan | None = None
        self._owners: Mapping[SubtaskId, int] = {}
        self._lineage = Lineage("", 0)
        self.newest_id = 0
        self.newest_files: frozenset[str] = frozenset()
        self._handover: tuple[Manifest, str] | None = None
        self.history: deque[CheckpointRecord] = deque(maxlen=HISTORY_MAX)
        self.last_completed: CheckpointRecord | None = None

    # ------------------------------------------------------------------ an attempt

    def begin(
        self, attempt: int, plan: JobPlan, owners: Mapping[SubtaskId, int], lineage: Lineage, next_id: int, now: float
    ) -> None:
        """Records flow in `attempt`: checkpoints may be triggered."""
        assert not self._running, f"attempt={attempt} begins while {self._running} are pending"
        self._handover = None
        self._attempt, self._plan, self._owners, self._lineage = attempt, plan, owners, lineage
        self._next_id = max(self._next_id, next_id)
        self.newest_id = lineage.restored_checkpoint
        self.newest_files = lineage.restored_files
        self._scheduler.start(now)
        # What an ended attempt left is swept when the next one starts.
        self._abandoned = {}

    def end(self, failure: CheckpointFailure, now: float) -> None:
        """The attempt is over: fail what is pending. What is being published right now is left to end (`wait_idle`)."""
        self._plan = None
        self._again = None
        self._scheduler.suspend()
        for running in list(self._running.values()):
            if not running.is_publishing:
                self._fail(running, failure, "", now)

    async def wait_idle(self) -> None:
        """Wait until nothing is being published, so that the commit log stands still (rule 5)."""
        await self._idle.wait()

    def give_up(self) -> None:
        """What was being published has been cancelled: its outcome stays unknown here, and nobody asks."""
        self._idle.set()

    def suspend(self) -> None:
        """No periodic checkpoints from here on."""
        self._scheduler.suspend()

    def resume(self) -> None:
        """Periodic checkpoints again."""
        self._scheduler.resume()

    # ------------------------------------------------------------------ triggering

    def request(self, kind: TriggerKind, now: float, savepoints: str = "") -> asyncio.Future[CheckpointRecord]:
        """Ask for a checkpoint; it is triggered as soon as the scheduler allows it.

        The future gets its record, or CheckpointFailed through the caller's handling of `CheckpointEnd`.
        `savepoints`: the folder in which to make a savepoint, for SAVEPOINT, and for STOP if one is wanted.
        """
        future: asyncio.Future[CheckpointRecord] = asyncio.get_running_loop().create_future()
        self._requests.append(_Request(kind, future, savepoints))
        self.tick(now)
        return future

    def drop_requests(self) -> list[asyncio.Future[CheckpointRecord]]:
        """Take back what was asked for and not triggered yet."""
        dropped = [request.future for request in self._requests]
        self._requests.clear()
        return dropped

    def next_deadline(self, now: float) -> float | None:
        """When `tick` has something to do next."""
        deadlines = [running.pending.deadline for running in self._running.values() if not running.is_publishing]
        due = self._scheduler.next_due(now)
        if due is not None and (due > now or self._may(TriggerKind.PERIODIC, now)):
            deadlines.append(due)
        if self._again is not None:
            deadlines.append(self._again[1])
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """Fail what has expired, trigger what is due."""
        for running in list(self._running.values()):
            if not running.is_publishing and running.pending.is_expired(now):
                missing = ", ".join(f"{self._uid(s)}#{s.index}" for s in sorted(running.pending.acks_missing))
                self._fail(running, CheckpointFailure.EXPIRED, f"no acknowledgement from {missing}", now)
        if self._plan is None:
            return
        if self._again is not None and now >= self._again[1]:
            self._requests.append(self._again[0])
            self._again = None
        while self._requests and self._may(self._requests[0].kind, now):
            request = self._requests.popleft()
            self._trigger(request.kind, now, request)
        if not self._requests and self._may(TriggerKind.PERIODIC, now):
            self._trigger(TriggerKind.PERIODIC, now, None)

    def postpone(self, lag: float) -> None:
        """Nobody was heard for so long: what is pending gets the time that was lost."""
        for running in self._running.values():
            running.pending.deadline += lag

    def _may(self, kind: TriggerKind, now: float) -> bool:
        return self._scheduler.may_trigger(now, len(self._running), kind) is Permission.RUN

    def _uid(self, subtask: SubtaskId) -> str:
        assert self._plan is not None
        return self._plan.tasks[subtask.task].operators[0]

    def _trigger(self, kind: TriggerKind, now: float, request: _Request | None) -> None:
        assert self._plan is not None
        checkpoint, self._next_id = self._next_id, self._next_id + 1
        directory = names.checkpoint_directory(checkpoint, self._attempt)
        what, savepoint = "checkpoint", ""
        if request is not None and request.savepoints:
            savepoint = f"{request.savepoints}/{names.savepoint_folder(self._job, checkpoint)}"
        if kind is TriggerKind.SAVEPOINT:
            what, directory = SAVEPOINT, savepoint
        pending: PendingCheckpoint[messages.Ack] = PendingCheckpoint(
            checkpoint,
            self._attempt,
            what,
            self._plan.subtasks(),
            now,
            now + self._settings.timeout,
            owners=self._owners,
        )
        record = CheckpointRecord(
            checkpoint, self._attempt, what, self._host.wall_ms(), self.newest_id, directory, savepoint=savepoint
        )
        waiters = [request.future] if request is not None else []
        self._running[checkpoint] = _Running(pending, kind, record, request, waiters)
        self.history.append(record)
        self._scheduler.triggered(now, kind)
        self._send(
            messages.Trigger(
                attempt=self._attempt,
                checkpoint=checkpoint,
                kind=what,
                halt=kind in (TriggerKind.STOP, TriggerKind.RESCALE),
                final=kind is TriggerKind.FINAL,
                savepoint=savepoint,
                triggered=record.started,
            )
        )

    # ------------------------------------------------------------------ collecting

    def on_ack(self, worker: int, ack: messages.Ack, now: float) -> AckOutcome:
        """A subtask's part is durable."""
        running = self._running.get(ack.checkpoint)
        if running is None:
            if ack.attempt == self._attempt:
                self._abandon(ack)
            return AckOutcome.LATE
        outcome = running.pending.ack(ack.attempt, SubtaskId(*ack.subtask), ack, worker)
        if outcome is AckOutcome.ACCEPTED:
            alignment_ms = int(ack.stats.get("alignment_ms", 0))
            running.record.alignment_ms = max(running.record.alignment_ms, alignment_ms)
            if running.pending.is_complete:
                running.is_publishing = True
                self._idle.clear()
                self._to_publish.append(running)
                if len(self._to_publish) == 1:
                    self._publish_next()
        return outcome

    def _publish_next(self) -> None:
        """Publish one at a time, in the order of their ids: the newest commit is the newest checkpoint."""
        running = self._to_publish[0]
        running.record.parent = self.newest_id
        assert self._plan is not None
        step = self._publish(running, self._plan, self._lineage.id)
        self._spawn(step, f"publish checkpoint {running.record.id}")

    def on_decline(self, worker: int, message: messages.Decline, now: float) -> None:
        """A subtask cannot take part."""
        running = self._running.get(message.checkpoint)
        if running is None or running.is_publishing:
            return
        subtask = SubtaskId(*message.subtask)
        outcome = running.pending.decline(message.attempt, subtask, message.reason, worker, restoring=message.restoring)
        if outcome is AckOutcome.ACCEPTED:
            assert running.pending.failure is not None
            self._fail(running, running.pending.failure, running.pending.failure_detail, now)

    async def _publish(self, running: _Running, plan: JobPlan, lineage: str) -> None:
        """Manifest first, then the commit entry; says how it went by `Published`."""
        pending, record = running.pending, running.record
        manifest: Manifest | None = None
        error: Exception | None = None
        try:
            acks = pending.complete()
            manifest = Manifest(
                kind=pending.kind,
                job=self._job,
                id=pending.id,
                attempt=pending.attempt,
                lineage=lineage,
                parent=record.parent,
                created=self._host.wall_ms(),
                plan=plan.to_data(),
                operators=collect_operators(
                    plan,
                    {s: ack.savepoint if running.is_savepoint else ack.operators for s, ack in acks.items()},
                ),
                finished=running.trigger is TriggerKind.FINAL,
            )
            if running.is_savepoint:
                manifest = without_committed(manifest, record.parent)
                await self._publish_savepoint(manifest, record.savepoint)
            else:
                await write_manifest(self._storage, manifest)
                await self._append(manifest, record.savepoint)
                if record.savepoint:
                    saved = collect_operators(plan, {s: ack.savepoint for s, ack in acks.items()})
                    handover = replace(manifest, kind=SAVEPOINT, operators=saved, handed_on=True)
                    self._handover = (handover, record.savepoint)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._post(Published(pending, manifest, error))

    async def _publish_savepoint(self, manifest: Manifest, folder: str) -> None:
        await publish_savepoint(FolderStorage(self._host.disk, self._host.new_id, folder), manifest)
        await self._log.append(SAVEPOINT, manifest.attempt, extra=savepoint_facts(manifest, folder))

    async def publish_handover(self) -> dict[str, Any]:
        """Publish the savepoint of the stop, if it has one, and log it; what is logged of it.

        Raises as `publish_savepoint` and `CommitLog.append`.
        """
        if self._handover is None:
            return {}
        manifest, folder = self._handover
        await self._publish_savepoint(manifest, folder)
        return savepoint_facts(manifest, folder)

    async def _append(self, manifest: Manifest, savepoint: str) -> CommitEntry:
        entry = await self._log.append(
            "checkpoint",
            manifest.attempt,
            checkpoint=manifest.id,
            directory=names.checkpoint_directory(manifest.id, manifest.attempt),
            parent=manifest.parent,
            extra={"savepoint": savepoint} if savepoint else None,
        )
        # From here on the checkpoint counts: a recovery starts from it, and sinks may commit.
        return entry  # noqa: RET504  the line above belongs between

    def on_published(self, published: Published, now: float) -> None:
        """Tell everybody how the publishing ended. When it raises, nothing goes on here: the attempt is over.

        Raises:
            Fenced: another coordinator has taken the job over.
            OutcomeUnknown: the entry may stand; the attempt must end.
        """
        checkpoint = published.pending.id
        running = self._running[checkpoint]
        done = self._to_publish.popleft()
        assert done is running, f"published {checkpoint}, expected {done.record.id}"
        try:
            self._settle(running, published, now)
        finally:
            self._go_on_publishing(now)

    def _go_on_publishing(self, now: float) -> None:
        """Publish what is waiting; when the attempt is over meanwhile, what has not begun is given up."""
        while self._to_publish and self._plan is None:
            self._drop(self._to_publish.popleft(), CheckpointFailure.ABORTED_BY_FAILOVER, "", now)
        if self._to_publish:
            self._publish_next()
        else:
            self._idle.set()

    def _settle(self, running: _Running, published: Published, now: float) -> None:
        if published.error is not None:
            if isinstance(published.error, Fenced | OutcomeUnknown):
                # Not a checkpoint that failed, after which the job could go on: nothing may be triggered, resumed or
                # published any more.
                self._drop(running, CheckpointFailure.ABORTED_BY_FAILOVER, str(published.error), now)
                self.end(CheckpointFailure.ABORTED_BY_FAILOVER, now)
                raise published.error
            self._fail(running, CheckpointFailure.FINALIZE_FAILED, str(published.error), now)
            return
        assert published.manifest is not None
        self._complete(running, published.manifest, now)

    def _complete(self, running: _Running, manifest: Manifest, now: float) -> None:
        record = running.record
        del self._running[record.id]
        files = manifest.files()
        record.duration_ms = round((now - running.pending.triggered_at) * 1000)
        record.state = "completed"
        self._scheduler.completed(now)
        if running.is_savepoint:
            record.bytes = sum(file.bytes for file in files)
        else:
            record.bytes = sum(file.bytes for file in files if file.path not in self.newest_files)
            self.newest_id = record.id
            self.newest_files = frozenset(file.path for file in files)
            self.last_completed = record
            self._send(messages.Complete(record.attempt, record.id))
            self._subsume(record.id, now)
        for waiter in running.waiters:
            if not waiter.done():
                waiter.set_result(record)
        self._ended(CheckpointEnd(record, running.trigger, None))

    def _abandon(self, ack: messages.Ack) -> None:
        """A failed checkpoint's files: they may be of no use now, or part of what later ones build on."""
        for data in ack.operators.values():
            for file in SubtaskState.from_data(data).every_file():
                self._abandoned[file.path] = max(ack.checkpoint, self._abandoned.get(file.path, 0))

    def take_abandoned(self) -> list[str]:
        """Files of failed checkpoints that no later one of this attempt can name.

        What a subtask still builds on stands in its part of every newer checkpoint; so what the newest completed one
        does not name, and was written for an older one, is over.
        """
        over = [
            path
            for path, checkpoint in self._abandoned.items()
            if checkpoint < self.newest_id or path in self.newest_files
        ]
        for path in over:
            del self._abandoned[path]
        return [path for path in over if path not in self.newest_files]

    def _subsume(self, checkpoint: int, now: float) -> None:
        """Give up the checkpoints before a completed one; savepoints are for somebody else, and go on."""
        for older in [other for other in self._running.values() if other.pending.id < checkpoint]:
            if not older.is_publishing and not older.is_savepoint:
                self._fail(older, CheckpointFailure.SUBSUMED, f"checkpoint {checkpoint} completed first", now)

    def _fail(self, running: _Running, failure: CheckpointFailure, detail: str, now: float) -> None:
        """Give a checkpoint up and tell every task, so that no alignment waits for it (rule 12)."""
        self._send(messages.Abort(running.record.attempt, running.record.id))
        self._drop(running, failure, detail, now)

    def _drop(self, running: _Running, failure: CheckpointFailure, detail: str, now: float) -> None:
        record = running.record
        del self._running[record.id]
        running.pending.fail(failure, detail)
        for ack in running.pending.acknowledged:
            self._abandon(ack)
        if failure is CheckpointFailure.RESTORING and running.trigger in LAST_KINDS and running.request is not None:
            # Whoever asked for the end of the job gets it, as soon as it can be.
            self._again, running.waiters = (running.request, now + AGAIN_SECONDS), []
        record.state = "failed"
        record.reason = f"{failure.text}: {detail}" if detail else failure.text
        record.duration_ms = round((now - running.pending.triggered_at) * 1000)
        self._scheduler.failed(now)
        if record.savepoint:
            self._spawn(self._discard(record), f"discard savepoint {record.id}")
        for waiter in running.waiters:
            if not waiter.done():
                waiter.set_result(record)
        self._ended(CheckpointEnd(record, running.trigger, failure))

    async def _discard(self, record: CheckpointRecord) -> None:
        """Leave nothing of a failed savepoint. What cannot be removed has no manifest, so nobody takes it for one."""
        host = self._host
        with contextlib.suppress(FlowPointError, OSError):
            await discard_savepoint(host.disk, host.new_id, record.savepoint, self._lineage.id, record.attempt)


def without_committed(manifest: Manifest, checkpoint: int) -> Manifest:
    """A savepoint's manifest without the output that the job commits by `checkpoint`, which is in the log."""

    def kept(state: SubtaskState) -> SubtaskState:
        committables = tuple(c for c in state.committables if c["checkpoint"] > checkpoint)
        needed = {path for committable in committables for path in committable["files"]}
        exports = tuple(file for file in state.exports if file.path in needed)
        return replace(state, committables=committables, exports=exports)

    operators = {
        uid: replace(operator, subtasks=tuple(map(kept, operator.subtasks)))
        for uid, operator in manifest.operators.items()
    }
    return replace(manifest, operators=operators)


def savepoint_facts(manifest: Manifest, folder: str) -> dict[str, Any]:
    """What the commit log says of a savepoint."""
    return {"savepoint": folder, "id": manifest.id, "bytes": sum(file.bytes for file in manifest.files())}
