"""How much of a batch is processed in one go.

A batch is processed in slices of about `SLICE_SECONDS`, so that neither slow user code nor a slow sink keeps the other
subtasks of the worker, or a barrier, waiting. Fast code gets greater slices, since each costs a turn of the loop.

Not here: processing them (`subtask`).
"""

from __future__ import annotations

from typing import Final

from flowpoint.model.elements import Batch

SLICE_SECONDS: Final = 0.01
"""For code that blocks the loop."""

WRITE_SECONDS: Final = 0.2
"""For a slice and its sink: longer, since a sink that waits for others may need its time per call."""

SLICE_FIRST: Final = 64
"""Records in the first slice, and the least that a slow sink brings it down to."""


class SliceSize:
    """The records of the next slice, adapted to how long the last ones took."""

    def __init__(self, most: int) -> None:
        """`most`: records of a slice, and about as many it may make."""
        self.records = min(SLICE_FIRST, most)
        self.most = most

    def adapt(self, size: int, made: int, computing: float, in_all: float) -> None:
        """A slice of `size` records made `made` and took this long: `computing` seconds, `in_all` with its sink.

        Output counts as input does: few records at a time stay in the processor's caches and cost the collector less.
        """
        if computing > 2 * SLICE_SECONDS:
            self.records = max(1, int(size * SLICE_SECONDS / computing))
        elif made > 2 * self.most:
            self.records = max(1, size * self.most // made)
        elif in_all > 2 * WRITE_SECONDS:
            self.records = min(self.records, max(SLICE_FIRST, size // 2))
        elif size >= self.records and made <= self.most and computing < SLICE_SECONDS and in_all < WRITE_SECONDS:
            self.records = min(self.most, self.records * 2)


def cut(batch: Batch, start: int, end: int) -> Batch:
    """The records of a batch from `start` to before `end`."""
    stamps = batch.timestamps
    return Batch(batch.values[start:end], None if stamps is None else stamps[start:end])
