"""The life of a job, from `Begin` to `ExitJob`: events in, actions out.

    CREATED -> STARTING -> DEPLOYING -> RUNNING -> FINISHING -> COMMITTING -> RECORDING -> FINISHED
                              ^            |                        ^            |
                              |            +------> STOPPING -------+            +-------> STOPPED
                              |            |
                              |            +------> RESCALING --+
                              |                                 |
                              +-- RESTARTING <------------------+
                                      ^
                                      +-- a failure in any state from STARTING to COMMITTING

    from any state: -> CANCELLED, -> FAILED

`job_table.TRANSITIONS` has every legal move; docs/protocol.md shows it. What needs saying beyond the table:

- A stop that was asked for outlives failures: it is carried out as soon as records flow again. It ends when it has
  come about, or when its checkpoint fails and that is tolerated: then the sources go on and whoever asked is told.
- A stop that drains ends time before its barrier: timers have fired that would not have. So when its checkpoint fails the
  attempt cannot go on: it fails over, from the checkpoint before. Once its checkpoint is in the log, an attempt that
  starts from it has nothing to do but commit: it goes straight to the last entry, and no record flows. That holds too
  when the attempt fails before anybody has heard that it is in the log.
- The end is reached in three steps, each waiting for the one before: the last checkpoint is in the commit log; every
  sink has confirmed; the entry "finished" or "stopped" is in the log. A failure before the last step restarts the job,
  which then restores the last checkpoint, commits it first, and comes here again.
- A rescale does not outlive a failure before its checkpoint: the job restarts as it was, and whoever asked is told.
  Once the checkpoint is in the log, the job has the new parallelism, whatever fails after that. Its sinks need not
  have committed by then: the next attempt begins with what the checkpoint holds.
- RESTARTING waits for two things in any order: the delay, and ready workers. Lost workers are replaced when the delay
  is over (at once, for the first restart), so that a worker which dies at birth does not spin.
- Failure reports that name no lost worker are of the old attempt while RESTARTING, and change nothing.

Invariants:
- `DeployAttempt` only after every worker of the attempt before has been released or reaped.
- `ExitJob` once, as the very last action.

Not here: who is lost (`membership`), whether to restart (`restart`), what to restore (`recovery`).
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from flowpoint.errors import InternalError
from flowpoint.model.commits import CommitKind
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.protocol.job_events import JobAction, JobEvent
from flowpoint.protocol.job_table import LIVE, OVER, TRANSITIONS, JobState
from flowpoint.protocol.restart import GiveUp, Verdict

HISTORY_MAX = 32

FINISHED_BEFORE = (
    "the job had finished before; --fresh runs it again from the start, and needs another output folder, or "
    "--take-output, where the first run has written files"
)

_Step = tuple[JobState, list[JobAction]]


class JobLife:
    """One job's life, as one coordinator sees it.

    Example:
        >>> life = JobLife()
        >>> life.handle(ev.Begin())
        [SpawnWorkers()]
        >>> life.handle(ev.WorkersReady())
        [DeployAttempt()]
        >>> life.handle(ev.AllDeployed())
        [StartRecords()]
        >>> str(life.state)
        'running'
    """

    def __init__(self) -> None:
        self._state = JobState.CREATED
        self._restarts = 0
        self._replacement = 0  # tells the delays of one restart or rescale from those of others
        self._is_due = True  # the delay before the next attempt is over
        self._is_ready = False  # the workers for the next attempt are there
        self._stop: ev.StopRequested | None = None
        self._rescale: ev.RescaleRequested | None = None
        self._has_ended = False  # all subtasks of the live attempt have ended
        self._goal = JobState.FINISHED  # what COMMITTING and RECORDING lead to
        self._last_checkpoint = 0
        self._drained = 0  # the checkpoint before which time has ended, for a stop
        self._lost_late: tuple[int, ...] = ()  # lost while RECORDING
        self._history: deque[str] = deque(maxlen=HISTORY_MAX)

    @property
    def state(self) -> JobState:
        """Where the job is."""
        return self._state

    @property
    def restarts(self) -> int:
        """How often it has been restarted after a failure (or is about to be)."""
        return self._restarts

    @property
    def replacement(self) -> int:
        """How often an attempt was replaced by the next one; in `ScheduleRestart` and `RestartDue`."""
        return self._replacement

    @property
    def last_checkpoint(self) -> int:
        """The checkpoint that the job ends with, once it is in the log."""
        return self._last_checkpoint

    @property
    def is_live(self) -> bool:
        """Whether there is an attempt whose messages count. While not, reports without lost workers are late."""
        return self._state in LIVE

    @property
    def is_over(self) -> bool:
        """Whether `ExitJob` has been given out."""
        return self._state in OVER

    @property
    def awaits_workers(self) -> bool:
        """Whether `WorkersReady` is to be sent as soon as it is true."""
        return self._state in (JobState.STARTING, JobState.RESTARTING) and not self._is_ready

    def handle(self, event: JobEvent) -> list[JobAction]:
        """Take an event; returns what is to be done, in this order.

        Raises:
            InternalError: when the event cannot be in this state. The last events are in the message.
        """
        before = self._state
        move = TRANSITIONS.get((before, type(event)))
        if move is None:
            raise InternalError(f"job is {before}, which has no event {event}; before that: {list(self._history)}")
        after, actions = (before, []) if before in OVER else self._decide(event)
        self._history.append(f"{before} {event} -> {after}")
        if after not in move.targets:
            raise InternalError(f"job went where its table does not lead; {list(self._history)}")
        self._state = after
        return actions

    def _decide(self, event: JobEvent) -> _Step:  # noqa: C901  one switch
        match event:
            case ev.Begin():
                return JobState.STARTING, [ev.SpawnWorkers()]
            case ev.WorkersReady():
                self._is_ready = True
                return self._deploy_when_possible()
            case ev.RestartDue():
                return self._on_restart_due(event)
            case ev.AllDeployed():
                return self._on_deployed(event)
            case ev.FoundFinished():
                return self._end(JobState.FINISHED, 0, FINISHED_BEFORE)
            case ev.AllEnded():
                return self._on_ended()
            case ev.FailureSeen():
                return self._on_failure(event)
            case ev.FurtherLoss():
                self._is_ready = False
                again: list[JobAction] = [ev.SpawnWorkers()] if self._is_due else []
                return self._state, [ev.KillWorkers(event.lost), *again]
            case ev.StopRequested():
                return self._on_stop(event)
            case ev.RescaleRequested():
                return self._on_rescale(event)
            case ev.RescaleCheckpointDone():
                return self._on_rescale_point()
            case ev.RescaleCheckpointFailed():
                return self._on_rescale_failed(event)
            case ev.CancelRequested():
                return self._end(JobState.CANCELLED, event.exit_code, "cancelled")
            case ev.StopCheckpointDone():
                return self._on_stop_point(event)
            case ev.StopCheckpointFailed():
                return self._on_stop_failed(event)
            case ev.FinalCheckpointDone():
                return self._commit(JobState.FINISHED, event.checkpoint)
            case ev.FinalCheckpointFailed():
                return JobState.FINISHING, [ev.TriggerFinalCheckpoint()]
            case ev.AllCommitted():
                return self._on_committed(event)
            case ev.EntryAppended():
                return self._on_appended()
            case ev.EntryFailed():
                return self._fail(event.reason, event.verdict, self._lost_late)
            case ev.FencedOff():
                return self._end(JobState.FAILED, 1, event.reason)
            case _:
                assert_never(event)

    def _deploy_when_possible(self) -> _Step:
        if not (self._is_due and self._is_ready):
            return self._state, []
        self._has_ended = False
        return JobState.DEPLOYING, [ev.DeployAttempt()]

    def _on_restart_due(self, event: ev.RestartDue) -> _Step:
        if event.replacement != self._replacement:
            # A further failure has scheduled anew while this one was on its way.
            return self._state, []
        self._is_due = True
        if self._is_ready:
            return self._deploy_when_possible()
        return self._state, [ev.SpawnWorkers()]

    def _on_deployed(self, event: ev.AllDeployed) -> _Step:
        if self._drained and event.restored_checkpoint == self._drained:
            return JobState.RECORDING, [ev.AppendEntry(CommitKind.STOPPED)]
        # Records flow: what a stop has drained, and proved damaged, never counts again.
        self._drained = 0
        actions: list[JobAction] = [ev.StartRecords()]
        if self._rescale is not None:
            self._rescale = None
            actions.append(ev.ReportRescaled())
        if self._stop is None:
            return JobState.RUNNING, actions
        state, more = self._begin_stop()
        return state, actions + more

    def _begin_stop(self) -> _Step:
        assert self._stop is not None, f"nobody asked for a stop; {self._history}"
        trigger = ev.TriggerStopCheckpoint(self._stop.savepoint, self._stop.drain)
        return JobState.STOPPING, [ev.SuspendCheckpoints(), trigger]

    def _on_rescale(self, event: ev.RescaleRequested) -> _Step:
        if self._state is not JobState.RUNNING:
            return self._state, [ev.ReportRescaleFailed(f"the job is {self._state}; try again when it is running")]
        self._rescale = event
        return JobState.RESCALING, [ev.SuspendCheckpoints(), ev.TriggerRescaleCheckpoint()]

    def _on_rescale_point(self) -> _Step:
        # From here on the job has the new parallelism, in this coordinator.
        assert self._rescale is not None, f"nobody asked for a rescale; {self._history}"
        self._replacement += 1
        self._is_due = self._is_ready = False
        return JobState.RESTARTING, [
            ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_RESCALE),
            ev.ReleaseAttempt(),
            ev.ChangeParallelism(self._rescale.parallelism),
            ev.ScheduleRestart(0.0, self._replacement),
        ]

    def _on_rescale_failed(self, event: ev.RescaleCheckpointFailed) -> _Step:
        self._rescale = None
        actions: list[JobAction] = [ev.ReportRescaleFailed(event.reason), ev.ResumeSources()]
        if self._has_ended:
            return JobState.FINISHING, [*actions, ev.TriggerFinalCheckpoint()]
        if self._stop is not None:
            state, more = self._begin_stop()
            return state, [*actions, *more]
        return JobState.RUNNING, [*actions, ev.ResumeCheckpoints()]

    def _on_stop(self, event: ev.StopRequested) -> _Step:
        self._stop = self._stop or event
        if self._state is JobState.CREATED:
            return self._end(JobState.STOPPED, event.exit_code, "stopped before it began")
        if self._state is JobState.RUNNING:
            return self._begin_stop()
        return self._state, []

    def _on_stop_point(self, event: ev.StopCheckpointDone) -> _Step:
        committing = self._commit(JobState.STOPPED, event.checkpoint)
        if self._state is not JobState.STOPPING:
            # Only a drain is told so late: the attempt that starts from it has nothing to do but commit.
            self._drained = event.checkpoint
            return self._state, []
        assert self._stop is not None, f"nobody asked for a stop; {self._history}"
        if self._stop.drain:
            self._drained = event.checkpoint
        return committing

    def _on_stop_failed(self, event: ev.StopCheckpointFailed) -> _Step:
        assert self._stop is not None, f"nobody asked for a stop; {self._history}"
        is_drain, self._stop = self._stop.drain, None
        if is_drain:
            assert event.verdict is not None, f"a drain has failed without a verdict; {self._history}"
            state, after = self._fail(event.reason, event.verdict, ())
            return state, [ev.ReportStopFailed(event.reason), *after]
        actions: list[JobAction] = [ev.ReportStopFailed(event.reason), ev.ResumeSources()]
        if self._has_ended:
            return JobState.FINISHING, [*actions, ev.TriggerFinalCheckpoint()]
        return JobState.RUNNING, [*actions, ev.ResumeCheckpoints()]

    def _on_ended(self) -> _Step:
        self._has_ended = True
        if self._state is JobState.RUNNING:
            return JobState.FINISHING, [ev.SuspendCheckpoints(), ev.TriggerFinalCheckpoint()]
        halting = self._state in (JobState.STOPPING, JobState.RESCALING)
        assert halting or self._goal is JobState.STOPPED, f"ended twice; {self._history}"
        return self._state, []

    def _commit(self, goal: JobState, checkpoint: int) -> _Step:
        self._goal = goal
        self._last_checkpoint = checkpoint
        return JobState.COMMITTING, []

    def _on_committed(self, event: ev.AllCommitted) -> _Step:
        if self._state is not JobState.COMMITTING or event.checkpoint < self._last_checkpoint:
            return self._state, []
        kind = CommitKind.FINISHED if self._goal is JobState.FINISHED else CommitKind.STOPPED
        return JobState.RECORDING, [ev.AppendEntry(kind)]

    def _on_appended(self) -> _Step:
        # From here on the job is over, whatever happens to the workers.
        if self._goal is JobState.FINISHED:
            return self._end(JobState.FINISHED, 0, "all input read, all output committed")
        assert self._stop is not None, f"stopped without being asked to; {self._history}"
        return self._end(JobState.STOPPED, self._stop.exit_code, "stopped")

    def _on_failure(self, event: ev.FailureSeen) -> _Step:
        if self._state is JobState.RECORDING:
            self._lost_late += event.lost
            return self._state, []
        if self._state is JobState.RESTARTING and not event.lost and not isinstance(event.verdict, GiveUp):
            return self._state, []
        return self._fail(event.reason, event.verdict, event.lost)

    def _fail(self, reason: str, verdict: Verdict, lost: tuple[int, ...]) -> _Step:
        if isinstance(verdict, GiveUp):
            return self._end(JobState.FAILED, 1, verdict.reason or reason)
        actions: list[JobAction] = []
        has_attempt = self._state in LIVE or self._state is JobState.RECORDING
        if has_attempt:
            actions.append(ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_FAILOVER))
        if self._state is JobState.RESCALING:
            self._rescale = None
            actions.append(ev.ReportRescaleFailed(reason))
        if lost:
            actions.append(ev.KillWorkers(lost))
        if has_attempt:
            actions.append(ev.ReleaseAttempt())
        self._restarts += 1
        self._replacement += 1
        self._is_due = self._is_ready = False
        self._lost_late = ()
        return JobState.RESTARTING, [*actions, ev.ScheduleRestart(verdict.delay, self._replacement)]

    def _end(self, state: JobState, exit_code: int, reason: str) -> _Step:
        is_cancelled = state is JobState.CANCELLED
        failure = CheckpointFailure.ABORTED_BY_STOP if is_cancelled else CheckpointFailure.ABORTED_BY_END
        return state, [ev.AbortCheckpoints(failure), ev.EndWorkers(), ev.ExitJob(state, exit_code, reason)]
