"""One checkpoint (or savepoint) on its way: who has still to acknowledge, what came, how it failed, what that costs.

    PendingCheckpoint  --last ack-->  complete() gives the collected data  ->  manifest  ->  commit entry
                       --decline, deadline, failover-->  fail(reason)

`complete()` is the only way to the data, and it refuses while anyone is missing: a manifest cannot be written with a
part of the job missing (a job of two workers never resumes as a job of one).

An acknowledgement counts only when attempt, subtask and worker are the right ones: a late one of an older attempt, or
one worker's for another's subtask, is dropped and named by its outcome.

Counting failures (Flink's rules): see `CheckpointFailure.counts` and `FailureCounter`.

Not here: when checkpoints are triggered (`schedule`), files, the commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from flowpoint.errors import InternalError
from flowpoint.model.manifest import OperatorState, SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId

AckData = TypeVar("AckData")


class AckOutcome(StrEnum):
    """What became of an acknowledgement. All but ACCEPTED leave the checkpoint as it was."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # this subtask has acknowledged before
    LATE = "late"  # of another attempt, or the checkpoint has failed or completed meanwhile
    UNKNOWN = "unknown"  # no such subtask takes part, or it is not this worker's


class CheckpointFailure(StrEnum):
    """Why a checkpoint did not come about."""

    DECLINED = "declined"
    EXPIRED = "expired"
    FINALIZE_FAILED = "finalize_failed"
    ABORTED_BY_FAILOVER = "aborted_by_failover"
    ABORTED_BY_STOP = "aborted_by_stop"
    ABORTED_BY_END = "aborted_by_end"
    ABORTED_BY_RESCALE = "aborted_by_rescale"
    SUBSUMED = "subsumed"
    RESTORING = "restoring"

    @property
    def text(self) -> str:
        """For messages and the list of checkpoints."""
        return _TEXTS[self]

    @property
    def counts(self) -> bool:
        """Whether it counts against `checkpoint.tolerable_failures`: the checkpoint itself failed, nobody ended it."""
        return self in _COUNTING


_TEXTS: Mapping[CheckpointFailure, str] = {
    CheckpointFailure.DECLINED: "a subtask declined it",
    CheckpointFailure.EXPIRED: "it was not complete within checkpoint.timeout",
    CheckpointFailure.FINALIZE_FAILED: "its manifest or commit entry could not be written",
    CheckpointFailure.ABORTED_BY_FAILOVER: "the attempt failed meanwhile",
    CheckpointFailure.ABORTED_BY_STOP: "the job was stopped or cancelled meanwhile",
    CheckpointFailure.ABORTED_BY_END: "the job ended meanwhile",
    CheckpointFailure.ABORTED_BY_RESCALE: "the job was rescaled meanwhile",
    CheckpointFailure.SUBSUMED: "a newer checkpoint completed first",
    CheckpointFailure.RESTORING: "the records that were under way in the restored checkpoint are still being taken in",
}
_COUNTING = frozenset(
    {
        CheckpointFailure.DECLINED,
        CheckpointFailure.EXPIRED,
        CheckpointFailure.FINALIZE_FAILED,
    }
)


class PendingCheckpoint(Generic[AckData]):
    """A triggered checkpoint that collects acknowledgements.

    `owners` says which worker runs each subtask; without it, workers are not compared. `called`: what a person calls it.
    `deadline` is in the same seconds as the `now` of `is_expired`.

    Example:
        >>> pending = PendingCheckpoint(7, 2, "checkpoint", [SubtaskId(0, 0)], triggered_at=0.0, deadline=600.0)
        >>> pending.ack(1, SubtaskId(0, 0), "of a dead attempt")
        <AckOutcome.LATE: 'late'>
        >>> pending.ack(2, SubtaskId(0, 0), "state")
        <AckOutcome.ACCEPTED: 'accepted'>
        >>> pending.complete()
        {SubtaskId(task=0, index=0): 'state'}
    """

    def __init__(
        self,
        id: int,
        attempt: int,
        kind: str,
        acks_missing: Iterable[SubtaskId],
        triggered_at: float,
        deadline: float,
        *,
        owners: Mapping[SubtaskId, int] | None = None,
        called: Callable[[SubtaskId], str] = lambda subtask: f"{subtask.task}#{subtask.index}",
    ) -> None:
        self.id = id
        self.attempt = attempt
        self.kind = kind
        self.triggered_at = triggered_at
        self.deadline = deadline
        self.failure: CheckpointFailure | None = None
        self.failure_detail = ""
        self._expected = frozenset(acks_missing)
        self._owners = owners
        self._called = called
        self._acks: dict[SubtaskId, AckData] = {}
        self._is_closed = False
        assert self._expected, f"a checkpoint without subtasks would be complete at once: {self}"

    def __repr__(self) -> str:
        missing = [f"{task}#{index}" for task, index in sorted(self.acks_missing)]
        return f"<{self.kind} {self.id} of attempt {self.attempt}, missing {missing}, failure {self.failure}>"

    @property
    def acks_missing(self) -> frozenset[SubtaskId]:
        """The subtasks that have not acknowledged."""
        return self._expected - self._acks.keys()

    @property
    def acknowledged(self) -> list[AckData]:
        """What has come so far, also when it has failed: names files that may now be of no use."""
        return list(self._acks.values())

    @property
    def is_complete(self) -> bool:
        """Whether everybody has acknowledged and nothing has failed."""
        return self.failure is None and not self.acks_missing

    @property
    def is_closed(self) -> bool:
        """Whether it has failed, or its data has been handed out."""
        return self._is_closed

    def is_expired(self, now: float) -> bool:
        """Whether it must be failed as EXPIRED: its time is over and somebody is missing."""
        return not self._is_closed and not self.is_complete and now >= self.deadline

    def ack(self, attempt: int, subtask: SubtaskId, data: AckData, worker: int | None = None) -> AckOutcome:
        """A subtask's part is durable. `worker` is the one on whose link the acknowledgement came."""
        outcome = self._judge(attempt, subtask, worker)
        if outcome is AckOutcome.ACCEPTED:
            self._acks[subtask] = data
        return outcome

    def decline(
        self, attempt: int, subtask: SubtaskId, reason: str, worker: int | None = None, *, restoring: bool = False
    ) -> AckOutcome:
        """A subtask cannot take part. ACCEPTED: the checkpoint has now failed as DECLINED, or RESTORING."""
        outcome = self._judge(attempt, subtask, worker)
        if outcome is AckOutcome.ACCEPTED:
            failure = CheckpointFailure.RESTORING if restoring else CheckpointFailure.DECLINED
            self.fail(failure, f"{self._called(subtask)}: {reason}")
        return outcome

    def fail(self, failure: CheckpointFailure, detail: str = "") -> None:
        """It will not come about; later acknowledgements are LATE. Only the first failure is kept."""
        if self.failure is None:
            self.failure = failure
            self.failure_detail = detail
        self._is_closed = True

    def complete(self) -> dict[SubtaskId, AckData]:
        """Close it and hand out what was collected, task by task.

        Raises:
            InternalError: when somebody is missing, it has failed, or it was completed before.
        """
        if self._is_closed or not self.is_complete:
            raise InternalError(f"a checkpoint was completed that cannot be; closed={self._is_closed} {self}")
        self._is_closed = True
        return dict(sorted(self._acks.items()))

    def _judge(self, attempt: int, subtask: SubtaskId, worker: int | None) -> AckOutcome:
        if attempt != self.attempt or self._is_closed:
            return AckOutcome.LATE
        if subtask not in self._expected:
            return AckOutcome.UNKNOWN
        if worker is not None and self._owners is not None and self._owners[subtask] != worker:
            return AckOutcome.UNKNOWN
        if subtask in self._acks:
            return AckOutcome.DUPLICATE
        return AckOutcome.ACCEPTED


def collect_operators(plan: JobPlan, acks: Mapping[SubtaskId, Mapping[str, Any]]) -> dict[str, OperatorState]:
    """What a manifest says of the operators, from the acknowledged data (`messages.Ack.operators`) of every subtask.

    Raises:
        InternalError: when a subtask is missing, or acknowledged an operator that is not in its chain.
    """
    missing = [subtask for subtask in plan.subtasks() if subtask not in acks]
    if missing:
        raise InternalError(f"a manifest needs every subtask; missing {missing}")
    for subtask, operators in acks.items():
        strange = sorted(operators.keys() - set(plan.tasks[subtask.task].operators))
        if strange:
            raise InternalError(f"subtask {subtask} acknowledged operators that it does not run: {strange}")
    states: dict[str, OperatorState] = {}
    for task in plan.tasks:
        for uid in task.operators:
            parts = [acks[SubtaskId(task.index, index)].get(uid, {}) for index in range(task.parallelism)]
            states[uid] = OperatorState(task.parallelism, tuple(SubtaskState.from_data(dict(part)) for part in parts))
    return states


class FailureCounter:
    """Says when failed checkpoints make the job fail over: at more than `tolerable` of them in a row.

    A checkpoint counts once, however many subtasks decline it. A success resets. A savepoint is the wish of a person,
    who is told; it does not count. Neither does a checkpoint older than the newest completed one, nor one that is heard
    of again after the failover it led to. Ids rise over all attempts (`recovery.next_checkpoint_id`).
    """

    def __init__(self, tolerable: int) -> None:
        assert tolerable >= 0, f"{tolerable=}"
        self._tolerable = tolerable
        self._counted: set[int] = set()
        self._settled = 0  # checkpoints up to this one have been counted or forgiven for good

    @property
    def count(self) -> int:
        """Failed checkpoints since the last success."""
        return len(self._counted)

    def failed(self, checkpoint_id: int, reason: CheckpointFailure, kind: str = "checkpoint") -> bool:
        """A checkpoint failed. True: the job must fail over (and counting starts anew)."""
        if not reason.counts or kind != "checkpoint" or checkpoint_id <= self._settled:
            return False
        self._counted.add(checkpoint_id)
        if len(self._counted) <= self._tolerable:
            return False
        self._settle(max(self._counted))
        return True

    def succeeded(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: its commit entry is in the log."""
        self._settle(checkpoint_id)

    def _settle(self, checkpoint_id: int) -> None:
        self._settled = max(self._settled, checkpoint_id)
        self._counted.clear()
