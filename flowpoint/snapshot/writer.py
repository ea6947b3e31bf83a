"""Write the frozen state of one operator in one subtask to storage, beside the stream.

The bytes come in slices that are cheap to make; each is hashed and written, and the loop gets a turn before the next.

Invariants:
- When `write_state` returns, every file it returns is durable, and its size and checksum are those of the bytes made.
- A name is written at most once: it carries the attempt and a sequence number (`names.state_file`).
- Nothing of a failed or cancelled write is visible, except native files already linked, which no manifest names.

Not here: what is in the slices (`state`), telling the backend `durable()` or `failed()` (the caller knows which).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from typing import Protocol, TypeVar

from xxhash import xxh3_64

from flowpoint.errors import StorageError, StorageFull
from flowpoint.model.manifest import SEAL, StateFile
from flowpoint.snapshot import names
from flowpoint.snapshot.measured import measured
from flowpoint.snapshot.storage import Storage
from flowpoint.state.key_functions import told

BASE = "base"
DELTA = "delta"
NATIVE = "native"
OUTPUT = "output"

_FULL_DISK_PAUSE = 1.0

T = TypeVar("T")


class FrozenState(Protocol):
    """What the writer needs of `state.backend.Frozen`."""

    @property
    def full(self) -> bool:
        """Whether these files replace all earlier ones (a base), or add to them (a delta)."""

    @property
    def entries(self) -> int:
        """How many entries the slices hold, deletions included; 0: nothing, and no file is needed."""

    @property
    def native(self) -> Sequence[str]:
        """Durable local files, never changed again, that belong to this state."""

    @property
    def seal(self) -> str:
        """What proves the bytes as `chunks` gave them last (`FileReader.seal`)."""

    @property
    def key_types(self) -> Set[str]:
        """The types of the keys in the bytes that `chunks` gave last."""

    @property
    def has_plain_keys(self) -> bool:
        """Whether a person can type in all of those keys."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes in slices, from the start each time it is called."""


class _Hashed:
    """Slices on their way to storage, counted and hashed."""

    def __init__(self, slices: Iterator[bytes]) -> None:
        self._slices = slices
        self._digest = xxh3_64()
        self.bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = next(self._slices)
        self._digest.update(data)
        self.bytes += len(data)
        return data

    @property
    def checksum(self) -> str:
        return self._digest.hexdigest()


async def write_state(
    storage: Storage,
    frozen: FrozenState,
    name: str,
    *,
    groups: tuple[int, int] = (0, 0),
    on_full: Callable[[str], None] | None = None,
) -> list[StateFile]:
    """Write frozen state; the files it became, to be put after (full: instead of) those of the parent checkpoint.

    An empty frozen becomes no file.

    Args:
        storage: the job's storage, or the savepoint's own.
        frozen: what to write.
        name: of the main file (`names.state_file`); native files get names made from it.
        groups: the first and last key group the state belongs to.
        on_full: called with a message each time the disk is full; the write then waits and starts over, until it is
            cancelled (rule 23). None: a full disk is an error at once.

    Raises:
        StorageFull: the disk is full, and `on_full` is None.
        StorageError: a file could not be written or made durable.
    """
    return await wait_for_room(lambda: _write_all(storage, frozen, name, groups), on_full)


async def wait_for_room(write: Callable[[], Awaitable[T]], on_full: Callable[[str], None] | None) -> T:
    """Write; while the disk is full, wait and start over (rule 23). `on_full`: see `write_state`.

    Raises:
        StorageFull: the disk is full, and `on_full` is None.
    """
    while True:
        try:
            return await write()
        except StorageFull as error:
            if on_full is None:
                raise
            on_full(str(error))
            await asyncio.sleep(_FULL_DISK_PAUSE)


async def _write_all(storage: Storage, frozen: FrozenState, name: str, groups: tuple[int, int]) -> list[StateFile]:
    files = [
        await _adopt(storage, path, names.native_file(name, index), groups) for index, path in enumerate(frozen.native)
    ]
    if frozen.entries:
        files.append(await _write_slices(storage, frozen, name, groups))
    return files


async def _write_slices(storage: Storage, frozen: FrozenState, name: str, groups: tuple[int, int]) -> StateFile:
    slices = _Hashed(iter(frozen.chunks()))
    if not await storage.put_if_absent(name, slices):
        raise StorageError(f"cannot write {name}: it exists already; each write needs a new sequence number")
    kind = BASE if frozen.full else DELTA
    extra = {**({SEAL: frozen.seal} if frozen.seal else {}), **told(frozen.key_types, are_plain=frozen.has_plain_keys)}
    return StateFile(name, kind, slices.bytes, slices.checksum, frozen.entries, groups, extra)


async def save_file(storage: Storage, path: str, name: str) -> StateFile:
    """Take a durable local file of a sink, which is never changed again, into a savepoint.

    Raises:
        FileNotFoundError: it has another name by now.
        StorageError: it could not be copied.
    """
    await storage.adopt(path, name)
    size, checksum = await measured(storage, name)
    return StateFile(name, OUTPUT, size, checksum)


async def _adopt(storage: Storage, path: str, name: str, groups: tuple[int, int]) -> StateFile:
    """Take a native file over. It may be there already, from a try that met a full disk: it is the same then."""
    await storage.adopt(path, name)
    size, checksum = await measured(storage, name)
    return StateFile(name, NATIVE, size, checksum, 0, groups, {"file": path.rpartition("/")[2]})
