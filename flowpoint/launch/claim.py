"""One owner per job: the right to run a job, held by one process for its whole life.

How it works: the owner holds an exclusive `flock` on `jobs/<name>/lock`. The kernel gives it up when the process ends,
however it ends, so there is no stale lock and no race between two that start at once. The owner writes its pid into
the locked file at once, and `run.json` when it has something to tell: between the two the run is starting (`owner_of`).

Invariants: only the owner writes `run.json`. Only the owner removes the lock file, after all else of the job: from then on
the name is anybody's, and nothing of the next owner's is touched. So a lock counts only on the file that is there under
that name. A person may remove it all the same: then the owner takes the name again when it next has something to tell, if
nobody else has it. The descriptor is not inherited, so a worker that outlives its coordinator for a moment does not hold
the job.
Not here: killing what an earlier run left (the coordinator does, from `Claim.previous`: design rule 8).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowpoint.errors import InternalError, StorageError, UsageError
from flowpoint.host import short_folder
from flowpoint.launch.home import Home, JobFolder, ProcessId, RunRecord

_SOCKET = "socket"
_OWNER_BYTES_MAX = 1000
"""More than the owner's line in a lock file has."""

_TRIES_MAX = 10
"""So often the name may be forgotten by somebody while it is taken."""


class Claim:
    """The right to run one job. Get it from `claim_job`, give it up with `release`."""

    def __init__(self, folder: JobFolder, lock: int, previous: RunRecord | None) -> None:
        self.folder = folder
        self.previous = previous
        """The run before this one, if any: its processes may still be about, its job file may be another."""
        self._lock = lock
        self._record: RunRecord | None = None

    @property
    def is_unrecorded(self) -> bool:
        """Whether nobody has been told of this run."""
        return self._record is None

    def socket_address(self) -> str:
        """A path for the job's HTTP socket that the kernel takes; nothing is there yet."""
        path = self.folder.path / _SOCKET
        if not short_folder.is_address(str(path)):
            path = Path(short_folder.make_for(str(self.folder.path))) / _SOCKET
        path.unlink(missing_ok=True)
        return str(path)

    def record(self, record: RunRecord) -> None:
        """Tell everybody who runs the job.

        Raises:
            StorageError: it cannot be written, or the job has another owner by now.
        """
        self._hold_again()
        _replace(self.folder.run_file, record.to_json())
        self._record = record

    def _hold_again(self) -> None:
        """Somebody may have removed the folder while the job runs: take the name again, unless another has it by now."""
        folder = self.folder
        if _is_at(self._lock, folder.lock_file):
            return
        with _writing(folder.path):
            folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = _lock(folder)
        except UsageError as error:
            raise StorageError(
                f"cannot tell who runs the job, since its folder was removed meanwhile: {error}"
            ) from error
        if lock is None:
            raise StorageError(
                f"cannot tell who runs the job: {folder.path} is removed again and again; see what does it"
            )
        owner = os.pread(self._lock, _OWNER_BYTES_MAX, 0)
        os.close(self._lock)
        self._lock = lock
        with _writing(folder.lock_file):
            os.pwrite(lock, owner, 0)

    def record_workers(self, workers: tuple[ProcessId, ...]) -> None:
        """Tell which workers it has. Call it before they are given anything to do."""
        if self._record is None:
            raise InternalError("workers recorded before the run itself")
        self.record(self._record.with_workers(workers))

    def release(
        self, outcome: str, *, ended: int, reason: str = "", resume: str = "", totals: Mapping[str, Any] | None = None
    ) -> None:
        """Say how the run ended (the kind of its last event) and let others run the job.

        `resume`: the command that goes on with it, when it is another one than was recorded. `totals`: its last figures.
        """
        try:
            if self._record is not None:
                ending = replace(self._record, outcome=outcome, ended=ended, reason=reason, workers=(), token="")
                ending = replace(ending, totals=dict(totals or {}))
                self.record(replace(ending, resume=resume or ending.resume))
                _remove_sockets(self.folder)
        except (StorageError, UsageError):
            # The job has ended as it has ended, and its commit log knows. `list` takes this run for killed.
            return
        finally:
            self._give_up()

    def let_go(self) -> None:
        """Let others have the name; nothing is written down. A name that was never used leaves no folder."""
        if self._record is None and self.previous is None and not self.folder.run_file.exists():
            self.vanish()
        else:
            self._give_up()

    def vanish(self, folders: Sequence[Path] = ()) -> None:
        """The first run of a job did not come about: remove these folders and that of the job.

        What cannot be removed stays, and `list` shows it.
        """
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        try:
            self.remove()
        except (StorageError, UsageError):
            self._give_up()

    def remove(self) -> None:
        """Remove the folder of the job, and give its name up with it.

        Raises:
            StorageError: something cannot be removed. The name is held still.
            UsageError: somebody else has put something where the job's sockets belong.
        """
        path, lock_file = self.folder.path, self.folder.lock_file
        try:
            _remove_sockets(self.folder)
            for inside in path.iterdir():
                if inside.is_dir() and not inside.is_symlink():
                    shutil.rmtree(inside)
                elif inside != lock_file:
                    inside.unlink()
            lock_file.unlink()
        except OSError as error:
            raise StorageError(
                f"cannot remove {path}: {error.strerror} ({error.filename}); mend that, and forget it again"
            ) from error
        # From here on the name is anybody's.
        with suppress(OSError):
            path.rmdir()
        self._give_up()

    def _give_up(self) -> None:
        """Let the lock go. First nobody stands in it any more: this process may live on for a while."""
        try:
            os.ftruncate(self._lock, 0)
        finally:
            os.close(self._lock)

    def withdraw(self, reason: str) -> None:
        """Let others run the job, whose run did not come about: how the one before has ended still holds."""
        try:
            if self._record is not None:
                _remove_sockets(self.folder)
            if self.previous is not None:
                self.record(replace(self.previous, socket="", token="", workers=(), refused=reason))
        except (StorageError, UsageError):
            return  # the person has heard it, and the log of the job tells it
        finally:
            self._give_up()


def claim_job(home: Home, name: str, process: ProcessId) -> Claim:
    """Become the one that runs this job.

    Raises:
        UsageError: Another process runs it; the message tells its pid.
        StorageError: The folder of the job cannot be written to, or its disk has no locks.
    """
    folder, lock = _hold(home, name)
    try:
        return _take_up(folder, lock, process)
    except BaseException:
        os.close(lock)
        raise


def owner_of(folder: JobFolder) -> ProcessId | None:
    """The living process that holds the job, from before it has told anybody of its run; None when there is none."""
    try:
        owner = ProcessId(*json.loads(folder.lock_file.read_bytes()))
        return owner if owner.is_alive() else None
    except (OSError, ValueError, TypeError, OverflowError):
        # There never was one, the last one has given it up, the next one writes its own in just now, or it is none of ours.
        return None


def _take_up(folder: JobFolder, lock: int, process: ProcessId) -> Claim:
    """Say whose the locked folder is, and put away what the run before has left in it."""
    with _writing(folder.lock_file):
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps([process.pid, process.start_time]).encode(), 0)
    previous = folder.read_run()
    with _writing(folder.path):
        _remove_sockets(folder)
    return Claim(folder, lock, previous)


def _hold(home: Home, name: str) -> tuple[JobFolder, int]:
    """The folder of a job, made when it is not there, and the lock on it."""
    for _ in range(_TRIES_MAX):
        folder = home.create_job(name)
        lock = _lock(folder)
        if lock is not None and _is_at(lock, folder.lock_file):
            return folder, lock
        # Somebody has forgotten the job meanwhile.
        if lock is not None:
            os.close(lock)
    raise StorageError(
        f"cannot lock {folder.lock_file}: it was removed {_TRIES_MAX} times while it was taken; see what removes it"
    )


def _lock(folder: JobFolder) -> int | None:
    """The lock on a job; None: its folder is gone."""
    with _writing(folder.lock_file):
        try:
            lock = os.open(folder.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        owner, name = owner_of(folder), folder.name
        who = f"pid {owner.pid}" if owner is not None else "it is just starting, or ending"
        raise UsageError(
            f"job {name!r} is already running ({who}): end it with `flowpoint stop {name}`, "
            f"or run this one under another --name"
        ) from None
    except OSError as error:
        os.close(lock)
        raise StorageError(
            f"cannot lock {folder.lock_file}: {error.strerror}; "
            "set FLOWPOINT_HOME to a folder on a disk that has locks, best one of this machine"
        ) from error
    return lock


def _is_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole. Not synced: after a crash of the machine no process is left that it could name."""
    draft = path.with_name(f".{path.name}.new")
    with _writing(path):
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say what a full or forbidden disk kept from being written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}; see that there is room, and that you may write there"
        ) from error


def _remove_sockets(folder: JobFolder) -> None:
    """Remove the socket of this job's HTTP interface, those of its processes, and the folder that was made for them."""
    (folder.path / _SOCKET).unlink(missing_ok=True)
    short_folder.clear_for(str(folder.path))
