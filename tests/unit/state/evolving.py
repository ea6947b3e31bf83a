"""State that is written by one version of a job and restored by another, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import make_dataclass
from typing import Any, NamedTuple

from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.model.manifest import StateFile
from flowpoint.model.settings import StateSettings
from flowpoint.state.backend import Backend
from flowpoint.state.evolution import Evolution, evolve
from flowpoint.state.open import open_backend
from flowpoint.state.spec import StateSpec

GROUPS = 16
UID = "accounts"


def record(name: str, *fields: Any) -> Any:
    """A dataclass. A field is ("name", type) or ("name", type, default)."""
    return make_dataclass(name, fields)


def named_tuple(name: str, *fields: Any) -> Any:
    """The same as a NamedTuple."""
    cls = NamedTuple(name, [field[:2] for field in fields])
    cls._field_defaults = {field[0]: field[2] for field in fields if len(field) > 2}  # type: ignore[attr-defined]
    return cls


class Version:
    """One version of a job: the states it declares and the classes it has."""

    def __init__(self, *specs: StateSpec, types: Iterable[Any] = (), backend: str = "heap", work_dir: str = "") -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.registry = TypeRegistry(types)
        settings = StateSettings(backend, cache_bytes=1)  # type: ignore[arg-type]
        self.backend: Backend = open_backend(settings, Codec(self.registry), GROUPS, work_dir, UID)
        self.files: list[tuple[StateFile, bytes]] = []
        for spec in specs:
            if spec.is_map:
                self.backend.map_table(spec)
            else:
                self.backend.table(spec)

    def put(self, name: str, values: dict[Any, Any]) -> Version:
        """Write values; in a map state under (key, map key)."""
        for key, value in values.items():
            if self.specs[name].is_map:
                self.backend.map_table(self.specs[name]).put(*key, value)
            else:
                self.backend.table(self.specs[name]).put(key, value)
        return self

    def checkpoint(self) -> bool:
        """Write a file; whether it is a base."""
        frozen = self.backend.freeze()
        data = b"".join(frozen.chunks())
        kind = "base" if frozen.full else "delta"
        kept = [] if frozen.full else self.files
        self.files = [
            *kept,
            (StateFile(f"{len(self.files)}.{kind}", kind, len(data), "", frozen.entries, (0, GROUPS - 1)), data),
        ]
        frozen.durable()
        return frozen.full

    def taken_by(self, other: Version, *, allow_non_restored: bool = False) -> Evolution:
        """Restore what was written here in another version."""
        evolution = evolve(
            UID, self.backend.schemas(), other.specs, other.registry, allow_non_restored=allow_non_restored
        )
        assert not evolution.refusals, evolution.refusals
        other.backend.restore(self.files, (0, GROUPS - 1), evolution=evolution)
        other.files = list(self.files)
        return evolution

    def refusals(self, other: Version) -> list[str]:
        """Why another version cannot be restored from what was written here."""
        return evolve(UID, self.backend.schemas(), other.specs, other.registry).refusals

    def values(self, name: str) -> dict[Any, Any]:
        """What a state holds."""
        if self.specs[name].is_map:
            return {(key, map_key): v for key, map_key, v in self.backend.map_table(self.specs[name]).all_items()}
        return dict(self.backend.table(self.specs[name]).items())
