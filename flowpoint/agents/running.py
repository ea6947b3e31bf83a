"""Runs that tell when they end: from its first checkpoint until then the thread of such a run is its own.

Nobody can tell from a checkpoint whether the run that put it is going or has crashed. So a run that can tell when it
ends (`retry`) is begun here, and its name travels with its puts: the first takes the thread, the end leaves it.

Invariants: a run that has ended takes nothing any more, whatever of it is still under way. One that has lost a thread
puts nothing there any more, also when the thread is free by then.

Not here: who has a thread, among all runs (`holders`); what that means for a put (`conflicts`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

from flowpoint.agents.entry_names import Place
from flowpoint.agents.holders import Holders, Leave
from flowpoint.agents.kv import part
from flowpoint.errors import ConcurrentRunError


class Run:
    """One run of a graph."""

    def __init__(self, holders: Holders) -> None:
        self.name = f"{os.getpid()}.{secrets.token_hex(8)}"
        """Begins with the pid, for those who are told of it."""
        self.refused: Place | None = None
        """Where something of it was refused because of another run."""
        self.landed: dict[Place, str] = {}
        """The first checkpoint that it put at the head, by place."""
        self._reads: dict[Place, tuple[str | None, bool]] = {}
        self._holders = holders
        self._lock = Lock()
        self._threads: dict[str, Leave] = {}
        self._lost: set[str] = set()
        self._ended = False

    def read(self, place: Place, id: str | None, *, explicit: bool) -> None:
        """It has read a head, or a checkpoint of its choice: the first time in a place is what its puts are made from."""
        self._reads.setdefault(place, (id, explicit))

    def reads_of(self, thread: str) -> dict[Place, str | None]:
        """The heads of a thread that it has read."""
        reads = list(self._reads.items())
        return {place: id for place, (id, explicit) in reads if place.thread == thread and not explicit}

    def has(self, thread: str) -> bool:
        """Whether it has a thread."""
        return part(thread) in self._threads

    def other(self, thread: str) -> str | None:
        """Who else has a thread. If there is none, this run has it until it ends."""
        key = part(thread)
        with self._lock:
            while key not in self._threads and not self._ended:
                leave = self._holders.take(key, self.name)
                if leave is not None:
                    self._threads[key] = leave
                elif (holder := self._holders.holder(key)) is not None:
                    return holder
            return self._holders.holder(key) if self._ended else None

    def check_not_lost(self, thread: str, id: str) -> None:
        """Refuse to put a checkpoint if an earlier one was refused: nodes may go on running for a while after that.

        Raises:
            ConcurrentRunError: as said.
        """
        if thread in self._lost:
            raise ConcurrentRunError(
                f"cannot save checkpoint {id} of thread {thread!r}: its run has lost the thread to another one, so that "
                "nothing of it is kept; run again"
            )

    def lose(self, thread: str) -> None:
        """Let go of a thread before the end, and for good: another run came first."""
        self._lost.add(thread)
        with self._lock:
            leave = self._threads.pop(part(thread), None)
        if leave is not None:
            leave()

    def end(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._ended = True
            leaving = list(self._threads.values())
            self._threads.clear()
        with ExitStack() as stack:  # of which each is left, whatever becomes of the others
            for leave in leaving:
                stack.callback(leave)


class Runs:
    """The runs of one saver that tell when they end, by their names."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._runs: dict[str, Run] = {}

    @contextmanager
    def begun(self) -> Iterator[Run]:
        """A run, which ends when the block does."""
        run = Run(self._holders)
        self._runs[run.name] = run
        try:
            yield run
        finally:
            del self._runs[run.name]
            run.end()

    def get(self, name: str | None) -> Run | None:
        """The run of a name, if it was begun here and is going."""
        return None if name is None else self._runs.get(name)

    def holder(self, thread: str) -> str | None:
        """The name of the run that has a thread, wherever it was begun."""
        return self._holders.holder(part(thread))

    def other(self, thread: str, name: str | None) -> str | None:
        """Who else has a thread than the run of this name, which has it from now on if there is none."""
        run = None if name is None else self._runs.get(name)
        if run is not None:
            return run.other(thread)
        # Of a run that was begun with another saver this one knows the name, where its graph serves a node.
        holder = self._holders.holder(part(thread))
        return None if holder == name else holder
