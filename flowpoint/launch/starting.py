"""Runs that are about to start and hold no job yet: before its file has been executed nobody knows the name of a job.

How it works: as long as that lasts, a file in `jobs/.starting` says which job file is being started, and under which name
if one was given. The process that starts holds a lock on it, which the kernel gives up with the process; so a file that
nobody holds is of a start that was killed, and whoever meets it removes it.

Invariant: a file is locked before it can be seen. Not being able to write one keeps no job from starting.
Not here: who holds a job (`launch.claim`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flowpoint.launch.home import Home, JobFolder, RunRecord

_FOLDER = ".starting"
"""Beside the folders of jobs, none of which can have this name."""


@contextmanager
def announced(home: Home, job_file: str, name: str | None) -> Iterator[Callable[[], None]]:
    """Let others know of a start for the length of the block, or until what it gives is called: the job is held by then."""
    lock = _announce(home.root / "jobs" / _FOLDER, json.dumps([os.path.abspath(job_file), name]))
    held = [lock] if lock is not None else []

    def withdraw() -> None:
        while held:
            path, descriptor = held.pop()
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(descriptor)

    try:
        yield withdraw
    finally:
        withdraw()


def _announce(folder: Path, content: str) -> tuple[Path, int] | None:
    """The file and the descriptor that holds its lock; None where there cannot be one."""
    token = secrets.token_hex(8)
    draft = folder / f".{token}"
    try:
        # Not in a home that is not there yet: nobody can ask for a job of it.
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, content.encode())
        draft.rename(folder / token)
    except OSError:
        os.close(descriptor)
        with suppress(OSError):
            draft.unlink()
        return None
    return folder / token, descriptor


def is_starting(folder: JobFolder, record: RunRecord | None) -> bool:
    """Whether a run of a job is about to start: by its name, or where none was given, from the file of its last run."""
    return any(
        name == folder.name if name is not None else record is not None and record.job_file == job_file
        for job_file, name in _living(folder.path.parent / _FOLDER)
    )


def _living(folder: Path) -> Iterator[tuple[str, str | None]]:
    """(job file, name) of each start whose process is there. Others are cleaned away."""
    paths = list(folder.glob("[!.]*")) if folder.is_dir() else []
    for path in paths:
        with suppress(OSError, ValueError), path.open("rb") as file:
            if _is_held(file.fileno()):
                job_file, name = json.loads(file.read())
                yield job_file, name
            else:
                path.unlink(missing_ok=True)


def _is_held(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
