"""What `flowpoint run` prints where there is no terminal: a line per event, a JSON object per event, or, in the
background, one word to the shell that waits.

Invariants: a view never ends the job. When nobody reads its output any more, it falls silent.
Not here: the live table (`cli.live`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from flowpoint.cli import failure
from flowpoint.launch.control import LAST_EVENTS, Data, Event, EventKind


class View:
    """The base: remembers which job it is and why it failed, and shows nothing."""

    shows_figures = False

    def __init__(self) -> None:
        self.failure: Event | None = None
        self.job = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave the terminal as it should stay."""

    def on_event(self, event: Event) -> None:
        """Show one event."""
        if event.kind is EventKind.STARTED:
            self.job = str(event.data["name"])
        elif event.kind is EventKind.FAILED:
            self.failure = event

    def refresh(self, status: Data, workers: Sequence[Data]) -> None:
        """Show new figures."""


class _Stream(View):
    """Prints text until nobody reads it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream: TextIO | None = stream

    def _print(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            failure.show_no_more(self._stream)
            self._stream = None


def sentence_of(event: Event) -> str:
    """An event for a person, who must see a warning as one."""
    return f"warning: {event.text}" if event.kind is EventKind.WARNING else event.text


def short_of(event: Event, job: str) -> str:
    """The same, where the whole of a failure follows on stderr."""
    job = str(event.data.get("name", job))
    return f"job {job} failed" if event.kind is EventKind.FAILED and job else sentence_of(event)


def printed_lines(event: Event, job: str) -> list[str]:
    """The end of what the job printed, which its last event carries: a beginner's `print` must not seem lost."""
    printed = event.data.get("printed")
    if not printed:
        return []
    lines, last = printed["lines"], printed["last"]
    count = "many lines" if lines is None else f"{lines} line{'s' * (lines != 1)}"
    shown = "" if lines == len(last) else f"; the last {len(last)}"
    return [f"printed output, {count} (all: `flowpoint logs {job}`){shown}:", *(f"    {line}" for line in last)]


class Lines(_Stream):
    """One line per event, with the time of day."""

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        for line in (*printed_lines(event, self.job), short_of(event, self.job)):
            self._print(line if line.startswith("    ") else f"{time.strftime('%H:%M:%S')} {line}")


class JsonLines(_Stream):
    """One JSON object per event: {"time": epoch ms, "event": kind, "text": ..., "data": {...}}."""

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        line: dict[str, Any] = {"time": time.time_ns() // 1_000_000, "event": event.kind.value, "text": event.text}
        self._print(json.dumps(line | {"data": dict(event.data)}))


class Announcer(View):
    """The view of a job in the background: keeps the terminal until the job runs, then tells the waiting shell.

    From then on this process's output goes to the job's log. A job that fails before that tells so on the terminal.
    """

    def __init__(self, ready_fd: int) -> None:
        super().__init__()
        os.set_inheritable(ready_fd, False)
        self._ready_fd: int | None = ready_fd
        self._started: dict[str, Any] = {}

    def on_event(self, event: Event) -> None:
        super().on_event(event)
        if self._ready_fd is None:
            return
        if event.kind is EventKind.STARTED:
            self._started = dict(event.data)
        elif event.kind is EventKind.RUNNING:
            self._leave_terminal(self._ready_fd)
            self._ready_fd = None
        elif event.kind is EventKind.WARNING:
            print(sentence_of(event), file=sys.stderr, flush=True)
        elif event.kind in LAST_EVENTS and event.kind is not EventKind.FAILED:
            print(event.text, flush=True)

    def _leave_terminal(self, ready_fd: int) -> None:
        ready = {"name": self._started["name"], "pid": self._started["pid"], "log": self._started["log"]}
        log = os.open(ready["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        sys.stdout.flush()
        sys.stderr.flush()
        # By their numbers: sys.stdout may stand for stderr, so that what the job file prints comes aside.
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        with open(ready_fd, "w") as shell:
            shell.write(json.dumps(ready) + "\n")
