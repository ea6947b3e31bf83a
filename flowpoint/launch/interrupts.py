"""What Ctrl-C and SIGTERM ask of a job: the first time to stop gracefully, the second time to end at once.

A terminal that is closed sends SIGHUP, often more than once: that asks for a stop, and never for more. Where it is ignored
from the start (`nohup`), it stays so.

A job that waits to be restarted has nothing in flight that a last checkpoint could hold, and may wait for a minute: it is
cancelled at the first signal. So is one that fails again on the way to its last checkpoint, unless it restarts at once.
Nothing is lost by that: the next run goes on from the newest checkpoint.

A job that has ended is past asking: what is left is to write down how, which no signal cuts short (`as_before`).

Not here: what stopping and cancelling are (`protocol.job`); `flowpoint stop`, which waits until records flow again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from flowpoint.coordinator.checkpoint_record import CheckpointRecord
from flowpoint.launch.control import Event, EventKind

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
TERMINAL_CLOSED = "the terminal that it ran in was closed"


@contextmanager
def as_before() -> Iterator[None]:
    """At the end, signals are handled as they were at the beginning."""
    before = {number: signal.getsignal(number) for number in (*_SIGNALS, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that is not Python's was never replaced
                signal.signal(number, handler)


class Requests(Protocol):
    """What a coordinator can be asked for, as far as a signal needs it."""

    def stop(self, exit_code: int) -> asyncio.Future[CheckpointRecord]:
        """Ask for a graceful stop; the future tells whether it came about."""

    def cancel(self, exit_code: int) -> None:
        """Ask for an end without a last checkpoint."""


class Interrupts:
    """Handles the signals while it is entered. It has to be shown all events (`on_event`)."""

    def __init__(self, requests: Requests, tell: Callable[[Event], None]) -> None:
        self._requests = requests
        self._tell = tell
        self._count = 0
        self._waits = False
        self._is_cancelled = False
        self._handled: list[int] = []
        self.reason = ""
        """Why the job was asked to stop, where that is not plain to whoever asked."""

    def __enter__(self) -> None:
        for number in _SIGNALS:
            self._handle(number, self.interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._handle(signal.SIGHUP, self.hang_up)

    def _handle(self, number: int, handler: Callable[[], None]) -> None:
        asyncio.get_running_loop().add_signal_handler(number, handler)
        self._handled.append(number)

    def __exit__(self, *_: object) -> None:
        """Ignore the signals from now on, until `as_before` ends."""
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    def interrupt(self) -> None:
        """A signal has come."""
        self._count += 1
        if self._count > 1 or self._waits:
            self._cancel()
        else:
            self._requests.stop(INTERRUPTED).add_done_callback(self._on_stop_settled)

    def hang_up(self) -> None:
        """The terminal is gone."""
        if not self._count:
            self.reason = TERMINAL_CLOSED
            self.interrupt()

    def on_event(self, event: Event) -> None:
        """Something has happened to the job."""
        if event.kind is EventKind.RESTARTING:
            self._waits = bool(event.data.get("delay"))
            if self._waits and self._count:
                self._cancel()
        elif event.kind is EventKind.RUNNING:
            self._waits = False

    def _cancel(self) -> None:
        self._is_cancelled = True
        self._requests.cancel(INTERRUPTED)

    def _on_stop_settled(self, stop: asyncio.Future[CheckpointRecord]) -> None:
        """A stop that did not come about is told, and the next signal asks for one again."""
        error = None if stop.cancelled() else stop.exception()
        if error is not None and not self._is_cancelled:
            self._count = 0
            self._tell(Event(EventKind.WARNING, str(error)))
