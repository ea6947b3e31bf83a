"""Where FlowPoint keeps things on this machine: `$FLOWPOINT_HOME` and the folder of each job.

    <home>/jobs/<name>/         lock, run.json, log, socket
    <home>/checkpoints/<name>/  the default checkpoint storage
    <home>/savepoints/          savepoints of which nobody said where to
    <home>/work/<name>/         local state of the running attempt, and local files of checkpoints

`run.json` tells who runs the job, or who ran it last: the coordinator's and workers' pids with their start times
(together they identify a process for ever; a pid alone is reused), the address and token of its HTTP interface, and
how it ended. Only the owner of the job (`launch.claim`) writes it, by replacing it whole, so readers need no lock.

Invariants: every folder is 0700 and every file 0600. Nothing here waits or locks.
Not here: who may run a job (`launch.claim`), talking to it (`launch.client`), its checkpoints (`launch.history`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flowpoint.errors import NotFoundError, StorageError, UsageError
from flowpoint.host.start_times import is_same_start
from flowpoint.model.path_names import PATH_NAME_RULE, is_path_name
from flowpoint.model.texts import alike

RUN_FORMAT = 1

TOTALS = ("attempt", "restarts", "parallelism", "records_in", "records_out", "last_checkpoint", "operators")
"""What of a job's status still means something when it has ended."""

NAMES_SHOWN = 5
"""In an error; `flowpoint list` shows all."""


def check_job_name(name: str) -> str:
    """The name itself, when it can be a job's.

    Raises:
        UsageError: It cannot, because it is a folder's name as well.
    """
    if not is_path_name(name):
        raise UsageError(f"cannot use {name!r} as the name of a job: {PATH_NAME_RULE}")
    return name


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, for ever: no later process has both."""

    pid: int
    start_time: float

    def is_alive(self) -> bool:
        """Whether that very process is there (a zombie is not)."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return False  # another user's, so not the one that we mean
        import psutil  # 40 ms, and needed only when the pid is in use

        try:
            process = psutil.Process(self.pid)
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            return not is_zombie and is_same_start(process.create_time(), self.start_time)
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The content of `run.json`.

    socket, token: the job's HTTP interface. storage: the folder of its checkpoints, or "memory". resume: the command that
    continues it. started, ended: epoch ms. outcome: the kind of the run's last event; empty while it runs and after a crash.
    traits: what the next run compares its job file with (`launch.traits`). refused: why a later start did not come about;
    it has left this record as it was. totals: the figures that it ended with, named as in `status` (`TOTALS`).
    """

    name: str
    process: ProcessId
    job_file: str
    socket: str = ""
    token: str = ""
    storage: str = ""
    resume: str = ""
    started: int = 0
    ended: int = 0
    outcome: str = ""
    reason: str = ""
    workers: tuple[ProcessId, ...] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    totals: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps({"format": RUN_FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """The reverse of `to_json`. Raises ValueError when it is torn or of another format."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != RUN_FORMAT:
                raise ValueError("unknown format of run.json")
            workers = tuple(ProcessId(**worker) for worker in data.pop("workers"))
            return cls(process=ProcessId(**data.pop("process")), workers=workers, **data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"run.json is incomplete: {error!r}") from error

    def with_workers(self, workers: tuple[ProcessId, ...]) -> RunRecord:
        """The same run with other workers."""
        return replace(self, workers=workers)

    @property
    def state(self) -> str:
        """How the run stands, as far as this record and the process table tell."""
        if self.outcome:
            return self.outcome.upper()
        return "RUNNING" if self.process.is_alive() else "KILLED"


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of one job."""

    path: Path

    @property
    def name(self) -> str:
        """The job's name."""
        return self.path.name

    @property
    def log(self) -> Path:
        """Events of the job and the output of its workers."""
        return self.path / "log"

    @property
    def lock_file(self) -> Path:
        """Locked by the process that owns the job."""
        return self.path / "lock"

    @property
    def run_file(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    def last_seen(self) -> int:
        """When something of the job was last written down: a sign of life of a run that could not tell its end. Epoch ms."""
        files = [path for path in (self.log, self.run_file) if path.exists()]
        return max((path.stat().st_mtime_ns // 1_000_000 for path in files), default=0)

    def read_run(self) -> RunRecord | None:
        """Who runs the job or ran it last; None when nobody ever did.

        A torn file also gives None: that takes a crash of the machine, after which no process of the run is left.

        Raises:
            StorageError: It cannot be read.
        """
        try:
            return RunRecord.from_json(self.run_file.read_text())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            # Only what is not a file at all was certainly not written by a run.
            is_foreign = isinstance(error, IsADirectoryError)
            advice = "remove it" if is_foreign else "check the disk and the permissions of this file"
            raise StorageError(
                f"cannot read {self.run_file}: {error.strerror}; nobody but FlowPoint puts anything there: {advice}"
            ) from error


@dataclass(frozen=True, slots=True)
class Home:
    """`$FLOWPOINT_HOME`."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Home:
        """The home that the environment names, by default `~/.flowpoint`.

        Raises:
            UsageError: its path is not UTF-8, as the paths of RocksDB's files have to be.
        """
        named = (os.environ if environment is None else environment).get("FLOWPOINT_HOME")
        root = Path(named or "~/.flowpoint").expanduser().absolute()
        try:
            str(root).encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"cannot use {os.fsencode(root)!r} as FLOWPOINT_HOME: its path is not UTF-8, and RocksDB takes no other; "
                "set FLOWPOINT_HOME to a folder whose path is"
            ) from None
        return cls(root)

    def job(self, name: str) -> JobFolder:
        """The folder of a job, which need not exist."""
        return JobFolder(self.root / "jobs" / check_job_name(name))

    def checkpoints(self, name: str) -> Path:
        """The default checkpoint storage of a job."""
        return self.root / "checkpoints" / check_job_name(name)

    @property
    def savepoints(self) -> Path:
        """Where savepoints go by default."""
        return self.root / "savepoints"

    def work(self, name: str) -> Path:
        """Local state of the running attempt of a job."""
        return self.root / "work" / check_job_name(name)

    def create_job(self, name: str) -> JobFolder:
        """The folder of a job, made when it does not exist."""
        folder = self.job(name)
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            for path in (self.root, folder.path.parent, folder.path):
                path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot use {self.root} as FLOWPOINT_HOME: {error.strerror} ({error.filename}); "
                f"set FLOWPOINT_HOME to a folder that you can write to"
            ) from error
        return folder

    def known_jobs(self) -> list[str]:
        """The names of all jobs that ever ran here or have checkpoints here, sorted."""
        names: set[str] = set()
        for folder in (self.root / "jobs", self.root / "checkpoints"):
            if folder.is_dir():
                names.update(path.name for path in folder.iterdir() if path.is_dir() and is_path_name(path.name))
        return sorted(names)

    def find(self, name: str) -> JobFolder:
        """The folder of a known job.

        Raises:
            NotFoundError: There is no such job; the message lists those that there are.
        """
        known = self.known_jobs()
        if name not in known:
            raise NotFoundError(f"there is no job {name!r} in {self.root}: {self._instead_of(name, known)}")
        return self.job(name)

    def _instead_of(self, name: str, known: list[str]) -> str:
        """What a person may have meant who gave a name that no job has."""
        if not known:
            return "no job was ever run here"
        path = os.path.abspath(name)
        run_from = [job for job in known if (run := self.job(job).read_run()) is not None and run.job_file == path]
        if run_from:
            return f"{name} is the file of job {' and '.join(run_from)}; give the name of the job"
        nearest = alike(name, known, 3) or [job for job in known if job.startswith(name)][:3]
        if nearest:
            return f"did you mean {' or '.join(nearest)}?"
        more = f" and {len(known) - NAMES_SHOWN} more (`flowpoint list`)" if len(known) > NAMES_SHOWN else ""
        return f"known jobs: {', '.join(known[:NAMES_SHOWN])}{more}"
