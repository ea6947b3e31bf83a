"""Wakes a subtask when a processing-time timer is due.

Timers are due by the wall clock, the loop counts its own time: the alarm is a call of the loop that is set anew for each
time, and never sleeps for long on the word of a clock that may jump.

Not here: which timers are due (`state.timers`), and firing them (`subtask`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

CLOCK_DOUBT_SECONDS: Final = 1.0
"""Wall time may jump: never sleep longer than this on its word."""


class Alarm:
    """Sets `wakeup` when a time has come."""

    def __init__(self, wakeup: asyncio.Event, clock_ms: Callable[[], int]) -> None:
        self._wakeup = wakeup
        self._clock_ms = clock_ms
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None

    def set(self, due: int | None) -> None:
        """Wake at `due`, epoch ms, or at once when that is over; None: no more. Takes the place of what was set."""
        if due is not None and due == self._due and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due is not None:
            seconds = (due - self._clock_ms()) / 1000
            if seconds <= 0:
                self._wakeup.set()
            else:
                delay = min(seconds, CLOCK_DOUBT_SECONDS)
                self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wakeup.set()
