"""Functions with state and timers: the base classes that authors extend, and what they see while they run.

State is declared in the class (`seen = ValueState("seen", default=0)`) and used as `self.seen.value`; it always means
the state of the current key. The engine makes one copy of the function per subtask, binds the declared state to it,
calls `open` once, `process` for each record (`process1` and `process2` where there are two inputs), `on_timer` for each
timer that is due, and `close` at the end.

Not here: how state and timers are kept (`state`), and who calls these methods (`runtime.operators`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Acc = TypeVar("Acc")
Out = TypeVar("Out")


class Timers(Protocol):
    """Timers of the current key. They are state: they survive failures, and fire once.

    Setting a timer twice for the same key and timestamp sets one timer.
    """

    def now(self) -> int:
        """Processing time, epoch ms: what `processing` is measured against."""

    def processing(self, timestamp: int) -> None:
        """Call `on_timer` for this key once processing time reaches `timestamp` (epoch ms)."""

    def delete_processing(self, timestamp: int) -> None:
        """Take back a timer of this key; nothing happens when it is not set."""

    def event(self, timestamp: int) -> None:
        """Call `on_timer` for this key once the watermark reaches `timestamp` (epoch ms).

        The stream must have timestamps: `assign_timestamps` comes before. One that is not after the watermark already
        fires when the watermark moves next, and in `on_timer` at once.
        """

    def delete_event(self, timestamp: int) -> None:
        """Take back an event-time timer of this key; nothing happens when it is not set."""


class PlainContext(Protocol):
    """What a function may ask about the record at hand, with a key or without."""

    @property
    def timestamp(self) -> int | None:
        """The record's event time, epoch ms, or None when the stream has none; in `on_timer` the timer's time."""

    @property
    def watermark(self) -> int:
        """No more records with a timestamp <= this come. Very small before the first one, 2**63 - 1 at the end."""

    def output(self, tag: str, value: Any) -> None:
        """Emit `value` into the side output `tag`: `stream.side_output(tag)` has it. Without one, it goes nowhere."""


class ProcessContext(PlainContext, Protocol):
    """What a keyed function may ask about the record or timer at hand."""

    @property
    def key(self) -> Any:
        """The key of the record or timer. A record of a broadcast stream has none."""

    @property
    def timers(self) -> Timers:
        """The timers of this key."""


class OpenContext(Protocol):
    """What `open` may ask about where the function runs."""

    @property
    def uid(self) -> str:
        """The operator's uid."""

    @property
    def subtask(self) -> int:
        """Which of the parallel instances this is, from 0."""

    @property
    def parallelism(self) -> int:
        """How many parallel instances there are."""


class _Lifecycle:
    """What all functions may do at their beginning and end."""

    def open(self, ctx: OpenContext) -> None:
        """Prepare, once per subtask and attempt, before the first record. Keyed state cannot be used here."""

    def close(self) -> None:
        """Release what `open` took. Not called when the process is killed."""


class ProcessFunction(_Lifecycle, ABC):
    """Per-record logic without keys; goes to `stream.process(...)`. What it keeps in `self` is in no snapshot.

    Example:
        >>> class Split(ProcessFunction):
        ...     def process(self, value, ctx):
        ...         if value < 0:
        ...             ctx.output("negative", value)
        ...         else:
        ...             yield value
    """

    @abstractmethod
    def process(self, value: Any, ctx: PlainContext) -> Iterable[Any] | None:
        """Handle one record; what it yields or returns goes downstream, with the record's timestamp."""


class KeyedProcessFunction(_Lifecycle, ABC):
    """Per-record logic with keyed state and timers; goes to `key_by(...).process(...)`.

    A subclass must define `process(self, value, ctx)`, either as a generator or as a function that returns an
    iterable of results or None.

    Example:
        >>> class Deduplicate(KeyedProcessFunction):
        ...     seen = ValueState("seen", default=False)
        ...
        ...     def process(self, value, ctx):
        ...         if not self.seen.value:
        ...             self.seen.value = True
        ...             yield value
    """

    @abstractmethod
    def process(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle one record; what it yields or returns goes downstream, with the record's timestamp."""

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a timer of this key that is due; what it yields or returns goes downstream, with the timer's time."""
        return None


class CoProcessFunction(_Lifecycle, ABC):
    """Logic over two streams that share state; goes to `first.connect(second).process(...)`.

    Both streams keyed: records of one key meet in one subtask, whichever stream they come from, and share keyed state
    and timers. One of them broadcast: each of its records goes to every subtask, where only its method may change
    `BroadcastState`; it has no key, so it uses no keyed state. Neither: no state that is kept.

    Example:
        >>> class Join(CoProcessFunction):
        ...     left = ValueState("left")
        ...
        ...     def process1(self, value, ctx):
        ...         self.left.value = value
        ...
        ...     def process2(self, value, ctx):
        ...         if self.left.value is not None:
        ...             yield ctx.key, self.left.value, value
    """

    @abstractmethod
    def process1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a record of the stream on which `connect` was called."""

    @abstractmethod
    def process2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a record of the stream that `connect` was given."""

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a timer of this key that is due; what it yields or returns goes downstream, with the timer's time."""
        return None


class Aggregate(ABC, Generic[T, Acc, Out]):
    """A summary of records that is built up one by one; goes to `key_by(...).aggregate(...)`.

    The accumulator is what the engine keeps, so it must be a value like those of records. It may be changed in place.

    Example:
        >>> class Mean(Aggregate):
        ...     def create(self):
        ...         return (0, 0)
        ...
        ...     def add(self, accumulator, value):
        ...         return (accumulator[0] + value, accumulator[1] + 1)
        ...
        ...     def result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
    """

    @abstractmethod
    def create(self) -> Acc:
        """The accumulator of no records."""

    @abstractmethod
    def add(self, accumulator: Acc, value: T) -> Acc:
        """The accumulator with one record more."""

    @abstractmethod
    def result(self, accumulator: Acc) -> Out:
        """What is emitted."""

    def merge(self, first: Acc, second: Acc) -> Acc:
        """The accumulator of the records of both. Needed only where partial results meet."""
        raise NotImplementedError(f"{type(self).__name__} does not define merge")
