"""What a subtask is made of: handed over once by whoever builds it (`assembly`) to the subtask that runs (`subtask`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from flowpoint.model.plan import SubtaskId
from flowpoint.runtime.answers import Report
from flowpoint.runtime.captures import WriteChannels
from flowpoint.runtime.channel_state import RestoredBatch
from flowpoint.runtime.outputs import Outputs
from flowpoint.runtime.parts import Part
from flowpoint.runtime.pipeline import Pipeline
from flowpoint.state.backend import nothing


@dataclass(slots=True)
class Stopwatch:
    """Seconds spent on something, together with what is under way: a wait without end counts while it lasts."""

    total: float = 0.0
    since: float | None = None

    def start(self, now: float) -> None:
        """It begins."""
        self.since = now

    def stop(self, now: float) -> None:
        """It is over."""
        if self.since is not None:
            self.total += now - self.since
            self.since = None

    def under_way(self, now: float) -> float:
        """For how long it has been going on."""
        return 0.0 if self.since is None else now - self.since

    def read(self, now: float) -> float:
        """All of it so far."""
        return self.total + self.under_way(now)


@dataclass(slots=True)
class Counters:
    """Numbers of one subtask since its start. Seconds are of the loop's clock.

    watermark: where event time stands, epoch ms; None while there is none, and at its end.
    connector: what connectors count themselves, by uid.
    """

    records_in: int = 0
    records_out: int = 0
    busy: Stopwatch = field(default_factory=Stopwatch)
    blocked: Stopwatch = field(default_factory=Stopwatch)
    alignment_ms: int = 0
    watermark: int | None = None
    connector: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class SubtaskParts:
    """Everything `runtime.assembly` built for one subtask.

    end_copy: asked when user code has returned, before anything of it goes on (`Host.end_copy`).
    """

    id: SubtaskId
    called: str
    attempt: int
    pipeline: Pipeline
    outputs: Outputs
    parts: list[Part]
    wakeup: asyncio.Event
    report: Report
    clock_ms: Callable[[], int]
    log: Callable[[str], None]
    end_copy: Callable[[], None] = nothing
    slice_max: int = 4096
    restored: list[RestoredBatch] = field(default_factory=list)
    write_channels: WriteChannels | None = None
    counters: Counters = field(default_factory=Counters)
