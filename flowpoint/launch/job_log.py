"""The log of a job: its events, one line each, in the file that also takes what its workers say and print.

How it works: the file is opened for appending and each event is one `write`, so lines of several processes never mix.
What stands between our own writes came from the workers: a line in the form of an event is FlowPoint's, everything else
is what the job printed. So it can be told at the end without anybody having looked at it meanwhile.

A log that has become too long is put aside (`host.log_files`). Workers go over to the new file a moment later; so the file
before is kept open, too, for what they have printed at the end of it. The same happens when somebody has removed the log, to
have its room, or put it aside himself: it is begun anew, or nobody would find what comes from then on.

Invariant: nothing is kept in memory but the places of the last `GAPS_MAX` gaps of two files.
Not here: reading it (`cli.logs`).
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flowpoint.errors import StorageError
from flowpoint.host import log_files
from flowpoint.launch.control import Event
from flowpoint.model.settings import LogSettings

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


class _Part:
    """One file of the log, and what others have written into it since it was opened here."""

    def __init__(self, path: Path) -> None:
        self.file = log_files.open_log(path)
        self._end = self.size()
        self._gaps: deque[tuple[int, int]] = deque(maxlen=GAPS_MAX)
        self.gap_bytes = 0

    def size(self) -> int:
        return os.fstat(self.file).st_size

    def append(self, data: bytes) -> None:
        """Raises OSError."""
        written = os.write(self.file, data)
        end = os.lseek(self.file, 0, os.SEEK_CUR)  # after an append: where it ended, wherever others have written
        self._remember_gap(end - written)
        self._end = end

    def look(self) -> None:
        """What was written after our last line counts, too."""
        size = self.size()
        self._remember_gap(size)
        self._end = size

    def _remember_gap(self, until: int) -> None:
        """Others wrote from our last line `until` here."""
        if until > self._end:
            self._gaps.append((self._end, until))
            self.gap_bytes += until - self._end

    def newest_first(self, room: int) -> Iterator[bytes]:
        """What others have written, as far as it has `room`; the last bytes of what has not."""
        for start, end in reversed(self._gaps):
            taken = min(room, end - start)
            yield os.pread(self.file, taken, end - taken)
            room -= taken


class JobLog:
    """Appends events to a log, knows what came between them, and turns it over."""

    def __init__(self, path: Path, settings: LogSettings, *, apart_seconds: float = 0) -> None:
        """Turns the log over if what earlier runs have left is too long.

        Args:
            apart_seconds: the shortest time between two turns, in which all who write into the log go over to a new file.

        Raises:
            StorageError: the file cannot be written.
        """
        self._path = path
        self._settings = settings
        self._apart_seconds = apart_seconds
        self._turned_at: float | None = None
        self._passed_bytes = 0  # what others have written into files that are closed here
        try:
            self._parts = [_Part(path)]
        except OSError as error:
            raise StorageError(
                f"cannot write the log of the job, {path}: {error.strerror}; nobody but FlowPoint puts anything there: "
                f"{'remove it' if isinstance(error, IsADirectoryError) else 'check the disk and its permissions'}"
            ) from error
        if self._is_long():
            with suppress(OSError):  # `look_after` tries again, and tells
                self._turn()

    def write(self, event: Event, wall_ms: int) -> None:
        """Append one event, with its traceback when it has one.

        A full disk must not end a job that can wait for room (rule 23): then the line is lost, and only it.
        """
        text = line_of(event.kind, event.text, wall_ms)
        trace = str(event.data.get("trace") or "")
        if trace:
            text += trace.rstrip("\n") + "\n"
        try:
            self._parts[-1].append(text.encode(errors="backslashreplace"))
        except OSError:
            return

    def look_after(self, now: float) -> str:
        """Begin the log anew if somebody has removed it, or turn it over if it has become too long.

        What cannot be done at the moment, on a full disk say, is tried again: the log goes on in the same file.

        Args:
            now: seconds of a clock that never goes back.

        Returns:
            What a person must know of it; "" when all is well.
        """
        try:
            if not self._is_in_place():
                self._go_over()
                return f"the log of the job, {self._path}, was removed or replaced; it is begun anew"
            if not os.access(self._path, os.W_OK):
                # Here it is open, but no worker that starts from now on can write into it.
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self._path))
            is_early = self._turned_at is not None and now - self._turned_at < self._apart_seconds
            if not is_early and self._is_long():
                self._turn()
                self._turned_at = now
        except OSError as error:
            return (
                f"cannot write the log of the job, {self._path}, or put it aside: {error.strerror or error}; what workers "
                f"print may be lost, or the file grow too long; see that {self._path.parent} is there and can be written, "
                "and that nothing but FlowPoint puts files there"
            )
        return ""

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._parts[-1].file))
        except FileNotFoundError:
            return False

    def _is_long(self) -> bool:
        return 0 < self._settings.max_bytes < self._parts[-1].size()

    def _turn(self) -> None:
        """Raises OSError."""
        log_files.turn(self._path, self._settings.backups)
        self._go_over()

    def _go_over(self) -> None:
        """Go on in the file that has the name now. Raises OSError: in the one before."""
        newest = _Part(self._path)
        log_files.move_streams(self._parts[-1].file, newest.file)
        self._parts.append(newest)
        for part in self._parts[:-2]:
            part.look()
            self._passed_bytes += part.gap_bytes
            os.close(part.file)
        del self._parts[:-2]

    def printed(self) -> Printed:
        """What the job's functions and sinks have printed since this log was opened."""
        blocks: deque[bytes] = deque()
        room = LOOKED_AT_BYTES_MAX
        for part in reversed(self._parts):
            part.look()
            for block in part.newest_first(room):
                blocks.appendleft(block)
                room -= len(block)
        written = self._passed_bytes + sum(part.gap_bytes for part in self._parts)
        is_whole = written == LOOKED_AT_BYTES_MAX - room
        lines = [line for line in b"".join(blocks).splitlines() if not _OUR_LINE.match(line)]
        if not is_whole and len(lines) > 1:
            del lines[0]  # it may be the end of one
        last = (line.decode(errors="backslashreplace") for line in lines[-LAST_LINES:])
        return Printed(len(lines) if is_whole else None, tuple(last))

    def close(self) -> None:
        """Close its files."""
        for part in self._parts:
            os.close(part.file)
