"""A process function in one subtask: calls per record, state bound to the current key, timers of both kinds of time.

User code sees one record at a time; the engine hands over whole batches, to one `Calls` per input. Timers fire between
batches, in the order of their times, each in the context of its own key, and at most `limit`
at a time: after a long downtime very many may be due, and a worker has other things to do as well.

Whatever a call emits has the timestamp of its record or timer. A timer that fires sees the watermark that made it fire,
and what it emits goes on before that watermark does.

Not here: the calls per record (`calls.py`), when to fire (the subtask looks at clock and watermark), where timers are
stored (`state.timers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any, Final, Protocol

from flowpoint.codec.placement import GroupCache
from flowpoint.errors import UserCodeError
from flowpoint.model.elements import WATERMARK_MAX, WATERMARK_MIN, Batch
from flowpoint.runtime.failures import USER_RAISED, Doing, Place, naming, refuse_single, shorten
from flowpoint.runtime.operators.calls import SINGLE, Calls, Port, raise_explained
from flowpoint.runtime.operators.context import NoTimers, OpenContext, ProcessContext, SideOutputs, Timers
from flowpoint.state.broadcast import BroadcastAccess
from flowpoint.state.handles import KeyCell
from flowpoint.state.timers import EVENT, PROCESSING, TimerService

LAST_TIMERS_MAX: Final = 1000
"""How many event-time timers may fire after the end of time for each that was set before it (and for as many more)."""


class Function(Protocol):
    """What this operator needs of the user's function besides the methods of its ports (`api.functions`).

    `on_timer` is needed where there are keys.
    """

    def open(self, ctx: OpenContext) -> None: ...

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class KeyedParts:
    """What a function with keys has besides."""

    cell: KeyCell
    timers: TimerService
    groups: GroupCache


class Process:
    """One instance of the operator."""

    def __init__(
        self,
        uid: str,
        function: Function,
        ports: tuple[Port, ...],
        clock_ms: Callable[[], int],
        *,
        keyed: KeyedParts | None = None,
        access: BroadcastAccess | None = None,
        side_tags: Iterable[str] | None = (),
        has_event_time: bool = False,
        watermark: int = WATERMARK_MIN,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`access`: of the broadcast state. `side_tags`: of the side outputs that somebody takes; None: all. `watermark`:
        the saved one (rule 15). `warn`: takes text for a person.
        """
        self.uid = uid
        self.timers_dropped = 0
        self._function = function
        self._cell = keyed.cell if keyed is not None else KeyCell()
        self._sharing = access.sharing if access is not None else self._cell.sharing
        assert keyed is None or self._sharing is keyed.cell.sharing, f"the state of {uid} is told of in two places"
        self.sides = SideOutputs(side_tags, self._sharing, lambda text: warn(f"operator '{uid}': {text}"))
        self._service = keyed.timers if keyed is not None else None
        self._access = access
        self._has_event_time = has_event_time
        timers: Timers | NoTimers = NoTimers()
        if keyed is not None:
            self._last_timers = timers = Timers(keyed.timers, keyed.cell, clock_ms, has_event_time=has_event_time)
        self._context = ProcessContext(self._cell, timers, self.sides)
        self._context.watermark = watermark
        groups = keyed.groups if keyed is not None else None
        self._calls = tuple(
            Calls(uid, function, port, self._cell, self._context, groups, self._sharing) for port in ports
        )
        self._is_open = False

    # ------------------------------------------------------------------ life

    def open(self, subtask: int, parallelism: int) -> None:
        """Let the function prepare. Raises UserCodeError when it cannot."""
        with naming(self.uid, "open()", is_awaited=False):
            self._function.open(OpenContext(self.uid, subtask, parallelism))
        self._is_open = True

    def close(self) -> None:
        """Let the function release what it took, once, if it was opened."""
        if self._is_open:
            self._is_open = False
            with naming(self.uid, "close()", is_awaited=False):
                self._function.close()

    # ------------------------------------------------------------------ records

    def apply(self, batch: Batch, port: int = 0) -> Batch:
        """Call the port's method for every record; returns what it emitted, in order."""
        calls, access = self._calls[port], self._access
        if access is not None:
            access.writable = calls.port.is_broadcast
        try:
            return calls.run(batch)
        finally:
            if access is not None:
                access.writable = False

    # ------------------------------------------------------------------ time

    @property
    def watermark(self) -> int:
        """Where event time stands here."""
        return self._context.watermark

    def advance(self, watermark: int, limit: int) -> Iterator[Batch]:
        """Event time has come to `watermark`: fire event-time timers, `limit` at a time, also those they set.

        Raises:
            UserCodeError: besides what the function raises, when timers set further ones without end at the end of time.
        """
        self._context.watermark = max(watermark, self._context.watermark)
        if self._service is None:
            return
        most = LAST_TIMERS_MAX * (len(self._service) + LAST_TIMERS_MAX)
        due = self._service.pop_due(EVENT, self._context.watermark)
        while True:
            emitted, fired = self._fire(islice(due, limit), timed=True)
            if emitted.values or fired:
                yield emitted
            if fired < limit:
                return
            most -= fired
            if watermark == WATERMARK_MAX and most < 0:
                raise self._endless()

    def _endless(self) -> UserCodeError:
        error = UserCodeError(
            f"operator '{self.uid}': at the end of input its event-time timers set further ones without end; let "
            "on_timer set none when ctx.watermark is 2**63 - 1"
        )
        error.operator = self.uid
        return error

    def next_timer_ms(self) -> int | None:
        """When the earliest processing-time timer is due, epoch ms."""
        return None if self._service is None else self._service.next_due(PROCESSING)

    def fire_due(self, now_ms: int, limit: int) -> Batch:
        """Fire processing-time timers that are due at `now_ms`; returns what `on_timer` emitted."""
        if self._service is None:
            return Batch([])
        due = self._service.pop_due(PROCESSING, now_ms)
        return self._fire(islice(due, limit), timed=self._has_event_time)[0]

    def fire_last(self, limit: int) -> Iterator[Batch]:
        """At the end of input: fire every pending processing-time timer, `limit` at a time.

        The end of input is the end of time. Timers set while this goes on would have no time left to fire in: they
        are dropped and counted in `timers_dropped`.
        """
        if self._service is None:
            return
        last = self._last_timers.last = dict.fromkeys(self._service.pop_due(PROCESSING, None))
        while last:
            yield self._fire(_taken_from(last, limit), timed=self._has_event_time)[0]
        self.drop_timers()

    def drop_timers(self) -> None:
        """Forget the processing-time timers that are left: no time comes any more."""
        if self._service is not None:
            self.timers_dropped += sum(1 for _ in self._service.pop_due(PROCESSING, None))

    def _fire(self, due: Iterable[tuple[Any, int]], *, timed: bool) -> tuple[Batch, int]:
        """Call `on_timer` for each; what they emitted, and how many there were."""
        out: list[Any] = []
        stamps: list[int] = []
        fired = 0
        cell, context = self._cell, self._context
        self._sharing.emitted = out
        try:
            for key, timestamp in due:
                fired += 1
                cell.key = key
                context.timestamp = timestamp
                self._call_on_timer(key, timestamp, out)
                if timed:
                    stamps.extend(repeat(timestamp, len(out) - len(stamps)))
        finally:
            context.timestamp = None
            cell.clear()
            self._sharing.emitted = []
        return Batch(out, stamps if timed else None), fired

    def _call_on_timer(self, key: Any, timestamp: int, out: list[Any]) -> None:
        result: Any = None
        doing = Doing.FUNCTION
        try:
            result = self._function.on_timer(timestamp, self._context)
            if result is not None:
                doing = Doing.RESULT
                if type(result) in SINGLE:
                    raise refuse_single(result)
                sharing = self._sharing
                for emitted in result:
                    out.append(sharing.isolated(emitted) if sharing.is_on else emitted)  # noqa: PERF401  `begin` reads it
        except USER_RAISED as error:
            when = f"in on_timer for key {shorten(key)} at {timestamp}"
            raise_explained(Place(self.uid, "process", doing), error, when, result)


def _taken_from(timers: dict[tuple[Any, int], None], limit: int) -> Iterator[tuple[Any, int]]:
    """Up to `limit` of these, each gone once it comes out; others may be taken away meanwhile."""
    for _ in range(limit):
        first = next(iter(timers), None)
        if first is None:
            return
        del timers[first]
        yield first
