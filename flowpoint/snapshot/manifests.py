"""Manifests: the file that makes a snapshot complete, written last; and the proof that everything it names is there.

Invariants:
- A manifest is written after every file it names is durable, in one atomic step; a checkpoint without one is none.
- What `read_manifest` returns had an intact checksum and the expected shape; paths in it stay inside their folder.
- A newer format is refused by its number, never half understood.

Not here: whether a checkpoint counts (`commit_log`), the bytes of state (`reader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flowpoint.errors import BadRecordError, SnapshotError
from flowpoint.model.manifest import MANIFEST_FORMAT, Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.snapshot import encoding, names
from flowpoint.snapshot.measured import measured
from flowpoint.snapshot.storage import Storage

WHAT = "manifest"

_FIELDS: Mapping[str, type] = {
    "kind": str,
    "job": str,
    "id": int,
    "parent": int,
    "attempt": int,
    "lineage": str,
    "created": int,
    "finished": bool,
    "plan": dict,
    "operators": dict,
}
_OPTIONAL_FIELDS: Mapping[str, type] = {"handed_on": bool, "drained": bool, "origin": dict}
_FILE_FIELDS: Mapping[str, type] = {
    "path": str,
    "kind": str,
    "bytes": int,
    "checksum": str,
    "entries": int,
    "groups": list,
    "extra": dict,
}
_SUBTASK_FIELDS: Mapping[str, type] = {
    "files": list,
    "groups": list,
    "states": dict,
    "splits": list,
    "committables": list,
    "exports": list,
    "broadcast": list,
    "channels": list,
    "watermark": int,
}


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong with a snapshot: which file, and what was seen there."""

    path: str
    problem: str


async def write_manifest(storage: Storage, manifest: Manifest, directory: str | None = None) -> str:
    """Publish a manifest; its folder's name. Every file it names must be durable already.

    Args:
        directory: where; None is the folder of the checkpoint, "" the storage's own root (a savepoint).

    Raises:
        BadRecordError: a source position or committable is not JSON.
        SnapshotError: another manifest is there already.
        StorageError: it could not be written; the checkpoint fails.
    """
    if directory is None:
        directory = names.checkpoint_directory(manifest.id, manifest.attempt)
    name = names.manifest_of(directory)
    data = encode_manifest(manifest)
    if not await storage.put_if_absent(name, (data,)) and await storage.get(name) != data:
        raise SnapshotError(f"cannot write {name}: another manifest is there already; choose an empty folder")
    return directory


async def read_manifest(storage: Storage, directory: str) -> Manifest:
    """The manifest in a folder of a storage ("": the storage's own root).

    Raises:
        SnapshotError: there is none, or it is damaged or of a newer format.
        StorageError: it cannot be read at the moment.
    """
    name = names.manifest_of(directory)
    try:
        data = await storage.get(name)
    except FileNotFoundError as error:
        raise SnapshotError(
            f"there is no {name}: the snapshot is incomplete or has been removed; use another snapshot"
        ) from error
    return decode_manifest(data, name)


async def verify(storage: Storage, manifest: Manifest, *, deep: bool) -> list[Damage]:
    """What is wrong with the files that a manifest names: existence and size, and checksums if `deep`.

    Raises:
        StorageError: one of them cannot be read at the moment, which is no damage.
    """
    damages = [await verify_file(storage, file, deep=deep) for file in manifest.files()]
    return [damage for damage in damages if damage is not None]


async def verify_file(storage: Storage, file: StateFile, *, deep: bool) -> Damage | None:
    """What is wrong with one file, if anything. Raises as `verify`."""
    problem = await (check_file(storage, file) if deep else _check_size(storage, file))
    return Damage(file.path, problem) if problem else None


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest as its file holds it.

    Raises:
        BadRecordError: a source position or committable is not JSON.
    """
    body: dict[str, Any] = {"format": manifest.format}
    body |= {field: getattr(manifest, field) for field in _FIELDS if field != "operators"}
    body |= {field: value for field in _OPTIONAL_FIELDS if (value := getattr(manifest, field))}
    body["operators"] = {uid: _operator_data(uid, operator) for uid, operator in manifest.operators.items()}
    try:
        return encoding.encode(body)
    except (TypeError, ValueError) as error:
        raise _not_json(body["operators"], error) from error


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The reverse of `encode_manifest`.

    Raises:
        SnapshotError: the file is damaged or of a newer format.
    """
    body = encoding.decode(data, path, newest_format=MANIFEST_FORMAT, what=WHAT)
    _check_fields(body, _FIELDS, path, "")
    operators = {uid: _decode_operator(uid, operator, path) for uid, operator in body["operators"].items()}
    optional = {field: kind for field, kind in _OPTIONAL_FIELDS.items() if field in body}
    _check_fields(body, optional, path, "")
    plain = {field: body[field] for field in (*_FIELDS, *optional) if field != "operators"}
    return Manifest(operators=operators, format=body["format"], **plain)


def _operator_data(uid: str, operator: OperatorState) -> dict[str, Any]:
    for subtask in operator.subtasks:
        if not encoding.has_only_text_keys([subtask.states, subtask.splits, subtask.committables]):
            raise _bad_operator(uid, "a key of a dict is not a str")
    return {
        "parallelism": operator.parallelism,
        "subtasks": [subtask.to_data() for subtask in operator.subtasks],
    }


def _not_json(operators: Mapping[str, Any], error: Exception) -> Exception:
    """The error for the operator whose data is not JSON, or the given one when it is none's."""
    for uid, data in operators.items():
        try:
            encoding.encode(data)
        except (TypeError, ValueError) as seen:
            return _bad_operator(uid, str(seen))
    return error


def _bad_operator(uid: str, seen: str) -> BadRecordError:
    return BadRecordError(
        f"operator {uid!r}: its source position, committable or state schema is not JSON ({seen}); make `position()` "
        "and `prepare()` return only None, bool, int, float, str, list and dict with str keys"
    )


def _decode_operator(uid: str, data: Any, path: str) -> OperatorState:
    where = f"operator {uid!r}"
    _check_fields(data, {"parallelism": int, "subtasks": list}, path, where)
    subtasks = data["subtasks"]
    if len(subtasks) != data["parallelism"]:
        seen = f"{where} has parallelism {data['parallelism']} and {len(subtasks)} subtasks"
        raise encoding.damaged(path, WHAT, seen)
    for index, subtask in enumerate(subtasks):
        _check_subtask(subtask, path, f"subtask {index} of {where}")
    return OperatorState(data["parallelism"], tuple(SubtaskState.from_data(subtask) for subtask in subtasks))


def _check_subtask(data: Any, path: str, where: str) -> None:
    if not isinstance(data, dict) or not set(data) <= set(_SUBTASK_FIELDS):
        raise encoding.damaged(path, WHAT, f"{where} is {data!r:.200}")
    _check_fields(data, {field: _SUBTASK_FIELDS[field] for field in data}, path, where)
    if not _is_range(data.get("groups", [0, -1])):
        raise encoding.damaged(path, WHAT, f"the key groups of {where} are {data['groups']!r:.200}")
    kinds = ("files", "exports", "broadcast", "channels")
    for file in (file for kind in kinds for file in data.get(kind, ())):
        _check_fields(file, _FILE_FIELDS, path, f"a file of {where}")
        sound = _is_range(file["groups"]) and set(file) == set(_FILE_FIELDS)
        if not sound or file["bytes"] < 0 or not names.is_object(file["path"]):
            raise encoding.damaged(path, WHAT, f"a file of {where} is {file!r:.300}")
    exports = [file["path"] for file in data.get("exports", ())]
    parts = [(part, _is_split(part)) for part in data.get("splits", ())]
    parts += [(part, _is_committable(part, exports)) for part in data.get("committables", ())]
    for part, is_sound in parts:
        if not is_sound:
            raise encoding.damaged(path, WHAT, f"a split or committable of {where} is {part!r:.200}")


def _is_split(part: Any) -> bool:
    return isinstance(part, dict) and "id" in part


def _is_committable(part: Any, exports: list[str]) -> bool:
    """Those of a savepoint name the files that they travel with."""
    if not isinstance(part, dict) or type(part.get("checkpoint")) is not int or "data" not in part:
        return False
    files = part.get("files", [])
    return isinstance(files, list) and all(file in exports for file in files)


def _is_range(groups: list[Any]) -> bool:
    return len(groups) == 2 and all(type(group) is int for group in groups)


def _check_fields(data: Any, expected: Mapping[str, type], path: str, where: str) -> None:
    if not isinstance(data, dict):
        raise encoding.damaged(path, WHAT, f"{where} is {data!r:.200}")
    for field, kind in expected.items():
        if type(data.get(field)) is not kind:
            seen = f"{field!r}{where and f' of {where}'} is {data.get(field)!r:.200}, not of type {kind.__name__}"
            raise encoding.damaged(path, WHAT, seen)


async def _check_size(storage: Storage, file: StateFile) -> str:
    """What is wrong with a file's size, or "". One byte before the expected end is there, none after it.

    Raises:
        StorageError: it cannot be read at the moment.
    """
    offset = max(file.bytes - 1, 0)
    try:
        tail = await storage.get(file.path, offset, 2)
    except FileNotFoundError:
        return "missing"
    if len(tail) == file.bytes - offset:
        return ""
    return f"{'longer' if len(tail) > file.bytes - offset else 'shorter'} than the {file.bytes} bytes it must have"


async def check_file(storage: Storage, file: StateFile) -> str:
    """What is wrong with a file's bytes, or "".

    Raises:
        StorageError: they cannot be read at the moment.
    """
    try:
        size, checksum = await measured(storage, file.path)
    except FileNotFoundError:
        return "missing"
    if size != file.bytes:
        return f"{size} bytes long instead of {file.bytes}"
    return f"checksum {checksum} instead of {file.checksum}" if checksum != file.checksum else ""


assert set(_FIELDS) | set(_OPTIONAL_FIELDS) | {"format"} == {field.name for field in fields(Manifest)}
