"""What went wrong: which losses and errors are one incident, and what the restart policy says to each.

A worker's death is seen by many: its process handle, its link, its peers' links. All that is heard of workers which
were there when an attempt failed belongs to the incident that ended it, and asks for no new verdict. What a peer says
of its link is hearsay: the death of the process at the other end, if there is one, is heard of in a moment, and is
what a person has to be told.

Decides on what it is told; acts on nothing.
Not here: what a failure does to the job (`protocol.job`), the policy itself (`protocol.restart`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType

from flowpoint.coordinator.checkpoint_record import CheckpointEnd
from flowpoint.coordinator.crew import Loss
from flowpoint.errors import (
    FINAL_ERRORS,
    BadRecordError,
    CheckpointFailed,
    DiedAtStart,
    LinkLost,
    StorageLimit,
    TransientError,
    UserCodeError,
    WorkerLost,
)
from flowpoint.model import messages
from flowpoint.model.settings import Settings
from flowpoint.model.texts import MESSAGE_CHARACTERS_MAX, TRACE_CHARACTERS_MAX, cut
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.checkpoint import CheckpointFailure, FailureCounter
from flowpoint.protocol.job_table import OVER, JobState
from flowpoint.protocol.restart import RestartPolicy
from flowpoint.protocol.schedule import TriggerKind
from flowpoint.runtime.failures import users_trace

_WISHES = (TriggerKind.SAVEPOINT, TriggerKind.STOP, TriggerKind.RESCALE)
"""Who wanted one of these is told that it failed, and the job goes on; such a failure counts for nothing else."""

_LAST_FAILED: Mapping[TriggerKind, Callable[[str], ev.JobEvent]] = MappingProxyType(
    {
        TriggerKind.STOP: ev.StopCheckpointFailed,
        TriggerKind.RESCALE: ev.RescaleCheckpointFailed,
        TriggerKind.FINAL: ev.FinalCheckpointFailed,
    }
)


class Incidents:
    """The failures of one job.

    log_of: the name by which `flowpoint logs` finds what workers print; "" when there is no log.
    jitter: draws a number in [-1, 1] for each delay.
    """

    def __init__(self, log_of: str, settings: Settings, jitter: Callable[[], float]) -> None:
        self._log_of = log_of
        self._policy = RestartPolicy(settings.restart)
        self._checkpoints = FailureCounter(settings.checkpoint.tolerable_failures)
        self._jitter = jitter
        self._involved: set[int] = set()
        self._last: messages.Failure | None = None

    @property
    def last(self) -> messages.Failure | None:
        """The failure that counted last."""
        return self._last

    def loss(
        self, state: JobState, attempt: int, loss: Loss, *, present: Set[int], now: float
    ) -> ev.FailureSeen | ev.FurtherLoss | None:
        """A worker is lost, or could not be started, while the job is in `state`. None: it does not matter any more."""
        worker = loss.worker
        if state is JobState.RESTARTING and worker in self._involved:
            self._involved.discard(worker)
            return ev.FurtherLoss((worker,))
        kind = DiedAtStart if loss.is_at_start else WorkerLost
        reason = loss.reason
        if loss.is_at_start and self._log_of:
            reason += f"; `flowpoint logs {self._log_of}` has all that it printed"
        failure = messages.Failure(attempt, worker, [], "", kind.__name__, reason, "", retry=True)
        return self.failure(state, failure, present=present, now=now, lost=(worker,))

    @staticmethod
    def is_hearsay(failure: messages.Failure) -> bool:
        """Whether to wait for `CAUSE_SECONDS` for what lies behind a failure: when an attempt fails, it is over."""
        return failure.kind == LinkLost.__name__

    def failure(
        self, state: JobState, failure: messages.Failure, *, present: Set[int], now: float, lost: tuple[int, ...] = ()
    ) -> ev.FailureSeen | None:
        """An attempt has failed. None: that comes too late to matter.

        Args:
            present: the workers that were there.
            lost: those that are lost by it.
        """
        if state in OVER or (state is JobState.RESTARTING and not lost):
            return None
        self._last = failure
        # Whoever of these is lost while the job restarts is lost by the same incident: a kill of all workers, or the
        # death of one, which its peers see first.
        self._involved = set(present) - set(lost)
        verdict = self._policy.failure(now, failure, self._jitter())
        return ev.FailureSeen(failure.message, verdict, lost)

    def entry_failed(self, failure: messages.Failure, now: float) -> ev.EntryFailed:
        """The end of the job could not be recorded."""
        self._last = failure
        return ev.EntryFailed(failure.message, self._policy.failure(now, failure))

    def fenced(self, failure: messages.Failure) -> None:
        """Another coordinator has taken the job over: that is what it ends with here, whatever failed before."""
        self._last = failure

    def checkpoint_failed(
        self, end: CheckpointEnd, state: JobState, attempt: int, *, present: Set[int], now: float
    ) -> ev.JobEvent | None:
        """A checkpoint of the live attempt has failed. None: nothing follows but the next one."""
        record, failure = end.record, end.failure
        assert failure is not None, f"a checkpoint that has not failed: {record}"
        reason = f"checkpoint {record.id} failed: {record.reason}"
        is_wish = end.trigger in _WISHES
        if not is_wish and self._checkpoints.failed(record.id, failure, record.kind):
            kind = StorageLimit if failure is CheckpointFailure.BEYOND_LIMIT else CheckpointFailed
            return self.failure(state, failure_of(kind(reason), attempt), present=present, now=now)
        if record.drained and failure.counts:
            seen = self.failure(state, failure_of(CheckpointFailed(reason), attempt), present=present, now=now)
            return ev.StopCheckpointFailed(record.reason, seen.verdict) if seen is not None else None
        failed = _LAST_FAILED.get(end.trigger)
        return failed(record.reason) if failed is not None and failure.counts else None

    def deployed(self) -> None:
        """Every worker has built its part of an attempt."""
        self._policy.deployed()

    def checkpoint_completed(self, id: int) -> None:
        """The job got somewhere."""
        self._checkpoints.succeeded(id)
        self._policy.checkpoint_completed()


def failure_of(error: Exception, attempt: int) -> messages.Failure:
    """An error that the coordinator itself met, as data.

    Its trace is that of the author's source or sink, in which it came up; none for what came up in ours.
    """
    is_theirs = isinstance(error, UserCodeError | BadRecordError) or type(error) is TransientError
    return messages.Failure(
        attempt=attempt,
        worker=-1,
        subtask=[],
        operator=getattr(error, "operator", ""),
        kind=type(error).__name__,
        message=cut(str(error), MESSAGE_CHARACTERS_MAX),
        trace=cut(users_trace(error.__cause__ or error), TRACE_CHARACTERS_MAX) if is_theirs else "",
        retry=not isinstance(error, FINAL_ERRORS),
    )
