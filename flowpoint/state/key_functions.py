"""What can be told of the functions that operators are keyed by: whether they changed, and whether their keys still fit.

A key function without annotation says nothing of the type of its keys. So each file of state says of which types the keys
in it are, and the manifest a digest of the function that gave them. A later run whose function has another digest holds
its first keys against these types, before a snapshot with them can count.

    the same digest              nothing is looked at: a job whose keys are of several types goes on
    another one                  if all of the first keys are of types that are not stored, the run is refused
    not known, or not comparable nothing is looked at

The digest is of the compiled code of a function. Code that it calls, and values it closes over, are not looked at; nor are
codes of two versions of Python compared.

Not here: annotated types of keys (`evolution.py`), when keys are looked at (`runtime.parts`).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable
from types import CodeType
from typing import Any, Final

from flowpoint.codec.key_types import KEY_TYPES_MAX
from flowpoint.errors import IncompatibleStateError
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.state.spec import KEY_BY

KEY_TYPES: Final = "key_types"
"""In `StateFile.extra`: the types of the keys in a file, sorted. Missing: not known."""

PLAIN_KEYS: Final = "plain_keys"
"""In `StateFile.extra`: true where all keys in a file are of Python's own types. Missing: not known, or not so."""


def key_digest(keys: Iterable[Callable[[Any], Any] | None]) -> str:
    """Of what the key selectors of an operator do; "" where there is none."""
    digests = [_digest(key) for key in keys if key is not None]
    return f"{sys.implementation.cache_tag} {' '.join(digests)}" if digests else ""


def is_changed(before: str, now: str) -> bool:
    """Whether two digests are known, comparable, and of other functions."""
    return before != now and bool(before) and before.partition(" ")[0] == now.partition(" ")[0]


def keys_to_hold_to(stored: Iterable[SubtaskState], key_by: str) -> frozenset[str]:
    """The types of keys of which a run must have some; empty: any will do.

    Args:
        stored: the state of all subtasks of an operator; what is not keyed is passed over.
        key_by: the digest of the functions that the operator is keyed by now.
    """
    states = list(stored)
    before = _digests_in(states)
    if before and all(is_changed(digest, key_by) for digest in before):
        return _key_types_in(file for state in states for file in state.files)
    return frozenset()


def note_on_keys(uid: str, stored: Iterable[SubtaskState], key_by: str) -> str:
    """What can be told, without calling it, of the function that an operator is keyed by now; "": it is as it was.

    Args: as those of `keys_to_hold_to`.
    """
    states = list(stored)
    before = _digests_in(states)
    if not key_by or before == {key_by} or not any(state.files for state in states):
        return ""
    unseen = "no key is tried here, so make sure yourself that it gives the keys that are stored"
    if not before:
        return f"the snapshot does not tell by which function operator '{uid}' was keyed; {unseen}"
    if key_by in before:
        return f"only some subtasks of operator '{uid}' wrote their state under the key_by that it has now; {unseen}"
    if not all(is_changed(digest, key_by) for digest in before):
        return (
            f"whether the key_by of operator '{uid}' has changed is not known: the snapshot is from another version of "
            f"Python; {unseen}"
        )
    types = keys_to_hold_to(states, key_by)
    if not types:
        return (
            f"the key_by of operator '{uid}' has changed, and of which types the stored keys are is not known: a run will "
            f"not look at them either; {unseen}"
        )
    return (
        f"the key_by of operator '{uid}' has changed: keys are stored as {_listed(types)}, and a run whose first keys are "
        f"all of other types is refused before its first checkpoint counts; other keys of these types are not noticed, "
        f"and {unseen}"
    )


def _digests_in(states: Iterable[SubtaskState]) -> set[str]:
    """Of the functions by which state was keyed when it was written, as far as that is told."""
    return {data[KEY_BY] for state in states for data in state.states.values() if KEY_BY in data}


def _key_types_in(files: Iterable[StateFile]) -> frozenset[str]:
    """The types of the keys in all of these files; empty: they are not known of each of them."""
    found: set[str] = set()
    for file in files:
        types = file.extra.get(KEY_TYPES)
        if types is None:
            return frozenset()
        found.update(types)
    return frozenset(found)


def told(types: Collection[str], *, are_plain: bool) -> dict[str, Any]:
    """What `StateFile.extra` of a new file says of the types of its keys."""
    known = {KEY_TYPES: sorted(types)} if 0 < len(types) <= KEY_TYPES_MAX else {}
    return {**known, **({PLAIN_KEYS: True} if are_plain else {})}


def has_plain_keys(files: Iterable[StateFile]) -> bool:
    """Whether files tell that a person can type in each key of theirs, as it is shown or in another way."""
    return all(file.extra.get(PLAIN_KEYS) is True for file in files)


def refuse_other_keys(uid: str, stored: frozenset[str], seen: Collection[str]) -> None:
    """Hold the types of a run's first keys against those that are stored.

    Raises:
        IncompatibleStateError: none of them is stored.
    """
    if stored.isdisjoint(seen):
        raise IncompatibleStateError(
            f"cannot go on with the state of operator '{uid}': its keys are stored as {_listed(stored)}, and its changed "
            f"key_by gives {_listed(seen)}; key by what it was keyed by before, or let it start empty: give the operator "
            "another uid and pass --allow-non-restored"
        )


def shown(function: object) -> str:
    """How an object describes itself, when it does so in the same way in every process; else ""."""
    if type(function).__repr__ is object.__repr__:
        return ""
    text = repr(function)
    return "" if " at 0x" in text else text


def _listed(types: Collection[str]) -> str:
    return " or ".join(sorted(types))


def _digest(function: object) -> str:
    """Of what a function does: of its code, or of its description when it is not written in Python."""
    code = getattr(function, "__code__", None)
    facts = _code_facts(code) if isinstance(code, CodeType) else shown(function)
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
