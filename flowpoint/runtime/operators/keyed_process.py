"""A KeyedProcessFunction in one subtask: keyed calls, state bound to the current key, timers.

User code sees one key at a time. `process_batch` runs over a whole batch; the key is put into a cell that every bound
state handle reads. Timers fire between batches (`fire_due`), in timestamp order, each in the context of its own key.

Not here: when to fire (the subtask looks at the clock), where timers are stored (`state.timers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from flowpoint.codec.keys import GroupCache
from flowpoint.errors import UserCodeError
from flowpoint.runtime.chain import explain
from flowpoint.state.kinds import KeyCell
from flowpoint.state.timers import TimerService


class ProcessFunction(Protocol):
    """What this operator needs of the user's function (`api.functions.KeyedProcessFunction`)."""

    def process(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None: ...

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None: ...


class Timers:
    """Asks for calls of `on_timer` with the current key. Times are epoch ms; a key's timer of one time fires once."""

    __slots__ = ("_clock_ms", "_service")

    def __init__(self, service: TimerService, clock_ms: Callable[[], int]) -> None:
        self._service = service
        self._clock_ms = clock_ms

    def now(self) -> int:
        """Processing time, epoch ms. Use this instead of `time.time()`: it is virtual in a simulation."""
        return self._clock_ms()

    def processing(self, timestamp: int) -> None:
        """Fire when processing time reaches `timestamp`; at once when it has."""
        self._service.processing(timestamp)

    def delete_processing(self, timestamp: int) -> None:
        """Take a timer back; nothing happens when there is none."""
        self._service.delete_processing(timestamp)


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
        self.timers = timers
        self._function = function
        self._key_of = key
        self._key_name = key_name
        self._cell = cell
        self._groups = groups
        self._context = ProcessContext(cell, Timers(timers, clock_ms))
        self.timers_dropped = 0

    def process_batch(self, values: list[Any]) -> list[Any]:
        """Call `process` for every value; returns what it emitted, in order."""
        out: list[Any] = []
        extend = out.extend
        process, key_of, cell, context = self._function.process, self._key_of, self._cell, self._context
        known, check = self._groups.groups, self._groups.miss
        value: Any = None
        part = "key"
        try:
            for value in values:
                part = "key"
                key = key_of(value)
                part = "state"
                if key not in known:
                    check(key)
                cell.key = key
                part = "function"
                result = process(value, context)
                if result is not None:
                    extend(result)
        except Exception as error:
            name, kind = (self._key_name or self.uid, "key_by") if part != "function" else (self.uid, "process")
            raise explain(name, kind, error, value, part, in_user_code=_is_deep(error)) from error
        finally:
            cell.clear()
        return out

    def fire_due(self, now_ms: int) -> list[Any]:
        """Fire every processing-time timer that is due at `now_ms`; returns what `on_timer` emitted."""
        return self._fire(self.timers.pop_due("processing", now_ms))

    def fire_all(self) -> list[Any]:
        """At the end of input: fire every pending processing-time timer at once.

        The end of input is the end of time. Timers set while this goes on would have no time left to fire in: they
        are dropped and counted in `timers_dropped`.
        """
        out = self._fire(self.timers.pop_due("processing", None))
        self.timers_dropped += sum(1 for _ in self.timers.pop_due("processing", None))
        return out

    def _fire(self, due: Iterable[tuple[Any, int]]) -> list[Any]:
        out: list[Any] = []
        cell, context = self._cell, self._context
        try:
            for key, timestamp in list(due):
                cell.key = key
                context.timestamp = timestamp
                try:
                    result = self._function.on_timer(timestamp, context)
                    if result is not None:
                        out.extend(result)
                except Exception as error:
                    text = f"operator '{self.uid}' (process) failed in on_timer for key {key!r} at {timestamp}"
                    raise UserCodeError(f"{text}: {type(error).__name__}: {error}") from error
        finally:
            context.timestamp = None
            cell.clear()
        return out


def _is_deep(error: Exception) -> bool:
    """Whether the exception came out of a frame below ours."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is not None
