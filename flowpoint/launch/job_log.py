"""The log of a job: its events, one line each, in the file that also takes what its workers say and print.

How it works: the file is opened for appending and each event is one `write`, so lines of several processes never mix.
What stands between our own writes came from the workers: a line in the form of an event is FlowPoint's, everything else
is what the job printed. So it can be told at the end without anybody having looked at it meanwhile.

Invariant: nothing is kept in memory but the places of the last `GAPS_MAX` gaps.
Not here: turning the log over (`launch.claim`), reading it (`cli.logs`).
"""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flowpoint.errors import StorageError
from flowpoint.launch.control import Event

GAPS_MAX = 1000
LOOKED_AT_BYTES_MAX = 1024 * 1024
LAST_LINES = 10

_OUR_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [a-z_]+: ")


@dataclass(frozen=True, slots=True)
class Printed:
    """What a job printed. `lines` is how many lines, or None when they were too many to look at; `last` the last ones."""

    lines: int | None
    last: tuple[str, ...]


def line_of(kind: str, text: str, wall_ms: int) -> str:
    """A line of the log in the form that all lines of FlowPoint's have."""
    time = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{time} {kind}: {text}\n"


class JobLog:
    """Appends events to a log file, and knows what came between them."""

    def __init__(self, path: Path) -> None:
        """Raises StorageError: the file cannot be written."""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(
                f"cannot write the log of the job, {path}: {error.strerror}; nobody but FlowPoint puts anything there: "
                f"{'remove it' if isinstance(error, IsADirectoryError) else 'check the disk and its permissions'}"
            ) from error
        self._end = os.lseek(self._file, 0, os.SEEK_END)
        self._gaps: deque[tuple[int, int]] = deque(maxlen=GAPS_MAX)
        self._gap_bytes = 0

    def write(self, event: Event, wall_ms: int) -> None:
        """Append one event, with its traceback when it has one.

        A full disk must not end a job that can wait for room (rule 23): then the line is lost, and only it.
        """
        text = line_of(event.kind, event.text, wall_ms)
        trace = str(event.data.get("trace") or "")
        if trace:
            text += trace.rstrip("\n") + "\n"
        try:
            written = os.write(self._file, text.encode(errors="backslashreplace"))
        except OSError:
            return
        end = os.lseek(self._file, 0, os.SEEK_CUR)  # after an append: where it ended, wherever others have written
        self._remember_gap(end - written)
        self._end = end

    def _remember_gap(self, until: int) -> None:
        """Others wrote from our last line `until` here."""
        if until > self._end:
            self._gaps.append((self._end, until))
            self._gap_bytes += until - self._end

    def printed(self) -> Printed:
        """What the job's functions and sinks have printed since this log was opened."""
        self._remember_gap(os.fstat(self._file).st_size)
        self._end = os.fstat(self._file).st_size
        blocks: deque[bytes] = deque()
        room = LOOKED_AT_BYTES_MAX
        for start, end in reversed(self._gaps):
            taken = min(room, end - start)
            blocks.appendleft(os.pread(self._file, taken, end - taken))
            room -= taken
        is_whole = self._gap_bytes == LOOKED_AT_BYTES_MAX - room
        lines = [line for line in b"".join(blocks).splitlines() if not _OUR_LINE.match(line)]
        if not is_whole and len(lines) > 1:
            del lines[0]  # it may be the end of one
        last = (line.decode(errors="backslashreplace") for line in lines[-LAST_LINES:])
        return Printed(len(lines) if is_whole else None, tuple(last))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
