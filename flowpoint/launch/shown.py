"""The shell's view on a run, in a thread of its own: output that nobody takes holds up nothing but itself.

A terminal can be held (Ctrl-S) and a pager not be scrolled; whoever writes then stands still. The coordinator's loop must
not: it would take no checkpoint and answer nobody. So what is to be shown waits here, in order; of figures only the newest.

Invariants: `on_event` and `refresh` return at once. Events are shown in their order, and none is left out in silence: when
more than `EVENTS_MAX` wait, further ones are counted and that is shown. A view that fails is given up, and says so once.
Not here: what is shown (`cli`), the job's log, which has all of it (`launch.job_log`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from flowpoint.launch.control import Data, Event, EventKind, RunView

EVENTS_MAX: Final = 10_000
"""About ten megabytes, and half an hour of a busy job."""

_Step = Callable[[RunView], None]


class Shown:
    """A view, from any distance. Ended by `close`, after which nothing is shown any more."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._changed = threading.Condition()
        self._waiting: deque[_Step] = deque()
        self._figures: _Step | None = None
        self._left_out = 0
        self._is_closed = False
        self._problem = ""
        self._thread: threading.Thread | None = None

    @property
    def shows_figures(self) -> bool:
        """Whether `refresh` is of any use."""
        return self._view.shows_figures and not self._is_closed

    @property
    def is_behind(self) -> bool:
        """Whether the last figures have not been shown yet."""
        return self._figures is not None

    def on_event(self, event: Event) -> None:
        """Show an event."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._waiting) >= EVENTS_MAX:
                self._left_out += 1
            else:
                self._waiting.append(lambda view: view.on_event(event))
            self._begin()

    def refresh(self, status: Data, workers: Sequence[Data]) -> None:
        """Show new figures, in place of those that have not been shown yet. They come after the events that wait."""
        with self._changed:
            if not self._is_closed:
                self._figures = lambda view: view.refresh(status, workers)
                self._begin()

    def take_problem(self) -> str:
        """Why nothing is shown any more, told once; "" when all is well."""
        with self._changed:
            problem, self._problem = self._problem, ""
            return problem

    def close(self) -> None:
        """Wait until all has been shown. An interrupt ends the wait."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        """Let the thread know, which is begun with the first thing that is to be shown."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="view")
            self._thread.start()
        self._changed.notify()

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                step(self._view)
        except Exception as error:  # noqa: BLE001  whatever an output stream may raise
            with self._changed:
                # A full disk behind stdout or a terminal that has gone ends no job.
                self._problem = f"showing the job failed, and is given up: {type(error).__name__}: {error}"
                self._is_closed = True
                self._waiting.clear()
                self._figures = None

    def _next(self) -> _Step | None:
        """What is to be shown next; None when all has been, and no more comes."""
        with self._changed:
            while True:
                if self._waiting:
                    return self._waiting.popleft()
                if self._left_out:
                    return self._told_left_out()
                if self._figures is not None:
                    step, self._figures = self._figures, None
                    return step
                if self._is_closed:
                    return None
                self._changed.wait()

    def _told_left_out(self) -> _Step:
        left_out, self._left_out = self._left_out, 0
        text = f"{left_out:,} events are not shown, as nobody took what was shown before; the job's log has them"
        return lambda view: view.on_event(Event(EventKind.WARNING, text))
