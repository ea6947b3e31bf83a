"""Which run has a thread, as an interface, and among the runs of one process.

Threads are given by the part that names them in keys.

Invariants: one run at most has a thread. A process that dies leaves what its runs had.

Not here: when a run takes a thread and leaves it (`running`), what it means for others that it has it (`conflicts`), the
runs of other processes (`folder_holders`).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Protocol

Leave = Callable[[], None]


class Holders(Protocol):
    """Who has which thread of a store."""

    def holder(self, thread: str) -> str | None:
        """The name of the run that has a thread."""

    def take(self, thread: str, run: str) -> Leave | None:
        """Have a thread, until what is returned is called; None when another run has it."""


class LocalHolders:
    """The runs of one process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs: dict[str, str] = {}

    def holder(self, thread: str) -> str | None:
        """See `Holders`."""
        return self._runs.get(thread)

    def take(self, thread: str, run: str) -> Leave | None:
        """See `Holders`."""
        with self._lock:
            if thread in self._runs:
                return None
            self._runs[thread] = run
        return lambda: self._leave(thread)

    def _leave(self, thread: str) -> None:
        with self._lock:
            del self._runs[thread]
