"""What the names and contents of files say to somebody who only sees files: commit entries, manifests, parts of output.

The one place of the simulation that knows these shapes. It reads them for itself, and not with the code under test.

Not here: what must hold of them (`checkers`, `output_checkers`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from flowpoint.model.manifest import StateFile, SubtaskState

COMMIT_NAME = re.compile(r"(\d{8,})\.json")
"""Of a commit entry; its number."""
DIRECTORY_NAME = re.compile(r"chk-(\d+)-a(\d+)")
"""Of a checkpoint's folder; checkpoint and attempt."""
STATE_NAME = re.compile(r"shared/.+-a(\d+)-\d+\.[^/]+")
"""Of a file of state, finished or not; attempt."""
_PART = re.compile(r"part-(\d+)-(?:\w+-)?(\d+)-a(\d+)-([^.]+)\..+")
CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Commit:
    """An entry of the commit log, as far as checkers look at it.

    taken_from: the snapshot that a checkpoint was made of by linking or copying it, "" for all others.
    savepoint: the folder of the savepoint that a "savepoint" entry tells of.
    """

    number: int
    kind: str
    attempt: int
    lineage: str
    checkpoint: int
    directory: str
    taken_from: str = ""
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What the name of a committed output file says."""

    checkpoint: int
    subtask: int
    attempt: int
    lineage: str


def parse_commit(number: int, data: bytes) -> Commit:
    """An entry from its JSON. The one place that knows its shape."""
    body = json.loads(data)
    directory = str(body.get("directory") or body.get("checkpoint") or "")
    match = DIRECTORY_NAME.fullmatch(directory)
    return Commit(
        number,
        body["kind"],
        body["attempt"],
        body["lineage"],
        int(match[1]) if match else 0,
        directory if match else "",
        str(body.get("extra", {}).get("from", "")) if body["kind"] == CHECKPOINT else "",
        str(body.get("extra", {}).get("savepoint", "")) if body["kind"] == "savepoint" else "",
    )


def checkpoint_of(directory: str) -> tuple[int, int] | None:
    """(checkpoint, attempt) of a checkpoint's folder."""
    match = DIRECTORY_NAME.fullmatch(directory)
    return (int(match[1]), int(match[2])) if match else None


def parse_part(name: str) -> Part | None:
    """What a file name in the output folder says; None when it is not a committed part. The one place that knows."""
    match = _PART.fullmatch(name)
    return Part(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None


def seal_in_bytes(data: bytes) -> str:
    """The seal that a state file ends with, as hex digits. The one place that knows where it stands."""
    return data[-16:-8].hex()


def files_of_manifest(data: bytes) -> list[StateFile]:
    """The files that a manifest names."""
    operators: dict[str, Any] = json.loads(data)["operators"]
    subtasks = [subtask for operator in operators.values() for subtask in operator["subtasks"]]
    return [file for subtask in subtasks for file in SubtaskState.from_data(subtask).every_file()]
