"""A run that tells when it ends: from its first checkpoint until then its thread is its own.

Nobody can tell from a checkpoint whether the run that put it is going or has crashed. So a run that can tell when it
ends (`retry`) carries a `Run`, which takes the thread with the first put of the run and leaves it at the end.

Invariants: a run that has ended takes nothing any more, whatever of it is still under way.

Not here: who has a thread, among all runs (`holders`); what that means for a put (`conflicts`).
"""

from __future__ import annotations

import os
import secrets
from threading import Lock
from types import TracebackType
from typing import Self

from flowpoint.agents.entry_names import Place
from flowpoint.agents.holders import Holders, Leave
from flowpoint.agents.kv import part


class Run:
    """One run of a graph. LangGraph carries it, in `configurable`, to every put of the run."""

    def __init__(self) -> None:
        self.name = f"{os.getpid()}.{secrets.token_hex(8)}"
        """Begins with the pid, for those who are told of it."""
        self.refused: Place | None = None
        """Where something of it was refused because of another run."""
        self.landed: dict[Place, str] = {}
        """The first checkpoint that it put at the head, by place."""
        self._lock = Lock()
        self._threads: dict[tuple[Holders, str], Leave] = {}
        self._ended = False

    def has(self, holders: Holders, thread: str) -> bool:
        """Whether it has a thread."""
        return (holders, part(thread)) in self._threads

    def other(self, holders: Holders, thread: str) -> str | None:
        """Who else has a thread. If there is none, this run has it until it ends."""
        key = holders, part(thread)
        with self._lock:
            while key not in self._threads and not self._ended:
                leave = holders.take(key[1], self.name)
                if leave is not None:
                    self._threads[key] = leave
                elif (holder := holders.holder(key[1])) is not None:
                    # The same store may be open twice, once for a sub-graph.
                    return None if holder == self.name else holder
            return holders.holder(key[1]) if self._ended else None

    def leave(self, holders: Holders, thread: str) -> None:
        """Let go of a thread before the end."""
        with self._lock:
            leave = self._threads.pop((holders, part(thread)), None)
        if leave is not None:
            leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._ended = True
            leaving = list(self._threads.values())
            self._threads.clear()
        for leave in leaving:
            leave()
