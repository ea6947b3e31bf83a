"""A log that several processes append to, and how it is turned over without losing a line.

    log      what is written now
    log.1    what was written before, log.2 before that, ...

One process turns it: the file gets the name log.1, and an empty one takes its place. The others have it open and write on
into log.1, until each has noticed and goes over to the new file; so nothing is lost, and read from the oldest file to the
newest the lines of each process are in order. They go over as well to a file that was begun because somebody had removed
the one before.

Invariants: there is a file under the name at every moment, as far as it depends on us. The oldest file is removed by a
turn, so turns must be further apart than the others need to notice. A turn that fails moves no file aside but what it had
moved before, however often it is tried. Opening a log waits for nobody: a pipe is none.
Not here: when it is turned over, and what stands in it (`launch.job_log`); what becomes of a line that cannot be written
(`log_streams`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Final

_STREAMS: Final = (1, 2)
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


def open_log(path: Path) -> int:
    """A descriptor to append to a log and to read it, which is made when there is none. Raises OSError."""
    log = os.open(path, _FLAGS, 0o600)
    if stat.S_ISFIFO(os.fstat(log).st_mode):
        os.close(log)
        raise OSError(errno.EINVAL, "a pipe is no log", str(path))
    os.set_blocking(log, True)
    return log


def turn(path: Path, backups: int) -> None:
    """Put a log aside as `log.1`, and `log.1` as `log.2`, up to `backups` files; an empty one takes its place.

    Raises:
        OSError: it could not be done, or only in part: then the log is the same file as before.
    """
    for number in _numbers(path):
        if number > backups:  # there were to be more of them once
            _numbered(path, number).unlink(missing_ok=True)
    empty, aside, first = _hidden(path, "new"), _hidden(path, "old"), _numbered(path, 1)
    for left in (empty, aside):
        left.unlink(missing_ok=True)
    # What needs room comes before anything is moved: on a full disk it is tried again and again.
    os.close(open_log(empty))
    if not _is_same(path, first):
        os.link(path, aside)
        for number in reversed(range(1, _first_free(path, backups))):
            _numbered(path, number).replace(_numbered(path, number + 1))
        aside.replace(first)
    # else it was put aside by a turn that got no further
    empty.replace(path)


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


def _first_free(path: Path, backups: int) -> int:
    """Up to where files make room: to the first number that is free, as after a turn that broke off, else to the last."""
    return next((number for number in range(1, backups) if not _numbered(path, number).exists()), backups)


def _hidden(path: Path, use: str) -> Path:
    return path.with_name(f".{path.name}.{use}")


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except FileNotFoundError:
        return False


class Follower:
    """Keeps this process's standard output and error, which went to a log at its start, in the newest file of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was = {stream: os.fstat(stream) for stream in _STREAMS}

    def follow(self) -> None:
        """Go over to the file that has the name now, if it is another one.

        A stream that somebody has closed or sent elsewhere stays there. What cannot be opened at the moment is left for the
        next time.
        """
        try:
            now = self._path.stat()
            moved = [s for s, was in self._was.items() if _is_at(s, was) and not os.path.samestat(now, was)]
            if not moved:
                return
            newest = open_log(self._path)
        except OSError:
            return
        for stream in moved:
            os.dup2(newest, stream)
            self._was[stream] = os.fstat(newest)
        os.close(newest)


def _is_at(stream: int, was: os.stat_result) -> bool:
    """Whether a stream still goes where it went."""
    try:
        return os.path.samestat(os.fstat(stream), was)
    except OSError:
        return False


def start_following(path: Path, interval: float) -> None:
    """Follow a log for as long as the process lives, looking every `interval` seconds, whatever its event loop does."""
    follower = Follower(path)

    def run() -> None:
        while True:
            time.sleep(interval)
            follower.follow()

    threading.Thread(target=run, name="log", daemon=True).start()
