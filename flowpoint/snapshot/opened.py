"""Open a checkpoint or savepoint and look at everything in it, from any Python program, without the job that made it.

    from flowpoint import snapshot

    counts = snapshot.open("savepoint-wordcount-17").operator("counts").state("count")
    counts.get("the")                     # one value, in milliseconds, however big the snapshot is
    for word, count in counts.items():    # all of them, read as you go
        ...

Values of classes come as `RawObject` (a name and fields) unless `open` is given the classes.

Invariants: opening reads the manifest only; states read the index of their files, and then the blocks they need. A
snapshot is never changed. Nothing is imported, run or unpickled because a file names it.

Not here: changing (`edited`), checking everything (`verified`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from flowpoint.codec.raw import RawCodec
from flowpoint.codec.registry import TypeRegistry
from flowpoint.errors import NotFoundError, SnapshotError
from flowpoint.host.blocking import run_now
from flowpoint.model.key_groups import MAX_PARALLELISM_LIMIT
from flowpoint.model.manifest import NO_GROUPS, Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.model.texts import alike
from flowpoint.snapshot.broadcast_state import BROADCAST, BroadcastEntries
from flowpoint.snapshot.keyed_state import KeyedState, StateInFile, StatePart
from flowpoint.snapshot.location import SnapshotLocation, locate
from flowpoint.snapshot.writer import NATIVE
from flowpoint.state.file_format import FileReader
from flowpoint.state.key_functions import has_plain_keys

if TYPE_CHECKING:
    from flowpoint.snapshot.edited import Child
    from flowpoint.snapshot.verified import Report

_READ_BYTES_MAX: Final = 1 << 30


def open(path: str | os.PathLike[str], *, types: Iterable[Any] = ()) -> Snapshot:
    """Open a snapshot to read it.

    Args:
        path: its folder, or the manifest in it.
        types: classes whose instances are to be rebuilt; all others come as `RawObject`, `RawEnum` or `RawArray`.

    Raises:
        NotFoundError: there is no snapshot.
        SnapshotError: its manifest is damaged.
        StorageError: it cannot be read.
    """
    location, manifest = locate(path)
    return Snapshot(location, manifest, RawCodec(TypeRegistry(types)))


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """A part of a source's input: what it is, how far it was read (None: not begun), and whether to its end."""

    id: str
    data: dict[str, Any]
    position: Any
    ended: bool
    subtask: int


class Files:
    """The state files of a snapshot; the index of each is read once."""

    def __init__(self, location: SnapshotLocation, codec: RawCodec) -> None:
        self.codec = codec
        self._location = location
        self._readers: dict[str, FileReader] = {}

    def reader(self, file: StateFile) -> FileReader:
        """The reader of a file.

        Raises:
            SnapshotError: it is damaged or missing.
            StorageError: it cannot be read.
        """
        reader = self._readers.get(file.path)
        if reader is None:
            reader = self._readers[file.path] = FileReader(file.path, self._range_of(file.path), file.bytes)
        return reader

    def _range_of(self, path: str) -> Any:
        storage = self._location.storage

        def read(offset: int, size: int) -> bytes:
            if size > _READ_BYTES_MAX:
                raise SnapshotError(
                    f"cannot read {size} bytes of {path} at once: no block is that big; use another snapshot"
                )
            try:
                return run_now(storage.get(path, offset, size))
            except FileNotFoundError as error:
                raise SnapshotError(
                    f"the state file {path} is missing: restore it from a backup, or use another snapshot"
                ) from error

        return read


@dataclass(frozen=True)
class Operator:
    """What one operator put into a snapshot.

    Attributes:
        uid: what the job calls it.
        name: what it does, e.g. "count".
        kind: the kind of operator, e.g. "source".
        parallelism: how many subtasks it had.
        subtasks: what each of them put in, as the manifest has it.
    """

    uid: str
    name: str
    kind: str
    parallelism: int
    subtasks: Sequence[SubtaskState] = field(repr=False)
    _files: Files = field(repr=False)
    _max_parallelism: int = field(repr=False)

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum({file.path: file.bytes for subtask in self.subtasks for file in subtask.every_file()}.values())

    @cached_property
    def splits(self) -> list[SourceSplit]:
        """The splits of a source and how far each was read."""
        return [
            SourceSplit(
                str(split.get("id")), split.get("data", {}), split.get("position"), split.get("ended") is True, index
            )
            for index, subtask in enumerate(self.subtasks)
            for split in subtask.splits
        ]

    @property
    def committables(self) -> list[dict[str, Any]]:
        """What a sink has prepared and the snapshot does not know to be committed: {"checkpoint", "data"}."""
        return [committable for subtask in self.subtasks for committable in subtask.committables]

    @cached_property
    def states(self) -> Mapping[str, KeyedState]:
        """Its keyed states by name.

        Raises:
            SnapshotError: a file is damaged.
        """
        schemas: dict[str, dict[str, Any]] = {}
        kinds: dict[str, str] = {}
        for subtask in self.subtasks:
            schemas |= subtask.states
            for file in _own_files(subtask):
                for name, kind in self._files.reader(file).states:
                    if kinds.setdefault(name, kind) != kind:
                        raise SnapshotError(
                            f"cannot read state {name!r} of operator {self.uid!r}: it is a {kinds[name]} in one file "
                            f"and a {kind} in another; use another snapshot"
                        )
        for name, schema in schemas.items():
            if name not in self.broadcast_states:
                kinds.setdefault(name, str(schema.get("kind")) if isinstance(schema, dict) else "value")
        return {name: self._state(name, kinds[name], schemas.get(name, {})) for name in sorted(kinds)}

    @cached_property
    def broadcast_states(self) -> Mapping[str, BroadcastEntries]:
        """Its broadcast states by name.

        Raises:
            SnapshotError: a file is damaged.
        """
        holder = next((index for index, subtask in enumerate(self.subtasks) if subtask.broadcast), None)
        if holder is None:
            return {}
        subtask = self.subtasks[holder]
        files = [file for file in reversed(subtask.broadcast) if file.kind != NATIVE]
        found = {}
        for name in sorted({name for file in files for name, _ in self._files.reader(file).states}):
            part = StatePart(holder, (0, self._max_parallelism - 1), self._in_files(files, name))
            schema = subtask.states.get(name, {})
            found[name] = BroadcastEntries(name, BROADCAST, schema, self._max_parallelism, [part])
        return found

    @property
    def watermarks(self) -> list[int | None]:
        """Where event time stood in each subtask, as epoch ms; None: it had not begun."""
        return [subtask.watermark for subtask in self.subtasks]

    def state(self, name: str) -> KeyedState:
        """One of its states.

        Raises:
            NotFoundError: it has none of that name.
            SnapshotError: a file is damaged.
        """
        state = self.states.get(name)
        if state is None:
            raise NotFoundError(f"operator {self.uid!r} has no state {name!r}{nearest(name, self.states)}")
        return state

    def _state(self, name: str, kind: str, schema: dict[str, Any]) -> KeyedState:
        parts = []
        for index, subtask in enumerate(self.subtasks):
            files = self._in_files(reversed(_own_files(subtask)), name)
            parts.append(StatePart(index, subtask.groups, files))
        is_plain = has_plain_keys(file for subtask in self.subtasks for file in _own_files(subtask))
        return KeyedState(name, kind, schema, self._max_parallelism, [part for part in parts if part.files], is_plain)

    def _in_files(self, files: Iterable[StateFile], name: str) -> list[StateInFile]:
        """One state in those of some files that have some of it."""
        opened = [
            StateInFile(self._files.reader(file), name, self._files.codec, self._max_parallelism, file.groups)
            for file in files
        ]
        return [file for file in opened if file.refs]


class Snapshot:
    """An open snapshot. It holds no file open, so there is nothing to close."""

    def __init__(self, location: SnapshotLocation, manifest: Manifest, codec: RawCodec) -> None:
        self.location = location
        self.manifest = manifest
        self.codec = codec
        self.max_parallelism = _max_parallelism(location, manifest)
        self._files = Files(location, codec)

    @property
    def path(self) -> str:
        """Its folder."""
        return self.location.path

    @property
    def kind(self) -> str:
        """ "checkpoint" or "savepoint"."""
        return self.manifest.kind

    @property
    def job(self) -> str:
        """The name of the job that it is of."""
        return self.manifest.job

    @property
    def id(self) -> int:
        """Its number in the job."""
        return self.manifest.id

    @property
    def parent(self) -> int:
        """The number of the snapshot it was taken after or made from; 0: none."""
        return self.manifest.parent

    @property
    def created(self) -> int:
        """When, as epoch ms."""
        return self.manifest.created

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(file.bytes for file in self.manifest.files())

    @cached_property
    def operators(self) -> Mapping[str, Operator]:
        """Its operators by uid, in the order of the job."""
        planned = {str(spec.get("uid")): spec for spec in _specs(self.manifest)}
        order = {uid: at for at, uid in enumerate(planned)}
        uids = sorted(self.manifest.operators, key=lambda uid: order.get(uid, len(order)))
        return {uid: self._operator(uid, self.manifest.operators[uid], planned.get(uid, {})) for uid in uids}

    def operator(self, uid: str) -> Operator:
        """One of its operators.

        Raises:
            NotFoundError: there is none of that uid.
        """
        operator = self.operators.get(uid)
        if operator is None:
            raise NotFoundError(f"the snapshot {self.path} has no operator {uid!r}{nearest(uid, self.operators)}")
        return operator

    def verify(self) -> Report:
        """Prove every checksum and every count. See `verified.verify`."""
        from flowpoint.snapshot.verified import verify

        return verify(self)

    def edit(self) -> Child:
        """Begin a child of this snapshot. See `edited.Child`."""
        from flowpoint.snapshot.edited import Child

        return Child(self)

    def reader(self, file: StateFile) -> FileReader:
        """The reader of one of its state files. Raises as `Files.reader`."""
        return self._files.reader(file)

    def _operator(self, uid: str, state: OperatorState, spec: Mapping[str, Any]) -> Operator:
        for index, subtask in enumerate(state.subtasks):
            first, last = subtask.groups
            if subtask.groups != NO_GROUPS and not 0 <= first <= last < self.max_parallelism:
                raise SnapshotError(
                    f"the manifest of {self.path} is damaged: subtask {index} of operator {uid!r} has the key groups "
                    f"{first} to {last} of {self.max_parallelism}; use another snapshot"
                )
        name, kind = str(spec.get("name", "")), str(spec.get("kind", ""))
        return Operator(uid, name, kind, state.parallelism, state.subtasks, self._files, self.max_parallelism)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id} of job {self.job!r} at {self.path}>"


def nearest(name: str, known: Iterable[str]) -> str:
    """What a message says after an unknown name: the nearest right one, or all there are."""
    there = list(known)
    near = alike(name, there)
    if near:
        return f"; did you mean {near[0]!r}?"
    shown = ", ".join(map(repr, there[:10])) + (", ..." if len(there) > 10 else "")
    return f"; there are {shown}" if there else "; it has none"


def _own_files(subtask: SubtaskState) -> list[StateFile]:
    """The files of state in our own format, oldest first."""
    return [file for file in subtask.files if file.kind != NATIVE]


def _specs(manifest: Manifest) -> Iterator[Mapping[str, Any]]:
    """What the plan says of each operator."""
    operators = manifest.plan.get("operators", ())
    return (spec for spec in operators if isinstance(spec, dict)) if isinstance(operators, list) else iter(())


def _max_parallelism(location: SnapshotLocation, manifest: Manifest) -> int:
    found = manifest.plan.get("max_parallelism")
    if type(found) is not int or not 1 <= found <= MAX_PARALLELISM_LIMIT:
        raise SnapshotError(
            f"the manifest of {location.path} is damaged: max_parallelism is {found!r:.50}; use another snapshot"
        )
    return found
