"""What comes to a coordinator's mailbox: the outcomes of what it has begun, what workers do, what persons want.

Not here: what is done about it (`coordinator`).
"""

from __future__ import annotations

from dataclasses import dataclass

from flowpoint.coordinator.prepare import JobIsDone, PreparedAttempt
from flowpoint.coordinator.publishing import Published
from flowpoint.coordinator.workers import WorkerEvent
from flowpoint.model import messages
from flowpoint.protocol import job_events as ev


@dataclass(frozen=True, slots=True)
class Tick:
    """It is time to look at the deadlines."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """The process of a lost or superfluous worker is gone for certain."""

    worker: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What preparing an attempt gave, or the error it raised. `replacement` says for which try it was."""

    replacement: int
    result: PreparedAttempt | JobIsDone | Exception


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What dead attempts left has been removed, or could not be."""

    attempt: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Appended:
    """The entry that ends the job is in the commit log, or could not be written."""

    attempt: int
    error: Exception | None


@dataclass(frozen=True, slots=True)
class WorkersGone:
    """All processes have ended, and nothing is under way any more."""


@dataclass(frozen=True, slots=True)
class Hearsay:
    """A worker said that a link of its was lost, a moment ago; if nothing else has come of it, that is what happened."""

    failure: messages.Failure


Mail = (
    WorkerEvent
    | Published
    | ev.StopRequested
    | ev.RescaleRequested
    | ev.CancelRequested
    | ev.RestartDue
    | Tick
    | Reaped
    | Prepared
    | Cleaned
    | Appended
    | Hearsay
    | WorkersGone
)
