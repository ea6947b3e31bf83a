"""SequenceSource: whole numbers, as fast as possible or at a rate, for load tests and examples.

The numbers are dealt into a fixed number of splits, so that positions survive a change of parallelism. Without a rate
each split is a contiguous range. With a rate split k of S holds every S-th number, because then the splits in step give
the numbers in their order.

Pacing: number j of split k is due at (j * S + k) / rate seconds after the reader was opened. A read gives all numbers
that are due; when none is, it waits a moment and returns the empty list. The same when it gave some less than a tick
ago: else, at high rates, there would always be one more due, a subtask that stays with a split while that has something
would never turn to its other splits, and batches would be of one record. Nothing is forgotten while the consumer is
slow: the rate is kept on average.

Invariant: the position is the count of numbers given, whatever the pacing did.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from flowpoint.connectors.positions import check_position
from flowpoint.errors import PlanError
from flowpoint.runtime.contracts import END, Clock, ConnectorContext, EndOfSplit, Split

_SPLITS: Final = 16
_SHORTEST_WAIT: Final = 0.001  # never so short that rounding makes it no wait at all
_TICK: Final = 0.004


class SequenceSource:
    """The whole numbers from `start` to before `end`; `rate` is numbers per second over all subtasks. Replayable.

    >>> SequenceSource(0, 1_000_000, rate=5_000)
    SequenceSource(0, 1000000, rate=5000)
    """

    guarantee = "replayable: exactly-once"

    def __init__(self, start: int, end: int, rate: float | None = None) -> None:
        """Raises PlanError when there are no such numbers, or the rate is not above 0."""
        if end < start:
            raise PlanError(f"SequenceSource: end={end} is before start={start}; it ends before `end`")
        if rate is not None and not 0 < rate < float("inf"):
            raise PlanError(f"SequenceSource: rate={rate} is not a number of records per second above 0")
        self._numbers = range(start, end)
        self._rate = rate

    def __repr__(self) -> str:
        rate = "" if self._rate is None else f", rate={self._rate}"
        return f"SequenceSource({self._numbers.start}, {self._numbers.stop}{rate})"

    def splits(self) -> list[Split]:
        """The parts of the sequence; one empty part for an empty sequence."""
        numbers = self._numbers
        count = min(_SPLITS, max(1, len(numbers)))
        if self._rate is None:
            cuts = [len(numbers) * i // count for i in range(count + 1)]
            parts = [numbers[first:end] for first, end in pairwise(cuts)]
        else:
            parts = [numbers[i::count] for i in range(count)]
        return [
            Split(str(i), {"start": part.start, "end": part.stop, "step": part.step, "index": i, "of": count})
            for i, part in enumerate(parts)
        ]

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> _SequenceReader:
        """A reader that has given `position` numbers of its split already.

        Raises IncompatibleStateError for a position outside of the split.
        """
        data = split.data
        numbers = range(data["start"], data["end"], data["step"])
        check_position(position, split.id, 0, len(numbers), ctx)
        pace = None if self._rate is None else _Pace(self._rate, data["index"], data["of"], ctx.clock)
        return _SequenceReader(numbers, position or 0, pace)


class _Pace:
    """How many numbers of one split may be given now."""

    def __init__(self, rate: float, index: int, of: int, clock: Clock) -> None:
        self._rate = rate
        self._index = index
        self._of = of
        self._clock = clock
        self._opened = clock.monotonic()
        self._next_tick = self._opened
        self._given = 0

    def take(self, most: int) -> int:
        """How many numbers to give now, at most `most`. 0 before the next tick, unless `most` are due already."""
        now = self._clock.monotonic()
        passed = int((now - self._opened) * self._rate)
        due = max(0, passed - self._index + self._of) // self._of - self._given
        if due <= 0 or (due < most and now < self._next_tick):
            return 0
        self._next_tick = now + _TICK
        self._given += min(due, most)
        return min(due, most)

    async def wait(self) -> None:
        """Waits until there may be something to give, but only a moment."""
        due_at = self._opened + (self._given * self._of + self._index) / self._rate
        waiting = max(due_at, self._next_tick) - self._clock.monotonic()
        await self._clock.sleep(min(max(waiting, _SHORTEST_WAIT), _TICK))


class _SequenceReader:
    """Reads one part of the sequence."""

    def __init__(self, numbers: range, position: int, pace: _Pace | None) -> None:
        self._numbers = numbers
        self._position = position
        self._pace = pace

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        if self._position >= len(self._numbers):
            return END
        if self._pace is not None:
            n = self._pace.take(n)
            if n == 0:
                await self._pace.wait()
                return []
        numbers = list(self._numbers[self._position : self._position + n])
        self._position += len(numbers)
        return numbers

    def position(self) -> int:
        return self._position

    async def close(self) -> None:
        """Nothing to release."""
