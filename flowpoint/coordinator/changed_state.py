"""What becomes of the state in a snapshot whose job has changed since: told or refused before anything is deployed.

The same comparison is made by the workers, which convert the values (`state.evolution`). Here it is made of the manifest
alone, so that what cannot be restored costs no deployment, and what is converted is said once and not by each subtask.

Not here: which subtask gets what (`protocol.assignment`).
"""

from __future__ import annotations

from flowpoint.codec.registry import TypeRegistry
from flowpoint.coordinator.job import JobToRun
from flowpoint.errors import IncompatibleStateError
from flowpoint.model.manifest import Manifest, SubtaskState
from flowpoint.state.declarations import declared_states
from flowpoint.state.evolution import evolve


def changes_of_state(restored: Manifest, job: JobToRun) -> list[str]:
    """What is converted or left behind when `job` is restored from a snapshot, a sentence each.

    Raises:
        IncompatibleStateError: something cannot be taken over; names operator, state, and what to do.
    """
    registry = TypeRegistry([tp for definition in job.operators.values() for tp in definition.types])
    told: dict[str, None] = {}
    refusals: dict[str, None] = {}
    for uid, operator in restored.operators.items():
        definition = job.operators.get(uid)
        if definition is None:
            if any(_holds_state(subtask) for subtask in operator.subtasks):
                told[f"the state of operator '{uid}' is left behind, as the job no longer has this operator"] = None
            continue
        declared = declared_states(definition.kind, definition.function, (definition.key, definition.second_key)).every
        for subtask in operator.subtasks:
            evolution = evolve(
                uid, subtask.states, declared, registry, allow_non_restored=job.wishes.allow_non_restored
            )
            refusals.update(dict.fromkeys(evolution.refusals))
            told.update(dict.fromkeys(evolution.notes()))
    if refusals:
        raise IncompatibleStateError("; ".join(refusals))
    return list(told)


def _holds_state(subtask: SubtaskState) -> bool:
    return bool(subtask.every_file() or subtask.splits or subtask.committables)
