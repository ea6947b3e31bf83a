"""Functions with state and timers: the base class that authors extend, and what they see while it runs.

State is declared in the class (`seen = ValueState("seen", default=0)`) and used as `self.seen.value`; it always means
the state of the current key. The engine makes one copy of the function per subtask, binds the declared state to it,
calls `open` once, `process` for each record, `on_timer` for each timer that is due, and `close` at the end.

Not here: how state and timers are kept (`state`), and who calls these methods (`runtime.operators`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Protocol


class Timers(Protocol):
    """Timers of the current key. They are state: they survive failures, and fire once."""

    def now(self) -> int:
        """Processing time, epoch ms: what `processing` is measured against."""

    def processing(self, timestamp: int) -> None:
        """Call `on_timer` for this key once processing time reaches `timestamp` (epoch ms).

        Setting a timer twice for the same key and timestamp sets one timer.
        """

    def delete_processing(self, timestamp: int) -> None:
        """Take back a timer of this key; nothing happens when it is not set."""


class ProcessContext(Protocol):
    """What `process` and `on_timer` may ask about the record or timer at hand."""

    @property
    def key(self) -> Any:
        """The key of the record or timer."""

    @property
    def timestamp(self) -> int | None:
        """The record's event time, epoch ms, or None when the stream has none; in `on_timer` the timer's time."""

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


class KeyedProcessFunction(ABC):
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
        """Handle one record; what it yields or returns goes downstream."""

    def on_timer(self, timestamp: int, ctx: ProcessContext) -> Iterable[Any] | None:
        """Handle a timer of this key that is due; what it yields or returns goes downstream."""
        return None

    def open(self, ctx: OpenContext) -> None:
        """Prepare, once per subtask and attempt, before the first record. Keyed state cannot be used here."""

    def close(self) -> None:
        """Release what `open` took. Not called when the process is killed."""
