"""What travels through a channel: batches of records, and the events between them.

A batch is two parallel lists: values, and timestamps (epoch ms) or None when the stream has none. Never an object per
record. `Batch` is not validated: it is the hot path.

Invariants: a batch is owned by whoever received it last; a sender never touches a batch after sending it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Batch:
    """Values and their timestamps, in order. `timestamps` is None, or as long as `values`."""

    __slots__ = ("timestamps", "values")

    def __init__(self, values: list[Any], timestamps: list[int] | None = None) -> None:
        self.values = values
        self.timestamps = timestamps

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Batch({self.values!r}, {self.timestamps!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and (self.values, self.timestamps) == (other.values, other.timestamps)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Barrier:
    """Separates the records of checkpoint `checkpoint` from those after it.

    `kind` is "checkpoint" or "savepoint"; `final` is the last checkpoint of a bounded job; `halt` asks sources to emit
    nothing after it (stop, rescale); `drain` (only with `halt`) says that time ended before it: the greatest watermark
    came first, and what waits for time fires before its snapshot. `savepoint` is the folder of the savepoint to write at
    this barrier, "" for none: a checkpoint with one (stop --to) is both. `triggered` is when the coordinator asked for
    it, epoch ms.
    """

    checkpoint: int
    kind: str = "checkpoint"
    halt: bool = False
    final: bool = False
    savepoint: str = ""
    drain: bool = False
    triggered: int = 0

    @property
    def may_overtake(self) -> bool:
        """Whether it may become unaligned. Savepoints and last checkpoints never do: they hold no channel state."""
        return self.kind == "checkpoint" and not (self.halt or self.final or self.savepoint)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No more records with a timestamp <= `timestamp` (epoch ms) come in this channel."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class Idleness:
    """Whether this channel is idle: then it does not hold the receiver's watermark back. A batch ends it, too."""

    is_idle: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No more records come in this channel. Barriers still do."""


END_OF_INPUT = EndOfInput()
WATERMARK_MIN = -(2**63)
"""No watermark has come yet."""

WATERMARK_MAX = 2**63 - 1
"""The end of event time: comes at the end of input."""

Event = Barrier | Watermark | Idleness | EndOfInput
Element = Batch | Event
