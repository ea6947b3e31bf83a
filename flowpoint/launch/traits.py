"""What a continued job must not change in silence: where a source reads, and what a key function computes.

How it works: each run leaves the traits of its operators in `run.json`; the next one that continues compares. A source is
known by its `repr`, a key function by a digest of its compiled code. Code that a key function calls, and the values it
closes over, are not looked at; nor are codes of two versions of Python compared.

Not here: state that no longer fits (the restore refuses it), operators that are gone (`--allow-non-restored`).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from types import CodeType

from flowpoint.model.plan import OperatorKind
from flowpoint.plan.compile import CompiledJob

Traits = dict[str, str]
"""By uid of the operator."""


def traits_of(compiled: CompiledJob) -> Traits:
    """What to compare the next run with."""
    traits: Traits = {}
    for uid, operator in compiled.operators.items():
        if operator.kind is OperatorKind.SOURCE:
            traits[uid] = _shown(operator.function)
        else:
            keys = [_digest(key) for key in (operator.key, operator.second_key) if key is not None]
            if keys:
                traits[uid] = f"{sys.implementation.cache_tag} {' '.join(keys)}"
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
        elif old.partition(" ")[0] == trait.partition(" ")[0]:
            spec = compiled.plan.operator(uid)
            yield (
                f"{spec.key_name} before {uid!r} is not the function of the run before: state stays under the keys that"
                " the old one gave; unless both give the same keys, start over with --fresh"
            )


def _shown(source: object) -> str:
    """The author's description of a source, when it has one that is the same in every process."""
    if type(source).__repr__ is object.__repr__:
        return ""
    text = repr(source)
    return "" if " at 0x" in text else text


def _digest(function: object) -> str:
    """Of what a function does: of its code, or of its description when it is not written in Python."""
    code = getattr(function, "__code__", None)
    facts = _code_facts(code) if isinstance(code, CodeType) else _shown(function)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _code_facts(code: CodeType) -> str:
    """Everything in compiled code but names of local variables and places."""
    constants = [_constant(value) for value in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_freevars, code.co_argcount))


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _code_facts(value)
    if isinstance(value, frozenset):  # its order changes from process to process
        return repr(sorted(map(repr, value)))
    return repr(value)
