"""Carries out what the life of a job orders: each action goes to the duty that does it.

The actions of one event are carried out in their order, before the next event is handled. None waits: what takes time
is begun here, and its outcome comes through the mailbox.

Not here: what to order (`protocol.job`), what becomes of it (`coordinator`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from flowpoint.coordinator import announcements as say
from flowpoint.coordinator.duties import Duties
from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.mail import Mail
from flowpoint.coordinator.prepare import PreparedAttempt
from flowpoint.coordinator.publishing import Lineage
from flowpoint.errors import CheckpointFailed
from flowpoint.model import messages
from flowpoint.model.events import Event
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.protocol.job import JobLife
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.schedule import TriggerKind


class Orders:
    """The hands of one coordinator. `life` is only looked at."""

    def __init__(
        self,
        job: JobToRun,
        life: JobLife,
        duties: Duties,
        post: Callable[[Mail], None],
        emit: Callable[[Event], None],
    ) -> None:
        self.job = job
        """As it is to be run; a rescale changes it."""
        self._life = life
        self._duties = duties
        self._post = post
        self._emit = emit
        self._is_rescaling = False
        self._restart_timer: asyncio.TimerHandle | None = None

    def carry_out(self, action: ev.JobAction) -> None:  # noqa: C901  one switch
        """Carry out one action of the life of the job."""
        match action:
            case ev.SpawnWorkers():
                self._duties.crew.start_missing()
            case ev.KillWorkers(workers):
                self._duties.crew.kill(workers)
            case ev.DeployAttempt():
                self._duties.deployment.prepare(
                    self._life.replacement, self._duties.housekeeping.busy(), self._duties.publishing.wait_idle
                )
            case ev.ReleaseAttempt():
                self._release()
            case ev.ScheduleRestart(delay, replacement):
                self._schedule_restart(delay, replacement)
            case ev.StartRecords():
                self._start_records()
            case ev.SuspendCheckpoints():
                self._duties.checkpoints.suspend()
            case ev.ResumeCheckpoints():
                self._duties.checkpoints.resume()
            case ev.AbortCheckpoints(failure):
                self._abort_checkpoints(failure)
            case ev.TriggerStopCheckpoint(savepoints, drain):
                self._duties.checkpoints.request(TriggerKind.STOP, _now(), savepoints, drain=drain)
            case ev.TriggerRescaleCheckpoint():
                self._duties.checkpoints.request(TriggerKind.RESCALE, _now())
            case ev.TriggerFinalCheckpoint():
                self._duties.checkpoints.request(TriggerKind.FINAL, _now())
            case ev.ChangeParallelism(parallelism):
                self._change_parallelism(parallelism)
            case ev.ReportRescaled():
                self._duties.requests.settle_rescale(None)
            case ev.ReportRescaleFailed(reason):
                self._duties.crew.end_reserves()
                error = CheckpointFailed(f"the job was not rescaled and goes on as before: {reason}")
                self._duties.requests.settle_rescale(error)
            case ev.ResumeSources():
                self._duties.crew.tell_all(messages.Resume(self._duties.deployment.number))
            case ev.ReportStopFailed(reason):
                self._duties.requests.settle_stops(CheckpointFailed(f"the job was not stopped and runs on: {reason}"))
            case ev.AppendEntry(kind):
                self._duties.ending.append(kind)
            case ev.EndWorkers():
                self._duties.ending.end_workers(self._life.state)
            case ev.ExitJob(state, exit_code, reason):
                self._exit(JobState(state), exit_code, reason)
            case _:
                assert_never(action)

    def _abort_checkpoints(self, failure: CheckpointFailure) -> None:
        self._duties.checkpoints.end(failure, _now())
        self._duties.requests.drop_checkpoints(failure.text)

    def deploy(self, prepared: PreparedAttempt) -> None:
        """Give a prepared attempt to the workers."""
        if (event := say.restored(prepared)) is not None:
            self._emit(event)
        self._duties.crew.deploy(self._duties.deployment.deploy(self.job, prepared, self._duties.crew.addresses()))

    def _start_records(self) -> None:
        live = self._duties.deployment.live
        assert live is not None, "records are to flow in no attempt"
        prepared = live.prepared
        restored = prepared.chosen.manifest
        files = frozenset(file.path for file in restored.files()) if restored else frozenset()
        lineage = Lineage(prepared.lineage, prepared.restored_checkpoint, files)
        self._duties.crew.tell_all(messages.Start(prepared.number))
        self._duties.checkpoints.begin(
            prepared.number, live.plan, prepared.assignment, lineage, prepared.next_checkpoint, _now()
        )

    def _release(self) -> None:
        self._duties.deployment.release()
        self._duties.ending.goes_on()
        self._duties.crew.release(self._duties.deployment.number, _now())
        self._duties.statistics.attempt_over()

    def _schedule_restart(self, delay: float, replacement: int) -> None:
        if not self._is_rescaling:
            last = self._duties.incidents.last
            self._emit(say.restarting(self._life.restarts, delay, last.message if last is not None else ""))
        self._is_rescaling = False
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        self._restart_timer = asyncio.get_running_loop().call_later(delay, self._post, ev.RestartDue(replacement))

    def _change_parallelism(self, parallelism: int) -> None:
        assert self.job.replan is not None, "a job that cannot be rescaled is rescaled"
        before = self.job.plan
        self._is_rescaling = True
        self.job = self._duties.preparation.job = self.job.replan(parallelism)
        self._duties.statistics.replan(self.job.plan)
        self._duties.crew.resize(self.job.workers)
        self._emit(say.rescaling(before, self.job.plan))

    def _exit(self, state: JobState, exit_code: int, reason: str) -> None:
        if self._restart_timer is not None:
            self._restart_timer.cancel()
        self._duties.ending.exit(state, exit_code, reason, self._duties.incidents.last)
        record = self._duties.ending.last_record(self._duties.checkpoints.last_completed)
        self._duties.requests.settle_stops(record or CheckpointFailed(f"the job ended: {reason}"))
        self._duties.requests.settle_rescale(CheckpointFailed(f"the job was not rescaled, it ended: {reason}"))


def _now() -> float:
    return asyncio.get_running_loop().time()
