"""What a person hears of a job from its coordinator, as events: the words, in one place.

Not here: when something is said; what is said of the job's start and end (`launch`).
"""

from __future__ import annotations

from flowpoint.coordinator.checkpoint_record import CheckpointEnd
from flowpoint.coordinator.job import widest
from flowpoint.coordinator.prepare import PreparedAttempt
from flowpoint.model.events import Event, EventKind
from flowpoint.model.manifest import SAVEPOINT
from flowpoint.model.plan import JobPlan
from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.snapshot.places import Place

_TOLD = (
    CheckpointFailure.DECLINED,
    CheckpointFailure.BEYOND_LIMIT,
    CheckpointFailure.EXPIRED,
    CheckpointFailure.FINALIZE_FAILED,
    CheckpointFailure.RESTORING,
)
"""Failures of checkpoints that a person hears of; the others are told with what caused them."""


def restored(prepared: PreparedAttempt) -> Event | None:
    """Where an attempt goes on; None when it starts from nothing."""
    manifest, directory = prepared.chosen.manifest, prepared.chosen.directory
    if manifest is None:
        return None
    text = f"continuing from checkpoint {manifest.id} ({directory})"
    data = {"checkpoint": manifest.id, "directory": directory, "attempt": prepared.number}
    return Event(EventKind.RESTORED, text, data)


def running(attempt: int, plan: JobPlan) -> Event:
    """Records flow."""
    text = f"attempt {attempt} is running: {_counted(len(plan.subtasks()), 'subtask')}, parallelism {widest(plan)}"
    return Event(EventKind.RUNNING, text, {"attempt": attempt, "parallelism": widest(plan)})


def checkpoint_ended(end: CheckpointEnd, place: Place) -> Event | None:
    """A checkpoint has completed, or has failed by itself. `place`: where checkpoints are."""
    record = end.record
    data = record.to_data()
    if record.kind != SAVEPOINT:
        data["path"] = place.path(record.path)
    if end.failure is None:
        text = f"{record.kind} {record.id} completed in {record.duration_ms} ms, {record.bytes:,} bytes"
        return Event(EventKind.CHECKPOINT_COMPLETED, text, data)
    if end.failure in _TOLD:
        text = f"{record.kind} {record.id} failed: {record.reason}"
        return Event(EventKind.CHECKPOINT_FAILED, text, data)
    return None


def restarting(restarts: int, delay: float, reason: str) -> Event:
    """After a failure; `restarts` counts this one, `delay` is in seconds."""
    text = f"restarting {f'in {delay:.1f} s' if delay else 'at once'}: {reason}"
    return Event(EventKind.RESTARTING, text, {"restart": restarts, "delay": delay, "reason": reason})


def rescaling(before: JobPlan, after: JobPlan) -> Event:
    """The job goes on with another parallelism."""
    text = f"rescaling from parallelism {widest(before)} to {widest(after)}"
    return Event(EventKind.RESCALING, text, {"from": widest(before), "to": widest(after)})


def recording_hangs(place: str, seconds: float) -> Event:
    """All that is left to do is an entry in the commit log, and that has not come about for so long."""
    text = (
        f"all output is committed, but the end of the job could not be recorded for {seconds:.0f} s: storage hangs at"
        f" {place}; it is waited for, see to its disk or mount; a cancel loses nothing, the next run finds what was recorded"
    )
    return Event(EventKind.WARNING, text)


def stopping() -> Event:
    """A graceful stop was asked for."""
    return Event(EventKind.STOPPING, "stopping after a last checkpoint (interrupt once more to cancel without one)")


def cancelling() -> Event:
    """An end at once was asked for."""
    return Event(EventKind.CANCELLING, "cancelling without a last checkpoint")


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
