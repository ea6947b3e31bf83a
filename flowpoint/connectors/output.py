"""PrintSink and CallbackSink: output that leaves the job at once, and therefore at least once.

Records go out as they come, before any checkpoint covers them. After a failure everything since the last checkpoint
comes again. There is nothing to prepare, commit, abort or take back; `_DirectSink` says so once for both.
Not here: exactly-once output (`files_sink`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from flowpoint.errors import BadRecordError, PlanError, UserCodeError
from flowpoint.runtime.contracts import AT_LEAST_ONCE, ConnectorContext
from flowpoint.runtime.failures import shorten


class _DirectSink:
    """A sink without a second phase."""

    guarantee = AT_LEAST_ONCE

    @property
    def can_take_back(self) -> bool:
        """What is out is out."""
        return False

    async def begin(self, ctx: ConnectorContext) -> None:
        """Nothing to claim."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        """Nothing to publish."""

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        """Nothing to throw away."""

    async def clean(self, ctx: ConnectorContext) -> None:
        """Nothing to clean."""


class _DirectWriter:
    """A writer that keeps nothing."""

    async def prepare(self, checkpoint: int) -> None:
        """Nothing is held back, so there is nothing to commit."""

    async def close(self) -> None:
        """Nothing to release."""


class PrintSink(_DirectSink):
    """Prints each record on a line of its own. At-least-once: after a failure some lines come again.

    It prints to the standard output of the process that runs the subtask: with `Job.run()` and in notebooks that is
    yours; under `flowpoint run` a worker's output goes to the job's log, where `flowpoint logs JOB -f` shows it, and `run`
    shows its last lines when the job ends.

    >>> PrintSink()
    PrintSink()
    """

    def __repr__(self) -> str:
        return "PrintSink()"

    async def open(self, ctx: ConnectorContext) -> _PrintWriter:
        """A writer to the standard output."""
        return _PrintWriter(ctx.uid)


class _PrintWriter(_DirectWriter):
    def __init__(self, uid: str) -> None:
        self._uid = uid

    async def write(self, batch: list[Any]) -> None:
        if batch:
            lines: list[str] = []
            try:
                lines.extend(map(str, batch))
            except RecursionError:
                kind = type(batch[len(lines)]).__name__
                raise BadRecordError(
                    f"sink {self._uid!r} cannot print a value of type {kind}: it is nested too deeply or contains"
                    " itself; flatten it before the sink"
                ) from None
            # Looked up at each write: notebooks and test runners replace sys.stdout while a job runs.
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


class CallbackSink(_DirectSink):
    """Calls a function, plain or async, with each record. At-least-once: after a failure some records come again.

    The function runs in the process of the subtask, record by record and in order; while it runs, so waits the stream.

    >>> seen = []
    >>> sink = CallbackSink(seen.append)
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        """Raises PlanError when `fn` cannot be called."""
        if not callable(fn):
            raise PlanError(f"CallbackSink: {fn!r} is not a function; pass one that takes a record")
        self._fn = fn

    def __repr__(self) -> str:
        return f"CallbackSink({getattr(self._fn, '__qualname__', self._fn)})"

    async def open(self, ctx: ConnectorContext) -> _CallbackWriter:
        """A writer that calls the function."""
        return _CallbackWriter(self._fn, ctx.uid)


class _CallbackWriter(_DirectWriter):
    def __init__(self, fn: Callable[[Any], Any], uid: str) -> None:
        self._fn = fn
        self._uid = uid

    async def write(self, batch: list[Any]) -> None:
        fn = self._fn
        for value in batch:
            try:
                result = fn(value)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                raise UserCodeError(
                    f"the function of sink {self._uid!r} failed with {type(error).__name__}: {error};"
                    f" the record was {shorten(value, 200)}"
                ) from error
