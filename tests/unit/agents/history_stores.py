"""The stores that histories made by chance run on: each opens handles, fails where it is told to, and loses its power.

    memory   an index beside the logs, as RocksDB has it; what was not synced may be lost with the power
    disk     a folder of `MemoryFiles`
    rocks    a RocksDB; a loss of power is one of the process (`kill -9`)
    folder   a folder of this machine; fails nowhere

Not here: what is done with them (`history_machine`).
"""

from __future__ import annotations

import errno
import itertools
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flowpoint.agents.appending import World
from flowpoint.agents.core import SaverCore, Sizes
from flowpoint.agents.encryption import AesGcmSealer
from flowpoint.agents.folder_kv import FolderKv
from flowpoint.agents.holders import LocalHolders
from flowpoint.agents.kv import Entry, Kv
from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.agents.saver import CoreSaver
from flowpoint.agents.schema import Schema
from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.values import Leaves
from flowpoint.errors import StorageError
from tests.unit.agents.faulty_files import MemoryFiles, PowerLost
from tests.unit.agents.memory_kv import MemoryKv

SIZES: Final = Sizes(changed=100, kept=60, written=100, leaves=Leaves(elements=4, alone=200))
"""Small ones, so that small values stand apart and short lists have trees of parts."""

SERDE: Final = StrictSerde()

ERROR, ERROR_AFTER, POWER, POWER_AFTER = "error", "error after", "power", "power after"
FAULTS: Final = (ERROR, ERROR_AFTER, POWER, POWER_AFTER)


@dataclass
class Clock:
    """The time, in milliseconds."""

    now: int = 1_000_000_000


@dataclass(frozen=True)
class Options:
    """How the savers of a history are opened."""

    on_conflict: str = "branch"
    keys: Mapping[str, bytes] | None = None
    schema: Schema | None = None


class Store(ABC):
    """One store. Handles of a `pair` are those of one process, or of two where the store is for many."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._nonces = itertools.count(1)

    def open(self, options: Options, *, read_only: bool = False) -> CoreSaver:
        """A new handle, which remembers nothing of its own."""
        world = World(lambda: self._clock.now, lambda: b"%d" % next(self._nonces))
        return CoreSaver(
            SaverCore(
                self._kv(read_only),
                SERDE,
                world,
                SIZES,
                sealer=None if options.keys is None else AesGcmSealer(options.keys),
                schema=options.schema,
                on_conflict=options.on_conflict,  # type: ignore[arg-type]
                alone=self._alone and not read_only,
            )
        )

    _alone = True

    @abstractmethod
    def _kv(self, read_only: bool) -> Kv: ...

    @abstractmethod
    def fail(self, at: int, fault: str) -> None:
        """Let the write with this number from now on fail."""

    @abstractmethod
    def heal(self) -> bool:
        """No more failures; whether there was one."""

    @property
    def is_synced(self) -> bool:
        """Whether a loss of power loses nothing."""
        return True

    @abstractmethod
    def lose_power(self, chance: random.Random) -> None:
        """Every process ends, and perhaps the machine with it. Handles are of no more use."""


class _Faults:
    """When a write fails, and how."""

    def __init__(self) -> None:
        self.left = 0
        self.fault = ""
        self.fired = False

    def set(self, at: int, fault: str) -> None:
        self.left, self.fault, self.fired = at, fault, False

    def heal(self) -> bool:
        self.left = 0
        return self.fired

    @contextmanager
    def around(self) -> Iterator[None]:
        """One write."""
        self.left -= 1
        if self.left == 0:
            self.fired = True
            if self.fault in (ERROR, POWER):
                self._fail()
        yield
        if self.left == 0 and self.fired:
            self._fail()

    def _fail(self) -> None:
        raise PowerLost if self.fault in (POWER, POWER_AFTER) else StorageError("it fails as it was told to")


class FailingKv(MemoryKv):
    """Entries of which those that were not synced are lost with the power, the last ones first."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = _Faults()
        self._durable: dict[str, bytes] = {}
        self._unsynced: list[tuple[list[Entry], list[str]]] = []

    def write(self, puts: Iterable[Entry], deletes: Iterable[str] = (), *, sync: bool = True) -> None:
        puts, deletes = list(puts), list(deletes)
        try:
            with self.faults.around():
                super().write(puts, deletes)
                self._unsynced.append((puts, deletes))
                if sync:
                    self._durable, self._unsynced = dict(self._values), []
        except StorageError:
            self.remembered.forget()
            raise

    def settle(self, keys: Iterable[str], *, sync: bool) -> None:
        if sync:
            self.write([], sync=True)

    @property
    def is_synced(self) -> bool:
        """Whether all of it is."""
        return not self._unsynced

    def after_a_loss(self, chance: random.Random) -> FailingKv:
        """What is left of it."""
        left = FailingKv()
        left._values = dict(self._durable)
        left._order = sorted(left._values)
        for puts, deletes in self._unsynced[: chance.randint(0, len(self._unsynced))]:
            MemoryKv.write(left, puts, deletes)
        left._durable = dict(left._values)
        return left

    def seen_by_a_reader(self) -> MemoryKv:
        """The same entries, of which nothing is remembered."""
        reader = MemoryKv()
        reader._values, reader._order = self._values, self._order
        return reader


class MemoryStore(Store):
    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._entries = FailingKv()

    def _kv(self, read_only: bool) -> Kv:
        return self._entries.seen_by_a_reader() if read_only else self._entries

    def fail(self, at: int, fault: str) -> None:
        self._entries.faults.set(at, fault)

    def heal(self) -> bool:
        return self._entries.faults.heal()

    @property
    def is_synced(self) -> bool:
        return self._entries.is_synced

    def lose_power(self, chance: random.Random) -> None:
        self._entries = self._entries.after_a_loss(chance)


class DiskStore(Store):
    _alone = False

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._files = MemoryFiles(folders={"/store"}, durable_folders={"/store"})
        self._holders = LocalHolders()

    def _kv(self, read_only: bool) -> Kv:
        kv = FolderKv("/store", files=self._files, read_only=read_only)
        kv.holders = self._holders
        return kv

    def fail(self, at: int, fault: str) -> None:
        files = self._files
        files.fail_at, files.fired = files.calls + at * 3, False
        files.error = errno.EIO if fault in (ERROR, ERROR_AFTER) else 0
        files.after = fault in (ERROR_AFTER, POWER_AFTER)
        files.lasting = not files.error

    def heal(self) -> bool:
        self._files.fail_at = 0
        return self._files.fired

    def lose_power(self, chance: random.Random) -> None:
        self._files.lose_power()
        self._holders = LocalHolders()


class _FailingRdict:
    """A RocksDB whose writes fail."""

    def __init__(self, db: Any, faults: _Faults) -> None:
        self._db = db
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def __contains__(self, key: bytes) -> bool:
        return key in self._db

    def write(self, batch: Any) -> None:
        with self._faults.around():
            self._db.write(batch)

    def put(self, key: bytes, value: bytes) -> None:
        with self._faults.around():
            self._db.put(key, value)


class RocksStore(Store):
    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._lives = itertools.count(1)
        self._folder = path / "0"
        self._faults = _Faults()

    def _kv(self, read_only: bool) -> Kv:
        kv = RocksKv(self._folder, read_only=read_only)
        if not read_only and not isinstance(kv._db._db, _FailingRdict):
            kv._db._db = _FailingRdict(kv._db._db, self._faults)  # type: ignore[assignment]
        return kv

    def fail(self, at: int, fault: str) -> None:
        self._faults.set(at, fault)

    def heal(self) -> bool:
        return self._faults.heal()

    def lose_power(self, chance: random.Random) -> None:
        after = self.path / f"{next(self._lives)}"
        shutil.copytree(self._folder, after)  # what other processes see of it at this moment
        self._folder = after


class FolderStore(Store):
    _alone = False

    def _kv(self, read_only: bool) -> Kv:
        return FolderKv(self.path / "store", read_only=read_only)

    def fail(self, at: int, fault: str) -> None:
        """Nowhere."""

    def heal(self) -> bool:
        return False

    def lose_power(self, chance: random.Random) -> None:
        """Nothing is lost of a folder when a process ends."""


STORES: Final[dict[str, type[Store]]] = {
    "memory": MemoryStore,
    "disk": DiskStore,
    "rocks": RocksStore,
    "folder": FolderStore,
}
