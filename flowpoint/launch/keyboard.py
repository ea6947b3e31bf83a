"""Ctrl-C on a job in this very process: the loop that runs it may be in another thread, or held up by a user's function.

How it works: a signal handler in Python runs in the main thread between two instructions, whatever that thread does, and
also while it waits for another one. It tells the job's loop (`launch.interrupts` decides what that means). A job that
does not end on that, because a function in it never returns, is left at the third interrupt.

Invariants: the handler from before is back when the block is left. Outside of the main thread, and where interrupts
are ignored, nothing is handled: no Ctrl-C arrives there.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Self

PATIENCE: Final = 2
"""So many interrupts ask the job to end; the next one does not ask."""

_ADVICE: Final = (
    "interrupted: ending the job after a last checkpoint (interrupt once more to end it without one)",
    "interrupted again: ending the job without a last checkpoint (once more, and it is left as it is)",
)


class Keyboard:
    """Handles SIGINT while it is entered."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interrupt: Callable[[], None] | None = None
        self._before: Any = None
        self._count = 0

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def telling(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `interrupt` is called for each interrupt, on the loop that is running here."""
        self._interrupt = interrupt
        self._loop = asyncio.get_running_loop()
        try:
            yield
        finally:
            self._loop = None

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        if self._loop is None or self._interrupt is None or self._count > PATIENCE:
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._interrupt)
        print(f"flowpoint: {_ADVICE[self._count - 1]}", file=sys.stderr)
