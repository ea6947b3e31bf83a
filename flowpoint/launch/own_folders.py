"""Folders that are FlowPoint's or a job's own, into which nobody else's snapshot may go.

What lies in them is removed by `forget`, by retention or at the end of a run, or is taken for output: a savepoint in
one would be lost, or would keep the next job from its folder; checkpoints in one would be gone when the run ends.

Invariant: links are followed, so that no other name of a folder gets past.
Not here: whether a folder can be written to (`launch.places`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from flowpoint.errors import ConfigError, UsageError
from flowpoint.launch.home import Home
from flowpoint.model.markers import OWNER_FILE
from flowpoint.snapshot.places import MEMORY


def refuse_own_folder(folder: str, home: Home, storage: str = "") -> None:
    """Look at the path of a snapshot that is to be made.

    Args:
        folder: where it would go; need not exist.
        storage: the place of the job's checkpoints, when they are not under the home.

    Raises:
        UsageError: that is in a folder of FlowPoint's own, or in the output of a job.
    """
    path = Path(os.path.realpath(folder))
    for own, use in _own_folders(home, storage):
        if path.is_relative_to(os.path.realpath(own)):
            raise UsageError(
                f"cannot make a snapshot in {folder}: in {own} FlowPoint keeps {use}, and removes what is there by itself;"
                f" name a folder of your own, or one in {home.savepoints}"
            )
    for there in (path, *path.parents):
        if os.path.exists(there / OWNER_FILE):
            raise UsageError(
                f"cannot make a snapshot in {folder}: {there} is the output folder of a job, which holds nothing but its"
                " output; name another folder"
            )


def refuse_removed_place(storage: str, home: Home) -> None:
    """Look at where checkpoints are to be kept, by `checkpoint.storage`.

    Raises:
        ConfigError: what is there is removed at the end of each run.
    """
    if not storage or storage == MEMORY:
        return
    folder, work = Path(os.path.realpath(storage.removeprefix("file://"))), home.root / "work"
    if folder.is_relative_to(os.path.realpath(work)):
        raise ConfigError(
            f"cannot use checkpoint.storage = {storage!r}: it is in {work}, which FlowPoint empties at the end of each run;"
            " set it to a folder of your own, or leave it out"
        )


def _own_folders(home: Home, storage: str) -> Iterator[tuple[Path, str]]:
    yield home.root / "jobs", "logs and records of runs"
    yield home.root / "checkpoints", "checkpoints"
    yield home.root / "work", "the local state of running jobs"
    if storage and storage != MEMORY:
        yield Path(storage), "the checkpoints of this job"
