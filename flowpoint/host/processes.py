"""Child processes: starting workers, being sure that they die with their parent, ending those of an earlier run.

A worker is started in a session of its own, so that Ctrl-C in a terminal reaches only the coordinator (rule 17). It
dies with its parent in two ways: here, by the kernel's parent-death signal where there is one, and in `host.heartbeat`,
by the end of its heartbeat link, everywhere.

A process is named by (pid, start time): see `start_times`.
Not here: when to start or kill (`coordinator`), the worker's main (`launch`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from flowpoint.errors import InternalError, TransientError, UsageError, WorkerLost
from flowpoint.host.base import COPY_EXIT_CODE, ORPHANED_EXIT_CODE
from flowpoint.host.log_files import open_log
from flowpoint.host.module_path import command_of
from flowpoint.host.start_times import TOLERANCE_SECONDS, is_same_start

PR_SET_PDEATHSIG = 1
_OPEN_FILES_MAX = 10_240
"""As many as macOS grants whatever it says its limit is."""

_OPEN_FILES_MIN = 48
_OPEN_FILES_PER_WORKER = 4
"""Of any process of a job, at its start: links to each other, files of its state, those that Python has open."""

KILL_SECONDS_MAX = 10.0
"""A process that is still there so long after SIGKILL hangs in the kernel."""

LOOK_SECONDS = 0.05
"""How often a dying process is looked at."""


def module_of(role: str) -> str:
    """The module that is the main of a role."""
    if role != "worker":
        raise InternalError(f"there is no process role {role!r}")
    return "flowpoint.launch.worker_main"


def start_time_of(pid: int) -> float:
    """When a process started, epoch seconds; 0.0 when it has ended already."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0.0


class SystemProcess:
    """A child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._start_time = start_time_of(process.pid)
        self._has_ended = False

    @property
    def pid(self) -> int:
        """See `host.base.Process`."""
        return self._process.pid

    @property
    def start_time(self) -> float:
        """See `host.base.Process`."""
        return self._start_time

    async def wait(self) -> int:
        """See `host.base.Process`. What it has started itself, and left behind, is ended when it ends."""
        code = await self._process.wait()
        if not self._has_ended:
            # Not once more by whoever asks later: then the number may be that of somebody else's group.
            self._has_ended = True
            _kill_group(self._process.pid)
        return code

    def kill(self) -> None:
        """See `host.base.Process`."""
        with suppress(ProcessLookupError):
            self._process.kill()


async def start_process(module: str, args: Sequence[str], log_path: str | None) -> SystemProcess:
    """Run the `main()` of a module in a new interpreter and session; what it prints is appended to `log_path` (None: shared).

    A log that cannot be opened keeps no process from starting: what it prints is lost until it can (`log_files.Follower`).
    Must be called in the thread that lives as long as this process: the parent-death signal follows the thread.

    Raises:
        WorkerLost: the system refuses another process, or another open file.
    """
    log: int | None = None
    try:
        log = None if log_path is None else _open_log(Path(log_path))
        process = await asyncio.create_subprocess_exec(
            *command_of(module),
            *args,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise WorkerLost(
            f"cannot start a process for {module}: {error.strerror}; see the limits of this user"
        ) from error
    finally:
        if log is not None:
            os.close(log)
    return SystemProcess(process)


def _open_log(path: Path) -> int:
    try:
        return open_log(path)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _kill_group(leader: int) -> None:
    """End what is left of the group of a process that has ended. As long as there is any, no other can have its number."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """End this process when its parent ends. Called first of all in a child; `parent` is the pid of who started it.

    Without the kernel's help (macOS) only a parent that has ended already is seen here; the heartbeat does the rest.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise InternalError(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the signal was asked for.
    if os.getppid() != parent:
        os._exit(ORPHANED_EXIT_CODE)


def end_copy(name: str) -> NoReturn:
    """End this process, a fork of the one called `name`, without a touch to what it shares with it."""
    text = (
        f"flowpoint: pid {os.getpid()} is a copy of {name} made by os.fork() in a function, and was ended when it returned "
        "from it: a child must end by os._exit()\n"
    )
    with suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, text.encode())
    os._exit(COPY_EXIT_CODE)


def allow_open_files() -> None:
    """Let this process have as many files open as its user may: restored state is read from the files it lies in."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def require_open_files(workers: int) -> None:
    """Refuse to start what would fail, again and again, for want of files that may be open.

    Raises:
        UsageError: this user's limit is too low for a job with so many workers.
    """
    allow_open_files()
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OPEN_FILES_MIN + _OPEN_FILES_PER_WORKER * workers
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise UsageError(
            f"cannot run a job with {workers} workers where a process may have {allowed} files open: it needs "
            f"{needed}; raise the limit with `ulimit -n {max(1024, needed)}`"
        )


def kill_stale(pid: int, start_time: float) -> bool:
    """SIGKILL exactly the process (pid, start time), wait until it is gone, and end what it had started. Blocks.

    Returns:
        False when that process is not there: the pid is free, has a new owner, or is only waiting to be reaped.

    Raises:
        TransientError: it does not go away.
    """
    is_there = _kill(pid, start_time)
    for orphan in _left_in_session(pid, start_time):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            orphan.kill()
    return is_there


def _left_in_session(leader: int, start_time: float) -> Iterator[psutil.Process]:
    """The processes of a session whose leader has ended, and was the process (leader, start time).

    The number of a session is not given to a new process while one is left of it. So none of these is a stranger, unless
    all had ended, another process got the number, made a session, and ended before what it has started in it.
    """
    with suppress(psutil.NoSuchProcess):
        # It may still be there, waiting to be reaped.
        if not is_same_start(psutil.Process(leader).create_time(), start_time):
            return
    for pid in psutil.pids():
        # Of strangers nothing else is asked: there may be very many.
        with suppress(psutil.Error, OSError):
            if (
                os.getsid(pid) == leader
                and (process := psutil.Process(pid)).create_time() >= start_time - TOLERANCE_SECONDS
            ):
                yield process


def _kill(pid: int, start_time: float) -> bool:
    """End one process: see `kill_stale`."""
    try:
        process = psutil.Process(pid)
        if not is_same_start(process.create_time(), start_time) or process.status() == psutil.STATUS_ZOMBIE:
            return False
        # psutil looks again whether it is the same process before it sends a signal.
        process.kill()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied as error:
        raise TransientError(f"cannot end process {pid} of an earlier run: it belongs to another user") from error
    if not wait_dead(process):
        raise TransientError(
            f"cannot end process {pid} of an earlier run: it is still there {KILL_SECONDS_MAX:.0f} s after SIGKILL; "
            "it probably hangs in a disk operation"
        )
    return True


def wait_dead(process: psutil.Process) -> bool:
    """Block until a process runs no more; False when it still does after `KILL_SECONDS_MAX`.

    Whoever adopted it may take its time to reap it, or never do so in a container. It is dead all the same.
    """
    for _ in range(round(KILL_SECONDS_MAX / LOOK_SECONDS)):
        try:
            process.wait(LOOK_SECONDS)
        except psutil.TimeoutExpired:
            if _is_zombie(process):
                return True
        else:
            return True
    return False


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
