"""The place of a job's snapshots: what `checkpoint.storage` names, opened by the coordinator and by its workers.

The coordinator has a `Place`. Once that is open it has an address, by which workers open the same storage
(`open_storage`): the path of a folder, or the socket of the coordinator's memory.

Not here: which place a job has (`launch`), what lies there (`storage`).
"""

from __future__ import annotations

from typing import Protocol

from flowpoint.host.base import Host
from flowpoint.snapshot.local_files import LocalFiles
from flowpoint.snapshot.locally_kept import LocallyKept
from flowpoint.snapshot.memory import MemoryObjects, MemoryStorage
from flowpoint.snapshot.memory_client import CoordinatorStorage
from flowpoint.snapshot.memory_server import MemoryServer
from flowpoint.snapshot.rereading import PatientStorage
from flowpoint.snapshot.storage import FolderStorage, Storage

MEMORY = "memory"
"""The value of `checkpoint.storage`, and what is recorded of such a run."""

_IN_MEMORY = f"{MEMORY}:"


class Place(Protocol):
    """Where the snapshots of one job are, as its coordinator has it."""

    @property
    def storage(self) -> Storage:
        """The storage, as this process uses it."""

    @property
    def name(self) -> str:
        """What a person calls it: a path, or "memory"."""

    def path(self, name: str) -> str:
        """Where a person finds what is named so; "" when only the coordinator does."""

    @property
    def address(self) -> str:
        """By what workers open it, for `Deploy.storage`; there since `open`."""

    async def open(self) -> None:
        """Let workers at it."""

    def close(self) -> None:
        """No worker is left."""


class FolderPlace:
    """A folder, by its absolute path."""

    def __init__(self, host: Host, root: str) -> None:
        self.storage: Storage = PatientStorage(FolderStorage(host.disk, host.new_id, root))
        self.name = self.address = root

    def path(self, name: str) -> str:
        """See `Place`."""
        return f"{self.name}/{name}"

    async def open(self) -> None:
        """See `Place`. Workers go to the folder themselves."""

    def close(self) -> None:
        """See `Place`."""


class MemoryPlace:
    """The memory of this very process."""

    name = MEMORY

    def __init__(self, host: Host, objects: MemoryObjects) -> None:
        self.storage: Storage = MemoryStorage(objects, host.disk)
        self.address = ""
        self._server = MemoryServer(host, objects)

    def path(self, name: str) -> str:
        """See `Place`."""
        return ""

    async def open(self) -> None:
        """See `Place`."""
        self.address = f"{_IN_MEMORY}{await self._server.listen()}"

    def close(self) -> None:
        """See `Place`."""
        self._server.close()


def open_storage(host: Host, address: str, local: LocalFiles) -> Storage:
    """A worker's way to the storage of its job, by what `Place.open` gave; `local` gets a file of all it writes."""
    if address.startswith(_IN_MEMORY):
        return LocallyKept(CoordinatorStorage(host, address.removeprefix(_IN_MEMORY)), local, None)
    folder = PatientStorage(FolderStorage(host.disk, host.new_id, address))
    return LocallyKept(folder, local, address)
