"""`flowpoint doctor`: what on this machine would keep jobs from running well, and what to do about it.

Each check looks at one thing and gives one finding. What can only be known by doing is done, in a scratch folder beside
the home that is removed again: listening, opening a database, syncing. Nothing else is changed.

Invariant: a check that cannot be made is a finding too, and keeps no other one from being made.

Not here: how findings are shown (`cli.doctor`), the health of a running job (`flowpoint status`).
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

from flowpoint.host.short_folder import ADDRESS_BYTES_MAX
from flowpoint.launch.config import available_cores
from flowpoint.launch.home import Home

PYTHON_MIN: Final = (3, 11)
ROOM_ERROR: Final = 100 << 20
ROOM_WARNING: Final = 1 << 30
FILES_ERROR: Final = 128
FILES_WARNING: Final = 1024
SYNC_WARNING_SECONDS: Final = 0.25

_REQUIREMENT: Final = re.compile(r"([\w.-]+)\s*>=\s*([\d.]+)$")


class Level(StrEnum):
    """How bad it is: jobs run well, run worse or at a risk, do not run."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do ("": nothing)."""

    check: str
    level: Level
    seen: str
    advice: str = ""


def examine(home: Home) -> list[Finding]:
    """Make all checks."""
    found = [_made(name, check) for name, check in _MACHINE.items()]
    found.append(_made("home", lambda: check_home(home.root)))
    if found[-1].level is Level.ERROR:
        # Nothing can be tried in it, and it is the one thing to mend first.
        return found
    with_home: dict[str, Callable[[], Finding]] = {
        "disk space": lambda: judge_room(shutil.disk_usage(_nearest(home.root)).free),
        "sockets": lambda: _in_scratch(home.root, lambda scratch: check_sockets(home, scratch)),
        "fsync": lambda: _in_scratch(home.root, lambda scratch: judge_sync(_sync_seconds(scratch))),
        "rocksdb": lambda: _in_scratch(home.root, check_rocksdb),
        "jobs": lambda: check_jobs(home),
    }
    return found + [_made(name, check) for name, check in with_home.items()]


def _made(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001  whatever keeps a check from being made is what it found
        return Finding(name, Level.ERROR, f"{type(error).__name__}: {error}", f"see what is wrong with that: {name}")


# ---------------------------------------------------------------------- the machine and its Python


def judge_python(version: tuple[int, int, int]) -> Finding:
    """Whether this Python will do."""
    seen = ".".join(map(str, version))
    if version[:2] < PYTHON_MIN:
        return Finding("python", Level.ERROR, seen, "install Python {}.{} or newer".format(*PYTHON_MIN))
    return Finding("python", Level.OK, seen)


def judge_packages(required: dict[str, str], found: dict[str, str | None]) -> Finding:
    """Whether the packages are there that FlowPoint needs.

    Args:
        required: name -> the oldest version that will do.
        found: name -> the installed version; None: it is not installed.
    """
    seen = ", ".join(f"{name} {version or 'is missing'}" for name, version in found.items())
    wanting = [name for name in required if _numbers(found[name] or "") < _numbers(required[name])]
    if wanting:
        what = " ".join(f"'{name}>={required[name]}'" for name in wanting)
        return Finding("packages", Level.ERROR, seen, f"install what is missing or too old: pip install {what}")
    return Finding("packages", Level.OK, seen)


def check_packages() -> Finding:
    """The packages that FlowPoint says it needs."""
    try:
        lines = metadata.requires("flowpoint") or []
    except metadata.PackageNotFoundError:
        return Finding(
            "packages",
            Level.WARNING,
            "FlowPoint is not installed but imported from a folder, so nobody knows which versions it needs",
            "pip install the folder",
        )
    required = {match[1]: match[2] for line in lines if (match := _REQUIREMENT.match(line)) is not None}
    return judge_packages(required, {name: _version(name) for name in required})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))


def check_uvloop() -> Finding:
    """Whether its loop runs."""
    import uvloop

    uvloop.run(asyncio.sleep(0))
    return Finding("uvloop", Level.OK, "its loop runs")


def judge_cores(cores: int) -> Finding:
    """How many subtasks can really run at once."""
    if cores < 2:
        return Finding(
            "cores", Level.WARNING, f"{cores}", "a job runs on as many cores as there are: give it more to be faster"
        )
    return Finding("cores", Level.OK, f"{cores}")


def judge_open_files(soft: int, hard: int) -> Finding:
    """Whether processes may open enough files. RESOURCE_INFINITY (-1) is no limit."""
    seen = "no limit" if soft == resource.RLIM_INFINITY else f"{soft} for each process"
    if soft == resource.RLIM_INFINITY or soft >= FILES_WARNING:
        return Finding("open files", Level.OK, seen)
    level = Level.ERROR if soft < FILES_ERROR else Level.WARNING
    most = 4 * FILES_WARNING if hard == resource.RLIM_INFINITY else min(hard, 4 * FILES_WARNING)
    return Finding("open files", level, seen, f"raise the limit in the shell that runs jobs: ulimit -n {most}")


_MACHINE: Final[dict[str, Callable[[], Finding]]] = {
    "python": lambda: judge_python(sys.version_info[:3]),
    "packages": check_packages,
    "uvloop": check_uvloop,
    "cores": lambda: judge_cores(available_cores()),
    "open files": lambda: judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
}

# ---------------------------------------------------------------------- the home


def check_home(root: Path) -> Finding:
    """Whether the home is a folder of this user, and of nobody else."""
    if not root.exists():
        try:
            _in_scratch(root, lambda scratch: Finding("home", Level.OK, str(scratch)))
        except OSError as error:
            seen = f"{root} cannot be made: nothing can be written in {_nearest(root)} ({error.strerror})"
            return Finding("home", Level.ERROR, seen, "set FLOWPOINT_HOME to a folder that you can write to")
        return Finding("home", Level.OK, f"{root} (it is made when the first job runs)")
    if not root.is_dir() or not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return Finding("home", Level.ERROR, f"{root} is no folder to write to", "set FLOWPOINT_HOME to one that is")
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode & 0o077:
        return Finding(
            "home",
            Level.WARNING,
            f"{root} has the rights {mode:04o}: other users can reach state, logs and the jobs themselves",
            f"chmod 700 {root}",
        )
    return Finding("home", Level.OK, f"{root} ({mode:04o})")


def judge_room(free: int) -> Finding:
    """Whether there is room for snapshots. `free` is in bytes."""
    seen = f"{free / 1e9:.1f} GB free"
    if free >= ROOM_WARNING:
        return Finding("disk space", Level.OK, seen)
    level = Level.ERROR if free < ROOM_ERROR else Level.WARNING
    return Finding(
        "disk space",
        level,
        seen,
        "make room, or set FLOWPOINT_HOME to a bigger disk: a job waits while its disk is full",
    )


def check_sockets(home: Home, scratch: Path) -> Finding:
    """Whether processes can reach each other there; a path that is too long is moved to the temporary folder."""
    used = len(os.fsencode(home.job("x").path)) - 1 + len("/socket")
    name_bytes = ADDRESS_BYTES_MAX - used
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if name_bytes >= 1 and len(os.fsencode(scratch)) + 2 <= ADDRESS_BYTES_MAX:
            listener.bind(str(scratch / "s"))
            return Finding("sockets", Level.OK, f"beside the job, for names of up to {name_bytes} bytes")
        with tempfile.TemporaryDirectory(prefix="flowpoint-") as short:
            listener.bind(f"{short}/s")
    return Finding(
        "sockets",
        Level.OK,
        f"in {tempfile.gettempdir()}, since the path of {home.root} is too long for those of the system",
    )


def judge_sync(seconds: float) -> Finding:
    """Whether making a file durable takes a sensible time."""
    seen = f"{seconds * 1000:.1f} ms for a file and its folder"
    if seconds > SYNC_WARNING_SECONDS:
        return Finding(
            "fsync", Level.WARNING, seen, "checkpoints will take long: use a faster disk, or a longer interval"
        )
    return Finding("fsync", Level.OK, seen)


def _sync_seconds(scratch: Path) -> float:
    began = time.perf_counter()
    with (scratch / "synced").open("wb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(scratch, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return time.perf_counter() - began


def check_rocksdb(scratch: Path) -> Finding:
    """Whether a database opens and gives back what was put into it."""
    import rocksdict

    database = rocksdict.Rdict(str(scratch / "db"))
    try:
        database["key"] = "value"
        found = database["key"]
    finally:
        database.close()
    if found != "value":
        return Finding(
            "rocksdb", Level.ERROR, f"it gave back {found!r}", "install rocksdict anew, or use state.backend=heap"
        )
    return Finding("rocksdb", Level.OK, "opens, writes and reads")


def check_jobs(home: Home) -> Finding:
    """Jobs whose process has died, and workers that outlived it."""
    names = home.known_jobs()
    dead, orphans = list(_dead(home, names)), list(_orphans(home, names))
    if orphans:
        seen = f"workers of jobs that have ended still run: {'; '.join(orphans)}"
        return Finding(
            "jobs", Level.ERROR, seen, "run the job again, which ends them first, or kill -9 these processes"
        )
    if dead:
        runs = "; ".join(dead)
        return Finding("jobs", Level.WARNING, f"{len(dead)} ended without a word", f"go on where they were: {runs}")
    return Finding("jobs", Level.OK, f"{len(names)} known, none of them dead")


def _dead(home: Home, names: list[str]) -> Iterator[str]:
    for name in names:
        record = home.job(name).read_run()
        if record is not None and record.state == "KILLED":
            yield record.resume or f"flowpoint run {record.job_file}"


def _orphans(home: Home, names: list[str]) -> Iterator[str]:
    for name in names:
        record = home.job(name).read_run()
        if record is not None and record.state != "RUNNING":
            pids = [str(worker.pid) for worker in record.workers if worker.is_alive()]
            if pids:
                yield f"{name}: {', '.join(pids)}"


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def _in_scratch(root: Path, check: Callable[[Path], Finding]) -> Finding:
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=_nearest(root)) as scratch:
        return check(Path(scratch))
