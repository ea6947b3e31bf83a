"""Which local files an attempt may open its state from: before each attempt, all but the restored checkpoint's go.

    damage is found -> was anything opened locally? -> doubt: all local files go, every byte in the storage is looked at
                                                    -> no: the checkpoint is damaged

Damage that a worker finds while it reads may be that of a local copy, which says nothing of the checkpoint: passing that
over would take back, or refuse, what is whole. Nor may the next attempt open the same copy again. So all local files go
first. If the damage then shows once more, it is that of the storage.

Invariant: local files are only trusted when all that are there are known to be named by the restored checkpoint.

Not here: what proves a local file (`snapshot.local_files`), what becomes of a damaged checkpoint (`protocol.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from flowpoint.host.base import Host
from flowpoint.model.manifest import Manifest
from flowpoint.snapshot.local_files import LocalFiles, local_folder
from flowpoint.snapshot.locally_kept import LocallyKept
from flowpoint.snapshot.retention import files_of
from flowpoint.snapshot.storage import Storage, reason_of


class LocalUse(Enum):
    """What local files are to an attempt."""

    NONE = auto()
    """It goes without: nothing is opened locally, and none are made."""
    MADE = auto()
    """Of what it restores there are none. It makes some."""
    OPENED = auto()
    """There are some of what it restores."""


class LocalRecovery:
    """The coordinator's part in local files. `warn` gets one line for a person."""

    def __init__(self, host: Host, work_dir: str, warn: Callable[[str], None]) -> None:
        self._folder = local_folder(work_dir)
        self._files = LocalFiles(host.disk, host.new_id, self._folder, warn)
        self._warn = warn
        self._doubt = ""

    @property
    def is_doubted(self) -> bool:
        """Whether damage was found that may be that of local files."""
        return bool(self._doubt)

    def doubt(self, how: str) -> None:
        """An attempt that had local files found damage."""
        self._doubt = how

    def followed_by(self, storage: Storage) -> Storage:
        """The storage for whoever deletes from it: local files go with what they are of."""
        return LocallyKept(storage, self._files, None)

    async def settle(self, restored: Manifest | None) -> LocalUse:
        """Let go of what the restored checkpoint does not name, and of everything where there is doubt.

        No worker may be running an attempt.
        """
        if self._doubt:
            self._warn(
                f"damage was found in state that may have been opened from local files: {self._doubt}; those in "
                f"{self._folder} are removed, and the state is read from the checkpoint storage"
            )
        kept = files_of(restored) if restored is not None and not self._doubt else frozenset[str]()
        try:
            there = await self._files.keep_only(kept)
        except OSError as error:
            self._warn(
                f"cannot tidy the local state files in {self._folder}: {reason_of(error)}; this attempt goes without "
                "them and reads the checkpoint storage; look at the disk that this folder is on"
            )
            return LocalUse.NONE
        self._doubt = ""
        return LocalUse.OPENED if there else LocalUse.MADE
