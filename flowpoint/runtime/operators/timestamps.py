"""`assign_timestamps` in one subtask: gives records their event time, and says how far it has come.

    watermark = newest timestamp - max_out_of_orderness - 1

so a record exactly that far behind the newest is on time. Watermarks of the stream before, if it has any, end here: this
operator says anew what time it is. Only the end of event time goes through.

Idleness: `starved` is the time that the subtask has spent waiting with nothing to do. When that has grown by
`idle_timeout` since the last record, nobody downstream waits for this stream's watermark any more. Time in which the
subtask was busy or held up by a slow consumer does not count: there may be records that it has not got to.

Invariants: the watermark never falls, also not over a restart: it starts where it was saved (rule 15).
"""

from __future__ import annotations

from typing import Any, Final

from flowpoint.errors import UserCodeError
from flowpoint.model.elements import WATERMARK_MAX, WATERMARK_MIN, Batch
from flowpoint.model.event_time import TimestampAssignment
from flowpoint.model.texts import with_article
from flowpoint.runtime.failures import USER_RAISED, Doing, Place, explain, on_record, shorten

_INT_ONLY: Final = frozenset({int})


class TimestampAssigner:
    """One instance of the operator."""

    def __init__(self, uid: str, assignment: TimestampAssignment, watermark: int = WATERMARK_MIN) -> None:
        self.uid = uid
        self.watermark = watermark
        self.idle_timeout = assignment.idle_timeout
        self.is_idle = False
        self._function = assignment.function
        self._delay = assignment.max_out_of_orderness_ms + 1
        self._is_news = False
        self._has_seen_records = False
        self._starved_before = 0.0

    def apply(self, batch: Batch) -> Batch:
        """The same records with their timestamps. Raises UserCodeError naming the record that has none of good type."""
        values = batch.values
        stamps: list[int] = []
        try:
            # extend keeps what came before an error, so its length says which record it was.
            stamps.extend(map(self._function, values))
        except USER_RAISED as error:
            self._refuse(values[len(stamps)], error)
        if not _INT_ONLY.issuperset(map(type, stamps)):
            self._refuse_types(values, stamps)
        newest, oldest = max(stamps), min(stamps)
        if newest >= WATERMARK_MAX or oldest < WATERMARK_MIN:
            far = newest if newest >= WATERMARK_MAX else oldest
            self._refuse(values[stamps.index(far)], _bad_timestamp(far))
        self._has_seen_records = True
        reached = max(newest - self._delay, WATERMARK_MIN)
        if reached > self.watermark:
            self.watermark = reached
            self._is_news = True
        return Batch(values, stamps)

    def _refuse_types(self, values: list[Any], stamps: list[Any]) -> None:
        for value, stamp in zip(values, stamps, strict=True):
            if type(stamp) is not int:
                self._refuse(value, _bad_timestamp(stamp))

    def _refuse(self, value: Any, error: BaseException) -> None:
        explained = explain(Place(self.uid, "assign_timestamps", Doing.FUNCTION), error, on_record(value))
        raise explained or error from error

    def take_news(self) -> int | None:
        """The watermark, when it has risen since the last call."""
        is_news, self._is_news = self._is_news, False
        return self.watermark if is_news else None

    def end(self) -> None:
        """Event time has ended."""
        self.watermark = WATERMARK_MAX

    def look(self, starved: float) -> bool:
        """See whether the stream is idle; True when that has changed. Call it after batches and after waiting.

        Args:
            starved: seconds, since the start, that the subtask has waited with nothing to do.
        """
        was_idle = self.is_idle
        if self._has_seen_records:
            self._has_seen_records = False
            self._starved_before = starved
            self.is_idle = False
        elif self.idle_timeout is not None and starved - self._starved_before >= self.idle_timeout:
            self.is_idle = True
        return self.is_idle is not was_idle


def _bad_timestamp(stamp: Any) -> UserCodeError:
    return UserCodeError(
        f"its function returned {shorten(stamp)}, {with_article(type(stamp).__name__)}; a timestamp is an int, epoch "
        "milliseconds: use int(...), or int(moment.timestamp() * 1000) of a datetime"
    )
