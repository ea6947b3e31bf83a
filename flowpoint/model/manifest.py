"""The manifest of a checkpoint or savepoint, as data: what it holds and which files prove it.

Readable with `cat` (JSON, `snapshot.manifests` writes it). Source positions and sink committables are small and stand
inline as JSON; keyed state stands in files. `StateFile.path` is relative to the job's storage folder for checkpoints,
and to the savepoint's own folder for savepoints; a savepoint names nothing outside of its folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from flowpoint.model.key_groups import overlap

MANIFEST_FORMAT = 2
"""2: `states` says of which type, key and version the values are. 1: it says only of which kind."""
SAVEPOINT = "savepoint"
"""The `kind` of the manifest of a savepoint, which is a folder of its own. That of a checkpoint is "checkpoint"."""
NO_GROUPS = (0, -1)
"""The empty range of key groups."""
SEAL = "seal"
"""In the `extra` of a file of keyed state: what proves each part of it that is read (`state.file_format`)."""


@dataclass(frozen=True, slots=True)
class StateFile:
    """One file of keyed state, or of records under way (kind "channel").

    `checksum` is xxh3-64 of the bytes in hex. `groups` is the key-group range [first, last] that counts of the file:
    after a rescale a subtask goes on with files of which only a part is its own.
    """

    path: str
    kind: str
    bytes: int
    checksum: str
    entries: int = 0
    groups: tuple[int, int] = (0, 0)
    extra: dict[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {
            "path": self.path,
            "kind": self.kind,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "entries": self.entries,
            "groups": list(self.groups),
            "extra": self.extra,
        }


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """What one subtask of one operator put into a snapshot.

    files: keyed state, oldest first (base, then deltas; later entries win).
    groups: the key-group range [first, last] that the subtask owned; entries of `files` outside it are stale.
    states: state name -> what `state.spec.StateSpec.to_data` says of it, of keyed and broadcast state.
    splits: for sources, a list of {"id", "data", "position", "ended"}.
    committables: for sinks, a list of {"checkpoint": int, "data": JSON}, oldest first, not yet confirmed.
    exports: for sinks in a savepoint, the files that hold uncommitted output (`SinkWithFiles`).
    broadcast: broadcast state, files as above. Equal in all subtasks: a restored subtask takes over one of them whole.
    watermark: where event time stood (None: there is none yet).
    channels: records that were under way to this subtask, oldest first (unaligned checkpoints only); stands with the
    first operator of its task.
    """

    files: tuple[StateFile, ...] = ()
    groups: tuple[int, int] = NO_GROUPS
    states: dict[str, Any] = field(default_factory=dict)
    splits: tuple[dict[str, Any], ...] = ()
    committables: tuple[dict[str, Any], ...] = ()
    exports: tuple[StateFile, ...] = ()
    broadcast: tuple[StateFile, ...] = ()
    watermark: int | None = None
    channels: tuple[StateFile, ...] = ()

    def every_file(self) -> tuple[StateFile, ...]:
        """All files that it needs."""
        return self.files + self.exports + self.broadcast + self.channels

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data, without what is empty. The dicts in it are shared, not copied: they are never changed."""
        data = {
            "files": [file.to_data() for file in self.files],
            "groups": [] if self.groups == NO_GROUPS else list(self.groups),
            "states": self.states,
            "splits": list(self.splits),
            "committables": list(self.committables),
            "exports": [file.to_data() for file in self.exports],
            "broadcast": [file.to_data() for file in self.broadcast],
            "channels": [file.to_data() for file in self.channels],
        }
        given = {key: value for key, value in data.items() if value}
        return given if self.watermark is None else {**given, "watermark": self.watermark}

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> SubtaskState:
        """The reverse of `to_data`."""
        return cls(
            files=_files(data.get("files", ())),
            groups=tuple(data.get("groups", NO_GROUPS)),
            states=dict(data.get("states", {})),
            splits=tuple(data.get("splits", ())),
            committables=tuple(data.get("committables", ())),
            exports=_files(data.get("exports", ())),
            broadcast=_files(data.get("broadcast", ())),
            watermark=data.get("watermark"),
            channels=_files(data.get("channels", ())),
        )


def within(files: Iterable[StateFile], groups: tuple[int, int]) -> list[StateFile]:
    """The files that hold something of these key groups, in their order, each as far as it counts there."""
    found = [replace(file, groups=overlap(file.groups, groups)) for file in files]
    return [file for file in found if file.groups[0] <= file.groups[1]]


def joined(files: Iterable[StateFile]) -> list[StateFile]:
    """The chains of several subtasks that owned different key groups, one after the other, as one chain.

    A file that stands there twice, with neighbouring key groups, stands there once: where it was first, since only what
    comes after it in its own chain is newer.
    """
    chain: list[StateFile] = []
    for file in files:
        for at, other in enumerate(chain):
            if other.path == file.path and other.groups[1] + 1 == file.groups[0]:
                chain[at] = replace(other, groups=(other.groups[0], file.groups[1]))
                break
        else:
            chain.append(file)
    return chain


def _files(data: Iterable[dict[str, Any]]) -> tuple[StateFile, ...]:
    return tuple(StateFile(**{**file, "groups": tuple(file["groups"])}) for file in data)


@dataclass(frozen=True, slots=True)
class OperatorState:
    """All subtasks of one operator, by index."""

    parallelism: int
    subtasks: tuple[SubtaskState, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole snapshot. `parent` is the checkpoint id it was taken after (0: none). `created` is epoch ms.

    handed_on: the job was stopped with this savepoint: whoever starts from it goes on with the lineage's output.
    drained: time ended before it (`stop --drain`): all timers have fired, and only a flag goes on from it.
    origin: for one that was made from another snapshot by editing it: what that was ("path", "kind", "id", "attempt",
    "checksum" of its manifest) and what was changed ("changes"). Empty for all others.
    """

    kind: str
    job: str
    id: int
    attempt: int
    lineage: str
    parent: int
    created: int
    plan: dict[str, Any]
    operators: dict[str, OperatorState]
    finished: bool = False
    handed_on: bool = False
    drained: bool = False
    origin: dict[str, Any] = field(default_factory=dict)
    format: int = MANIFEST_FORMAT

    def files(self) -> list[StateFile]:
        """Every file that the snapshot needs, in a stable order, each path once."""
        seen: dict[str, StateFile] = {}
        for operator in self.operators.values():
            for subtask in operator.subtasks:
                for file in subtask.every_file():
                    seen.setdefault(file.path, file)
        return list(seen.values())
