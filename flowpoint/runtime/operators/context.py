"""What a process function sees while it is called: its key, times, timers, and side outputs.

One context per function, reused for every call: nothing is made per record. Valid during the call only.

Not here: the calls themselves (`process.py`), where timers are stored (`state.timers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from flowpoint.errors import UserCodeError
from flowpoint.model.elements import WATERMARK_MIN, Batch
from flowpoint.model.texts import with_article
from flowpoint.state.handles import NO_KEY, KeyCell
from flowpoint.state.sharing import Sharing
from flowpoint.state.timers import TimerService


@dataclass(frozen=True, slots=True)
class OpenContext:
    """What a function's `open` may ask about where it runs."""

    uid: str
    subtask: int
    parallelism: int


class Timers:
    """Asks for calls of `on_timer` with the current key. Times are epoch ms; a key's timer of one time fires once."""

    __slots__ = ("_cell", "_clock_ms", "_has_event_time", "_service", "last")

    def __init__(
        self, service: TimerService, cell: KeyCell, clock_ms: Callable[[], int], *, has_event_time: bool
    ) -> None:
        self._service = service
        self._cell = cell
        self._clock_ms = clock_ms
        self._has_event_time = has_event_time
        self.last: dict[tuple[Any, int], None] = {}
        """At the end of input: the processing-time timers, out of the state already, that are still to fire."""

    def now(self) -> int:
        """Processing time, epoch ms. Use this instead of `time.time()`: it is virtual in a simulation."""
        return self._clock_ms()

    def processing(self, timestamp: int) -> None:
        """Fire when processing time reaches `timestamp`; at once when it has."""
        self._service.processing(timestamp)

    def delete_processing(self, timestamp: int) -> None:
        """Take a timer back; nothing happens when there is none."""
        self._service.delete_processing(timestamp)
        self.last.pop((self._cell.key, timestamp), None)

    def event(self, timestamp: int) -> None:
        """Fire when the watermark reaches `timestamp`. Raises UserCodeError where no watermark can ever come."""
        if not self._has_event_time:
            raise UserCodeError(
                "an event-time timer was set in a stream without timestamps, where no watermark would make it fire; "
                "use assign_timestamps(...) before"
            )
        self._service.event(timestamp)

    def delete_event(self, timestamp: int) -> None:
        """Take an event-time timer back; nothing happens when there is none."""
        self._service.delete_event(timestamp)


class NoTimers:
    """Stands where timers would be in a function that has no keys."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise UserCodeError(f"ctx.timers.{name} was used without keys, and a timer belongs to a key; use key_by(...)")


class SideOutputs:
    """Collects what goes into the side outputs of one function that somebody takes; the rest goes nowhere."""

    __slots__ = ("_sharing", "_stamps", "_takes_all", "_untaken", "_values", "_warn")

    def __init__(self, tags: Iterable[str] | None, sharing: Sharing, warn: Callable[[str], None]) -> None:
        """`tags`: those that somebody takes; None: all. `sharing`: of the function's state. `warn`: takes text for a
        person.
        """
        self._takes_all = tags is None
        self._values: dict[str, list[Any]] = {tag: [] for tag in tags or ()}
        self._stamps: dict[str, list[int | None]] = {tag: [] for tag in self._values}
        self._sharing = sharing
        sharing.aside = self._values
        self._untaken: set[str] = set()
        self._warn = warn

    def add(self, tag: str, value: Any, timestamp: int | None) -> None:
        """Emit a value into a side output."""
        values = self._values.get(tag)
        if values is not None:
            values.append(self._sharing.isolated(value) if self._sharing.is_on else value)
            self._stamps[tag].append(timestamp)
        elif not isinstance(tag, str):
            raise UserCodeError(f"ctx.output got the tag {tag!r}, {with_article(type(tag).__name__)}: a tag is a str")
        elif self._takes_all:
            self._values[tag], self._stamps[tag] = [], []
            self.add(tag, value, timestamp)
        elif self._values and tag not in self._untaken:
            # Nobody takes any: that is meant. Somebody takes another one: it may be a slip of the pen.
            self._untaken.add(tag)
            taken = ", ".join(map(repr, self._values))
            self._warn(f"nobody takes the side output {tag!r}, so its values go nowhere; side outputs taken: {taken}")

    def take(self) -> Iterator[tuple[str, Batch]]:
        """Everything that has been collected, as batches whose records all have timestamps or all have none."""
        for tag, values in self._values.items():
            if values:
                stamps, self._values[tag], self._stamps[tag] = self._stamps[tag], [], []
                for batch in _batches(values, stamps):
                    yield tag, batch


def _batches(values: list[Any], stamps: list[int | None]) -> Iterator[Batch]:
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or (stamps[end] is None) is not (stamps[start] is None):
            times = [stamp for stamp in stamps[start:end] if stamp is not None]
            yield Batch(values[start:end], times or None)
            start = end


class ProcessContext:
    """What a function knows about the record or timer it is called for.

    timestamp: of the record, or of the timer (epoch ms; None when the stream has none). watermark: no more records up to
    this time come. timers: see `Timers`.
    """

    __slots__ = ("_cell", "_sides", "timers", "timestamp", "watermark")

    def __init__(self, cell: KeyCell, timers: Timers | NoTimers, sides: SideOutputs) -> None:
        self._cell = cell
        self._sides = sides
        self.timers = timers
        self.timestamp: int | None = None
        self.watermark = WATERMARK_MIN

    @property
    def key(self) -> Any:
        """The current key."""
        key = self._cell.key
        if key is NO_KEY:
            raise UserCodeError("ctx.key was used where there is no key: the record's stream is not keyed")
        return key

    def output(self, tag: str, value: Any) -> None:
        """Emit into a side output, with the timestamp of the record or timer at hand."""
        self._sides.add(tag, value, self.timestamp)
