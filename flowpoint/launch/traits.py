"""What a continued job must not change in silence: where a source reads, and what a key function computes.

How it works: each run leaves the traits of its operators in `run.json`; the next one that continues compares. A source is
known by its `repr`, a key function by a digest of its compiled code (`state.key_functions`).

Not here: state and keys that no longer fit (refused), operators that are gone (`--allow-non-restored`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flowpoint.model.plan import OperatorKind
from flowpoint.plan.compile import CompiledJob
from flowpoint.state.key_functions import is_changed, key_digest, shown

Traits = dict[str, str]
"""By uid of the operator."""


def traits_of(compiled: CompiledJob) -> Traits:
    """What to compare the next run with."""
    traits: Traits = {}
    for uid, operator in compiled.operators.items():
        if operator.kind is OperatorKind.SOURCE:
            traits[uid] = shown(operator.function)
        else:
            traits[uid] = key_digest((operator.key, operator.second_key))
    return {uid: trait for uid, trait in traits.items() if trait}


def changes(compiled: CompiledJob, before: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each operator whose trait is another one than in the run before."""
    for uid, trait in traits_of(compiled).items():
        old = before.get(uid, trait)
        if old == trait:
            continue
        if compiled.operators[uid].kind is OperatorKind.SOURCE:
            yield (
                f"source {uid!r} was {old} in the run before and is {trait} now, but a job that continues goes on reading"
                " what was listed at its first start; to read something else start over with --fresh, or keep other state:"
                " give the source a new uid and pass --allow-non-restored"
            )
        elif is_changed(old, trait):
            spec = compiled.plan.operator(uid)
            yield (
                f"{spec.key_name} before {uid!r} is not the function of the run before: state stays under the keys that"
                " the old one gave; unless both give the same keys, start over with --fresh"
            )
