"""A checkpoint from the wish for it to its end, as data: asked for, triggered, over; and its line for a person.

    CheckpointRequest -> Triggered (collects, then is published) -> CheckpointEnd
                             `record`, which stays in the history

Not here: what moves it on (`checkpoints`, `publishing`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from flowpoint.model import messages
from flowpoint.protocol.checkpoint import CheckpointFailure, PendingCheckpoint
from flowpoint.protocol.schedule import TriggerKind


@dataclass(slots=True)
class CheckpointRecord:
    """A checkpoint as `flowpoint checkpoints` shows it. `started` is epoch ms.

    `savepoint` is the folder of the savepoint that is written at its barrier; one of a stop has `savepoint_bytes` once
    it exists. `drained`: time ends before it.
    """

    id: int
    attempt: int
    kind: str
    started: int
    parent: int
    path: str
    state: str = "pending"
    duration_ms: int = 0
    bytes: int = 0
    alignment_ms: int = 0
    reason: str = ""
    savepoint: str = ""
    savepoint_bytes: int | None = None
    drained: bool = False

    def to_data(self) -> dict[str, Any]:
        """With the keys of `checkpoints --json`."""
        keys = ("id", "attempt", "kind", "state", "started", "duration_ms", "bytes", "parent", "path", "reason")
        return {name: getattr(self, name) for name in keys}


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Somebody wants a checkpoint. `future` gets its record at its end; for the others see `Checkpoints.request`."""

    kind: TriggerKind
    future: asyncio.Future[CheckpointRecord]
    savepoints: str
    drain: bool


@dataclass(slots=True)
class Triggered:
    """A checkpoint whose barriers are under way, or which is waiting to be published.

    is_unread: some subtask has not read all of the state that it was restored with.
    """

    pending: PendingCheckpoint[messages.Ack]
    trigger: TriggerKind
    record: CheckpointRecord
    request: CheckpointRequest | None = None
    waiters: list[asyncio.Future[CheckpointRecord]] = field(default_factory=list)
    is_publishing: bool = False
    is_unread: bool = False

    @property
    def is_savepoint(self) -> bool:
        """Whether it counts for nobody in this job."""
        return self.trigger is TriggerKind.SAVEPOINT

    def answer(self) -> None:
        """Hand its record to whoever waits for it."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(self.record)


@dataclass(frozen=True, slots=True)
class CheckpointEnd:
    """A checkpoint has completed (`failure` is None) or failed."""

    record: CheckpointRecord
    trigger: TriggerKind
    failure: CheckpointFailure | None
