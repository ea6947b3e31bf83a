"""Wakes the coordinator for its next deadline, and tells how late it woke (rule 17).

A coordinator that stood still (a suspended laptop, Ctrl-Z, a slow disk) heard nobody meanwhile: that is nobody's
silence, and nobody is late by it. So whatever it handles first, it asks here for its own lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flowpoint.coordinator.mail import Mail, Tick


class Alarm:
    """The one timer of a coordinator's deadlines: it posts a `Tick`."""

    def __init__(self, post: Callable[[Mail], None]) -> None:
        self._post = post
        self._timer: asyncio.TimerHandle | None = None
        self._at = float("inf")

    def set(self, at: float) -> None:
        """Wake the coordinator then, and not at the time that was set before."""
        self.stop()
        self._at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._post, Tick())

    def stop(self) -> None:
        """Do not wake it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def lag(self, now: float) -> float:
        """By how many seconds it has missed the time that was set; at least 0."""
        return max(0.0, now - self._at)
