"""What becomes of the stored states of an operator under the job as it is now: taken over, converted, or refused.

The manifest says of each state how its values are made (`StateSpec.to_data`); the job declares how they are to be. From
the two follows, before any value is read, what the person is told and what is refused. What is to be converted is
converted when the state is restored, all of it: a value that cannot be is found before any record flows.

    the same version     fields may come, go and move, an int may become a float (`conversion.py`)
    an older version     the migrations of all versions from there run on each value, one after the other
    a newer version      refused: the code is older than the state
    another kind or key  refused

Invariants: no state is left behind without being named. A state that was converted starts a new chain of files, so
that all values in the files of a subtask are of the version that its manifest says (`layers.py`).

Not here: reading files (`layers.py`), the order in which this is asked (`coordinator`, `runtime`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowpoint.codec.registry import TypeRegistry
from flowpoint.codec.shortened import shortened
from flowpoint.codec.values import Codec
from flowpoint.errors import FlowPointError, IncompatibleStateError, SnapshotError
from flowpoint.state.conversion import Conversions, Misfit
from flowpoint.state.schema import TypeSchema
from flowpoint.state.spec import StateSpec
from flowpoint.state.stored_values import Convert, EvolvingCodec, KeyCodec, StoredCodec, plain


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a manifest says of a state."""

    kind: str
    version: int
    type: TypeSchema
    key: TypeSchema
    classes: str

    @classmethod
    def from_data(cls, data: Any) -> StoredState:
        """The reverse of `StateSpec.to_data`; an older manifest knows no types.

        Raises:
            SnapshotError: it is not what a manifest says of a state.
        """
        if not isinstance(data, dict) or type(data.get("version")) is not int:
            raise SnapshotError(f"cannot read what the manifest says of a state: {data!r:.200}; use another snapshot")
        return cls(
            str(data.get("kind")),
            data["version"],
            TypeSchema.from_data(data.get("type")),
            TypeSchema.from_data(data.get("key")),
            str(data.get("classes", "")),
        )


class StateConversion:
    """Makes the values of one state into what the job declares.

    Attributes:
        codec: reads the values as they must come in.
        notes: what is done to them, for the person. Grows while values of which nothing was known are read.
        refusal: why it cannot be done, or "".
    """

    def __init__(self, uid: str, spec: StateSpec, stored: StoredState, values: EvolvingCodec) -> None:
        self.codec = StoredCodec()
        self.notes: dict[str, None] = {}
        self.refusal = ""
        self._spec = spec
        self._where = f"state '{spec.name}' of operator '{uid}'"
        self._steps: Sequence[tuple[int, Convert]] = ()
        if stored.version < spec.version:
            self._convert = self._migrating(stored, values)
        else:
            self._convert = self._fitting(stored, values)
        self._known = len(self.notes)

    @property
    def found(self) -> list[str]:
        """Those notes that came up while values were read."""
        return list(self.notes)[self._known :]

    def _migrating(self, stored: StoredState, values: EvolvingCodec) -> Convert:
        versions = range(stored.version, self._spec.version)
        missing = [version for version in versions if version not in self._spec.migrate]
        if missing:
            self.refusal = (
                f"cannot restore {self._where}: it is stored in version {stored.version}, the job wants version "
                f"{self._spec.version} and has no migration from version {missing[0]}; give the state "
                f"migrate={{{missing[0]}: function}}"
            )
        else:
            self._steps = [(version, self._spec.migrate[version]) for version in versions]
            self.notes[f"migrated from version {stored.version} to version {self._spec.version}"] = None
        conversions = Conversions(values.revived, is_migrated=True, notes=self.notes)
        return conversions.fit(self._spec.type)

    def _fitting(self, stored: StoredState, values: EvolvingCodec) -> Convert:
        conversions = Conversions(values.revived, notes=self.notes)
        convert = conversions.pair(stored.type, self._spec.type)
        if stored.type.is_any:
            conversions.note(f"its type was not declared before; every value is held against {self._spec.type}")
        if conversions.problems:
            what = "; ".join(map(str, conversions.problems))
            version = self._spec.version
            self.refusal = (
                f"cannot restore {self._where}: {what}; make it as it was, or give the state version={version + 1} and "
                f"say with migrate={{{version}: function}} what becomes of a stored value"
            )
        return convert

    def one(self, key: Any, value: Any) -> Any:
        """The new value of a key, from a stored one; of a list, from all its elements.

        Raises:
            IncompatibleStateError: it cannot be made; names operator, state and key.
        """
        try:
            if self._spec.kind == "list":
                return [self._element(element) for element in value]
            return self._element(value)
        except Misfit as error:
            raise self._refused(key, str(error)) from None
        except FlowPointError as error:
            raise self._refused(key, str(error)) from error

    def all(self, keys: Iterable[Any], values: Iterable[Any]) -> list[Any]:
        """The same for many."""
        return list(map(self.one, keys, values))

    def _element(self, value: Any) -> Any:
        if not self._steps:
            return None if value is None else self._convert(value)
        value = plain(value)
        for version, migrate in self._steps:
            try:
                value = migrate(value)
            except Exception as error:
                raise IncompatibleStateError(
                    f"the migration from version {version} raised {type(error).__name__}: {error}"
                ) from error
        return None if value is None else self._convert(value)

    def _refused(self, key: Any, reason: str) -> IncompatibleStateError:
        wanted = "" if self._spec.type.is_any else f" as {self._spec.type}"
        return IncompatibleStateError(
            f"cannot restore {self._where}{wanted}: the value of key {shortened(key)} cannot be taken over: {reason}"
        )


@dataclass
class Evolution:
    """How the states of one operator, as one manifest has them, become those of the job.

    conversions: of the states whose values change, by name.
    read_anew: states that may hold instances of classes that have changed since, in keys or in values of no type.
    left_behind: states that the job no longer has.
    refused: why the restore is refused, a sentence each, by state ("": it is of no state that is declared).
    """

    uid: str
    registry: TypeRegistry
    conversions: dict[str, StateConversion] = field(default_factory=dict)
    read_anew: set[str] = field(default_factory=set)
    left_behind: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def keys(self) -> Codec:
        """Reads keys."""
        return KeyCodec(self.registry)

    @cached_property
    def values(self) -> EvolvingCodec:
        """Reads values of states that are not converted."""
        return EvolvingCodec(self.registry)

    def value_codec(self, state: str) -> Codec:
        """Reads the values of a state."""
        conversion = self.conversions.get(state)
        return self.values if conversion is None else conversion.codec

    def converted(self, state: str, keys: list[Any], values: list[Any]) -> list[Any]:
        """The values of a state as the job declares them. Raises IncompatibleStateError."""
        conversion = self.conversions.get(state)
        return values if conversion is None else conversion.all(keys, values)

    @property
    def refusals(self) -> list[str]:
        """Why the restore is refused; empty: it is not."""
        return list(self.refused.values())

    def refusals_of(self, state: str) -> list[str]:
        """The same for one state."""
        return [self.refused[state]] if state in self.refused else []

    def notes_of(self, state: str) -> list[str]:
        """What is done to the values of one state, as far as is known by now."""
        if state in self.conversions:
            return list(self.conversions[state].notes)
        return list(self.values.notes) if state in self.read_anew else []

    def value_of(self, state: str, key: Any, value: Any) -> Any:
        """The value of a state as the job declares it, from one as `StoredCodec` reads it.

        Raises:
            FlowPointError: it cannot be made.
        """
        conversion = self.conversions.get(state)
        return self.values.revived(value) if conversion is None else conversion.one(key, value)

    @property
    def is_as_stored(self) -> bool:
        """Whether stored values are those of the job as they are. If not, all of them must be read."""
        return not (self.conversions or self.read_anew or self.left_behind)

    @property
    def has_changed(self) -> bool:
        """Whether stored values are other than those of the job. Known when all of them have been read."""
        return bool(self.conversions or self.left_behind or self.values.notes)

    def notes(self) -> list[str]:
        """What the person must hear before anything is read, a sentence per state."""
        told = [
            f"state '{name}' of operator '{self.uid}' is taken over as it is declared now: {'; '.join(conversion.notes)}"
            for name, conversion in self.conversions.items()
            if conversion.notes
        ]
        if self.left_behind:
            names = ", ".join(map(repr, self.left_behind))
            told.append(f"state {names} of operator '{self.uid}' is left behind, as the job no longer declares it")
        return told

    def found(self) -> list[str]:
        """What there is to say besides once everything has been read."""
        of_states = [
            f"state '{name}' of operator '{self.uid}': {note}"
            for name, conversion in self.conversions.items()
            for note in conversion.found
        ]
        return of_states + [f"state of operator '{self.uid}': {note}" for note in self.values.notes]


def evolve(
    uid: str,
    stored: Mapping[str, Any],
    declared: Mapping[str, StateSpec],
    registry: TypeRegistry,
    *,
    allow_non_restored: bool = False,
) -> Evolution:
    """Compare what a manifest says of an operator's states with what the job declares.

    Args:
        uid: the operator.
        stored: state name -> what the manifest says (`SubtaskState.states`).
        declared: the same of the job.
        registry: the classes that the job declares.
        allow_non_restored: states that the job no longer has may be left behind.

    Raises:
        SnapshotError: the manifest makes no sense.
    """
    evolution = Evolution(uid, registry, left_behind=tuple(sorted(name for name in stored if name not in declared)))
    if evolution.left_behind and not allow_non_restored:
        names = ", ".join(map(repr, evolution.left_behind))
        evolution.refused[""] = (
            f"cannot restore operator '{uid}': the snapshot holds state {names}, which the job no longer declares; "
            "declare it again, or pass --allow-non-restored to leave it behind"
        )
    for name, data in stored.items():
        if name in declared:
            _evolve_state(evolution, declared[name], StoredState.from_data(data))
    return evolution


def _evolve_state(evolution: Evolution, spec: StateSpec, stored: StoredState) -> None:
    refusal = _refusal(evolution.uid, spec, stored)
    if refusal:
        evolution.refused[spec.name] = refusal
    elif stored.version < spec.version or (stored.type != spec.type and not spec.type.is_any):
        conversion = StateConversion(evolution.uid, spec, stored, evolution.values)
        evolution.conversions[spec.name] = conversion
        if conversion.refusal:
            evolution.refused[spec.name] = conversion.refusal
    elif stored.classes != evolution.registry.digest:
        evolution.read_anew.add(spec.name)


def _refusal(uid: str, spec: StateSpec, stored: StoredState) -> str:
    where = f"cannot restore state '{spec.name}' of operator '{uid}'"
    if stored.kind != spec.kind:
        return (
            f"{where}: it is stored as a {stored.kind}, and the job declares a {spec.kind}; give the new state another "
            "name"
        )
    if stored.version > spec.version:
        return (
            f"{where}: it is stored in version {stored.version}, and the job knows it up to version {spec.version}; run "
            "the newer job file, or start from an older snapshot"
        )
    if stored.key != spec.key and not stored.key.is_any and not spec.key.is_any:
        return (
            f"{where}: its keys are stored as {stored.key}, and the job's are {spec.key}; keys cannot change: key by what "
            "it was keyed by before, or give the operator another uid, which starts empty"
        )
    return ""
