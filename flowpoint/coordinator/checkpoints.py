"""Drives the checkpoints of one attempt: trigger, collect, tell everybody how it ended.

When to trigger is `protocol.schedule`, who is missing is `protocol.checkpoint`; here decisions are carried out. A
checkpoint's life:

    trigger -> acknowledgements -> `publishing` (manifest, commit entry) -> `Complete` to all workers

Publishing runs beside the mailbox; its outcome comes back as a `Published` event, so that everything here changes only
inside the coordinator's loop. A savepoint lives the same life, but counts for nobody in this job: no `Complete` goes
out.

Not here: what a failed checkpoint means for the job (the caller gets `CheckpointEnd` and decides).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from flowpoint.coordinator.abandoned import AbandonedFiles
from flowpoint.coordinator.checkpoint_record import CheckpointEnd, CheckpointRecord, CheckpointRequest, Triggered
from flowpoint.coordinator.publishing import Lineage, Published, Publishing
from flowpoint.errors import Fenced, FlowPointError, OutcomeUnknown, StorageLimit
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.manifest import SAVEPOINT, Manifest
from flowpoint.model.plan import JobPlan, SubtaskId
from flowpoint.model.settings import CheckpointSettings
from flowpoint.protocol.checkpoint import AckOutcome, CheckpointFailure, PendingCheckpoint
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.protocol.schedule import CheckpointScheduler, Permission, TriggerKind
from flowpoint.snapshot import names
from flowpoint.snapshot.savepoints import discard_savepoint

HISTORY_MAX = 100


class Checkpoints:
    """All checkpoints of a coordinator; `begin` and `end` bracket an attempt."""

    def __init__(
        self,
        host: Host,
        job: str,
        settings: CheckpointSettings,
        publishing: Publishing,
        output: PreparedOutput,
        send: Callable[[messages.Message], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        ended: Callable[[CheckpointEnd], None],
    ) -> None:
        """`send` reaches all workers; `spawn` starts work on storage; `ended` hears of the end of every checkpoint."""
        self._host = host
        self._job = job
        self._settings = settings
        self._publishing = publishing
        self._output = output
        self._send = send
        self._spawn = spawn
        self._ended = ended
        self._scheduler = CheckpointScheduler(settings)
        self._triggered: dict[int, Triggered] = {}
        self._requests: deque[CheckpointRequest] = deque()
        self._next_id = 1
        self._abandoned = AbandonedFiles()
        self._attempt = 0
        self._plan: JobPlan | None = None
        self._owners: Mapping[SubtaskId, int] = {}
        self._lineage = ""
        self.history: deque[CheckpointRecord] = deque(maxlen=HISTORY_MAX)
        self.last_completed: CheckpointRecord | None = None
        self.is_read = False
        """Whether this attempt has read all of the state that it was restored with, and found it whole."""

    # ------------------------------------------------------------------ an attempt

    def begin(
        self, attempt: int, plan: JobPlan, owners: Mapping[SubtaskId, int], lineage: Lineage, next_id: int, now: float
    ) -> None:
        """Records flow in `attempt`: checkpoints may be triggered."""
        assert not self._triggered, f"attempt={attempt} begins while {self._triggered} are pending"
        self._attempt, self._plan, self._owners, self._lineage = attempt, plan, owners, lineage.id
        self._next_id = max(self._next_id, next_id)
        self._publishing.begin(plan, lineage)
        self._scheduler.start(now)
        self.is_read = False
        # What an ended attempt left is swept when the next one starts.
        self._abandoned = AbandonedFiles()

    def end(self, failure: CheckpointFailure, now: float) -> None:
        """The attempt is over: fail what is pending. What is being published right now is left to end."""
        self._plan = None
        self._scheduler.suspend()
        for triggered in list(self._triggered.values()):
            if not triggered.is_publishing:
                self._fail(triggered, failure, "", now)

    def suspend(self) -> None:
        """No periodic checkpoints from here on."""
        self._scheduler.suspend()

    def resume(self) -> None:
        """Periodic checkpoints again."""
        self._scheduler.resume()

    # ------------------------------------------------------------------ triggering

    def request(
        self, kind: TriggerKind, now: float, savepoints: str = "", *, drain: bool = False
    ) -> asyncio.Future[CheckpointRecord]:
        """Ask for a checkpoint; it is triggered as soon as the scheduler allows it.

        The future gets its record, or CheckpointFailed through the caller's handling of `CheckpointEnd`.
        `savepoints`: the folder in which to make a savepoint, for SAVEPOINT, and for STOP if one is wanted.
        `drain`: for STOP, whether time ends before the barrier.
        """
        future: asyncio.Future[CheckpointRecord] = asyncio.get_running_loop().create_future()
        self._requests.append(CheckpointRequest(kind, future, savepoints, drain))
        self.tick(now)
        return future

    def drop_requests(self) -> list[asyncio.Future[CheckpointRecord]]:
        """Take back what was asked for and not triggered yet."""
        dropped = [request.future for request in self._requests]
        self._requests.clear()
        return dropped

    def next_deadline(self, now: float) -> float | None:
        """When `tick` has something to do next."""
        deadlines = [
            triggered.pending.deadline for triggered in self._triggered.values() if not triggered.is_publishing
        ]
        due = self._scheduler.next_due(now)
        # What was asked for comes first: while it waits, a periodic one that is due is not triggered either.
        if due is not None and (due > now or (not self._requests and self._may(TriggerKind.PERIODIC, now))):
            deadlines.append(due)
        if self._requests and (at := self._scheduler.not_before(self._requests[0].kind)) > now:
            deadlines.append(at)
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """Fail what has expired, trigger what is due."""
        for triggered in list(self._triggered.values()):
            if not triggered.is_publishing and triggered.pending.is_expired(now):
                missing = ", ".join(f"{self._uid(s)}#{s.index}" for s in sorted(triggered.pending.acks_missing))
                self._fail(triggered, CheckpointFailure.EXPIRED, f"no acknowledgement from {missing}", now)
        if self._plan is None:
            return
        while self._requests and self._may(self._requests[0].kind, now):
            request = self._requests.popleft()
            self._trigger(request.kind, now, request)
        if not self._requests and self._may(TriggerKind.PERIODIC, now):
            self._trigger(TriggerKind.PERIODIC, now, None)

    def postpone(self, lag: float) -> None:
        """Nobody was heard for so long: what is pending gets the time that was lost."""
        for triggered in self._triggered.values():
            triggered.pending.deadline += lag

    def _may(self, kind: TriggerKind, now: float) -> bool:
        return self._scheduler.may_trigger(now, len(self._triggered), kind) is Permission.RUN

    def _uid(self, subtask: SubtaskId) -> str:
        assert self._plan is not None
        return self._plan.tasks[subtask.task].operators[0]

    def _trigger(self, kind: TriggerKind, now: float, request: CheckpointRequest | None) -> None:
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
            called=self._plan.called,
        )
        record = CheckpointRecord(
            checkpoint,
            self._attempt,
            what,
            self._host.wall_ms(),
            self._publishing.newest_id,
            directory,
            savepoint=savepoint,
        )
        record.drained = request is not None and request.drain
        waiters = [request.future] if request is not None else []
        self._triggered[checkpoint] = Triggered(pending, kind, record, request, waiters)
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
                drain=record.drained,
                triggered=record.started,
            )
        )

    # ------------------------------------------------------------------ collecting

    def on_ack(self, worker: int, ack: messages.Ack) -> AckOutcome:
        """A subtask's part is durable."""
        triggered = self._triggered.get(ack.checkpoint)
        if triggered is None:
            if ack.attempt == self._attempt:
                self._note(ack)
                self._abandoned.add(ack)
            return AckOutcome.LATE
        outcome = triggered.pending.ack(ack.attempt, SubtaskId(*ack.subtask), ack, worker)
        if outcome is AckOutcome.ACCEPTED:
            alignment_ms = int(ack.stats.get("alignment_ms", 0))
            triggered.record.alignment_ms = max(triggered.record.alignment_ms, alignment_ms)
            triggered.is_unread = triggered.is_unread or bool(ack.stats.get("unread"))
            self._note(ack)
            if triggered.pending.is_complete:
                if triggered.is_savepoint:
                    self._output.handed_out(ack.checkpoint)
                self._publishing.put(triggered)
        return outcome

    def _note(self, ack: messages.Ack) -> None:
        """Keep in mind what a subtask of this attempt has made durable, whatever becomes of the checkpoint."""
        self._abandoned.heard(ack)
        for uid, data in ack.operators.items():
            self._output.acknowledged(uid, ack.subtask[1], data.get("committables", ()))

    def on_decline(self, worker: int, message: messages.Decline, now: float) -> None:
        """A subtask cannot take part."""
        triggered = self._triggered.get(message.checkpoint)
        if triggered is None or triggered.is_publishing:
            return
        subtask = SubtaskId(*message.subtask)
        failure = CheckpointFailure.DECLINED
        if message.restoring:
            failure = CheckpointFailure.RESTORING
        elif message.beyond_limit:
            failure = CheckpointFailure.BEYOND_LIMIT
        outcome = triggered.pending.decline(message.attempt, subtask, message.reason, worker, failure)
        if outcome is AckOutcome.ACCEPTED:
            assert triggered.pending.failure is not None
            self._fail(triggered, triggered.pending.failure, triggered.pending.failure_detail, now)

    # ------------------------------------------------------------------ the end of a checkpoint

    def on_published(self, published: Published, now: float) -> None:
        """Tell everybody how the publishing ended. When it raises, nothing goes on here: the attempt is over.

        Raises:
            Fenced: another coordinator has taken the job over.
            OutcomeUnknown: the entry may stand; the attempt must end.
        """
        triggered = self._publishing.taken(published)
        try:
            self._settle(triggered, published, now)
        finally:
            if self._plan is None:
                # The attempt is over meanwhile: what has not begun is given up.
                for waiting in self._publishing.take_waiting():
                    self._drop(waiting, CheckpointFailure.ABORTED_BY_FAILOVER, "", now)
            self._publishing.next()

    def _settle(self, triggered: Triggered, published: Published, now: float) -> None:
        if published.error is not None:
            if isinstance(published.error, Fenced | OutcomeUnknown):
                # Not a checkpoint that failed, after which the job could go on: nothing may be triggered, resumed or
                # published any more.
                self._drop(triggered, CheckpointFailure.ABORTED_BY_FAILOVER, str(published.error), now)
                self.end(CheckpointFailure.ABORTED_BY_FAILOVER, now)
                raise published.error
            is_beyond = isinstance(published.error, StorageLimit)
            failure = CheckpointFailure.BEYOND_LIMIT if is_beyond else CheckpointFailure.FINALIZE_FAILED
            self._fail(triggered, failure, str(published.error), now)
            return
        assert published.manifest is not None
        self._complete(triggered, published.manifest, now)

    def _complete(self, triggered: Triggered, manifest: Manifest, now: float) -> None:
        record = triggered.record
        del self._triggered[record.id]
        record.state = "completed"
        self._scheduler.completed(now)
        if not triggered.is_savepoint:
            self._publishing.counts(manifest)
            self._output.counts(record.id)
            self.last_completed = record
            self.is_read = self.is_read or not triggered.is_unread
            self._send(messages.Complete(record.attempt, record.id))
            self._subsume(record.id, now)
        triggered.answer()
        self._ended(CheckpointEnd(record, triggered.trigger, None))

    def take_abandoned(self) -> list[str]:
        """Files of failed checkpoints that no later one of this attempt can name."""
        return self._abandoned.take(*self._what_is_needed())

    @property
    def has_abandoned(self) -> bool:
        """Whether `take_abandoned` would give any."""
        return bool(self._abandoned.over(*self._what_is_needed()))

    def _what_is_needed(self) -> tuple[int, frozenset[str], int | None]:
        return self._publishing.newest_id, self._publishing.newest_files, min(self._triggered, default=None)

    def _subsume(self, checkpoint: int, now: float) -> None:
        """Give up the checkpoints before a completed one; savepoints are for somebody else, and go on."""
        for older in [other for other in self._triggered.values() if other.pending.id < checkpoint]:
            if not older.is_publishing and not older.is_savepoint:
                self._fail(older, CheckpointFailure.SUBSUMED, f"checkpoint {checkpoint} completed first", now)

    def _fail(self, triggered: Triggered, failure: CheckpointFailure, detail: str, now: float) -> None:
        """Give a checkpoint up and tell every task, so that no alignment waits for it (rule 12)."""
        self._send(messages.Abort(triggered.record.attempt, triggered.record.id))
        self._drop(triggered, failure, detail, now)

    def _drop(self, triggered: Triggered, failure: CheckpointFailure, detail: str, now: float) -> None:
        record = triggered.record
        del self._triggered[record.id]
        triggered.pending.fail(failure, detail)
        for ack in triggered.pending.acknowledged:
            self._abandoned.add(ack)
        is_too_early = failure is CheckpointFailure.RESTORING
        if is_too_early and triggered.request is not None:
            # Whoever asked for it gets it, as soon as it can be.
            self._requests.append(triggered.request)
            triggered.waiters = []
        record.state = "failed"
        record.reason = f"{failure.text}: {detail}" if detail else failure.text
        record.duration_ms = round((now - triggered.pending.triggered_at) * 1000)
        self._scheduler.failed(now, triggered.trigger, too_early=is_too_early)
        if record.savepoint:
            self._spawn(self._discard(record), f"discard savepoint {record.id}")
        triggered.answer()
        self._ended(CheckpointEnd(record, triggered.trigger, failure))

    async def _discard(self, record: CheckpointRecord) -> None:
        """Leave nothing of a failed savepoint. What cannot be removed has no manifest, so nobody takes it for one."""
        host = self._host
        with contextlib.suppress(FlowPointError, OSError):
            await discard_savepoint(host.disk, host.new_id, record.savepoint, self._lineage, record.attempt)
