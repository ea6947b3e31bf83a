"""Real snapshots in real folders, for tests that open them: made by a backend and the writer, as in a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowpoint.codec.placement import group_of
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.host.blocking import run_now
from flowpoint.model.key_groups import group_range
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.model.settings import StateSettings
from flowpoint.snapshot import names
from flowpoint.snapshot.location import local_storage
from flowpoint.snapshot.manifests import write_manifest
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.snapshot.writer import write_state
from flowpoint.state.backend import Backend
from flowpoint.state.heap import HeapBackend
from flowpoint.state.spec import StateSpec

MAX = 128
UID = "counts"
WORDS = {f"word-{n}": n for n in range(300)}
DAYS = {(f"user-{n % 7}", day): n for n in range(70) for day in ("mon", f"day-{n}")}
"""A map: (key, map key) -> value."""

Step = Callable[[Backend], None]
"""What one checkpoint's worth of records does to the state."""

VALUE, LIST, MAP = StateSpec("count", "value"), StateSpec("recent", "list"), StateSpec("days", "map")


class Owned:
    """A backend that takes only what belongs to its subtask, as if the stream had been dealt out by key."""

    def __init__(self, backend: Backend, groups: tuple[int, int]) -> None:
        self._backend = backend
        self._groups = groups

    def table(self, spec: StateSpec) -> Any:
        return OwnedTable(self._backend.table(spec), self._groups)

    def map_table(self, spec: StateSpec) -> Any:
        return OwnedTable(self._backend.map_table(spec), self._groups)


class OwnedTable:
    """One table of it."""

    def __init__(self, table: Any, groups: tuple[int, int]) -> None:
        self._table = table
        self._groups = groups

    def put(self, key: Any, *rest: Any) -> None:
        if self._groups[0] <= group_of(key, MAX) <= self._groups[1]:
            self._table.put(key, *rest)

    def delete(self, key: Any, *rest: Any) -> None:
        if self._groups[0] <= group_of(key, MAX) <= self._groups[1]:
            self._table.delete(key, *rest)


class Maker:
    """Makes the snapshots of one job in a folder."""

    def __init__(
        self, root: Path, *, kind: str = "checkpoint", parallelism: int = 2, types: Iterable[Any] = ()
    ) -> None:
        self.root = root
        self.kind = kind
        self.parallelism = parallelism
        self.storage: FolderStorage = local_storage(str(root))
        self._codec = Codec(TypeRegistry(types))
        self._sequence = 0

    def states(self, *steps: Step) -> OperatorState:
        """The state of a keyed operator after some steps, each of which becomes one file per subtask."""
        subtasks = [self._subtask(index, steps) for index in range(self.parallelism)]
        return OperatorState(self.parallelism, tuple(subtasks))

    def _subtask(self, index: int, steps: Iterable[Step]) -> SubtaskState:
        groups = group_range(index, self.parallelism, MAX)
        backend = HeapBackend(self._codec, MAX, StateSettings(backend="heap"), "unused", UID)
        files: list[StateFile] = []
        for step in steps:
            step(Owned(backend, groups))  # type: ignore[arg-type]  # as much of a Backend as steps use
            frozen = backend.freeze()
            self._sequence += 1
            name = names.state_file(UID, index, 1, self._sequence, "base" if frozen.full else "delta")
            written = run_now(write_state(self.storage, frozen, name, groups=groups))
            frozen.durable()
            files = written if frozen.full else [*files[: len(files) - frozen.replaces], *written]
            while backend.merge_some():
                pass
        return SubtaskState(files=tuple(files), groups=groups, states=backend.schemas())

    def write(self, operators: Mapping[str, OperatorState], *, number: int = 7) -> Path:
        """Publish a snapshot; its folder."""
        manifest = Manifest(
            kind=self.kind,
            job="words",
            id=number,
            attempt=1,
            lineage="L1",
            parent=number - 1,
            created=1_700_000_000_000,
            plan={
                "max_parallelism": MAX,
                "operators": [{"uid": "lines", "name": "source(X)", "kind": "source"}, {"uid": UID, "name": "count"}],
            },
            operators=dict(operators),
        )
        directory = run_now(write_manifest(self.storage, manifest, "" if self.kind == "savepoint" else None))
        return self.root / directory

    def rewrite(self, folder: Path, change: Callable[[Manifest], Manifest]) -> None:
        """Put another manifest, with a right checksum, in the place of one."""
        from flowpoint.snapshot.manifests import decode_manifest, encode_manifest

        file = folder / "manifest.json"
        file.write_bytes(encode_manifest(change(decode_manifest(file.read_bytes(), "manifest.json"))))


def fill(backend: Backend) -> None:
    """Values, lists and maps."""
    values, lists, maps = backend.table(VALUE), backend.table(LIST), backend.map_table(MAP)
    for word, count in WORDS.items():
        values.put(word, count)
        lists.put(word, [word, "x"])
    for (key, map_key), value in DAYS.items():
        maps.put(key, map_key, value)


def splits(*positions: Any) -> OperatorState:
    """A source that has read its splits so far. "end" is the end."""
    data = [
        {"id": f"/in/{n}.txt@0", "data": {"n": n}, "position": 9 if at == "end" else at, "ended": at == "end"}
        for n, at in enumerate(positions)
    ]
    return OperatorState(1, (SubtaskState(splits=tuple(data)),))


def sink() -> OperatorState:
    """A sink with something prepared."""
    return OperatorState(1, (SubtaskState(committables=({"checkpoint": 7, "data": {"hidden": ".part"}},)),))


def checkpoint(root: Path, *steps: Step) -> Path:
    """A whole checkpoint of source, keyed operator and sink."""
    maker = Maker(root)
    operators = {"lines": splits(5, "end", None), UID: maker.states(*(steps or (fill,))), "out": sink()}
    return maker.write(operators)


def with_files(manifest: Manifest, change: Callable[[StateFile], StateFile]) -> Manifest:
    """A manifest whose files are said to be something else."""
    operators = {
        uid: replace(
            operator,
            subtasks=tuple(replace(subtask, files=tuple(map(change, subtask.files))) for subtask in operator.subtasks),
        )
        for uid, operator in manifest.operators.items()
    }
    return replace(manifest, operators=operators)


def folder_bytes(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
