"""SequenceSource: whole numbers, as fast as possible or at a rate, for load tests and examples.

The numbers are dealt into a fixed number of splits, so that positions survive a change of parallelism. Without a rate
each split is a contiguous range, and a subtask that reads them one after another gives its numbers in their order. With
a rate split k of S holds every S-th number, so that all subtasks are about equally far, and the readers of a subtask
share one line: whichever of them is read gives the next numbers of all, in their order.

What the line needs to know is which splits there are. The runtime opens another split when those that are open have
nothing to give, so each reader gives nothing when it is read first; one that is read again means that all are open.

Pacing: a subtask with m of S splits gives its share, rate * m / S a second, since its first reader was opened. A read
gives all numbers that are due, and waits a moment when none is. The same when one gave some less than a tick ago: else,
at high rates, there would always be one more due, and batches would be of one record. Nothing is forgotten while the
consumer is slow: the rate is kept on average.

Invariant: a position is the count of numbers of its split that have been given, by whichever reader. A read moves the
positions of several splits, in one step; the barrier asks all readers of a subtask for theirs in one step too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

from flowpoint.connectors.positions import check_position
from flowpoint.errors import PlanError
from flowpoint.runtime.contracts import END, Clock, ConnectorContext, EndOfSplit, Split

_SPLITS: Final = 16
_SHORTEST_WAIT: Final = 0.001  # never so short that rounding makes it no wait at all
_LONGEST_WAIT: Final = 0.05
_TICK: Final = 0.004
_LINE: Final = "SequenceSource.line"


class SequenceSource:
    """The whole numbers from `start` to before `end`; `rate` is numbers per second over all subtasks. Replayable.

    One subtask gives them in their order. Of several each gives its share in order, with a rate all about equally far.

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

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> _RangeReader | _PacedReader:
        """A reader of a split of which `position` numbers have been given already.

        Raises IncompatibleStateError for a position outside of the split.
        """
        data = split.data
        numbers = range(data["start"], data["end"], data["step"])
        check_position(position, split.id, 0, len(numbers), ctx)
        part = _Part(numbers, position or 0, data["index"], data["of"])
        if self._rate is None:
            return _RangeReader(part)
        line: _Line = ctx.shared.setdefault(_LINE, _Line(self._rate, data["of"], ctx.clock))
        return _PacedReader(part, line)


@dataclass(slots=True, eq=False)
class _Part:
    """The numbers of one split, and how many of them have been given. It is part `index` of `of`."""

    numbers: range
    position: int
    index: int
    of: int

    @property
    def is_used_up(self) -> bool:
        return self.position >= len(self.numbers)

    @property
    def next_turn(self) -> int:
        """Whose turn it is: where the next number stands when all parts take turns. In stripes, its place in the whole."""
        return self.position * self.of + self.index

    def take(self, most: int) -> range:
        """The next numbers, which are given now."""
        taken = self.numbers[self.position : self.position + most]
        self.position += len(taken)
        return taken

    def take_before(self, turn: int) -> range:
        """The numbers whose turn comes before this one."""
        return self.take(max(0, -((self.next_turn - turn) // self.of)))


class _Line:
    """The parts that one subtask has open: which numbers come next, and how many of them may be given now."""

    def __init__(self, rate: float, of: int, clock: Clock) -> None:
        self._rate = rate
        self._of = of
        self._clock = clock
        self._opened = clock.monotonic()
        self._next_tick = self._opened
        self._given = 0
        self._parts: list[_Part] = []
        self._share = 0
        self._first = 0

    def join(self, part: _Part) -> None:
        """One more part."""
        self._parts.append(part)

    def leave(self, part: _Part) -> None:
        """Its reader is closed: from here on it is moved no more."""
        self._parts.remove(part)

    def take(self, most: int) -> list[int]:
        """The numbers that are due, about `most`, in their order. None before the next tick, unless `most` are due."""
        if not self._share:  # all parts are here
            self._share = len(self._parts)
            self._first = min(part.index for part in self._parts)
        now = self._clock.monotonic()
        passed = ((now - self._opened) * self._rate - self._first) * self._share / self._of
        due = 0 if passed < 0 else int(passed) + 1 - self._given
        if due <= 0 or (due < most and now < self._next_tick):
            return []
        numbers = self._next_numbers(min(due, most))
        self._given += len(numbers)
        self._next_tick = now + _TICK
        return numbers

    def _next_numbers(self, count: int) -> list[int]:
        # When all parts are in step, this many turns are so many numbers; one that is behind has them for itself.
        begin = min(part.next_turn for part in self._parts if not part.is_used_up)
        turn = begin + -(-count * self._of // self._share)
        return sorted(chain.from_iterable(part.take_before(turn) for part in self._parts))

    async def wait(self) -> None:
        """Waits until there may be something to give, but not for long."""
        due_at = self._opened + (self._given * self._of / max(self._share, 1) + self._first) / self._rate
        waiting = max(due_at, self._next_tick) - self._clock.monotonic()
        await self._clock.sleep(min(max(waiting, _SHORTEST_WAIT), _LONGEST_WAIT))


class _RangeReader:
    """Reads one part by itself, as fast as it is asked to."""

    def __init__(self, part: _Part) -> None:
        self._part = part

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        return list(self._part.take(n)) or END

    def position(self) -> int:
        return self._part.position

    async def close(self) -> None:
        """Nothing to release."""


class _PacedReader:
    """Reads the line that its part is in."""

    def __init__(self, part: _Part, line: _Line) -> None:
        self._part = part
        self._line = line
        self._was_read = False
        line.join(part)

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        if self._part.is_used_up:
            return END
        if not self._was_read:
            self._was_read = True
            return []
        numbers = self._line.take(n)
        if not numbers:
            await self._line.wait()
            if not self._part.is_used_up:
                numbers = self._line.take(n)
        return numbers

    def position(self) -> int:
        return self._part.position

    async def close(self) -> None:
        self._line.leave(self._part)
