"""Which place a job's snapshots have, by `checkpoint.storage`, and what a person is told of it at the start.

Not here: how a place works (`snapshot.places`).
"""

from __future__ import annotations

import os
import tempfile

from flowpoint.errors import ConfigError, UsageError
from flowpoint.host.base import Host
from flowpoint.model.settings import CheckpointSettings
from flowpoint.snapshot.memory import MemoryObjects
from flowpoint.snapshot.places import MEMORY, FolderPlace, MemoryPlace, Place


def check_place(storage: str) -> None:
    """Refuse a checkpoint folder that cannot be used before anything depends on it."""
    folder = storage.removeprefix("file://")
    if not folder or folder == MEMORY:
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot use checkpoint.storage = {storage!r}: {error.strerror} ({error.filename}); "
            "set it to a folder that you can write to"
        ) from error


def check_target(folder: str) -> None:
    """Refuse a folder for a savepoint in which nothing can be written, before anything is made for it. Makes the folder.

    `folder` is an absolute path.

    Raises:
        UsageError: it cannot be used.
    """
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise UsageError(
            f"cannot make a savepoint in {folder}: {there} is not a folder; name one, or a path that is free"
        )
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot make a savepoint in {folder}: nothing can be written there ({error.strerror}); name another folder"
        ) from error


def open_place(host: Host, settings: CheckpointSettings, job: str, default: str) -> Place:
    """The place of a job's snapshots; `default` is the folder for the job when nobody named any."""
    if settings.storage == MEMORY:
        return MemoryPlace(host, MemoryObjects(settings.memory_limit))
    folder = settings.storage.removeprefix("file://")
    return FolderPlace(host, f"{os.path.abspath(folder)}/{job}" if folder else default)


def place_notes(now: str, before: str) -> list[str]:
    """What a person must know of where the checkpoints are.

    Args:
        now: the name of this run's place.
        before: that of the last run's; "" when there was none, or this run does not go on with it anyway.
    """
    notes: list[str] = []
    if now == MEMORY:
        notes.append(
            "checkpoints are kept in the memory of this process (checkpoint.storage = memory): they outlive workers, "
            "and end with it; `flowpoint savepoint` and `flowpoint stop --to` write to a folder"
        )
    if before == MEMORY:
        notes.append(
            "the checkpoints of the last run were in its memory and are gone with it: nothing of it is continued"
        )
    elif now == MEMORY and before:
        notes.append(
            f"the checkpoints of the last run are in {before} and are not continued from: the job starts from the "
            "beginning; give one of them as --from to continue from it"
        )
    return notes
