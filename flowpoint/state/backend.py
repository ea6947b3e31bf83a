"""What every state backend offers: tables to read and write, freezing for a snapshot, restoring from files.

A backend holds the keyed state of one operator in one subtask. Writes land in `Table.dirty`, a plain dict that
generated code touches directly. `freeze` swaps these dicts out; the frozen part is written beside the stream, stays
readable until it is durable, and is merged away in slices afterwards.

How the runtime drives it:

    table = backend.table(spec)            before or after `restore`, same spec twice: same table
    backend.restore(files, groups)         once per old subtask
    frozen = backend.freeze()              at a barrier, or early when `needs_spill()`
    for data in frozen.chunks(): ...       beside the stream; some slices are empty: they only give the loop a turn
    frozen.durable() or frozen.failed()    exactly one of them, before the next frozen is written
    view = backend.freeze_detached()       the same for a savepoint, outside of the chain of files
    backend.merge_some()                   `merge_steps()` times between batches; True: there is more to do

Invariants: what is in no durable file is in memory and goes into the next file, whatever failed before it. A value that
may still be written is never handed out for change: it is copied first. Frozen parts are written one after the other,
in the order they were frozen.

Implementations: `heap.py`, `rocksdb.py`; what they share is in `layers.py`. One suite tests both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from flowpoint.model.manifest import StateFile
from flowpoint.state.evolution import Evolution
from flowpoint.state.file_format import ReadRange
from flowpoint.state.spec import ABSENT, StateSpec


def nothing() -> None:
    """Do nothing."""


class Table(Protocol):
    """One value per key.

    `dirty` maps a key to its value or TOMBSTONE as far as written since the last freeze. A freeze replaces the dict, so
    it may be kept in a local variable for the length of a batch only. A key must be hashable and acceptable to
    `codec.keys.canonical`: whoever writes a new key checks that.
    """

    spec: StateSpec
    dirty: dict[Any, Any]

    def load(self, key: Any, default: Any) -> Any:
        """The value of a key, or `default`. A mutable value may be changed if it is put back."""

    def get(self, key: Any, default: Any = ABSENT) -> Any:
        """The same, with ABSENT where there is none."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def delete(self, key: Any) -> None:
        """Forget a key; nothing happens when it is not there."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All live entries, in no particular order, to be read only."""

    def encoded(self, value: Any) -> bytes | None:
        """What a snapshot would hold of a value; None where it refuses it."""


class MapTable(Protocol):
    """One value per key and map key."""

    spec: StateSpec

    def get(self, key: Any, map_key: Any, default: Any = ABSENT) -> Any:
        """The value, or `default`. A mutable value may be changed if it is put back."""

    def put(self, key: Any, map_key: Any, value: Any) -> None:
        """Set a value."""

    def delete(self, key: Any, map_key: Any) -> None:
        """Forget one entry; nothing happens when it is not there."""

    def contains(self, key: Any, map_key: Any) -> bool:
        """Whether there is an entry."""

    def items(self, key: Any) -> Iterator[tuple[Any, Any]]:
        """(map key, value) of a key, in the order of canonical map keys; changing the table meanwhile is fine."""

    def clear(self, key: Any) -> None:
        """Forget all entries of a key."""

    def all_items(self) -> Iterator[tuple[Any, Any, Any]]:
        """(key, map key, value) of all live entries, in no particular order, to be read only."""


class Frozen(Protocol):
    """What one snapshot of a backend has to write.

    full: it is a base, and the files before it are no longer needed.
    replaces: how many of the newest files before it are no longer needed (a base: all). Known after `chunks`.
    entries: how many entries it holds, deletions included; exact after `chunks`. 0: no file is needed.
    native: local files that belong to it besides; none so far.
    seal: what proves the file (`FileReader.seal`). Known after `chunks`.
    key_types: of the keys in it (`codec.key_types`). Known after `chunks`. has_plain_keys: whether a person can type all of
    them in; the same.
    """

    full: bool
    replaces: int
    native: Sequence[str]
    seal: str
    key_types: set[str]
    has_plain_keys: bool

    @property
    def entries(self) -> int: ...

    def chunks(self) -> Iterator[bytes]:
        """The file in slices of at most ~256 kB and a few ms each; from the start each time it is called.

        Raises:
            BadRecordError: a key or value cannot be serialised; names the state.
        """

    def durable(self) -> None:
        """The file is written and safe."""

    def failed(self) -> None:
        """The file is lost. Its entries go into the next one."""


class Backend(Protocol):
    """The keyed state of one operator in one subtask."""

    def table(self, spec: StateSpec) -> Table:
        """The table of a value or list state.

        Raises:
            IncompatibleStateError: the snapshot holds a state of this name and another kind.
            InternalError: the name was opened with another kind before.
        """

    def map_table(self, spec: StateSpec) -> MapTable:
        """The table of a map state. Raises as `table`."""

    def restore(
        self,
        files: Sequence[tuple[StateFile, bytes | ReadRange]],
        groups: tuple[int, int],
        done: Callable[[], None] = nothing,
        evolution: Evolution | None = None,
    ) -> None:
        """Take over the entries of one old subtask, files oldest first, as far as their key group is in `groups` and in
        those that count of the file.

        The files are read as entries are asked for, and by `merge_some` in the end. `done` is called once when nothing
        is read from them any more.

        evolution: how the states in these files become those of the job; None: they are those of the job.

        Raises:
            SnapshotError: a file is damaged.
            IncompatibleStateError: a file holds what this job cannot take over.
        """

    def restoring(
        self,
        files: Sequence[tuple[StateFile, bytes | ReadRange]],
        groups: tuple[int, int],
        done: Callable[[], None] = nothing,
        evolution: Evolution | None = None,
    ) -> Iterator[int]:
        """The same in steps of a few ms; yields the number of entries taken so far."""

    def freeze(self, *, full: bool = False) -> Frozen:
        """Swap out what was written since the last freeze. Takes time per table, not per entry.

        full: write everything, not only changes. The backend does so by itself when its chain of files gets too long.
        """

    def freeze_detached(self) -> Frozen:
        """Freeze what is in no durable file, for a file beside the chain: with copies of the chain's files, as they are
        when its bytes are made, it is everything (a savepoint).

        The chain goes on as if nothing had been written: what this file holds goes into the next delta all the same.
        """

    def bytes_dirty(self) -> int:
        """Roughly how much memory entries not yet frozen take."""

    def needs_spill(self) -> bool:
        """Whether it is time to freeze early, because changed entries take too much memory. Ask once per batch.

        Raises:
            BadRecordError: a sample of what changed cannot be serialised; names the state.
        """

    def merge_some(self) -> bool:
        """Do a step of housekeeping, of about 1 ms; True when there is more."""

    def merge_steps(self, records: int) -> int:
        """How many such steps, at least one, are due after so many records: what comes in must not pile up."""

    def schemas(self) -> dict[str, Any]:
        """State name -> schema, of everything that the next snapshot holds; for the manifest."""

    @property
    def is_unread(self) -> bool:
        """Whether restored state still lies in files that have not been read to their end."""

    def unclaimed(self) -> list[str]:
        """Names of restored states that nothing has opened as a table: the job may have dropped them by mistake."""

    def close(self) -> None:
        """Let go of everything. What was not written is gone. Idempotent."""
