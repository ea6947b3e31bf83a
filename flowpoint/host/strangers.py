"""Tells of those who connect to a private socket and do not speak FlowPoint's protocol: one line a socket and minute.

Such a link is closed, and whoever sends again and again fills no log.

Not here: what a frame means; whoever handles the frames of a link says that it is none of theirs, by LinkLost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

QUIET_SECONDS: Final = 60.0
"""After a line about one socket."""


@dataclass(slots=True)
class _Told:
    at: float
    unsaid: int = 0


class Strangers:
    """Those of one process.

    Args:
        tell: takes a line.
        clock: seconds that never go back.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._told: dict[str, _Told] = {}

    def note(self, address: str, reason: str) -> None:
        """A link that came in at this socket was closed for this reason."""
        now, before = self._clock(), self._told.get(address)
        if before is not None and now - before.at < QUIET_SECONDS:
            before.unsaid += 1
            return
        more = f" (and {before.unsaid} more since the last such line)" if before is not None and before.unsaid else ""
        self._told[address] = _Told(now)
        self._tell(f"closed a link that came in at {address}: {reason}{more}")
