"""A log that several processes append to, and how it is turned over without losing a line.

    log      what is written now
    log.1    what was written before, log.2 before that, ...

One process turns it: the file gets the name log.1, and an empty one takes its place. The others have it open and write on
into log.1, until each has noticed and goes over to the new file; so nothing is lost, and read from the oldest file to the
newest the lines of each process are in order.

Invariants: there is a file under the name at every moment. The oldest file is removed by a turn, so turns must be further
apart than the others need to notice.
Not here: when it is turned over, and what stands in it (`launch.job_log`).
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_STREAMS: Final = (1, 2)
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def open_log(path: Path) -> int:
    """A descriptor to append to a log and to read it, which is made when there is none. Raises OSError."""
    return os.open(path, _FLAGS, 0o600)


def turn(path: Path, backups: int) -> None:
    """Put a log aside as `log.1`, and `log.1` as `log.2`, up to `backups` files; an empty one takes its place.

    Raises:
        OSError: it could not be done, or only in part: then the log is the same file as before.
    """
    for number in _numbers(path):
        if number > backups:  # there were to be more of them once
            _numbered(path, number).unlink(missing_ok=True)
    for number in range(backups - 1, 0, -1):
        with suppress(FileNotFoundError):
            _numbered(path, number).replace(_numbered(path, number + 1))
    first = _numbered(path, 1)
    first.unlink(missing_ok=True)
    os.link(path, first)
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    os.close(open_log(draft))
    draft.replace(path)


def files_of(path: Path) -> list[Path]:
    """The files of a log that are there, newest first. Others may turn it meanwhile."""
    return [path, *(_numbered(path, number) for number in _numbers(path))]


def move_streams(before: int, after: int) -> None:
    """Let this process's standard output and error go to another file, as far as they went to the one before."""
    for stream in _STREAMS:
        if os.path.samestat(os.fstat(stream), os.fstat(before)):
            os.dup2(after, stream)


def _numbers(path: Path) -> list[int]:
    pattern = re.compile(rf"{re.escape(path.name)}\.([1-9]\d*)")
    return sorted(int(match[1]) for name in os.listdir(path.parent) if (match := pattern.fullmatch(name)))


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


class Follower:
    """Keeps this process's standard output and error, which went to a log at its start, in the newest file of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was = {stream: os.fstat(stream) for stream in _STREAMS}

    def follow(self) -> None:
        """Go over to the file that has the name now, if it is another one.

        A stream that somebody has sent elsewhere stays there. What cannot be opened at the moment is left for the next time.
        """
        try:
            now = self._path.stat()
            mine = [s for s, was in self._was.items() if os.path.samestat(os.fstat(s), was)]
            if all(os.path.samestat(now, self._was[stream]) for stream in mine):
                return
            newest = open_log(self._path)
        except OSError:
            return
        for stream in mine:
            os.dup2(newest, stream)
            self._was[stream] = os.fstat(newest)
        os.close(newest)


def start_following(path: Path, interval: float) -> None:
    """Follow a log for as long as the process lives, looking every `interval` seconds, whatever its event loop does."""
    follower = Follower(path)

    def run() -> None:
        while True:
            time.sleep(interval)
            follower.follow()

    threading.Thread(target=run, name="log", daemon=True).start()
