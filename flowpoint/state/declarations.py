"""Which states an operator keeps, as the job declares them: for a manifest, and to compare a manifest with.

    count, sum, min, max, reduce    one value, of any type
    aggregate                       one value, of the type that `create` is annotated to return
    process functions               what their class declares, and timers

Not here: binding state to a running function (`descriptor.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from flowpoint.model.plan import CO_KINDS, KEYED_KINDS, PROCESS_KINDS, OperatorKind
from flowpoint.state.annotations import return_schema
from flowpoint.state.descriptor import checked_migrations, declared
from flowpoint.state.key_functions import key_digest
from flowpoint.state.schema import ANY, TypeSchema
from flowpoint.state.spec import FIRST_VERSION, NO_MIGRATIONS, StateSpec
from flowpoint.state.timers import TIMERS

_ACCUMULATING: Final = KEYED_KINDS - PROCESS_KINDS


@dataclass(frozen=True, slots=True)
class DeclaredStates:
    """The states of an operator by name: those that it keeps per key, and those that every subtask has whole."""

    keyed: Mapping[str, StateSpec]
    broadcast: Mapping[str, StateSpec]

    @property
    def every(self) -> dict[str, StateSpec]:
        """All of them."""
        return {**self.keyed, **self.broadcast}


def declared_states(
    kind: OperatorKind, function: Any, keys: Sequence[Callable[[Any], Any] | None] = ()
) -> DeclaredStates:
    """The states of an operator.

    Args:
        kind: what the operator does.
        function: the user's function, process function or aggregate.
        keys: the key selectors of its inputs.

    Raises:
        PlanError: a declaration makes no sense.
    """
    key, key_by = key_schema(keys), key_digest(keys)
    if kind in _ACCUMULATING:
        return DeclaredStates({kind.value: replace(_accumulator(kind, function), key=key, key_by=key_by)}, {})
    keyed: dict[str, StateSpec] = {}
    broadcast: dict[str, StateSpec] = {}
    if kind in PROCESS_KINDS:
        for declaration in declared(type(function)):
            spec = declaration.spec
            if not declaration.is_broadcast and kind in KEYED_KINDS:
                keyed[spec.name] = replace(spec, key=key, key_by=key_by)
            elif declaration.is_broadcast and kind in CO_KINDS:
                broadcast[spec.name] = spec
        if kind in KEYED_KINDS:
            keyed[TIMERS.name] = replace(TIMERS, key=key, key_by=key_by)
    return DeclaredStates(keyed, broadcast)


def key_schema(keys: Sequence[Callable[[Any], Any] | None]) -> TypeSchema:
    """The type of what an operator is keyed by, if its key selectors are annotated and agree."""
    known = {return_schema(key) for key in keys if key is not None}
    return known.pop() if len(known) == 1 else ANY


def _accumulator(kind: OperatorKind, function: Any) -> StateSpec:
    if kind is not OperatorKind.AGGREGATE:
        return StateSpec(kind.value, "value")
    version = getattr(function, "version", FIRST_VERSION)
    what = f"the accumulator of {type(function).__name__}"
    migrate = checked_migrations(what, version, getattr(function, "migrate", NO_MIGRATIONS))
    return StateSpec(kind.value, "value", type=return_schema(function.create), version=version, migrate=migrate)
