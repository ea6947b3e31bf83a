"""Try out what a job would make of the state in a snapshot: every stored value is converted, and nothing is written.

The same comparison and the same conversions as in a restore (`state.evolution`); here a value that cannot be taken over
does not end anything, and all of them are counted.

Invariant: the snapshot is only read.

Not here: where the declared states come from (`launch.dry_run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from flowpoint.codec.registry import TypeRegistry
from flowpoint.codec.values import Codec
from flowpoint.errors import FlowPointError
from flowpoint.snapshot.keyed_state import MAP, Found, KeyedState
from flowpoint.snapshot.location import locate
from flowpoint.snapshot.opened import Operator, Snapshot
from flowpoint.snapshot.value_text import text_of
from flowpoint.state.declarations import DeclaredStates
from flowpoint.state.evolution import Evolution, StoredState, evolve
from flowpoint.state.key_functions import note_on_keys
from flowpoint.state.spec import StateSpec
from flowpoint.state.stored_values import StoredCodec

_FAILURES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Failure:
    """A value that cannot be taken over."""

    key: str
    reason: str


@dataclass(slots=True)
class StateReport:
    """What would become of one state.

    stored, wanted: the type and version of its values, as text.
    values: how many were tried. changed: how many of them would be stored as something else.
    notes: what would be done to them. refusals: why the restore would be refused whatever the values are.
    failed: how many values cannot be taken over; `failures` are the first of them.
    """

    operator: str
    state: str
    stored: str
    wanted: str
    values: int = 0
    changed: int = 0
    failed: int = 0
    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def is_fine(self) -> bool:
        """Whether a restore would take this state over."""
        return not self.refusals and not self.failed

    def fail(self, key: Any, error: Exception) -> None:
        """Note a value that cannot be taken over."""
        self.failed += 1
        if len(self.failures) < _FAILURES_SHOWN:
            self.failures.append(Failure(text_of(key, limit=60), str(error)))


def open_for_conversion(path: str) -> Snapshot:
    """Open a snapshot so that values come as conversions take them. Raises as `opened.open`."""
    location, manifest = locate(path)
    return Snapshot(location, manifest, StoredCodec())


def try_out(snapshot: Snapshot, declared: Mapping[str, DeclaredStates], registry: TypeRegistry) -> list[StateReport]:
    """What would become of each state in a snapshot.

    Args:
        snapshot: as `open_for_conversion` gives it.
        declared: the states of each operator that the job has, by uid.
        registry: the classes that the job declares.

    Raises:
        SnapshotError: the snapshot is damaged.
    """
    reports: list[StateReport] = []
    for uid, operator in snapshot.operators.items():
        states = declared.get(uid, DeclaredStates({}, {}))
        trial = _Trial(operator, states.every, registry, is_gone=uid not in declared)
        found: dict[str, KeyedState] = {**operator.states, **operator.broadcast_states}
        reports.extend(map(trial.report, found.values()))
    return reports


def notes_on_keys(snapshot: Snapshot, declared: Mapping[str, DeclaredStates]) -> list[str]:
    """What can and what cannot be told of changed key functions, a sentence per operator. Arguments as in `try_out`."""
    notes = []
    for uid, operator in snapshot.operators.items():
        key_by = {spec.key_by for spec in declared[uid].keyed.values()} if uid in declared else set()
        notes += [note_on_keys(uid, operator.subtasks, digest) for digest in key_by]
    return [note for note in notes if note]


class _Trial:
    """Tries out the states of one operator. Subtasks may have been written by different versions of a job."""

    def __init__(
        self, operator: Operator, declared: Mapping[str, StateSpec], registry: TypeRegistry, *, is_gone: bool
    ) -> None:
        self._operator = operator
        self._declared = declared
        self._is_gone = is_gone
        self._before = StoredCodec()
        self._after = Codec(registry)
        self._evolutions: list[Evolution] = [
            evolve(operator.uid, subtask.states, declared, registry, allow_non_restored=True)
            for subtask in operator.subtasks
        ]

    def report(self, state: KeyedState) -> StateReport:
        """Try out one state."""
        uid, name = self._operator.uid, state.name
        stored = StoredState.from_data(state.schema or {"kind": state.kind, "version": 1})
        report = StateReport(uid, name, _described(stored.type, stored.version), "nothing")
        spec = self._declared.get(name)
        if spec is None:
            what = f"operator '{uid}'" if self._is_gone else f"state '{name}' of operator '{uid}'"
            report.refusals.append(f"the job no longer has {what}: pass --allow-non-restored to leave it behind")
            return report
        report.wanted = _described(spec.type, spec.version)
        report.refusals = list(dict.fromkeys(why for each in self._evolutions for why in each.refusals_of(name)))
        if not report.refusals:
            for found in state.walk():
                self._try(state, found, report)
        notes = [note for each in self._evolutions for note in each.notes_of(name)]
        report.notes = list(dict.fromkeys(notes))
        return report

    def _try(self, state: KeyedState, found: Found, report: StateReport) -> None:
        evolution = self._evolutions[found.subtask]
        entries = found.value.items() if state.kind == MAP else [(None, found.value)]
        for map_key, value in entries:
            key = (found.key, map_key) if state.kind == MAP else found.key
            report.values += 1
            try:
                after = evolution.value_of(state.name, key, value)
                report.changed += self._before.encode(value) != self._after.encode(after)
            except FlowPointError as error:
                report.fail(key, error)


def _described(kind: Any, version: int) -> str:
    return f"{kind} (version {version})"
