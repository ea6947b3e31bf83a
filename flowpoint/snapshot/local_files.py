"""State files beside the workers: a second name, or a copy, of what they write, by which state is opened after a failure.

All workers of a job share the folder: names are unique by attempt, and a restored subtask may run in another worker.
Where the folder is on the file system of the checkpoint storage, a local file is a hard link and costs one call;
elsewhere it is a copy. Nothing depends on one: what is not there, cannot be read or is not proved is read from the storage.

A local file counts only as far as the manifest of the restored checkpoint proves it. One that is read piece by piece has
the size and the seal that stand there, which prove each piece; one that is read whole has the checksum. So a file that
another run has left under the same name is refused when it is opened.

The coordinator lets go of a local file together with the file in the storage, whose space a hard link would keep; and
before each attempt of all that the restored checkpoint does not name.

Invariants: nothing that fails here fails a checkpoint or a restore; it is logged. Nothing is removed behind a link.

Not here: making them (`locally_kept`), whether an attempt may trust them (`coordinator.local_recovery`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection
from dataclasses import dataclass

from flowpoint.errors import SnapshotError, StorageError
from flowpoint.host.base import Disk, OpenFile
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot import names
from flowpoint.snapshot.reader import load_whole
from flowpoint.snapshot.storage import FolderStorage, reason_of
from flowpoint.state.file_format import seal_in


def local_folder(work_dir: str) -> str:
    """Where the local files of a job are, beside the folders of its attempts."""
    return f"{work_dir}/local"


@dataclass(slots=True)
class _Tally:
    """So many files, of so many bytes."""

    files: int = 0
    bytes: int = 0

    def add(self, file: StateFile) -> None:
        self.files += 1
        self.bytes += file.bytes

    def __str__(self) -> str:
        return f"{self.files:,} ({self.bytes:,} bytes)"


class LocalFiles:
    """The local files of one job, as one worker uses them in one attempt, or its coordinator."""

    def __init__(
        self,
        disk: Disk,
        new_id: Callable[[], str],
        folder: str,
        log: Callable[[str], None],
        *,
        is_used: bool = True,
    ) -> None:
        """`folder` is an absolute path and need not exist. `is_used`: False where an attempt goes without local files."""
        self.disk = disk
        self.new_id = new_id
        self._folder = folder
        self._log = log
        self._is_used = is_used
        self._storage = FolderStorage(disk, new_id, folder)
        self._opened = _Tally()
        self._missed = _Tally()
        self._has_complained = False
        self._has_told_of_stuck = False

    def takes(self, name: str) -> bool:
        """Whether there may be a local file of this name: state files of checkpoints have some, and nothing else."""
        return self._is_used and name.startswith(names.SHARED) and names.is_object(name)

    def path(self, name: str) -> str:
        """Where the local file of a name is."""
        return f"{self._folder}/{name}"

    def unfinished(self, name: str) -> str:
        """Where a file is made that is to become the local file of a name."""
        folder, _, base = name.rpartition("/")
        return self.path(names.unfinished(f"{folder}/", base, self.new_id()))

    def complain(self, error: OSError | StorageError) -> None:
        """Say, once, that a file could not be kept: what hinders one file hinders all."""
        if not self._has_complained:
            self._has_complained = True
            self._log(
                f"cannot keep local state files in {self._folder}: {_seen(error)}; after a failure their state is read "
                "from the checkpoint storage; look at the disk that this folder is on"
            )

    # ------------------------------------------------------------------ opening

    async def open(self, file: StateFile) -> OpenFile | None:
        """A local file to be read piece by piece, which the manifest proves to be `file`; None: there is none."""
        handle = await self._open(file) if self.takes(file.path) else None
        (self._missed if handle is None else self._opened).add(file)
        return handle

    async def _open(self, file: StateFile) -> OpenFile | None:
        try:
            handle = await self._storage.open(file.path)
        except FileNotFoundError:
            return None
        except StorageError as error:
            self._refuse(file, str(error))
            return None
        try:
            problem = _problem_of(handle, file)
        except OSError as error:
            problem = _seen(error)
        if problem:
            handle.close()
            self._refuse(file, problem)
            return None
        return handle

    async def load(self, file: StateFile) -> bytes | None:
        """The bytes of a local file, which the checksum in the manifest proves to be `file`; None: there is none."""
        data = await self._load(file) if self.takes(file.path) else None
        (self._missed if data is None else self._opened).add(file)
        return data

    async def _load(self, file: StateFile) -> bytes | None:
        try:
            return await load_whole(self._storage, file)
        except FileNotFoundError:
            return None
        except (SnapshotError, StorageError) as error:
            self._refuse(file, str(error))
            return None

    def _refuse(self, file: StateFile, problem: str) -> None:
        self._log(
            f"the local file {self.path(file.path)} is not used, the checkpoint storage is read instead: {problem}"
        )

    def told(self) -> str:
        """How much of the state was opened locally, for the log; "" when there was none to open."""
        if not self._opened.files and not self._missed.files:
            return ""
        return f"state files opened locally: {self._opened}, from the checkpoint storage: {self._missed}"

    # ------------------------------------------------------------------ letting go

    async def keep_only(self, kept: Collection[str]) -> list[str]:
        """Let go of every local file but these; the names of those that are there.

        Raises:
            OSError: one of the others is still there, or nobody knows which are.
        """
        folder = self.path(names.SHARED).rstrip("/")
        await self._require_own(folder)
        stay: list[str] = []
        for base in await self.disk.list(folder):
            name = names.SHARED + base
            if name in kept:
                stay.append(name)
            else:
                await self.disk.remove(f"{folder}/{base}")
        return stay

    async def _require_own(self, folder: str) -> None:
        """Never remove what a link leads to, which may be the storage itself."""
        for path in (self._folder, folder):
            if await self.disk.is_link(path):
                raise OSError(errno.ELOOP, f"{path} is a link, which somebody else has put there: remove it", path)

    async def forget(self, doomed: Collection[str]) -> None:
        """Let go of what the storage has let go of. What cannot be removed is said, once, and goes before an attempt."""
        for name in filter(self.takes, doomed):
            try:
                await self.disk.remove(self.path(name))
            except OSError as error:
                if not self._has_told_of_stuck:
                    self._has_told_of_stuck = True
                    self._log(
                        f"cannot remove local state files yet, and their space is not free: {self.path(name)}: "
                        f"{_seen(error)}; look at the disk that this folder is on"
                    )


def _problem_of(handle: OpenFile, file: StateFile) -> str:
    """Why an open file is not the one in the manifest; "" when it is, as each block of it then proves. OSError (EIO)."""
    if handle.read_at(file.bytes, 1):
        return f"it is longer than the {file.bytes} bytes in the manifest"
    seal = seal_in(handle.read_at, file.bytes)
    return "" if seal == file.extra[SEAL] else f"its seal is {seal or 'missing'} instead of {file.extra[SEAL]}"


def _seen(error: OSError | StorageError) -> str:
    return reason_of(error) if isinstance(error, OSError) else str(error)
