"""What can happen to a job, and what its life asks the coordinator to do: the words of `protocol.job`.

Events are facts, actions are orders. The coordinator carries out the actions of one event in their order before it
handles the next event; an action that takes time goes on beside, and its outcome comes back as an event.

Events about an attempt (deployed, ended, committed, checkpoint and entry outcomes) must be of the attempt that is
live: the coordinator drops those of an ended one, as it drops late messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.protocol.restart import Verdict

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Begin:
    """The coordinator is up: stale processes are killed, storage is open."""


@dataclass(frozen=True, slots=True)
class WorkersReady:
    """Every slot has a joined worker with nothing deployed (`Membership.is_ready`); due while `awaits_workers`."""


@dataclass(frozen=True, slots=True)
class AllDeployed:
    """Every worker has built its part of the attempt, state is open, restored committables are committed.

    `restored_checkpoint`: the id of the checkpoint that it started from, 0 when it started empty.
    """

    restored_checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class FoundFinished:
    """Instead of an attempt: the commit log says that the job is finished."""


@dataclass(frozen=True, slots=True)
class AllEnded:
    """Every subtask of the attempt has seen the end of its input."""


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """The attempt or a worker failed. `lost`: workers that are dead, hung, or could not be started.

    Reported once per loss. The verdict is `RestartPolicy`'s, asked once per failed attempt and once per further loss.
    """

    reason: str
    verdict: Verdict
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FurtherLoss:
    """While the job restarts: a worker of the attempt that has failed is lost too. One incident, so no new verdict."""

    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestartDue:
    """The delay of `ScheduleRestart(replacement=...)` is over."""

    replacement: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Stop gracefully: take a last checkpoint, commit, exit with this code.

    `savepoint`: where to write a savepoint from the same barrier, which hands the output on ("": none).
    `drain`: end time first: all timers fire, and what they emit is part of that checkpoint.
    """

    exit_code: int = 0
    savepoint: str = ""
    drain: bool = False


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    """Go on with another parallelism, which is known to be possible."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Stop now: what is not committed is left to the next run."""

    exit_code: int = 130


@dataclass(frozen=True, slots=True)
class StopCheckpointDone:
    """The checkpoint of the stop is in the commit log. Of a drain also when its attempt has failed meanwhile."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class StopCheckpointFailed:
    """The checkpoint of the stop failed, and the failure is tolerated (else it is a `FailureSeen`).

    `verdict`: of `RestartPolicy`, for a stop that drains: time may have ended, so that this attempt cannot go on.
    """

    reason: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class RescaleCheckpointDone:
    """The checkpoint from which the job goes on with another parallelism is in the commit log."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class RescaleCheckpointFailed:
    """That checkpoint failed, and the failure is tolerated (else it is a `FailureSeen`)."""

    reason: str


@dataclass(frozen=True, slots=True)
class FinalCheckpointDone:
    """The last checkpoint of a bounded job is in the commit log."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class FinalCheckpointFailed:
    """The last checkpoint failed, and the failure is tolerated (else it is a `FailureSeen`)."""

    reason: str


@dataclass(frozen=True, slots=True)
class AllCommitted:
    """Every sink has confirmed that it committed everything up to this checkpoint. May be told of any checkpoint."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class EntryAppended:
    """The entry asked for by `AppendEntry` is in the commit log."""


@dataclass(frozen=True, slots=True)
class EntryFailed:
    """The entry asked for by `AppendEntry` is certainly not in the commit log and could not be brought there."""

    reason: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class FencedOff:
    """A newer attempt of another coordinator is in the commit log."""

    reason: str


JobEvent = (
    Begin
    | WorkersReady
    | AllDeployed
    | FoundFinished
    | AllEnded
    | FailureSeen
    | FurtherLoss
    | RestartDue
    | StopRequested
    | RescaleRequested
    | CancelRequested
    | StopCheckpointDone
    | StopCheckpointFailed
    | RescaleCheckpointDone
    | RescaleCheckpointFailed
    | FinalCheckpointDone
    | FinalCheckpointFailed
    | AllCommitted
    | EntryAppended
    | EntryFailed
    | FencedOff
)

# ------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class SpawnWorkers:
    """Start a process in every slot that is ABSENT, and in every slot that is LOST as soon as it is reaped."""


@dataclass(frozen=True, slots=True)
class KillWorkers:
    """SIGKILL and reap these. They are not started again before `SpawnWorkers`."""

    workers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeployAttempt:
    """Begin the next attempt in the commit log, decide what to restore, begin the sinks, send `Deploy` to everybody.

    Comes back as AllDeployed, FoundFinished, FailureSeen or FencedOff.
    """


@dataclass(frozen=True, slots=True)
class ReleaseAttempt:
    """The attempt is over: end what it has running here, send `Release` to every worker that has a part of it.

    A worker that does not answer in time is a `FailureSeen(lost=...)`.
    """


@dataclass(frozen=True, slots=True)
class ScheduleRestart:
    """Send `RestartDue(replacement)` after `delay` seconds. Replaces the one scheduled before."""

    delay: float
    replacement: int


@dataclass(frozen=True, slots=True)
class StartRecords:
    """Send `Start` to every worker, and begin periodic checkpoints (`CheckpointScheduler.start`)."""


@dataclass(frozen=True, slots=True)
class SuspendCheckpoints:
    """No new checkpoints but the last one (`CheckpointScheduler.suspend`; requests by hand are refused)."""


@dataclass(frozen=True, slots=True)
class ResumeCheckpoints:
    """Periodic checkpoints again (`CheckpointScheduler.resume`)."""


@dataclass(frozen=True, slots=True)
class AbortCheckpoints:
    """Fail every pending checkpoint with this reason, and tell the workers of a live attempt."""

    failure: CheckpointFailure


@dataclass(frozen=True, slots=True)
class TriggerStopCheckpoint:
    """Trigger a checkpoint after whose barrier the sources halt, once nothing else is pending.

    With `savepoint`, a savepoint is written there at the same barrier; it is published when all is committed. With
    `drain`, time ends before the barrier. Comes back as StopCheckpointDone, StopCheckpointFailed or FailureSeen.
    """

    savepoint: str = ""
    drain: bool = False


@dataclass(frozen=True, slots=True)
class TriggerRescaleCheckpoint:
    """The same for a rescale. Comes back as RescaleCheckpointDone, RescaleCheckpointFailed or FailureSeen."""


@dataclass(frozen=True, slots=True)
class ChangeParallelism:
    """From the next attempt on the job has this parallelism. Workers beyond their new number are ended and reaped."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class ReportRescaled:
    """Tell whoever asked for the rescale that records flow again, with the new parallelism."""


@dataclass(frozen=True, slots=True)
class ReportRescaleFailed:
    """Tell whoever asked for the rescale that the job goes on as before, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class TriggerFinalCheckpoint:
    """Trigger the last checkpoint of a bounded job, once nothing else is pending.

    Comes back as FinalCheckpointDone, FinalCheckpointFailed or FailureSeen.
    """


@dataclass(frozen=True, slots=True)
class ResumeSources:
    """Send `Resume`: sources that halted go on."""


@dataclass(frozen=True, slots=True)
class ReportStopFailed:
    """Tell whoever asked for the stop that the job goes on, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """Append an entry of this `CommitKind` ("finished" or "stopped"), after publishing the savepoint of the stop.

    Comes back as EntryAppended or EntryFailed.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class EndWorkers:
    """End every worker process and reap it: in an orderly way if it does so soon, else by SIGKILL."""


@dataclass(frozen=True, slots=True)
class ExitJob:
    """The job's life is over: end the coordinator with this exit code."""

    state: str
    exit_code: int
    reason: str


JobAction = (
    SpawnWorkers
    | KillWorkers
    | DeployAttempt
    | ReleaseAttempt
    | ScheduleRestart
    | StartRecords
    | SuspendCheckpoints
    | ResumeCheckpoints
    | AbortCheckpoints
    | TriggerStopCheckpoint
    | TriggerRescaleCheckpoint
    | ChangeParallelism
    | ReportRescaled
    | ReportRescaleFailed
    | TriggerFinalCheckpoint
    | ResumeSources
    | ReportStopFailed
    | AppendEntry
    | EndWorkers
    | ExitJob
)
