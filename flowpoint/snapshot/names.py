"""The names of everything in a job's storage folder: made here, parsed here, nowhere else.

    commits/00000017.json               entry 17 of the commit log
    chk-17-a7/manifest.json             the manifest of checkpoint 17, written in attempt 7
    shared/<uid>-<subtask>-a7-3.delta   third file of state of a subtask, written in attempt 7
    chk-17-a7/0003-<...>                a file of the snapshot that a run started from, linked or copied in attempt 7

and in the folder of a savepoint, `savepoint-<job>-18`:

    manifest.json, data/<uid>-<subtask>-<lineage>-a7.base, data/<uid>-<subtask>-<lineage>-a7.output.3

A uid may hold any character and have any length; in a file name it stands as a short slug. A uid that is not plainly
a slug already gets the hash of the whole uid, so that two uids never share a name, not even on a file system that
folds case.

Invariants:
- Every file and folder name of state carries the attempt that wrote it (rule 4).
- The last part of an object's name has a dot; the names of folders have none. Listing relies on it.
- A parser returns None for a name that no function here makes: such a file is somebody else's and is left alone.

Not here: what may be deleted (`retention`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from xxhash import xxh3_64_hexdigest

from flowpoint.errors import InternalError

COMMITS = "commits/"
SHARED = "shared/"
CHECKPOINTS = "chk-"
SAVED = "data/"
MANIFEST = "manifest.json"

_SLUG_MAX = 40
_PLAIN_UID = re.compile(rf"[a-z0-9_][a-z0-9_-]{{0,{_SLUG_MAX - 1}}}")
_COMMIT = re.compile(r"commits/(\d{8,})\.json")
_DIRECTORY = re.compile(r"chk-([1-9]\d*)-a(\d+)")
_STATE_FILE = re.compile(r"shared/([^/]+)-(\d+)-a(\d+)-(\d+)\.(base|delta|channel)(?:\.(\d+))?")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-z]+\.tmp")


class CheckpointDirectory(NamedTuple):
    """What the name of a checkpoint's folder says."""

    checkpoint: int
    attempt: int


class StateFileName(NamedTuple):
    """What the name of a state file says. `slug` stands for the uid; `native` is None for the main file."""

    slug: str
    subtask: int
    attempt: int
    sequence: int
    kind: str
    native: int | None


def is_object(name: str) -> bool:
    """Whether a name can be an object's: relative, inside its storage, with a dot in its last part only."""
    *folders, base = name.split("/")
    sound = "." in base and not base.startswith(".") and not base.endswith(".") and "\0" not in name
    return sound and all(part and "." not in part for part in folders)


def require_object(name: str) -> None:
    """Raise InternalError unless a name can be an object's."""
    if not is_object(name):
        raise InternalError(f"{name!r} is not a name for an object in storage")


def require_inside(name: str) -> None:
    """Raise InternalError for an object or folder that would lie outside of the storage, or be the storage itself."""
    if any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")):
        raise InternalError(f"{name!r} is not the name of anything in storage")


def require_prefix(prefix: str) -> None:
    """Raise InternalError for a prefix that would lead out of the storage."""
    folder = prefix[: prefix.rfind("/") + 1]
    if folder:
        require_inside(folder)


def commit_entry(number: int) -> str:
    """The name of an entry of the commit log.

    Example:
        >>> commit_entry(17)
        'commits/00000017.json'
    """
    return f"{COMMITS}{number:08d}.json"


def parse_commit_entry(name: str) -> int | None:
    """The number of an entry, or None when it is not one."""
    match = _COMMIT.fullmatch(name)
    return int(match[1]) if match and commit_entry(int(match[1])) == name else None


def checkpoint_directory(checkpoint: int, attempt: int) -> str:
    """The folder of a checkpoint.

    Example:
        >>> checkpoint_directory(17, attempt=7)
        'chk-17-a7'
    """
    return f"{CHECKPOINTS}{checkpoint}-a{attempt}"


def parse_checkpoint_directory(name: str) -> CheckpointDirectory | None:
    """What a folder's name says, or None when it is not the folder of a checkpoint."""
    match = _DIRECTORY.fullmatch(name)
    return CheckpointDirectory(int(match[1]), int(match[2])) if match else None


def manifest_of(directory: str) -> str:
    """The name of the manifest in a folder ("" is the storage's own root, as in a savepoint)."""
    return f"{directory}/{MANIFEST}" if directory else MANIFEST


def state_file(uid: str, subtask: int, attempt: int, sequence: int, kind: str) -> str:
    """The name of a file of state. `kind` is "base", "delta" or "channel"; `sequence` counts in the subtask's attempt.

    Example:
        >>> state_file("counts", 0, attempt=7, sequence=3, kind="delta")
        'shared/counts-0-a7-3.delta'
    """
    return f"{SHARED}{uid_slug(uid)}-{subtask}-a{attempt}-{sequence}.{kind}"


def savepoint_folder(job: str, savepoint: int) -> str:
    """The name of a savepoint's folder.

    Example:
        >>> savepoint_folder("wordcount", 18)
        'savepoint-wordcount-18'
    """
    return f"savepoint-{job}-{savepoint}"


def savepoint_tag(lineage: str, attempt: int) -> str:
    """What tells the files of one attempt's savepoint from all others' that may be in its folder."""
    return f"{savepoint_lineage(lineage)}{attempt}."


def savepoint_lineage(lineage: str) -> str:
    """What stands in the names of all files that any attempt of a lineage writes into a savepoint."""
    return f"-{uid_slug(lineage)}-a"


def savepoint_state(uid: str, subtask: int, lineage: str, attempt: int, number: int) -> str:
    """The name of a file of state in a savepoint. `number`: which one of the subtask's, the oldest first."""
    return f"{SAVED}{uid_slug(uid)}-{subtask}{savepoint_tag(lineage, attempt)}state.{number}"


def savepoint_output(uid: str, subtask: int, lineage: str, attempt: int) -> str:
    """The beginning of the names of a sink's files in a savepoint."""
    return f"{SAVED}{uid_slug(uid)}-{subtask}{savepoint_tag(lineage, attempt)}output"


def imported_file(directory: str, index: int, name: str) -> str:
    """The name of a file that was taken over from another snapshot into a checkpoint's folder.

    Example:
        >>> imported_file("chk-18-a9", 3, "data/counts-0-1f3c-a7.base")
        'chk-18-a9/0003-counts-0-1f3c-a7.base'
    """
    return f"{directory}/{index:04d}-{name.rpartition('/')[2]}"


def native_file(name: str, index: int) -> str:
    """The name of the `index`th native file that belongs to a state file."""
    return f"{name}.{index}"


def parse_state_file(name: str) -> StateFileName | None:
    """What the name of a state file says, or None when it is not one."""
    match = _STATE_FILE.fullmatch(name)
    if match is None:
        return None
    native = int(match[6]) if match[6] is not None else None
    return StateFileName(match[1], int(match[2]), int(match[3]), int(match[4]), match[5], native)


def uid_slug(uid: str) -> str:
    """The uid as it stands in file names: safe, bounded, and different for different uids.

    Example:
        >>> uid_slug("word-counts")
        'word-counts'
        >>> uid_slug("Zähler/1")
        'z_hler_1~8aae0800e14fb24b'
    """
    if _PLAIN_UID.fullmatch(uid):
        return uid
    readable = re.sub(r"[^a-z0-9_-]", "_", uid.lower().encode("ascii", "replace").decode()).lstrip("-")[:_SLUG_MAX]
    return f"{readable}~{xxh3_64_hexdigest(uid.encode('utf-8', 'surrogatepass'))}"


def unfinished(folder: str, base: str, unique: str) -> str:
    """The name that an object has while it is being written."""
    return f"{folder}.{base}.{unique}.tmp"


def finished(name: str) -> str | None:
    """The name that an unfinished object was to get, or None when `name` is not that of an unfinished one."""
    folder, slash, base = name.rpartition("/")
    match = _UNFINISHED.fullmatch(base)
    return f"{folder}{slash}{match[1]}" if match else None


def attempt_of(name: str) -> int | None:
    """The attempt that wrote an object (finished or not) or folder of state; None when the name tells none."""
    target = finished(name) or name
    directory = parse_checkpoint_directory(target.split("/", 1)[0])
    if directory is not None:
        return directory.attempt
    file = parse_state_file(target)
    return file.attempt if file else None
