"""Make a child of a snapshot: the same state with some of it changed, as a savepoint in a folder of its own.

    child = snapshot.open("chk-17-a7").edit()
    child.set("counts", "count", "the", 0)
    child.move("lines", "books/a.txt@0", 0)
    child.write("savepoint-wordcount-fixed")

The files of the parent are copied as they are, never decoded; what was changed goes into one small further file per
subtask, whose entries win over all older ones, as those of every incremental checkpoint do.

Invariants: the parent is only read. Every change is checked against what is stored when it is asked for: an operator,
state or split must be there, a new key must be of a type that is there, and a value must be of the stored type. Every
copy is proved by its checksum, and everything is durable before the manifest, which is written last.

Not here: what a person types on a command line (`addresses`).
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgpack
from xxhash import xxh3_64, xxh3_64_hexdigest

from flowpoint.errors import NotFoundError, SnapshotError, StorageError, UsageError
from flowpoint.host.blocking import run_now, wall_ms
from flowpoint.model.manifest import SAVEPOINT, Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot import names
from flowpoint.snapshot.disposed import remove_empty_folders
from flowpoint.snapshot.keyed_state import MAP, Found, KeyedState
from flowpoint.snapshot.location import local_storage
from flowpoint.snapshot.manifests import encode_manifest, write_manifest
from flowpoint.snapshot.new_entries import require_like, samples_of
from flowpoint.snapshot.opened import Snapshot, SourceSplit, nearest
from flowpoint.snapshot.storage import SLICE_BYTES, Storage, reason_of
from flowpoint.snapshot.value_fit import fit, fit_any
from flowpoint.snapshot.value_text import json_of, text_of
from flowpoint.snapshot.writer import DELTA
from flowpoint.state.file_builder import FileBuilder
from flowpoint.state.key_functions import told
from flowpoint.state.spec import ABSENT, TOMBSTONE
from flowpoint.state.versions import stamped

_ENTRY: Final = ABSENT
"""In place of a map key: all entries of a key."""

Change: TypeAlias = tuple[int, Any]
"""(key group, new value or TOMBSTONE)."""


@dataclass(frozen=True, slots=True)
class Written:
    """A child that has been written."""

    path: str
    id: int
    parent: int
    bytes: int
    changes: tuple[str, ...]


class Child:
    """Changes to a snapshot, collected until `write`. Of two changes to one thing the last one counts."""

    def __init__(self, parent: Snapshot) -> None:
        self.parent = parent
        self.changes: list[str] = []
        self._entries: dict[tuple[str, int], dict[tuple[str, str], dict[Any, Change]]] = {}
        self._dropped: set[str] = set()
        self._positions: dict[tuple[str, str], Any] = {}

    def set(self, uid: str, state: str, key: Any, value: Any, *, map_key: Any = _ENTRY) -> None:
        """Set the value of a key, there or new; in a map state, of one `map_key` of it.

        Args:
            uid: the operator.
            state: the name of the state.
            key: the key.
            value: the new value: of the type of the stored one, or what JSON has for it (a list for a tuple, ...).
            map_key: for a map state.

        Raises:
            NotFoundError: there is no such operator or state, or no key or map key of this type.
            UsageError: the value does not fit the stored one, nor, of a new key, any that is stored.
        """
        there = self.parent.operator(uid).state(state)
        if there.kind == MAP and map_key is _ENTRY:
            raise UsageError(
                f"cannot set all of the map of key {text_of(key)} in state {state!r} of {uid!r}: name one map key"
            )
        found = there.find(key)
        stored = ABSENT if found is None else found.value
        if found is not None and there.kind == MAP:
            map_key = next((each for each in found.value if each == map_key), map_key)
            stored = found.value.get(map_key, ABSENT)
        if stored is ABSENT:
            found, fitted = self._new(uid, there, found, key, map_key, value)
        else:
            assert found is not None, key
            fitted = fit(value, stored)
        at = found.key if there.kind != MAP else (found.key, map_key)
        self._change(uid, there, found, {at: fitted})
        what = "add" if stored is ABSENT else "set"
        self._note(what, uid, state, found.key, map_key, json.dumps(json_of(value)))

    def delete(self, uid: str, state: str, key: Any, *, map_key: Any = _ENTRY) -> None:
        """Forget a key, or one `map_key` of it. The job then reads the default there.

        Raises:
            NotFoundError: there is no such operator, state, key or map key.
        """
        there, found = self._find(uid, state, key)
        doomed: Iterable[Any] = [found.key]
        if there.kind == MAP:
            inside = found.value if map_key is _ENTRY else [self._map_key(uid, state, found, map_key)]
            doomed = [(found.key, each) for each in inside]
        elif map_key is not _ENTRY:
            raise UsageError(f"cannot delete map key {text_of(map_key)}: state {state!r} of {uid!r} is no map")
        self._change(uid, there, found, dict.fromkeys(doomed, TOMBSTONE))
        self._note("delete", uid, state, found.key, map_key)

    def drop(self, uid: str) -> None:
        """Leave out all that an operator put in: it starts empty, a source at the beginning of its input.

        Raises:
            NotFoundError: there is no such operator.
        """
        self.parent.operator(uid)
        self._dropped.add(uid)
        self.changes.append(f"drop {uid}")

    def move(self, uid: str, split: str, position: Any) -> None:
        """Let a source read a split on from another position (None: from its beginning), also one it had finished.

        Raises:
            NotFoundError: there is no such operator or split.
            UsageError: the position is not of the type that this source's positions have, or beyond 64 bits. Whether
                the split has such a position its source says when it is opened.
        """
        splits = self.parent.operator(uid).splits
        known = {each.id: each for each in splits}
        if split not in known:
            raise NotFoundError(f"source {uid!r} has no split {split!r}{nearest(split, known)}")
        if position is not None:
            position = fit_any(position, _positions(known[split], splits))
            _check_carried(uid, split, position)
        self._positions[uid, split] = position
        self.changes.append(f"position {uid}/{split}={json.dumps(position)}")

    def write(self, folder: str | os.PathLike[str]) -> Written:
        """Write the child into a folder that is new or empty.

        Raises:
            UsageError: the folder has something in it, or is a part of the parent.
            SnapshotError: a file of the parent is damaged; there is no child then.
            StorageError: a file could not be read or written; there is no child then.
        """
        path = os.path.abspath(os.path.expanduser(os.fspath(folder)))
        _check_free(path, self.parent.path)
        storage = local_storage(path)
        written: list[str] = []
        try:
            manifest = run_now(self._write(storage, written))
        except BaseException:
            # What has happened is the news, and not what of it cannot be removed. The manifest goes first: it may be there,
            # and names what goes then.
            with suppress(StorageError):
                run_now(storage.delete(names.MANIFEST))
                run_now(storage.delete(*written))
            remove_empty_folders(path)
            raise
        size = sum(file.bytes for file in manifest.files())
        return Written(path, manifest.id, manifest.parent, size, tuple(self.changes))

    # ------------------------------------------------------------------ changes

    def _find(self, uid: str, state: str, key: Any) -> tuple[KeyedState, Found]:
        there = self.parent.operator(uid).state(state)
        found = there.find(key)
        if found is None:
            raise NotFoundError(f"state {state!r} of operator {uid!r} has no key {text_of(key)}")
        return there, found

    def _new(
        self, uid: str, there: KeyedState, found: Found | None, key: Any, map_key: Any, value: Any
    ) -> tuple[Found, Any]:
        """Where a new entry belongs, and its value as one like those that are stored. `found`: a map that it goes into."""
        samples = samples_of(there)
        where = f"state {there.name!r} of operator {uid!r} has no"
        if found is None:
            require_like(key, samples.keys, f"{where} key")
            group = there.group_of(key)
            owners = self.parent.manifest.operators[uid].subtasks
            owner = next(at for at, subtask in enumerate(owners) if subtask.groups[0] <= group <= subtask.groups[1])
            found = Found(owner, group, key, ABSENT)
        if there.kind == MAP:
            require_like(map_key, samples.map_keys, f"{where} map key")
        return found, fit_any(value, samples.values)

    def _map_key(self, uid: str, state: str, found: Found, map_key: Any) -> Any:
        for stored in found.value:
            if stored == map_key:
                return stored
        raise NotFoundError(f"key {text_of(found.key)} in state {state!r} of {uid!r} has no map key {text_of(map_key)}")

    def _change(self, uid: str, state: KeyedState, found: Found, entries: Mapping[Any, Any]) -> None:
        changed = self._entries.setdefault((uid, found.subtask), {}).setdefault((state.name, state.kind), {})
        changed.update((key, (found.group, value)) for key, value in entries.items())

    def _note(self, what: str, uid: str, state: str, key: Any, map_key: Any, value: str | None = None) -> None:
        at = "" if map_key is _ENTRY else f"/{_plain(map_key)}"
        self.changes.append(f"{what} {uid}/{state}/{_plain(key)}{at}{'' if value is None else f'={value}'}")

    # ------------------------------------------------------------------ writing

    async def _write(self, storage: Storage, written: list[str]) -> Manifest:
        """Write all files; `written` gets their names before each is begun."""
        parent = self.parent.manifest
        operators: dict[str, OperatorState] = {}
        taken = frozenset(file.path for file in parent.files())
        for uid, operator in parent.operators.items():
            if uid not in self._dropped:
                subtasks = [
                    await self._write_subtask(storage, uid, index, subtask, taken, written)
                    for index, subtask in enumerate(operator.subtasks)
                ]
                operators[uid] = replace(operator, subtasks=tuple(subtasks))
        manifest = self._manifest(operators)
        for file in manifest.files():
            if file.path in taken:
                written.append(file.path)
                await storage.put_if_absent(file.path, _proved(self.parent.location.storage, file))
        # From here on the child counts.
        await write_manifest(storage, manifest, "")
        return manifest

    def _manifest(self, operators: dict[str, OperatorState]) -> Manifest:
        parent = self.parent.manifest
        origin = {
            "path": self.parent.path,
            "kind": parent.kind,
            "id": parent.id,
            "attempt": parent.attempt,
            "checksum": xxh3_64_hexdigest(encode_manifest(parent)),
            "changes": list(self.changes),
        }
        return replace(
            parent,
            kind=SAVEPOINT,
            id=parent.id + 1,
            parent=parent.id,
            created=wall_ms(),
            operators=operators,
            origin=origin,
            # What is to be read again, or from the start, is not finished.
            finished=parent.finished and not self._positions and not self._dropped,
        )

    async def _write_subtask(
        self,
        storage: Storage,
        uid: str,
        index: int,
        subtask: SubtaskState,
        taken: frozenset[str],
        written: list[str],
    ) -> SubtaskState:
        """What a subtask of the child has: all of the parent's, and a file of changes."""
        splits = tuple(self._moved(uid, split) for split in subtask.splits)
        changes = self._entries.get((uid, index))
        if not changes:
            return replace(subtask, splits=splits)
        sequence = 1
        while (name := names.state_file(uid, index, self.parent.manifest.attempt, sequence, DELTA)) in taken:
            sequence += 1
        data, builder = self._delta(changes)
        written.append(name)
        await storage.put_if_absent(name, (data,))
        checksum, extra = xxh3_64_hexdigest(data), told(builder.key_types, are_plain=builder.has_plain_keys)
        written_file = StateFile(name, DELTA, len(data), checksum, builder.entries, subtask.groups, extra)
        (file,) = stamped([written_file], subtask.states)
        return replace(subtask, splits=splits, files=(*subtask.files, file))

    def _moved(self, uid: str, split: dict[str, Any]) -> dict[str, Any]:
        if (uid, split.get("id")) not in self._positions:
            return split
        return {**split, "position": self._positions[uid, split["id"]], "ended": False}

    def _delta(self, changes: Mapping[tuple[str, str], Mapping[Any, Change]]) -> tuple[bytes, FileBuilder]:
        builder = FileBuilder(self.parent.codec)
        parts = [builder.header()]
        for (name, kind), changed in changes.items():
            groups: dict[int, tuple[list[Any], list[Any]]] = {}
            for key, (group, value) in changed.items():
                keys, values = groups.setdefault(group, ([], []))
                keys.append(key)
                values.append(value)
            parts.append(builder.block(name, kind, [(group, *groups[group]) for group in sorted(groups)]))
        parts.append(builder.footer())
        return b"".join(parts), builder


def _plain(key: Any) -> str:
    return key if isinstance(key, str) else text_of(key)


def _positions(split: SourceSplit, others: Iterable[SourceSplit]) -> list[Any]:
    """Positions that show the type of a split's: its own, else those of others."""
    if split.position is not None:
        return [split.position]
    return [other.position for other in others if other.position is not None]


def _check_carried(uid: str, split: str, position: Any) -> None:
    """Positions travel to workers in messages, whose numbers have 64 bits."""
    try:
        msgpack.packb(position)
    except (OverflowError, ValueError) as error:
        raise UsageError(
            f"cannot move split {split!r} of source {uid!r} to position {position!r}: {error}; give one that the split has"
        ) from error


def _check_free(path: str, parent: str) -> None:
    if os.path.commonpath((path, parent)) == parent:
        raise UsageError(f"cannot write a snapshot to {path}: that is inside of its parent; choose another folder")
    try:
        inside = os.listdir(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"cannot write a snapshot to {path}: that is a file; choose a new folder") from None
    except OSError as error:
        raise UsageError(f"cannot write a snapshot to {path}: {reason_of(error)}; choose another folder") from error
    if inside:
        raise UsageError(f"cannot write a snapshot to {path}: the folder is not empty; choose a new or empty one")


async def _proved(storage: Storage, file: StateFile) -> AsyncIterator[bytes]:
    """The bytes of a file in slices; an error at the end when they are not those that the manifest promises."""
    digest = xxh3_64()
    size = 0
    while data := await storage.get(file.path, size, SLICE_BYTES):
        digest.update(data)
        size += len(data)
        yield data
    if (size, digest.hexdigest()) != (file.bytes, file.checksum):
        raise SnapshotError(
            f"cannot copy {file.path}: the file is damaged ({size} bytes, checksum {digest.hexdigest()}, instead of "
            f"{file.bytes} and {file.checksum}); use another snapshot"
        )
