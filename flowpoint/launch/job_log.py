"""The log of a job: its events, one line each, in the file that also takes the output of its workers.

How it works: the file is opened for appending and each event is one `write`, so lines of several processes never mix.
Not here: turning the log over (`launch.claim`), reading it (`cli.logs`).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from flowpoint.launch.control import Event


class JobLog:
    """Appends events to a log file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: Event, wall_ms: int) -> None:
        """Append one event, with its traceback when it has one.

        A full disk must not end a job that can wait for room (rule 23): then the line is lost, and only it.
        """
        time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = f"{time} {event.kind}: {event.text}\n"
        trace = str(event.data.get("trace") or "")
        if trace:
            text += trace.rstrip("\n") + "\n"
        try:
            os.write(self._file, text.encode(errors="backslashreplace"))
        except OSError:
            return

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
