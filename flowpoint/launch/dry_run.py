"""`flowpoint migrate --check`: what a job file would make of the state in a snapshot, without starting anything.

Not here: the comparison and the values (`snapshot.dry_run`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from flowpoint.codec.registry import TypeRegistry
from flowpoint.errors import IncompatibleStateError
from flowpoint.launch.config import load_settings
from flowpoint.launch.jobfile import build_job, load_source
from flowpoint.plan.compile import compile_graph
from flowpoint.protocol.assignment import assign_state
from flowpoint.snapshot.dry_run import StateReport, notes_on_keys, open_for_conversion, try_out
from flowpoint.state.declarations import declared_states


@dataclass(frozen=True, slots=True)
class DryRun:
    """What came out: a report per state, and why the restore would be refused all the same ("": it would not).

    notes: what can and cannot be told of functions that operators are keyed by.
    """

    job: str
    path: str
    kind: str
    id: int
    states: list[StateReport]
    refusal: str
    notes: list[str]

    @property
    def is_fine(self) -> bool:
        """Whether the job could start from the snapshot."""
        return not self.refusal and all(state.is_fine for state in self.states)


def check_migration(snapshot: str, job_file: str, params: Mapping[str, str]) -> DryRun:
    """Try out what a job would make of a snapshot.

    Raises:
        UsageError, ConfigError, PlanError: the job file cannot be used.
        NotFoundError: there is no such snapshot.
        SnapshotError: it is damaged.
    """
    opened = open_for_conversion(snapshot)
    job = build_job(load_source(job_file), params)
    settings = load_settings(None, job.config, os.environ, [])
    compiled = compile_graph(job.graph(), settings.parallelism, opened.max_parallelism)
    operators = compiled.operators
    declared = {
        uid: declared_states(each.kind, each.function, (each.key, each.second_key)) for uid, each in operators.items()
    }
    registry = TypeRegistry([tp for each in operators.values() for tp in each.types])
    refusal = ""
    try:
        # What the job no longer has is told state by state.
        assign_state(
            opened.manifest.operators,
            compiled.plan,
            max_parallelism=opened.max_parallelism,
            allow_non_restored=True,
        )
    except IncompatibleStateError as error:
        refusal = str(error)
    reports = try_out(opened, declared, registry)
    notes = notes_on_keys(opened, declared)
    return DryRun(compiled.plan.job, opened.path, opened.kind, opened.id, reports, refusal, notes)
