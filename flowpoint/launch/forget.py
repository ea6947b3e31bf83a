"""Forgets a job: removes what FlowPoint keeps of it under its home.

How it works: whoever forgets a job first takes its name, as a run does, so that it does not run and cannot start
meanwhile. The checkpoints go first: as long as the folder of the job is there, what was interrupted can be repeated.

Invariants: only folders of this job under the home are removed. Checkpoints in a storage of the person's own
(`checkpoint.storage`), savepoints and output stay.
Not here: removing single checkpoints (retention does), savepoints (`dispose`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from flowpoint.errors import StorageError, UsageError
from flowpoint.host.system import SystemHost
from flowpoint.launch.claim import claim_job
from flowpoint.launch.home import Home, ProcessId
from flowpoint.snapshot.places import MEMORY


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Which folders are gone, and where checkpoints are left ("": nowhere)."""

    removed: list[str]
    left: str


def forget(home: Home, name: str, *, keep_checkpoints: bool) -> Forgotten:
    """Remove what is kept of a job.

    Raises:
        NotFoundError: there is no such job.
        UsageError: it runs.
        StorageError: something could not be removed.
    """
    folder = home.find(name)
    host = SystemHost("forget", str(home.root))
    try:
        claim = claim_job(home, name, ProcessId(host.pid, host.start_time))
    except UsageError as error:
        raise UsageError(f"cannot forget {name!r}: it runs; end it first with `flowpoint stop {name}`") from error
    own = home.checkpoints(name)
    storage = claim.previous.storage if claim.previous is not None else ""
    elsewhere = storage if storage not in ("", MEMORY, str(own)) else ""
    try:
        doomed = [home.work(name), *([] if keep_checkpoints else [own])]
        removed = [str(path) for path in doomed if _remove(path)]
        # Last, since the name goes with it.
        claim.remove()
    except BaseException:
        claim.let_go()
        raise
    return Forgotten([*removed, str(folder.path)], elsewhere or (str(own) if own.exists() else ""))


def _remove(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise StorageError(
            f"cannot remove {path}: {error.strerror} ({error.filename}); mend that, and forget it again"
        ) from error
    return True
