"""One job's life, carried out: a mailbox, a pure machine that decides, and its orders, carried out by the duties.

    mailbox -> handler -> `protocol.job.JobLife` (pure) -> `orders`, in order -> `duties`: crew, deployment, checkpoints, ...

Handlers never wait. What takes time (starting a process, preparing an attempt, publishing a checkpoint, appending an
entry) is a step whose outcome comes back through the mailbox, so every change of state is atomic between two events.
Messages of another attempt than the current one are dropped (rule 8).

    crew            the worker processes            checkpoints, publishing   snapshots while the job runs
    deployment      the attempts                    incidents                 failures and what they lead to
    housekeeping    removes what no longer counts   requests                  who asked for what, and the answers
    ending          the last entry, the last process

Not here: what to do when something happens (`protocol.job`), HTTP and signals (`launch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import assert_never

from flowpoint.coordinator import announcements as say
from flowpoint.coordinator.alarm import Alarm
from flowpoint.coordinator.checkpoint_record import CheckpointEnd
from flowpoint.coordinator.crew import Loss, Record
from flowpoint.coordinator.deployment import DeployedAttempt
from flowpoint.coordinator.duties import assemble
from flowpoint.coordinator.ending import Outcome
from flowpoint.coordinator.incidents import failure_of
from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.lateness import Lateness
from flowpoint.coordinator.mail import Appended, Cleaned, Hearsay, Mail, Prepared, Reaped, Tick, WorkersGone
from flowpoint.coordinator.orders import Orders
from flowpoint.coordinator.prepare import JobIsDone, PreparedAttempt
from flowpoint.coordinator.publishing import Published
from flowpoint.coordinator.steps import Steps
from flowpoint.coordinator.workers import CAUSE_SECONDS, Beat, Ended, Joined, Lost, NotStarted, Received, Started
from flowpoint.errors import Fenced, OutcomeUnknown
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.events import Event, EventKind
from flowpoint.model.plan import JobPlan, SubtaskId
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.job import JobLife
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.schedule import TriggerKind

TICK_SECONDS_MAX = 1.0

_DONE: Mapping[TriggerKind, Callable[[int], ev.JobEvent]] = MappingProxyType(
    {
        TriggerKind.STOP: ev.StopCheckpointDone,
        TriggerKind.RESCALE: ev.RescaleCheckpointDone,
        TriggerKind.FINAL: ev.FinalCheckpointDone,
    }
)
"""What the job hears of a last checkpoint that is in the log."""


class Coordinator:
    """Runs one job to its end. `emit` gets every event, as it happens, on the coordinator's loop."""

    def __init__(
        self, host: Host, job: JobToRun, emit: Callable[[Event], None], on_workers: Record = lambda _: None
    ) -> None:
        """`on_workers` gets (pid, start time) by index whenever a worker was started, before it is given anything."""
        self._emit = emit
        self._mailbox: asyncio.Queue[Mail] = asyncio.Queue()
        post = self._mailbox.put_nowait
        self._life = JobLife()
        self._steps = Steps()
        self._duties = assemble(
            host, job, self._life, self._steps, post, self._warn, ended=self._on_checkpoint_end, record=on_workers
        )
        self._orders = Orders(job, self._life, self._duties, post, emit)
        self.checkpoints = self._duties.checkpoints
        self.requests = self._duties.requests
        self.statistics = self._duties.statistics
        self._alarm = Alarm(post)
        self._lateness = Lateness(job, self._life, self._duties, emit)
        self.is_over = asyncio.Event()

    # ------------------------------------------------------------------ for launch

    @property
    def state(self) -> JobState:
        """Where the job is in its life."""
        return self._life.state

    @property
    def plan(self) -> JobPlan:
        """The job's plan; a rescale changes it."""
        return self._orders.job.plan

    @property
    def attempt(self) -> int:
        """The number of the current attempt, 0 before the first."""
        return self._duties.deployment.number

    @property
    def reason(self) -> str:
        """Why the job is where it is: of its end, of the last failure while it restarts, or of what it waits for."""
        if self._duties.ending.outcome is not None:
            return self._duties.ending.outcome.reason
        last = self._duties.incidents.last
        if self._life.state is JobState.RESTARTING and last is not None:
            return last.message
        return self._lateness.told

    @property
    def restarts(self) -> int:
        """How often the job has been restarted."""
        return self._life.restarts

    def pids(self) -> dict[int, tuple[int, float]]:
        """(pid, start time) of every worker process."""
        return self._duties.crew.pids()

    def subtasks_of(self, worker: int) -> list[str]:
        """What a worker runs, as "uid#index"."""
        return self._duties.deployment.last.subtasks_of(worker) if self._duties.deployment.last is not None else []

    # ------------------------------------------------------------------ the loop

    async def run(self) -> Outcome:
        """Run the job to its end."""
        await self._duties.crew.listen()
        await self._orders.job.place.open()
        try:
            return await self._live()
        finally:
            self._orders.job.place.close()

    async def _live(self) -> Outcome:
        async with asyncio.TaskGroup() as group:
            self._steps.enter(group)
            try:
                await self._handle_all()
            finally:
                # A group that is being left takes no step, also when an interrupt or a bug leaves it.
                self._duties.crew.abandon()
                self._alarm.stop()
        assert self._duties.ending.outcome is not None, "a job is over without an outcome"
        return self._duties.ending.outcome

    async def _handle_all(self) -> None:
        self._carry_out(self._life.handle(ev.Begin()))
        self._set_alarm()
        while not self.is_over.is_set():
            mail = await self._mailbox.get()
            self._excuse_lag()
            self._handle(mail)
            self._after_event()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _handle(self, mail: Mail) -> None:  # noqa: C901  one switch
        match mail:
            case Received(worker, message):
                self._on_message(worker, message)
            case Beat() | Started() | Joined() | Reaped():
                self._duties.crew.heard(mail, self._now())
            case Lost():
                self._on_lost(mail)
            case Ended(worker, how):
                self._emit(Event(EventKind.WORKER_LOST, how, {"worker": worker}))
            case NotStarted():
                if (loss := self._duties.crew.not_started(mail)) is not None:
                    self._report_loss(loss)
            case Published():
                self._on_published(mail)
            case ev.StopRequested():
                self._emit(say.stopping())
                self._feed(mail)
            case ev.CancelRequested():
                if not self._life.is_over:
                    self._emit(say.cancelling())
                self._feed(mail)
            case ev.RescaleRequested() | ev.RestartDue():
                self._feed(mail)
            case Tick():
                self._duties.crew.tick(self._now())
                if (hung := self._lateness.look(self._now())) is not None:
                    self._fail(failure_of(hung, self.attempt))
            case Prepared():
                self._on_prepared(mail)
            case Cleaned():
                self._on_cleaned(mail)
            case Appended():
                self._on_appended(mail)
            case Hearsay(failure):
                self._on_hearsay(failure)
            case WorkersGone():
                self.is_over.set()
            case _:
                assert_never(mail)

    def _after_event(self) -> None:
        """What may have become possible by any event."""
        if self._life.awaits_workers and self._duties.crew.is_ready:
            self._feed(ev.WorkersReady())
        if not self._life.is_over:
            self.checkpoints.tick(self._now())
        self._lateness.seen(self._now())
        self._set_alarm()

    def _feed(self, event: ev.JobEvent) -> None:
        before = self._life.state
        actions = self._life.handle(event)
        if self._life.state is JobState.RUNNING and before is JobState.DEPLOYING:
            self._emit(say.running(self.attempt, self._orders.job.plan))
        self._carry_out(actions)

    def _warn(self, text: str) -> None:
        self._emit(Event(EventKind.WARNING, text))

    def _set_alarm(self) -> None:
        """For the next deadline, and about once a heartbeat to notice silence."""
        now = self._now()
        at = now + min(self._orders.job.settings.heartbeat.interval, TICK_SECONDS_MAX)
        deadlines = [self.checkpoints.next_deadline(now), self._lateness.deadline]
        self._alarm.set(min([at, *(max(one, now) for one in deadlines if one is not None)]))

    def _excuse_lag(self) -> None:
        now = self._now()
        lag = self._alarm.lag(now)
        if lag > 0.0:
            self._duties.crew.excuse(now, lag)
            self.checkpoints.postpone(lag)
            self._lateness.postpone(lag)

    # ------------------------------------------------------------------ what workers say

    def _on_message(self, worker: int, message: messages.Message) -> None:
        if isinstance(message, messages.Released):
            self._duties.crew.released(worker)
            return
        live = self._live_of(message)
        if live is not None:
            self._on_message_of(live, worker, message)

    def _live_of(self, message: messages.Message) -> DeployedAttempt | None:
        """The live attempt, if that is what a message is of."""
        live = self._duties.deployment.live
        is_of_it = live is not None and getattr(message, "attempt", 0) == live.number and self._life.is_live
        return live if is_of_it else None

    def _on_message_of(self, live: DeployedAttempt, worker: int, message: messages.Message) -> None:
        match message:
            case messages.Deployed():
                if self._duties.crew.deployed(worker):
                    self._duties.incidents.deployed()
                    self._duties.housekeeping.clean(live.prepared)
            case messages.Ack():
                self.checkpoints.on_ack(worker, message)
            case messages.Decline():
                self.checkpoints.on_decline(worker, message, self._now())
            case messages.Ended():
                if live.ended(SubtaskId(*message.subtask)):
                    self._feed(ev.AllEnded())
            case messages.Committed():
                committed = live.committed(SubtaskId(*message.subtask), message.checkpoint)
                if committed is not None:
                    self._feed(ev.AllCommitted(committed))
            case messages.Failure():
                self._on_failure(message, live)
            case messages.Warn():
                tell = self._duties.preparation.warn_once if message.once else self._warn
                tell(message.text)
            case messages.Stats():
                self.statistics.add(worker, message, self._now())
            case _:
                raise AssertionError(f"coordinator: unexpected message {message}")

    def _on_cleaned(self, cleaned: Cleaned) -> None:
        if cleaned.error is not None:
            self._warn(f"cannot clean up after older attempts: {cleaned.error}")
        live = self._duties.deployment.live
        if live is not None and cleaned.attempt == live.number and self._life.state is JobState.DEPLOYING:
            self._feed(ev.AllDeployed(live.prepared.restored_checkpoint))

    # ------------------------------------------------------------------ what goes wrong

    def _on_lost(self, lost: Lost) -> None:
        loss = self._duties.crew.lost(lost)
        if loss is None:
            return
        if not self._life.is_over or loss.has_failed:
            self._emit(Event(EventKind.WORKER_LOST, loss.reason, {"worker": loss.worker}))
        if not self._life.is_over:
            self._report_loss(loss)

    def _report_loss(self, loss: Loss) -> None:
        present, now = self._duties.crew.present(), self._now()
        seen = self._duties.incidents.loss(self._life.state, self.attempt, loss, present=present, now=now)
        self._feed_seen(seen)

    def _feed_seen(self, seen: ev.JobEvent | None) -> None:
        if seen is not None:
            self._feed(seen)

    def _on_failure(self, failure: messages.Failure, live: DeployedAttempt) -> None:
        if self._duties.incidents.is_hearsay(failure):
            asyncio.get_running_loop().call_later(CAUSE_SECONDS, self._mailbox.put_nowait, Hearsay(failure))
            return
        if failure.kind == "SnapshotError" and live.prepared.chosen.directory:
            self._duties.preparation.found_damage(live.prepared, failure.message)
        self._fail(failure)

    def _on_hearsay(self, failure: messages.Failure) -> None:
        if self._live_of(failure) is not None:
            self._fail(failure)

    def _fail(self, failure: messages.Failure) -> None:
        present, now = self._duties.crew.present(), self._now()
        seen = self._duties.incidents.failure(self._life.state, failure, present=present, now=now)
        self._feed_seen(seen)

    def _fenced(self, error: Fenced) -> None:
        self._duties.incidents.fenced(failure_of(error, self.attempt))
        self._feed(ev.FencedOff(str(error)))

    # ------------------------------------------------------------------ checkpoints

    def _on_published(self, published: Published) -> None:
        try:
            self.checkpoints.on_published(published, self._now())
        except Fenced as error:
            self._fenced(error)
        except OutcomeUnknown as error:
            self._fail(failure_of(error, self.attempt))

    def _on_checkpoint_end(self, end: CheckpointEnd) -> None:
        if (event := say.checkpoint_ended(end, self._orders.job.place)) is not None:
            self._emit(event)
        if end.failure is None:
            self._on_completed(end)
        elif (live := self._duties.deployment.live) is not None and self._life.is_live:
            # Else it was being published when its attempt ended: nobody waits for it any more.
            if self.checkpoints.has_abandoned:
                self._retain(live.prepared)
            self._feed_seen(
                self._duties.incidents.checkpoint_failed(
                    end, self._life.state, self.attempt, present=self._duties.crew.present(), now=self._now()
                )
            )

    def _on_completed(self, end: CheckpointEnd) -> None:
        record = end.record
        if end.trigger is TriggerKind.SAVEPOINT:
            return
        self._duties.incidents.checkpoint_completed(record.id)
        live = self._duties.deployment.live
        if live is None or live.number != record.attempt or not self._life.is_live:
            self._on_completed_late(end)
            return
        self._retain(live.prepared)
        if end.trigger is TriggerKind.STOP:
            self._duties.ending.stopped_with(record)
        if (done := _DONE.get(end.trigger)) is not None:
            self._feed(done(record.id))

    def _retain(self, prepared: PreparedAttempt) -> None:
        checkpoints = self.checkpoints
        self._duties.housekeeping.retain(prepared, checkpoints.take_abandoned, is_read=checkpoints.is_read)

    def _on_completed_late(self, end: CheckpointEnd) -> None:
        """Its attempt failed while it was being published. It counts: the next attempt, which waits, starts from it."""
        if end.trigger is TriggerKind.STOP:
            # Its savepoint was made by an attempt that is over, and that of the next one is asked for anew, if at all.
            self._duties.ending.goes_on()
            if end.record.drained:
                self._feed(ev.StopCheckpointDone(end.record.id))

    # ------------------------------------------------------------------ what was ordered

    def _carry_out(self, actions: list[ev.JobAction]) -> None:
        for action in actions:
            self._orders.carry_out(action)

    def _on_prepared(self, prepared: Prepared) -> None:
        if self._life.state is not JobState.DEPLOYING or prepared.replacement != self._life.replacement:
            return
        match prepared.result:
            case PreparedAttempt() as attempt:
                self._orders.deploy(attempt)
            case JobIsDone():
                self._feed(ev.FoundFinished())
            case Fenced() as error:
                self._fenced(error)
            case Exception() as error:
                self._fail(failure_of(error, self.attempt))

    def _on_appended(self, appended: Appended) -> None:
        match appended.error:
            case None:
                self._feed(ev.EntryAppended())
            case Fenced() as error:
                self._fenced(error)
            case error:
                self._feed(self._duties.incidents.entry_failed(failure_of(error, self.attempt), self._now()))
