"""What the suites of keyed state share: the backends to test, and the runtime's part played for one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowpoint.model.manifest import StateFile
from flowpoint.model.settings import StateSettings
from flowpoint.state.backend import Backend, Frozen
from flowpoint.state.spec import StateSpec

MAX = 16
VALUE = StateSpec("counts", "value")
LIST = StateSpec("events", "list")
MAP = StateSpec("days", "map")
KINDS = {
    "heap": StateSettings("heap"),
    "heap, little at a time": StateSettings("heap", cache_bytes=1),
    "rocksdb": StateSettings("rocksdb"),
    "rocksdb without memory": StateSettings("rocksdb", cache_bytes=1),
}

File = tuple[StateFile, bytes]


class Job:
    """Plays the runtime's part for one backend: writes frozen state and keeps the chain of files."""

    def __init__(self, backend: Backend, files: tuple[File, ...] = ()) -> None:
        self.backend = backend
        self.files = files
        self.written = len(files)

    def write(self, frozen: Frozen) -> None:
        if frozen.entries:
            data = b"".join(frozen.chunks())
            kind = "base" if frozen.full else "delta"
            self.written += 1
            file = StateFile(f"{self.written}.{kind}", kind, len(data), "", frozen.entries, (0, MAX - 1))
            kept = () if frozen.full else self.files[: len(self.files) - frozen.replaces]
            self.files = (*kept, (file, data))
        elif frozen.full:
            self.files = ()
        frozen.durable()

    def checkpoint(self, *, full: bool = False) -> None:
        self.write(self.backend.freeze(full=full))

    def share(self, first: int, last: int) -> tuple[File, ...]:
        """Its files, as the chain of who has taken over these of its key groups names them."""
        return tuple((replace(file, groups=(first, last)), data) for file, data in self.files)

    def merge(self) -> None:
        while self.backend.merge_some():
            pass


def contents(backend: Backend, spec: StateSpec = VALUE) -> dict[Any, Any]:
    if spec.is_map:
        return {(key, map_key): value for key, map_key, value in backend.map_table(spec).all_items()}
    return dict(backend.table(spec).items())
