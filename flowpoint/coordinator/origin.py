"""Where a lineage began, as its "attempt" entries keep it, and what else the newest attempt hands to the next one.

Every "attempt" entry of a lineage repeats these facts, so that the newest one alone tells them, whatever was cleaned
away. A lineage that began from a snapshot and has no checkpoint yet begins from that snapshot again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flowpoint.model.commits import CommitEntry, CommitKind

_ORIGIN = "from"
_PARALLELISM = "parallelism"


@dataclass(frozen=True, slots=True)
class Origin:
    """The snapshot that a lineage began from.

    path: of its folder. lineage, checkpoint: whose it is, and its id there. claim: it belongs to the job from then on.
    handed_on: the lineage was stopped with it, so that its output goes on here. created: when, epoch ms (0: an older
    FlowPoint did not note it).
    """

    path: str
    lineage: str
    checkpoint: int
    claim: bool
    handed_on: bool
    created: int = 0

    def is_same_snapshot(self, other: Origin) -> bool:
        """Whether both name one and the same snapshot, wherever it lies."""
        mine, theirs = (self.lineage, self.checkpoint), (other.lineage, other.checkpoint)
        return mine == theirs and self.created == other.created != 0


def origin_of(entries: Sequence[CommitEntry], lineage: str) -> Origin | None:
    """The origin of a lineage; None when it began from nothing."""
    attempts = [entry for entry in entries if entry.kind == CommitKind.ATTEMPT and entry.lineage == lineage]
    data = attempts[-1].extra.get(_ORIGIN) if attempts else None
    return Origin(**data) if data is not None else None


def rescaled_to(entries: Sequence[CommitEntry], lineage: str) -> int:
    """The parallelism that a lineage has since it was rescaled, or was run with after that; 0: it was never rescaled."""
    attempts = [entry for entry in entries if entry.kind == CommitKind.ATTEMPT and entry.lineage == lineage]
    return int(attempts[-1].extra.get(_PARALLELISM, 0)) if attempts else 0


def facts(origin: Origin | None, rescaled: int) -> dict[str, Any]:
    """The `extra` of an "attempt" entry."""
    found: dict[str, Any] = {}
    if origin is not None:
        found[_ORIGIN] = asdict(origin)
    if rescaled:
        found[_PARALLELISM] = rescaled
    return found


def has_checkpoint(entries: Sequence[CommitEntry], lineage: str, *, beyond: int = 0) -> bool:
    """Whether a lineage has completed a checkpoint with an id above `beyond`."""
    return any(
        entry.kind == CommitKind.CHECKPOINT and entry.lineage == lineage and entry.checkpoint > beyond
        for entry in entries
    )
