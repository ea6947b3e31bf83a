"""What a test of one function calls: give it records and time, and look at what it emitted and what it keeps.

The function runs in the runtime's own operator (`operator.py`), so keys are checked, state is copied where it must be,
timers fire in their order, and errors say what they say in a job. Time stands still unless the test moves it.

Invariants: the function that a test passed is not touched; the harness runs a copy of it, as a subtask does.

Not here: functions of `map`, `filter` and the like, which a test can call; whole jobs (`Job.run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from flowpoint.errors import UsageError
from flowpoint.model.elements import Batch
from flowpoint.testing.compiled import Input, compiled, ports
from flowpoint.testing.operator import Operator, PendingTimer, Snapshot, StateView

if TYPE_CHECKING:
    from flowpoint.api.functions import CoProcessFunction, KeyedProcessFunction, ProcessFunction

_STEP: Final = 1000
"""Timers that fire before what they emitted is taken."""

_ROUNDS_MAX: Final = 100_000


class _Harness:
    """What all harnesses do."""

    def __init__(
        self,
        function: object,
        inputs: tuple[Input, ...],
        *,
        event_time: bool,
        types: Iterable[type],
        now: int,
        restore: Snapshot | None,
    ) -> None:
        self._definition = compiled(function, inputs, types)
        self._ports = ports(inputs)
        self._event_time = event_time
        self._restore = restore
        self._now = now if restore is None else restore.now_ms
        self._newest = 0
        self._running: Operator | None = None
        self._emitted: list[tuple[Any, int | None]] = []
        self._aside: dict[str, list[Any]] = {}

    def __enter__(self) -> Self:
        self._running = Operator(
            self._definition,
            self._ports,
            lambda: self._now,
            has_event_time=self._event_time,
            restored=self._restore,
        )
        self._running.process.open(0, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._operator.close()

    @property
    def _operator(self) -> Operator:
        if self._running is None:
            raise UsageError(
                f"{type(self).__name__} was used before it began: write `with {type(self).__name__}(...) as h:`"
            )
        return self._running

    # ------------------------------------------------------------------ records and time

    def _take(self, value: Any, at: int | None, port: int) -> list[Any]:
        if at is not None and not self._event_time:
            raise UsageError(
                f"process(..., at={at!r}) gives a record a timestamp, and event_time=False says that none has one"
            )
        self._newest = self._newest if at is None else at
        record = Batch([value], [self._newest] if self._event_time else None)
        return self._collect(self._operator.pipeline.run_port(record, port) for _ in range(1))

    def advance_watermark(self, to: int) -> list[Any]:
        """Event time comes to `to` (epoch ms): fire the timers that are due. What they emitted."""
        if not self._event_time:
            raise UsageError("advance_watermark moves event time, and event_time=False says that the stream has none")
        return self._collect(self._operator.pipeline.advance(to, _STEP))

    def advance_processing_time(self, to: int) -> list[Any]:
        """The clock comes to `to` (epoch ms): fire each timer on the way at its time. What they emitted."""
        if to < self._now:
            raise UsageError(f"cannot set the clock back to {to}: it is at {self._now}")
        return self._collect(self._fire_until(to))

    def _fire_until(self, to: int) -> Iterator[Batch | None]:
        pipeline = self._operator.pipeline
        for _ in range(_ROUNDS_MAX):
            due = pipeline.next_timer_ms()
            if due is None or due > to:
                self._now = to
                return
            self._now = max(self._now, due)
            yield from pipeline.fire_due(self._now, _STEP)
        raise UsageError(
            f"gave up at {self._now} on the way to {to}: timers were due {_ROUNDS_MAX:,} times; does on_timer set one for"
            " a time that has come already?"
        )

    def end_of_input(self) -> list[Any]:
        """All input has come: the greatest watermark, then all timers, as at the end of a job. What they emitted."""
        return self._collect(self._operator.pipeline.fire_last(_STEP))

    @property
    def now(self) -> int:
        """Processing time, epoch ms."""
        return self._now

    @property
    def watermark(self) -> int:
        """Where event time stands."""
        return self._operator.process.watermark

    # ------------------------------------------------------------------ what came of it

    @property
    def outputs(self) -> list[Any]:
        """Everything that was emitted so far, in order."""
        return [value for value, _ in self._emitted]

    @property
    def timestamped_outputs(self) -> list[tuple[Any, int | None]]:
        """The same, each with its timestamp."""
        return list(self._emitted)

    @property
    def side_outputs(self) -> dict[str, list[Any]]:
        """Everything that went into side outputs so far, by tag."""
        return {tag: list(values) for tag, values in self._aside.items()}

    @property
    def function(self) -> Any:
        """The copy of the function that runs here."""
        return self._operator.function

    def snapshot(self) -> Snapshot:
        """State, timers and time as a snapshot of the job has them: for `restore=` of another harness.

        Raises:
            BadRecordError: a key or value cannot be put into a snapshot.
        """
        return self._operator.snapshot(self._now)

    def _collect(self, batches: Iterator[Batch | None]) -> list[Any]:
        """Keep what was emitted, also before an error; what is new of the main output."""
        before = len(self._emitted)
        try:
            for batch in batches:
                if batch:
                    stamps = batch.timestamps if batch.timestamps is not None else repeat(None, len(batch.values))
                    self._emitted += zip(batch.values, stamps, strict=True)
        finally:
            for tag, aside in self._operator.process.sides.take():
                self._aside.setdefault(tag, []).extend(aside.values)
        return [value for value, _ in self._emitted[before:]]


class _WithState(_Harness):
    """A harness of a function with keys."""

    def state(self, name: str) -> StateView:
        """A state by the name that it is declared with: `h.state("count").get(key)`."""
        return self._operator.state(name)

    @property
    def timers(self) -> list[PendingTimer]:
        """The timers that are pending, in the order of their times."""
        return self._operator.timers()


class KeyedHarness(_WithState):
    """Runs a KeyedProcessFunction.

    Example:
        >>> from flowpoint import KeyedProcessFunction, ValueState
        >>> class Count(KeyedProcessFunction):
        ...     seen = ValueState("seen", int, default=0)
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.value += 1
        ...         yield ctx.key, self.seen.value
        >>> with KeyedHarness(Count(), key=str.lower) as h:
        ...     h.process("A")
        ...     h.process("a")
        ...     h.state("seen").get("a")
        [('a', 1)]
        [('a', 2)]
        2
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        key: Callable[[Any], Any],
        *,
        event_time: bool = True,
        types: Iterable[type] = (),
        now: int = 0,
        restore: Snapshot | None = None,
    ) -> None:
        """Compile the function.

        Args:
            function: An instance. The harness runs a copy.
            key: The function of the `key_by` before it.
            event_time: Whether records have timestamps.
            types: Classes of records that no annotation mentions, as of `Job`.
            now: What the clock says at first, epoch ms.
            restore: Go on from this snapshot.

        Raises:
            PlanError: A job could not use the function like this.
        """
        super().__init__(function, (Input(key),), event_time=event_time, types=types, now=now, restore=restore)

    def process(self, value: Any, at: int | None = None) -> list[Any]:
        """Give it a record. What it emitted.

        Args:
            at: The record's timestamp, epoch ms. None: that of the record before (at first 0).
        """
        return self._take(value, at, 0)


class PlainHarness(_Harness):
    """Runs a ProcessFunction, which has no keys."""

    def __init__(self, function: ProcessFunction, *, event_time: bool = True, types: Iterable[type] = ()) -> None:
        """Compile the function. Arguments and errors as of KeyedHarness."""
        super().__init__(function, (Input(),), event_time=event_time, types=types, now=0, restore=None)

    def process(self, value: Any, at: int | None = None) -> list[Any]:
        """Give it a record, with `at` as its timestamp (epoch ms; None: that of the record before). What it emitted."""
        return self._take(value, at, 0)


class ConnectedHarness(_WithState):
    """Runs a CoProcessFunction, which has two inputs: `process1` and `process2`."""

    def __init__(
        self,
        function: CoProcessFunction,
        key1: Callable[[Any], Any] | None = None,
        key2: Callable[[Any], Any] | None = None,
        *,
        broadcast: int | None = None,
        event_time: bool = True,
        types: Iterable[type] = (),
        now: int = 0,
        restore: Snapshot | None = None,
    ) -> None:
        """Compile the function.

        Args:
            function: An instance. The harness runs a copy.
            key1: The function of the `key_by` of the first input, if any.
            key2: That of the second one.
            broadcast: Which input is a broadcast stream: 1 or 2.
            event_time: Whether records have timestamps.
            types: Classes of records that no annotation mentions, as of `Job`.
            now: What the clock says at first, epoch ms.
            restore: Go on from this snapshot.

        Raises:
            PlanError: A job could not use the function like this.
        """
        if broadcast not in (None, 1, 2):
            raise UsageError(f"ConnectedHarness: broadcast={broadcast!r} is no input; it is 1, 2, or None")
        inputs = (Input(key1, is_broadcast=broadcast == 1), Input(key2, is_broadcast=broadcast == 2))
        super().__init__(function, inputs, event_time=event_time, types=types, now=now, restore=restore)

    def process1(self, value: Any, at: int | None = None) -> list[Any]:
        """Give it a record of the first input. Arguments and result as of `KeyedHarness.process`."""
        return self._take(value, at, 0)

    def process2(self, value: Any, at: int | None = None) -> list[Any]:
        """Give it a record of the second input. Arguments and result as of `KeyedHarness.process`."""
        return self._take(value, at, 1)

    def broadcast_state(self, name: str) -> dict[Any, Any]:
        """The entries of a broadcast state, by the name that it is declared with."""
        return self._operator.broadcast_state(name)
