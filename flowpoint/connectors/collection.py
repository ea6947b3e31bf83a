"""CollectionSource: a list in the job file as an input, for tests and examples.

Every process executes the job file and so has the list; only ranges and indexes travel. The ranges are contiguous, so
a single subtask that reads its splits in order gives the list in order.

Invariant: the list is the same in every process. A set is refused, because its order differs from process to process.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, Final

from flowpoint.codec.isolating import Isolator
from flowpoint.connectors.positions import check_position
from flowpoint.errors import BadRecordError, LostInputError, PlanError
from flowpoint.runtime.contracts import END, ConnectorContext, EndOfSplit, Split

_SPLITS: Final = 16


class CollectionSource:
    """The values of a list, in order within each of (at most) 16 ranges. Replayable.

    >>> len(CollectionSource(["to", "be", "or"]).splits())
    3
    """

    guarantee = "replayable: exactly-once"

    def __init__(self, values: Iterable[Any]) -> None:
        """Takes a copy. Raises PlanError for a set."""
        if isinstance(values, AbstractSet):
            raise PlanError("CollectionSource: a set has no order that all processes agree on; pass sorted(values)")
        self._values = tuple(values)

    def __repr__(self) -> str:
        return f"CollectionSource({len(self._values)} values)"

    def splits(self) -> list[Split]:
        """Ranges of nearly equal length; one empty range for an empty list."""
        count = min(_SPLITS, max(1, len(self._values)))
        cuts = [len(self._values) * i // count for i in range(count + 1)]
        return [Split(str(i), {"first": first, "end": end}) for i, (first, end) in enumerate(pairwise(cuts))]

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> _RangeReader:
        """A reader at an index of the list.

        Raises LostInputError when the list has become shorter, IncompatibleStateError for an index outside of the split.
        """
        first, end = split.data["first"], split.data["end"]
        check_position(position, split.id, first, end, ctx)
        start = first if position is None else position
        if end > len(self._values):
            text = (
                f"source {ctx.uid!r} cannot continue at index {start} of range [{first}, {end}): the list in the job"
                f" file has only {len(self._values)} values now; restore it, or pass --skip-lost-input"
            )
            if not ctx.skip_lost_input:
                raise LostInputError(text)
            ctx.log(text)
        return _RangeReader(ctx.uid, self._values, start, min(end, len(self._values)))


class _RangeReader:
    """Reads values[position:end]."""

    def __init__(self, uid: str, values: tuple[Any, ...], position: int, end: int) -> None:
        self._uid = uid
        self._values = values
        self._copied = Isolator()
        self._position = position
        self._end = end

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        if self._position >= self._end:
            return END
        values: list[Any] = []
        try:
            # Whoever changes a record must not change what a later attempt reads.
            values.extend(map(self._copied, self._values[self._position : min(self._position + n, self._end)]))
        except BadRecordError as error:
            at = self._position + len(values)
            raise BadRecordError(
                f"source {self._uid!r} cannot give the value at index {at} of its list: {error}"
            ) from None
        self._position += len(values)
        return values

    def position(self) -> int:
        return self._position

    async def close(self) -> None:
        """Nothing to release."""
