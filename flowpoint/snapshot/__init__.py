"""State to files and back: storage, commit log, manifests, writing and reading state, retention; snapshots as files.

`flowpoint.snapshot.open(path)` opens a checkpoint or savepoint to read it, without its job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowpoint.snapshot.opened import open as open

__all__ = ["open"]


def __getattr__(name: str) -> object:
    # Loaded when it is asked for: the coordinator needs this room, and not the tools in it.
    if name != "open":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowpoint.snapshot.opened import open as opener

    return opener
