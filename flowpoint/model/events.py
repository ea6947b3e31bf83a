"""What can happen to a job, as its log, `--plain` and `--json` tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventKind(StrEnum):
    """What happened.

    `started` carries {name, pid, job_file, log}; `running` says that records flow for the first time in this attempt;
    `failed` carries {kind, trace, operator}, where kind is the error's class in `flowpoint.errors`. When something
    was printed, the last event carries printed: {lines (None: too many to count), last: the last ones}.
    """

    STARTED = "started"
    RESTORED = "restored"
    RUNNING = "running"
    CHECKPOINT_COMPLETED = "checkpoint_completed"
    CHECKPOINT_FAILED = "checkpoint_failed"
    WORKER_LOST = "worker_lost"
    RESTARTING = "restarting"
    RESCALING = "rescaling"
    STOPPING = "stopping"
    CANCELLING = "cancelling"
    WARNING = "warning"
    FAILED = "failed"
    FINISHED = "finished"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


LAST_EVENTS = frozenset({EventKind.FAILED, EventKind.FINISHED, EventKind.STOPPED, EventKind.CANCELLED})
"""After one of these nothing more happens to the job."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened. `text` is one line for a person, `data` the same for a program (JSON-able)."""

    kind: EventKind
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
