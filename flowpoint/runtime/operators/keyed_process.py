"""A KeyedProcessFunction in one subtask: keyed calls, state bound to the current key, timers.

User code sees one key at a time. `process_batch` runs over a whole batch; the key is put into a cell that every bound
state handle reads. Timers fire between batches, in the order of their times, each in the context of its own key, and at
most `limit` at a time: after a long downtime very many may be due, and a barrier should not wait for all of them.

Not here: when to fire (the subtask looks at the clock), where timers are stored (`state.timers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

from flowpoint.codec.keys import GroupCache
from flowpoint.runtime.failures import (
    USER_RAISED,
    Doing,
    Place,
    explain,
    naming,
    on_record,
    refuse_single,
    shorten,
)
from flowpoint.state.kinds import KeyCell
from flowpoint.state.timers import PROCESSING, TimerService

_SINGLE: Final = frozenset({str, bytes, bytearray, dict})
"""Iterable, but surely meant as one record."""


@dataclass(frozen=True, slots=True)
class OpenContext:
    """What a function's `open` may ask about where it runs."""

    uid: str
    subtask: int
    parallelism: int


class ProcessFunction(Protocol):
    """What this operator needs of the user's function (`api.functions.KeyedProcessFunction`)."""

    def open(self, ctx: OpenContext) -> None: ...

    def process(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None: ...

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None: ...

    def close(self) -> None: ...


class Timers:
    """Asks for calls of `on_timer` with the current key. Times are epoch ms; a key's timer of one time fires once."""

    __slots__ = ("_cell", "_clock_ms", "_service", "last")

    def __init__(self, service: TimerService, cell: KeyCell, clock_ms: Callable[[], int]) -> None:
        self._service = service
        self._cell = cell
        self._clock_ms = clock_ms
        self.last: dict[tuple[Any, int], None] = {}
        """At the end of input: the timers, already taken out of the state, that are still to fire."""

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


class ProcessContext:
    """What a function knows about the record or timer it is called for. Valid during the call only.

    key: the current key. timestamp: of the record, or of the timer (epoch ms; None when the stream has none).
    timers: see `Timers`.
    """

    __slots__ = ("_cell", "timers", "timestamp")

    def __init__(self, cell: KeyCell, timers: Timers) -> None:
        self._cell = cell
        self.timers = timers
        self.timestamp: int | None = None

    @property
    def key(self) -> Any:
        """The current key."""
        return self._cell.key


class KeyedProcess:
    """One instance of the operator."""

    def __init__(
        self,
        uid: str,
        function: ProcessFunction,
        key: Callable[[Any], Any],
        key_name: str,
        cell: KeyCell,
        timers: TimerService,
        groups: GroupCache,
        clock_ms: Callable[[], int],
    ) -> None:
        self.uid = uid
        self._function = function
        self._key_of = key
        self._key_name = key_name
        self._cell = cell
        self._groups = groups
        self._service = timers
        self._timers = Timers(timers, cell, clock_ms)
        self._context = ProcessContext(cell, self._timers)
        self._is_open = False
        self.timers_dropped = 0

    # ------------------------------------------------------------------ life

    def open(self, subtask: int, parallelism: int) -> None:
        """Let the function prepare. Raises UserCodeError when it cannot."""
        with naming(self.uid, "open()", USER_RAISED):
            self._function.open(OpenContext(self.uid, subtask, parallelism))
        self._is_open = True

    def close(self) -> None:
        """Let the function release what it took, once, if it was opened."""
        if self._is_open:
            self._is_open = False
            with naming(self.uid, "close()", USER_RAISED):
                self._function.close()

    # ------------------------------------------------------------------ records

    def process_batch(self, values: list[Any]) -> list[Any]:
        """Call `process` for every value; returns what it emitted, in order."""
        out: list[Any] = []
        extend = out.extend
        process, key_of, cell, context = self._function.process, self._key_of, self._cell, self._context
        known, check, single = self._groups.groups, self._groups.miss, _SINGLE
        in_key, in_state, in_function, in_result = Doing.KEY, Doing.STATE, Doing.FUNCTION, Doing.RESULT
        value: Any = None
        result: Any = None
        doing = in_key
        try:
            for value in values:
                doing = in_key
                key = key_of(value)
                doing = in_state
                if key not in known:
                    check(key)
                cell.key = key
                doing = in_function
                result = process(value, context)
                if result is not None:
                    doing = in_result
                    if type(result) in single:
                        raise refuse_single(result)
                    extend(result)
        except USER_RAISED as error:
            self._raise_explained(error, doing, on_record(value), result)
        finally:
            cell.clear()
        return out

    def _raise_explained(self, error: BaseException, doing: Doing, when: str, result: Any) -> NoReturn:
        explained = explain(Place(self.uid, "process", doing, self._key_name), error, when, result)
        if explained is None:
            raise error
        raise explained from error

    # ------------------------------------------------------------------ timers

    def next_timer_ms(self) -> int | None:
        """When the earliest processing-time timer is due, epoch ms."""
        return self._service.next_due(PROCESSING)

    def fire_due(self, now_ms: int, limit: int) -> list[Any]:
        """Fire processing-time timers that are due at `now_ms`; returns what `on_timer` emitted."""
        return self._fire(islice(self._service.pop_due(PROCESSING, now_ms), limit))

    def fire_last(self, limit: int) -> Iterator[list[Any]]:
        """At the end of input: fire every pending processing-time timer, `limit` at a time.

        The end of input is the end of time. Timers set while this goes on would have no time left to fire in: they
        are dropped and counted in `timers_dropped`.
        """
        last = self._timers.last = dict.fromkeys(self._service.pop_due(PROCESSING, None))
        while last:
            yield self._fire(_taken_from(last, limit))
        self.timers_dropped += sum(1 for _ in self._service.pop_due(PROCESSING, None))

    def _fire(self, due: Iterable[tuple[Any, int]]) -> list[Any]:
        out: list[Any] = []
        cell, context = self._cell, self._context
        try:
            for key, timestamp in due:
                cell.key = key
                context.timestamp = timestamp
                self._call_on_timer(key, timestamp, out)
        finally:
            context.timestamp = None
            cell.clear()
        return out

    def _call_on_timer(self, key: Any, timestamp: int, out: list[Any]) -> None:
        result: Any = None
        doing = Doing.FUNCTION
        try:
            result = self._function.on_timer(timestamp, self._context)
            if result is not None:
                doing = Doing.RESULT
                if type(result) in _SINGLE:
                    raise refuse_single(result)
                out.extend(result)
        except USER_RAISED as error:
            when = f"in on_timer for key {shorten(key)} at {timestamp}"
            self._raise_explained(error, doing, when, result)


def _taken_from(timers: dict[tuple[Any, int], None], limit: int) -> Iterator[tuple[Any, int]]:
    """Up to `limit` of these, each gone once it comes out; others may be taken away meanwhile."""
    for _ in range(limit):
        first = next(iter(timers), None)
        if first is None:
            return
        del timers[first]
        yield first
