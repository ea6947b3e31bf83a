"""The states of a job's life and the legal moves between them, as data.

`JobLife` (in `protocol.job`) decides which target of a move is taken; a (state, event) pair that is not in
`TRANSITIONS`, or a target that is not listed there, is a bug and raises InternalError. `scripts/docs_tables` writes
docs/protocol.md from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from flowpoint.protocol.job_events import (
    AllCommitted,
    AllDeployed,
    AllEnded,
    Begin,
    CancelRequested,
    EntryAppended,
    EntryFailed,
    FailureSeen,
    FencedOff,
    FinalCheckpointDone,
    FinalCheckpointFailed,
    FoundFinished,
    FurtherLoss,
    JobEvent,
    RescaleCheckpointDone,
    RescaleCheckpointFailed,
    RescaleRequested,
    RestartDue,
    StopCheckpointDone,
    StopCheckpointFailed,
    StopRequested,
    WorkersReady,
)


class JobState(StrEnum):
    """Where a job is in its life."""

    CREATED = "created"
    STARTING = "starting"
    DEPLOYING = "deploying"
    RUNNING = "running"
    RESTARTING = "restarting"
    RESCALING = "rescaling"
    STOPPING = "stopping"
    FINISHING = "finishing"
    COMMITTING = "committing"
    RECORDING = "recording"
    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    FAILED = "failed"


MEANINGS: Mapping[JobState, str] = MappingProxyType(
    {
        JobState.CREATED: "nothing has been started",
        JobState.STARTING: "the first workers are being started",
        JobState.DEPLOYING: "an attempt begins: restore point, sinks, subtasks",
        JobState.RUNNING: "records flow",
        JobState.RESTARTING: (
            "an attempt has failed, or is replaced by one of another parallelism; the delay, the workers' release and "
            "the new workers are awaited"
        ),
        JobState.RESCALING: (
            "another parallelism is wanted: records flow until the barrier of a checkpoint, then the sources halt"
        ),
        JobState.STOPPING: "records flow until the barrier of the last checkpoint, after which the sources halt",
        JobState.FINISHING: "all input has been read; the last checkpoint is being taken",
        JobState.COMMITTING: "the last checkpoint is in the commit log; the sinks commit it",
        JobState.RECORDING: "all output is committed; the end is being written into the commit log",
        JobState.FINISHED: "all input read, all output committed",
        JobState.STOPPED: "stopped gracefully; the next run goes on from there",
        JobState.CANCELLED: "cancelled; the next run goes on from the newest checkpoint",
        JobState.FAILED: "failed for good",
    }
)
OVER = frozenset({JobState.FINISHED, JobState.STOPPED, JobState.CANCELLED, JobState.FAILED})
LIVE = frozenset(
    {
        JobState.DEPLOYING,
        JobState.RUNNING,
        JobState.RESCALING,
        JobState.STOPPING,
        JobState.FINISHING,
        JobState.COMMITTING,
    }
)


@dataclass(frozen=True, slots=True)
class Move:
    """What an event may lead to in a state, and what that means."""

    targets: tuple[JobState, ...]
    text: str


def _table() -> dict[tuple[JobState, type[JobEvent]], Move]:
    s = JobState
    rows: list[tuple[JobState, type[JobEvent], tuple[JobState, ...], str]] = [
        (s.CREATED, Begin, (s.STARTING,), "start all workers"),
        (s.CREATED, StopRequested, (s.STOPPED,), "nothing to stop: exit"),
        (s.STARTING, WorkersReady, (s.DEPLOYING,), "deploy the first attempt"),
        (s.STARTING, FailureSeen, (s.RESTARTING, s.FAILED), "kill the lost, schedule the restart; or give up"),
        (s.STARTING, StopRequested, (s.STARTING,), "remembered until the job runs"),
        (
            s.DEPLOYING,
            AllDeployed,
            (s.RUNNING, s.STOPPING, s.RECORDING),
            "let records flow; if a stop is wanted, begin it; if it starts from where a stop has drained: append the entry",
        ),
        (s.DEPLOYING, FoundFinished, (s.FINISHED,), "nothing to do: exit"),
        (s.DEPLOYING, StopRequested, (s.DEPLOYING,), "remembered until the job runs"),
        (s.DEPLOYING, StopCheckpointDone, (s.DEPLOYING,), "the same while the next attempt waits for it"),
        (s.RUNNING, AllEnded, (s.FINISHING,), "trigger the final checkpoint"),
        (s.RUNNING, StopRequested, (s.STOPPING,), "trigger the checkpoint of the stop"),
        (s.RUNNING, RescaleRequested, (s.RESCALING,), "trigger the checkpoint of the rescale"),
        (s.RUNNING, AllCommitted, (s.RUNNING,), "of an ordinary checkpoint: nothing to do"),
        (
            s.RESCALING,
            RescaleCheckpointDone,
            (s.RESTARTING,),
            "release the attempt, change the parallelism, deploy again at once",
        ),
        (
            s.RESCALING,
            RescaleCheckpointFailed,
            (s.RUNNING, s.STOPPING, s.FINISHING),
            "the sources go on as before, whoever asked is told; begin a wanted stop; if all input has ended, finish",
        ),
        (s.RESCALING, AllEnded, (s.RESCALING,), "remembered in case the rescale fails"),
        (s.RESCALING, AllCommitted, (s.RESCALING,), "of an older checkpoint: nothing to do"),
        (s.RESCALING, StopRequested, (s.RESCALING,), "remembered until the job runs"),
        (s.RESTARTING, WorkersReady, (s.RESTARTING, s.DEPLOYING), "deploy, if the delay is over"),
        (
            s.RESTARTING,
            RestartDue,
            (s.RESTARTING, s.DEPLOYING),
            "deploy, if the workers are ready; else start missing ones",
        ),
        (
            s.RESTARTING,
            FailureSeen,
            (s.RESTARTING, s.FAILED),
            "a worker lost as well: kill it, schedule anew; or give up; a late report of the attempt: nothing to do",
        ),
        (s.RESTARTING, FurtherLoss, (s.RESTARTING,), "of the same incident: kill it; if the delay is over, replace it"),
        (s.RESTARTING, StopRequested, (s.RESTARTING,), "remembered until the job runs"),
        (
            s.RESTARTING,
            StopCheckpointDone,
            (s.RESTARTING,),
            "of a drain whose attempt failed meanwhile: remembered, no record flows any more",
        ),
        (s.STOPPING, StopCheckpointDone, (s.COMMITTING,), "the sinks are committing"),
        (
            s.STOPPING,
            StopCheckpointFailed,
            (s.RUNNING, s.FINISHING, s.RESTARTING, s.FAILED),
            (
                "whoever asked is told, and the sources go on; if all input has ended, finish; if the stop drains, time may "
                "have ended: fail over; or give up"
            ),
        ),
        (s.STOPPING, AllEnded, (s.STOPPING,), "remembered in case the stop fails"),
        (s.STOPPING, AllCommitted, (s.STOPPING,), "of an older checkpoint: nothing to do"),
        (s.STOPPING, StopRequested, (s.STOPPING,), "on its way already"),
        (s.FINISHING, FinalCheckpointDone, (s.COMMITTING,), "the sinks are committing"),
        (s.FINISHING, FinalCheckpointFailed, (s.FINISHING,), "trigger it again"),
        (s.FINISHING, AllCommitted, (s.FINISHING,), "of an older checkpoint: nothing to do"),
        (s.FINISHING, StopRequested, (s.FINISHING,), "ends anyway; remembered for the case of a restart"),
        (s.COMMITTING, AllCommitted, (s.COMMITTING, s.RECORDING), "of the last checkpoint: append the entry"),
        (s.COMMITTING, AllEnded, (s.COMMITTING,), "told late by a job that stops: nothing to do"),
        (s.COMMITTING, StopRequested, (s.COMMITTING,), "ends anyway; remembered for the case of a restart"),
        (s.RECORDING, EntryAppended, (s.FINISHED, s.STOPPED), "end the workers, exit"),
        (s.RECORDING, EntryFailed, (s.RESTARTING, s.FAILED), "fail over; or give up"),
        (
            s.RECORDING,
            FailureSeen,
            (s.RECORDING,),
            "nothing left to lose; a lost worker is killed if it comes to a restart",
        ),
        (s.RECORDING, AllEnded, (s.RECORDING,), "told late by a job that stops: nothing to do"),
        (s.RECORDING, AllCommitted, (s.RECORDING,), "told twice: nothing to do"),
        (s.RECORDING, StopRequested, (s.RECORDING,), "ends anyway"),
    ]
    rows += [
        (
            state,
            FailureSeen,
            (s.RESTARTING, s.FAILED),
            "abort, kill the lost, release, schedule the restart; or give up",
        )
        for state in JobState
        if state in LIVE
    ]
    for state in JobState:
        if state in OVER:
            late = [event for event in JobEvent.__args__ if event is not Begin]
            rows += [(state, event, (state,), "late: nothing to do") for event in late]
        else:
            if state not in (s.RUNNING, s.RESCALING):
                rows.append((state, RescaleRequested, (state,), "not now: whoever asked is told"))
            rows.append((state, CancelRequested, (s.CANCELLED,), "abort, end the workers, exit"))
            rows.append((state, FencedOff, (s.FAILED,), "another coordinator has taken over: end the workers, exit"))
    return {(state, event): Move(targets, text) for state, event, targets, text in rows}


TRANSITIONS: Mapping[tuple[JobState, type[JobEvent]], Move] = MappingProxyType(_table())
