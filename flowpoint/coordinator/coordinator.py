"""One job's life, carried out: a mailbox, pure machines that decide, and actions on workers, storage and clock.

    mailbox -> handler -> JobLife / Membership / Checkpoints (pure) -> actions, in order

Handlers never wait. What takes time (starting a process, preparing an attempt, publishing a checkpoint, appending an
entry) is a task of the coordinator's group whose outcome comes back through the mailbox, so every change of state is
atomic between two events. Messages of another attempt than the current one are dropped (rule 8).

Not here: what to do when something happens (`protocol.job`), HTTP and signals (`launch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from flowpoint import errors
from flowpoint.coordinator.checkpoints import CheckpointEnd, CheckpointRecord, Checkpoints, Lineage, Published
from flowpoint.coordinator.job import JobToRun, widest
from flowpoint.coordinator.prepare import JobIsDone, Preparation, PreparedAttempt
from flowpoint.coordinator.statistics import Statistics
from flowpoint.coordinator.workers import (
    Beat,
    Joined,
    Lost,
    NotStarted,
    Received,
    Started,
    WorkerEvent,
    Workers,
)
from flowpoint.errors import FINAL_ERRORS, CheckpointFailed, Fenced, FlowPointError, OutcomeUnknown, StorageError
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.events import Event, EventKind
from flowpoint.model.plan import JobPlan, OperatorKind, SubtaskId
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.checkpoint import CheckpointFailure, FailureCounter
from flowpoint.protocol.job import JobLife
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.membership import Membership, WorkerState
from flowpoint.protocol.restart import RestartPolicy
from flowpoint.protocol.schedule import TriggerKind
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.storage import FolderStorage

SHUT_DOWN_SECONDS = 5.0
CANCEL_SECONDS = 0.5
TICK_SECONDS_MAX = 1.0


_TOLD = (
    CheckpointFailure.DECLINED,
    CheckpointFailure.EXPIRED,
    CheckpointFailure.FINALIZE_FAILED,
    CheckpointFailure.RESTORING,
)
"""Failures of checkpoints that a person hears of; the others are told with what caused them."""

_WISHES = (TriggerKind.SAVEPOINT, TriggerKind.STOP, TriggerKind.RESCALE)
"""Who wanted one of these is told that it failed, and the job goes on; such a failure counts for nothing else."""

_PRESENT = (WorkerState.JOINED, WorkerState.DEPLOYING, WorkerState.DEPLOYED, WorkerState.RELEASING)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. `failure` is the last error as data, when it failed by one."""

    state: JobState
    exit_code: int
    reason: str
    failure: messages.Failure | None = None


@dataclass(frozen=True, slots=True)
class _Tick:
    pass


@dataclass(frozen=True, slots=True)
class _Reaped:
    worker: int


@dataclass(frozen=True, slots=True)
class _Prepared:
    """`attempt` is what `prepare` gave, or the error it raised. `restart` says for which try it was."""

    restart: int
    result: PreparedAttempt | JobIsDone | Exception


@dataclass(frozen=True, slots=True)
class _Cleaned:
    attempt: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class _Appended:
    attempt: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class _RestartDue:
    restart: int


@dataclass(frozen=True, slots=True)
class _WorkersGone:
    pass


_Mail = (
    WorkerEvent
    | Published
    | ev.StopRequested
    | ev.RescaleRequested
    | ev.CancelRequested
    | _Tick
    | _Reaped
    | _Prepared
    | _Cleaned
    | _Appended
    | _RestartDue
    | _WorkersGone
)


@dataclass(slots=True)
class _Running:
    """The attempt that is deployed now, or was the last one. Once released, what is told of it comes too late.

    plan: its own; the job has another one when a rescale is under way.
    """

    prepared: PreparedAttempt
    plan: JobPlan
    is_released: bool = False
    deployed: set[int] = field(default_factory=set)
    ended: set[SubtaskId] = field(default_factory=set)
    committed: dict[SubtaskId, int] = field(default_factory=dict)


class Coordinator:
    """Runs one job to its end. `emit` gets every event, as it happens, on the coordinator's loop."""

    def __init__(
        self,
        host: Host,
        job: JobToRun,
        emit: Callable[[Event], None],
        on_workers: Callable[[dict[int, tuple[int, float]]], None] = lambda _: None,
    ) -> None:
        """`on_workers` gets (pid, start time) by index whenever a worker was started, before it is given anything."""
        self._host = host
        self._job = job
        self._emit = emit
        self._on_workers = on_workers
        self._mailbox: asyncio.Queue[_Mail] = asyncio.Queue()
        self._life = JobLife()
        self._policy = RestartPolicy(job.settings.restart)
        self._members = Membership(job.workers, job.settings.heartbeat.timeout)
        self._workers = Workers(host, job.arguments, job.log_path, self._mailbox.put_nowait)
        self._storage = FolderStorage(host.disk, host.new_id, job.storage)
        self._log = CommitLog(self._storage, "", host)
        self._preparation = Preparation(host, job, self._storage, self._log, self._warn)
        self._preparing: asyncio.Task[None] | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._retaining: asyncio.Task[None] | None = None
        self._is_retention_due = False
        self._steps: set[asyncio.Task[None]] = set()
        self._failures = FailureCounter(job.settings.checkpoint.tolerable_failures)
        self._running: _Running | None = None
        self._spawn_wanted = False
        self._starting: set[int] = set()
        self._incident: set[int] = set()
        self._is_rescaling = False
        self._release_deadline: float | None = None
        self._restart_timer: asyncio.TimerHandle | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._awake_at = float("inf")  # the next event is to be handled by then
        self._outcome: Outcome | None = None
        self._last_failure: messages.Failure | None = None
        self._stop_waiters: list[asyncio.Future[CheckpointRecord]] = []
        self._last_stop: CheckpointRecord | None = None
        self._rescale_waiter: asyncio.Future[None] | None = None
        self._group: asyncio.TaskGroup
        self.statistics = Statistics(job.plan)
        self.checkpoints = Checkpoints(
            host,
            job.plan.job,
            job.settings.checkpoint,
            self._storage,
            self._log,
            self._workers.broadcast,
            self._spawn,
            self._mailbox.put_nowait,
            self._on_checkpoint_end,
        )
        self.is_over = asyncio.Event()

    # ------------------------------------------------------------------ for launch

    @property
    def state(self) -> JobState:
        """Where the job is in its life."""
        return self._life.state

    @property
    def plan(self) -> JobPlan:
        """The job's plan; a rescale changes it."""
        return self._job.plan

    @property
    def attempt(self) -> int:
        """The number of the current attempt, 0 before the first."""
        return self._running.prepared.number if self._running is not None else 0

    @property
    def reason(self) -> str:
        """Why the job is where it is: of its end, or of the last failure while it restarts."""
        if self._outcome is not None:
            return self._outcome.reason
        if self._life.state is JobState.RESTARTING and self._last_failure is not None:
            return self._last_failure.message
        return ""

    @property
    def restarts(self) -> int:
        """How often the job has been restarted."""
        return self._life.restarts

    def pids(self) -> dict[int, tuple[int, float]]:
        """(pid, start time) of every worker process."""
        return self._workers.pids()

    def subtasks_of(self, worker: int) -> list[str]:
        """What a worker runs, as "uid#index"."""
        if self._running is None:
            return []
        placed = sorted(s for s, w in self._running.prepared.assignment.items() if w == worker)
        return [f"{uid}#{s.index}" for s in placed for uid in self._running.plan.tasks[s.task].operators]

    def request_stop(self, exit_code: int, savepoints: str = "") -> asyncio.Future[CheckpointRecord]:
        """Ask for a graceful stop. The future gets the last checkpoint, or CheckpointFailed when the job goes on.

        `savepoints`: the folder in which to make a savepoint that hands the job's output on; the record names it.
        """
        future: asyncio.Future[CheckpointRecord] = asyncio.get_running_loop().create_future()
        if self._life.is_over:
            future.set_exception(CheckpointFailed("the job has ended already"))
            return future
        self._stop_waiters.append(future)
        self._mailbox.put_nowait(ev.StopRequested(exit_code, savepoints))
        return future

    def request_cancel(self, exit_code: int) -> None:
        """Ask for an end without a last checkpoint."""
        self._mailbox.put_nowait(ev.CancelRequested(exit_code))

    async def request_checkpoint(self) -> CheckpointRecord:
        """Take a checkpoint now and wait for its end. Raises CheckpointFailed."""
        if self._life.state is not JobState.RUNNING:
            raise CheckpointFailed(f"cannot take a checkpoint while the job is {self._life.state}; try again later")
        record = await self.checkpoints.request(TriggerKind.CHECKPOINT, self._now())
        if record.state != "completed":
            raise CheckpointFailed(f"checkpoint {record.id} failed: {record.reason}")
        return record

    async def request_savepoint(self, savepoints: str = "") -> CheckpointRecord:
        """Make a savepoint in this folder now and wait for its end. Raises CheckpointFailed; the job goes on."""
        if self._life.state is not JobState.RUNNING:
            raise CheckpointFailed(f"cannot make a savepoint while the job is {self._life.state}; try again later")
        record = await self.checkpoints.request(TriggerKind.SAVEPOINT, self._now(), savepoints or self._job.savepoints)
        if record.state != "completed":
            raise CheckpointFailed(f"savepoint {record.id} failed: {record.reason}")
        return record

    async def request_rescale(self, parallelism: int) -> None:
        """Go on with another parallelism; returns when records flow again.

        Raises:
            UsageError: the job cannot have it.
            CheckpointFailed: the job goes on as before.
        """
        if self._job.replan is None or self._life.state is not JobState.RUNNING:
            raise CheckpointFailed(f"cannot rescale the job while it is {self._life.state}; try again later")
        if self._rescale_waiter is not None:
            raise CheckpointFailed("cannot rescale the job: it is being rescaled already; try again later")
        self._job.replan(parallelism)
        self._rescale_waiter = asyncio.get_running_loop().create_future()
        self._mailbox.put_nowait(ev.RescaleRequested(parallelism))
        await self._rescale_waiter

    # ------------------------------------------------------------------ the loop

    async def run(self) -> Outcome:
        """Run the job to its end."""
        await self._workers.listen()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._perform(self._life.handle(ev.Begin()))
            self._arm()
            while not self._is_done():
                mail = await self._mailbox.get()
                self._excuse_lag()
                self._handle(mail)
                self._after_event()
            self._disarm()
        assert self._outcome is not None
        self.is_over.set()
        return self._outcome

    def _is_done(self) -> bool:
        return self._outcome is not None and self.is_over.is_set()

    @property
    def _live(self) -> _Running | None:
        """The attempt that was deployed last, unless it has been released."""
        return None if self._running is None or self._running.is_released else self._running

    def _spawn(self, step: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Work on storage and sinks, which a cancelled job does not wait for without end; not that on workers."""
        task = self._group.create_task(step, name=name)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return task

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _handle(self, mail: _Mail) -> None:  # noqa: C901  one switch
        match mail:
            case Received(worker, message):
                self._on_message(worker, message)
            case Beat(worker, incarnation):
                self._members.beat(worker, incarnation, self._now())
            case Started(worker, pid):
                self._starting.discard(worker)
                self._members.spawned(worker, pid, self._now())
                self._record_workers(worker)
            case Joined(worker, pid, incarnation):
                self._members.joined(worker, pid, incarnation, self._now())
            case Lost(worker, pid, reason):
                self._on_lost(worker, pid, reason)
            case NotStarted(worker, reason):
                self._starting.discard(worker)
                self._report_loss(worker, reason)
            case Published():
                self._on_published(mail)
            case ev.StopRequested():
                self._emit(
                    Event(
                        EventKind.STOPPING,
                        "stopping after a last checkpoint (interrupt once more to cancel without one)",
                    )
                )
                self._feed(mail)
            case ev.RescaleRequested():
                self._feed(mail)
            case ev.CancelRequested():
                if not self._life.is_over:
                    self._emit(Event(EventKind.CANCELLING, "cancelling without a last checkpoint"))
                self._feed(mail)
            case _Tick():
                self._on_tick()
            case _Reaped(worker):
                self._members.reaped(worker)
                if self._spawn_wanted and not self._members.is_superfluous(worker):
                    self._start_worker(worker)
            case _Prepared():
                self._on_prepared(mail)
            case _Cleaned():
                self._on_cleaned(mail)
            case _Appended():
                self._on_appended(mail)
            case _RestartDue(restart):
                self._feed(ev.RestartDue(restart))
            case _WorkersGone():
                self.is_over.set()

    def _after_event(self) -> None:
        """What may have become possible by any event."""
        if self._life.awaits_workers and self._members.is_ready:
            self._feed(ev.WorkersReady())
        if not self._life.is_over:
            self.checkpoints.tick(self._now())
        self._arm()

    def _feed(self, event: ev.JobEvent) -> None:
        before = self._life.state
        actions = self._life.handle(event)
        if self._life.state is JobState.RUNNING and before is JobState.DEPLOYING:
            self._say_running()
        self._perform(actions)

    def _say_running(self) -> None:
        assert self._running is not None
        number, plan = self._running.prepared.number, self._job.plan
        text = f"attempt {number} is running: {len(plan.subtasks())} subtasks, parallelism {widest(plan)}"
        self._emit(Event(EventKind.RUNNING, text, {"attempt": number, "parallelism": widest(plan)}))

    def _warn(self, text: str) -> None:
        self._emit(Event(EventKind.WARNING, text))

    # ------------------------------------------------------------------ time

    def _arm(self) -> None:
        """Plan the next tick: at the next deadline, and about once a heartbeat to notice silence."""
        self._disarm()
        now = self._now()
        at = now + min(self._job.settings.heartbeat.interval, TICK_SECONDS_MAX)
        deadline = self.checkpoints.next_deadline(now)
        if deadline is not None:
            at = min(at, max(deadline, now))
        self._awake_at = at
        self._tick_timer = asyncio.get_running_loop().call_at(at, self._mailbox.put_nowait, _Tick())

    def _excuse_lag(self) -> None:
        """Whoever stood still heard nobody meanwhile: that is nobody's silence, and nobody is late by it (rule 17)."""
        now = self._now()
        lag = now - self._awake_at
        if lag <= 0.0:
            return
        self._members.excuse(now, lag)
        self.checkpoints.postpone(lag)
        if self._release_deadline is not None:
            self._release_deadline += lag

    def _disarm(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None

    def _on_tick(self) -> None:
        now = self._now()
        for worker in self._members.expired(now):
            seconds = self._job.settings.heartbeat.timeout
            self._workers.lose(worker, f"worker {worker} (pid {self._pid(worker)}) was silent for {seconds:g} s")
        if self._release_deadline is not None and now >= self._release_deadline:
            self._release_deadline = None
            for worker in self._members.workers(WorkerState.RELEASING):
                self._workers.lose(worker, f"worker {worker} (pid {self._pid(worker)}) did not let go of its attempt")

    def _pid(self, worker: int) -> int:
        return self._workers.pids().get(worker, (0, 0.0))[0]

    # ------------------------------------------------------------------ workers

    def _on_lost(self, worker: int, pid: int, reason: str) -> None:
        if not self._members.lost(worker, pid) or self._members.is_superfluous(worker):
            return
        if self._life.is_over:
            return
        self._emit(Event(EventKind.WORKER_LOST, reason, {"worker": worker}))
        self._report_loss(worker, reason)

    def _report_loss(self, worker: int, reason: str) -> None:
        if self._life.state is JobState.RESTARTING and worker in self._incident:
            self._incident.discard(worker)
            self._feed(ev.FurtherLoss((worker,)))
            return
        failure = messages.Failure(self.attempt, worker, [], "", "WorkerLost", reason, "", retry=True)
        self._fail(failure, lost=(worker,))

    def _record_workers(self, started: int) -> None:
        """Let the caller note the new process. One that is noted nowhere might outlive this coordinator: it must go."""
        try:
            self._on_workers(self._workers.pids())
        except StorageError as error:
            self._workers.lose(started, f"worker {started} was started and is given up: {error}")

    def _start_worker(self, worker: int) -> None:
        if worker in self._starting:
            return
        self._starting.add(worker)
        self._group.create_task(self._workers.start(worker, self._group), name=f"start worker {worker}")

    async def _reap(self, worker: int) -> None:
        await self._workers.kill(worker)
        self._mailbox.put_nowait(_Reaped(worker))

    def _on_message(self, worker: int, message: messages.Message) -> None:
        if isinstance(message, messages.Released):
            if self._members.state(worker) is WorkerState.RELEASING:
                self._members.released(worker)
            return
        running = self._live
        if running is None or getattr(message, "attempt", 0) != running.prepared.number or not self._life.is_live:
            return
        match message:
            case messages.Deployed():
                self._on_deployed(worker, running)
            case messages.Ack():
                self.checkpoints.on_ack(worker, message, self._now())
            case messages.Decline():
                self.checkpoints.on_decline(worker, message, self._now())
            case messages.Ended():
                self._on_ended(SubtaskId(*message.subtask), running)
            case messages.Committed():
                self._on_committed(SubtaskId(*message.subtask), message.checkpoint, running)
            case messages.Failure():
                self._on_failure(message, running)
            case messages.Warn():
                tell = self._preparation.warn_once if message.once else self._warn
                tell(message.text)
            case messages.Stats():
                self.statistics.add(worker, message, self._now())
            case _:
                raise AssertionError(f"coordinator: unexpected message {message}")

    def _on_deployed(self, worker: int, running: _Running) -> None:
        self._members.deployed(worker)
        running.deployed.add(worker)
        if self._members.is_deployed:
            self._cleaning = self._spawn(self._clean(running.prepared), "clean up")

    async def _clean(self, prepared: PreparedAttempt) -> None:
        error: Exception | None = None
        try:
            await self._preparation.clean(prepared)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._mailbox.put_nowait(_Cleaned(prepared.number, error))

    def _on_cleaned(self, cleaned: _Cleaned) -> None:
        if cleaned.error is not None:
            self._warn(f"cannot clean up after older attempts: {cleaned.error}")
        running = self._live
        if running is None or cleaned.attempt != running.prepared.number or self._life.state is not JobState.DEPLOYING:
            return
        self._feed(ev.AllDeployed())

    def _on_ended(self, subtask: SubtaskId, running: _Running) -> None:
        running.ended.add(subtask)
        if len(running.ended) == len(self._job.plan.subtasks()):
            self._feed(ev.AllEnded())

    def _on_committed(self, subtask: SubtaskId, checkpoint: int, running: _Running) -> None:
        running.committed[subtask] = checkpoint
        sinks = [spec for spec in self._job.plan.operators if spec.kind is OperatorKind.SINK]
        tasks = {self._job.plan.task_of(spec.uid).index for spec in sinks}
        all_sinks = [s for s in self._job.plan.subtasks() if s.task in tasks]
        if all(s in running.committed for s in all_sinks):
            self._feed(ev.AllCommitted(min(running.committed[s] for s in all_sinks)))

    # ------------------------------------------------------------------ failures

    def _on_failure(self, failure: messages.Failure, running: _Running) -> None:
        if failure.kind == "SnapshotError" and running.prepared.restored_directory:
            # Not seen by a look at sizes: the next attempt chooses another checkpoint, if the rules allow it.
            self._preparation.damaged[running.prepared.restored_directory] = failure.message
        self._fail(failure)

    def _fail(self, failure: messages.Failure, lost: tuple[int, ...] = ()) -> None:
        if self._life.is_over:
            return
        if self._life.state is JobState.RESTARTING and not lost:
            return
        self._last_failure = failure
        # Whoever of these is lost while the job restarts is lost by the same incident: a kill of all workers, or the
        # death of one, which its peers see first.
        self._incident = set(self._members.workers(*_PRESENT)) - set(lost)
        jitter = self._host.random.uniform(-1.0, 1.0)
        verdict = self._policy.failure(self._now(), failure, jitter)
        self._feed(ev.FailureSeen(failure.message, verdict, lost))

    def _fail_by(self, error: Exception) -> None:
        """A failure that the coordinator itself met."""
        retry = not isinstance(error, FINAL_ERRORS)
        failure = messages.Failure(
            attempt=self.attempt,
            worker=-1,
            subtask=[],
            operator=getattr(error, "operator", ""),
            kind=type(error).__name__,
            message=str(error),
            trace="",
            retry=retry,
        )
        self._fail(failure)

    # ------------------------------------------------------------------ checkpoints

    def _on_published(self, published: Published) -> None:
        try:
            self.checkpoints.on_published(published, self._now())
        except Fenced as error:
            self._feed(ev.FencedOff(str(error)))
        except OutcomeUnknown as error:
            self._fail_by(error)

    def _on_checkpoint_end(self, end: CheckpointEnd) -> None:
        record, failure = end.record, end.failure
        if failure is None:
            self._on_completed(end)
            return
        if failure in _TOLD:
            text = f"{record.kind} {record.id} failed: {record.reason}"
            self._emit(Event(EventKind.CHECKPOINT_FAILED, text, record.to_data()))
        if self._live is None or not self._life.is_live:
            # What was being published when its attempt ended: nobody waits for it any more.
            return
        if end.trigger not in _WISHES and self._failures.failed(record.id, failure, record.kind):
            error = CheckpointFailed(f"checkpoint {record.id} failed: {record.reason}")
            self._fail_by(error)
        elif end.trigger is TriggerKind.STOP and failure.counts:
            self._feed(ev.StopCheckpointFailed(record.reason))
        elif end.trigger is TriggerKind.RESCALE and failure.counts:
            self._feed(ev.RescaleCheckpointFailed(record.reason))
        elif end.trigger is TriggerKind.FINAL and failure.counts:
            self._feed(ev.FinalCheckpointFailed(record.reason))

    def _on_completed(self, end: CheckpointEnd) -> None:
        record = end.record
        text = f"{record.kind} {record.id} completed in {record.duration_ms} ms, {record.bytes:,} bytes"
        self._emit(Event(EventKind.CHECKPOINT_COMPLETED, text, record.to_data()))
        if end.trigger is TriggerKind.SAVEPOINT:
            return
        self._failures.succeeded(record.id)
        self._policy.checkpoint_completed()
        running = self._live
        if running is None or running.prepared.number != record.attempt or not self._life.is_live:
            return
        self._is_retention_due = True
        if self._retaining is None or self._retaining.done():
            self._retaining = self._spawn(self._retain(running.prepared), "remove old checkpoints")
        if end.trigger is TriggerKind.STOP:
            self._last_stop = record
            self._feed(ev.StopCheckpointDone(record.id))
        elif end.trigger is TriggerKind.RESCALE:
            self._feed(ev.RescaleCheckpointDone(record.id))
        elif end.trigger is TriggerKind.FINAL:
            self._feed(ev.FinalCheckpointDone(record.id))

    async def _retain(self, prepared: PreparedAttempt) -> None:
        """One run at a time, and one more when a checkpoint completes meanwhile."""
        while self._is_retention_due:
            self._is_retention_due = False
            report = await prepared.cleaner.run(abandoned=self.checkpoints.take_abandoned())
            for problem in report.problems:
                self._warn(f"cannot remove old checkpoints: {problem}")

    # ------------------------------------------------------------------ actions

    def _perform(self, actions: list[ev.JobAction]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: ev.JobAction) -> None:  # noqa: C901  one switch
        match action:
            case ev.SpawnWorkers():
                self._spawn_wanted = True
                for worker in self._members.workers(WorkerState.ABSENT):
                    if not self._members.is_superfluous(worker):
                        self._start_worker(worker)
            case ev.KillWorkers(workers):
                self._spawn_wanted = False
                for worker in workers:
                    if self._members.state(worker) is WorkerState.LOST:
                        self._group.create_task(self._reap(worker), name=f"reap worker {worker}")
            case ev.DeployAttempt():
                self._prepare()
            case ev.ReleaseAttempt():
                self._release()
            case ev.ScheduleRestart(delay, restart):
                self._schedule_restart(delay, restart)
            case ev.StartRecords():
                self._start_records()
            case ev.SuspendCheckpoints():
                self.checkpoints.suspend()
            case ev.ResumeCheckpoints():
                self.checkpoints.resume()
            case ev.AbortCheckpoints(failure):
                self._abort_checkpoints(failure)
            case ev.TriggerStopCheckpoint(savepoints):
                self.checkpoints.request(TriggerKind.STOP, self._now(), savepoints)
            case ev.TriggerRescaleCheckpoint():
                self.checkpoints.request(TriggerKind.RESCALE, self._now())
            case ev.ChangeParallelism(parallelism):
                self._change_parallelism(parallelism)
            case ev.ReportRescaled():
                self._settle_rescale(None)
            case ev.ReportRescaleFailed(reason):
                self._settle_rescale(CheckpointFailed(f"the job was not rescaled and goes on as before: {reason}"))
            case ev.TriggerFinalCheckpoint():
                self.checkpoints.request(TriggerKind.FINAL, self._now())
            case ev.ResumeSources():
                self._workers.broadcast(messages.Resume(self.attempt))
            case ev.ReportStopFailed(reason):
                self._settle_stop(CheckpointFailed(f"the job was not stopped and runs on: {reason}"))
            case ev.AppendEntry(kind):
                self._spawn(self._append(kind), f"append {kind}")
            case ev.EndWorkers():
                self._spawn_wanted = False
                self._group.create_task(self._end_workers(), name="end workers")
            case ev.ExitJob(state, exit_code, reason):
                self._exit(JobState(state), exit_code, reason)

    def _prepare(self) -> None:
        restart = self._life.turn
        earlier = [task for task in (self._preparing, self._cleaning, self._retaining) if task is not None]

        async def prepare() -> None:
            # One preparation at a time; none while the commit log may still move, or older attempts are cleaned up.
            if earlier:
                await asyncio.wait(earlier)
            await self.checkpoints.wait_idle()
            result: PreparedAttempt | JobIsDone | Exception
            try:
                result = await self._preparation.prepare()
            except (FlowPointError, OSError) as error:
                result = error
            self._mailbox.put_nowait(_Prepared(restart, result))

        self._preparing = self._spawn(prepare(), "prepare attempt")

    def _on_prepared(self, prepared: _Prepared) -> None:
        if self._life.state is not JobState.DEPLOYING or prepared.restart != self._life.turn:
            return
        match prepared.result:
            case PreparedAttempt():
                self._deploy(prepared.result)
            case JobIsDone():
                self._feed(ev.FoundFinished())
            case Fenced() as error:
                self._feed(ev.FencedOff(str(error)))
            case Exception() as error:
                self._fail_by(error)

    def _deploy(self, prepared: PreparedAttempt) -> None:
        self._running = _Running(prepared, self._job.plan)
        if prepared.restored is not None:
            text = f"continuing from checkpoint {prepared.restored.id} ({prepared.restored_directory})"
            data = {"checkpoint": prepared.restored.id, "directory": prepared.restored_directory}
            self._emit(Event(EventKind.RESTORED, text, {**data, "attempt": prepared.number}))
        assignment: dict[str, list[list[int]]] = {}
        for subtask, worker in sorted(prepared.assignment.items()):
            assignment.setdefault(str(worker), []).append(list(subtask))
        workers = range(self._job.workers)
        message = messages.Deploy(
            attempt=prepared.number,
            job=self._job.plan.job,
            lineage=prepared.lineage,
            plan=self._job.plan.to_data(),
            settings=self._job.settings.to_data(),
            source=dict(self._job.source),
            assignment=assignment,
            peers={str(worker): self._workers.address(worker) for worker in workers},
            restore=prepared.restore,
            restored_checkpoint=prepared.restored_checkpoint,
            storage=self._job.storage,
            work_dir=self._job.work_dir,
            full=prepared.first_is_full,
        )
        for worker in workers:
            self._members.deploy(worker)
        self._workers.broadcast(message)

    def _start_records(self) -> None:
        assert self._running is not None
        prepared = self._running.prepared
        files = frozenset(file.path for file in prepared.restored.files()) if prepared.restored else frozenset()
        lineage = Lineage(prepared.lineage, prepared.restored_checkpoint, files)
        self._workers.broadcast(messages.Start(prepared.number))
        self.checkpoints.begin(
            prepared.number, self._job.plan, prepared.assignment, lineage, prepared.next_checkpoint, self._now()
        )

    def _release(self) -> None:
        attempt = self.attempt
        if self._running is not None:
            self._running.is_released = True
        self._last_stop = None
        for worker in self._members.release_all():
            self._workers.send(worker, messages.Release(attempt))
        self._release_deadline = self._now() + self._job.settings.heartbeat.timeout
        self.statistics.attempt_over()

    def _abort_checkpoints(self, failure: CheckpointFailure) -> None:
        self.checkpoints.end(failure, self._now())
        for future in self.checkpoints.drop_requests():
            if not future.done():
                future.set_exception(CheckpointFailed(f"no checkpoint was taken: {failure.text}"))
                future.exception()

    def _schedule_restart(self, delay: float, restart: int) -> None:
        if not self._is_rescaling:
            reason = self._last_failure.message if self._last_failure is not None else ""
            text = f"restarting {f'in {delay:.1f} s' if delay else 'at once'}: {reason}"
            self._emit(Event(EventKind.RESTARTING, text, {"restart": restart, "delay": delay, "reason": reason}))
        self._is_rescaling = False
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        loop = asyncio.get_running_loop()
        self._restart_timer = loop.call_later(delay, self._mailbox.put_nowait, _RestartDue(restart))

    def _change_parallelism(self, parallelism: int) -> None:
        assert self._job.replan is not None, "a job that cannot be rescaled is rescaled"
        before = widest(self._job.plan)
        self._is_rescaling = True
        self._job = self._preparation.job = self._job.replan(parallelism)
        self.statistics.replan(self._job.plan)
        for worker in self._members.resize(self._job.workers):
            self._group.create_task(self._retire(worker), name=f"end worker {worker}")
        text = f"rescaling from parallelism {before} to {widest(self._job.plan)}"
        self._emit(Event(EventKind.RESCALING, text, {"from": before, "to": widest(self._job.plan)}))

    async def _retire(self, worker: int) -> None:
        await self._workers.retire(worker, "the job needs fewer workers", SHUT_DOWN_SECONDS)
        self._mailbox.put_nowait(_Reaped(worker))

    def _settle_rescale(self, error: FlowPointError | None) -> None:
        """Answer whoever asked for a rescale."""
        waiter, self._rescale_waiter = self._rescale_waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
            waiter.exception()

    async def _append(self, kind: str) -> None:
        """Record the end; the savepoint of the stop, if any, exists just before."""
        attempt = self.attempt
        error: Exception | None = None
        try:
            handover = await self.checkpoints.publish_handover()
            if handover and self._last_stop is not None:
                self._last_stop.savepoint_bytes = handover["bytes"]
            await self._log.append(kind, attempt, extra=handover)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._mailbox.put_nowait(_Appended(attempt, error))

    def _on_appended(self, appended: _Appended) -> None:
        match appended.error:
            case None:
                self._feed(ev.EntryAppended())
            case Fenced() as error:
                self._feed(ev.FencedOff(str(error)))
            case error:
                failure = messages.Failure(self.attempt, -1, [], "", type(error).__name__, str(error), "", retry=True)
                self._last_failure = failure
                self._feed(ev.EntryFailed(str(error), self._policy.failure(self._now(), failure)))

    async def _end_workers(self) -> None:
        # Whoever cancels does not want to wait for a function that never returns.
        is_cancelled = self._life.state is JobState.CANCELLED
        await self._workers.shut_down("the job is over", CANCEL_SECONDS if is_cancelled else SHUT_DOWN_SECONDS)
        if is_cancelled:
            await self._cut_short()
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        await self.checkpoints.wait_idle()
        if self._running is not None and not is_cancelled:
            # Nobody writes any more: what checkpoints that never came about have left goes with the job.
            await self._running.prepared.cleaner.sweep(is_over=True)
        self._mailbox.put_nowait(_WorkersGone())

    async def _cut_short(self) -> None:
        """Storage or a sink may hang. What is given up here is found by the next run as after a kill."""
        if not self._steps:
            return
        _, hanging = await asyncio.wait(self._steps, timeout=SHUT_DOWN_SECONDS)
        for task in hanging:
            self._warn(f"cancelled while this had not ended after {SHUT_DOWN_SECONDS:g} s: {task.get_name()}")
            task.cancel()
        if hanging:
            self._preparing = None
            self.checkpoints.give_up()

    def _exit(self, state: JobState, exit_code: int, reason: str) -> None:
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        failure = self._last_failure if state is JobState.FAILED else None
        if failure is not None:
            # What is wrong with the job file itself may show only now, when its source looks for its files.
            exit_code = getattr(getattr(errors, failure.kind, None), "exit_code", exit_code)
        self._outcome = Outcome(state, exit_code, reason, failure)
        self._settle_stop(CheckpointFailed(f"the job ended: {reason}"))
        self._settle_rescale(CheckpointFailed(f"the job was not rescaled, it ended: {reason}"))

    def _settle_stop(self, error: FlowPointError) -> None:
        """Answer everybody who asked for a stop."""
        waiters, self._stop_waiters = self._stop_waiters, []
        record = self._end_record()
        for waiter in waiters:
            if waiter.done():
                continue
            if record is not None:
                waiter.set_result(record)
            else:
                waiter.set_exception(error)
                waiter.exception()

    def _end_record(self) -> CheckpointRecord | None:
        """The checkpoint that the job ended with, as a stop wants it; None when it goes on, failed or was cancelled."""
        match self._outcome:
            case Outcome(JobState.STOPPED):
                return self._last_stop
            case Outcome(JobState.FINISHED):
                return self.checkpoints.last_completed
        return None
