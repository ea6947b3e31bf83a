"""What a person types to name a thing in a snapshot: UID/STATE/KEY, UID/STATE/KEY/MAPKEY=JSON, UID/SPLIT=JSON.

Uids, states, keys and splits may have "/" and "=" in them. So nothing is cut at a fixed place: a name ends where what
the snapshot knows by that name ends, and JSON begins at the first "=" after which everything is JSON.

Invariants: what may mean two things is refused, never guessed.

Not here: what a key means (`key_text`), changing anything (`edited`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flowpoint.errors import NotFoundError, UsageError
from flowpoint.snapshot.edited import Child
from flowpoint.snapshot.key_text import find_by_text, lookup, lookup_in_map, meanings, pick_by_text
from flowpoint.snapshot.keyed_state import MAP, KeyedState
from flowpoint.snapshot.new_entries import is_like, samples_of
from flowpoint.snapshot.opened import Snapshot, nearest
from flowpoint.state.spec import ABSENT


class _Place(NamedTuple):
    """A stored key, and a stored map key or ABSENT."""

    key: Any
    map_key: Any


def set_by_text(child: Child, text: str) -> None:
    """Do what `--set UID/STATE/KEY=JSON` asks for (UID/STATE/KEY/MAPKEY=JSON in a map).

    Raises:
        UsageError: the text is not of that form, is ambiguous, or the value does not fit.
        NotFoundError: there is no such operator or state, or no key or map key of a type that this may be.
    """
    uid, name, state, rest = _state_of(child.parent, text)
    address, value = _value_of(text, rest)
    place = _place_to_set(state, address, _where(uid, name))
    child.set(uid, name, place.key, value, map_key=place.map_key)


def delete_by_text(child: Child, text: str) -> None:
    """Do what `--delete UID/STATE/KEY` asks for (a whole key of a map, or UID/STATE/KEY/MAPKEY). Raises as above."""
    uid, name, state, rest = _state_of(child.parent, text)
    place = _place(state, rest, _where(uid, name), whole_map=True)
    child.delete(uid, name, place.key, map_key=place.map_key)


def move_by_text(child: Child, text: str) -> None:
    """Do what `--position UID/SPLIT=JSON` asks for. Raises as above."""
    uid, rest = _cut(text, child.parent.operators, f"the snapshot {child.parent.path} has no operator")
    splits = {split.id for split in child.parent.operator(uid).splits}
    for split, value in _at_equals(rest):
        if split in splits:
            child.move(uid, split, _json(text, value))
            return
    named = rest.partition("=")[0]
    raise NotFoundError(f"source {uid!r} has no split {named!r}{nearest(named, splits)}")


def _where(uid: str, state: str) -> str:
    return f"state {state!r} of operator {uid!r}"


def _state_of(snapshot: Snapshot, text: str) -> tuple[str, str, KeyedState, str]:
    """(uid, name of the state, the state, what follows)."""
    uid, rest = _cut(text, snapshot.operators, f"the snapshot {snapshot.path} has no operator")
    operator = snapshot.operator(uid)
    name, rest = _cut(rest, operator.states, f"operator {uid!r} has no state")
    if not rest:
        raise UsageError(f"cannot use {text!r}: it names a state and no key; write {uid}/{name}/KEY")
    return uid, name, operator.state(name), rest


def _cut(text: str, known: Iterable[str], missing: str) -> tuple[str, str]:
    """The longest known name that a text begins with, and what follows after the "/"."""
    names = [name for name in known if text == name or text.startswith(f"{name}/")]
    if not names:
        named = text.partition("/")[0]
        raise NotFoundError(f"{missing} {named!r}{nearest(named, known)}")
    name = max(names, key=len)
    return name, text[len(name) + 1 :]


def _value_of(text: str, rest: str) -> tuple[str, Any]:
    """(what stands before the "=", the value after it)."""
    for address, value in _at_equals(rest):
        try:
            return address, json.loads(value)
        except (ValueError, RecursionError):
            continue
    return "", _json(text, rest.partition("=")[2])


def _json(text: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"cannot use {text!r}: what stands after '=' is not JSON ({error}); text needs quotes, as in '=\"text\"'"
        ) from error


def _at_equals(text: str) -> Iterator[tuple[str, str]]:
    """The text cut in two at each "=" in turn."""
    return ((text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == "=")


def _place_to_set(state: KeyedState, address: str, where: str) -> _Place:
    """The entry that an address names, or would name if it were there."""
    try:
        return _place(state, address, where, whole_map=False)
    except NotFoundError:
        places = _new_places(state, address)
        if not places:
            raise
    if len(places) > 1:
        raise UsageError(
            f"{address!r} is ambiguous: {where} has no such entry, and it may mean a new one at "
            f"{', '.join(f'{p.key!r}' if p.map_key is ABSENT else f'{p.key!r}/{p.map_key!r}' for p in places[:4])}; "
            "write a key as json:... to say which"
        )
    return places[0]


def _new_places(state: KeyedState, address: str) -> list[_Place]:
    """The entries of a state, with keys of types that it has, which an address may mean."""
    samples = samples_of(state)
    if state.kind != MAP:
        return [_Place(key, ABSENT) for key in _of_types(address, samples.keys)]
    inside: list[_Place] = []
    beside: list[_Place] = []
    for at in (at for at, char in enumerate(address) if char == "/"):
        map_keys = _of_types(address[at + 1 :], samples.map_keys)
        known = [found.key for found in lookup(state, address[:at])]
        inside += [_Place(key, map_key) for key in known for map_key in map_keys]
        if not known:
            beside += [_Place(key, map_key) for key in _of_types(address[:at], samples.keys) for map_key in map_keys]
    # Into a map that is there rather than beside all of them.
    return inside or beside


def _of_types(text: str, samples: list[Any]) -> list[Any]:
    """Of the keys that a text may mean, those of a type that keys have."""
    return [key for key in meanings(text) if any(is_like(key, sample) for sample in samples)]


def _place(state: KeyedState, address: str, where: str, *, whole_map: bool) -> _Place:
    """The entry that an address names."""
    if state.kind != MAP:
        return _Place(find_by_text(state, address, where).key, ABSENT)
    places = [_Place(found.key, ABSENT) for found in lookup(state, address)] if whole_map else []
    cuts = [at for at, char in enumerate(address) if char == "/"]
    for at in cuts:
        for found in lookup(state, address[:at]):
            places += [_Place(found.key, key) for key in lookup_in_map(found.value, address[at + 1 :])]
    if len(places) > 1:
        raise UsageError(
            f"{address!r} is ambiguous: {where} has {len(places)} entries that it may mean: "
            f"{', '.join(f'{p.key!r}' if p.map_key is ABSENT else f'{p.key!r}/{p.map_key!r}' for p in places[:4])}; "
            "write a key as json:... to say which"
        )
    if places:
        return places[0]
    if not cuts and not whole_map:
        raise UsageError(f"cannot set all of a map: {where} is one; write KEY/MAPKEY=JSON")
    key, slash, map_key = address.partition("/")
    found = find_by_text(state, key, where)
    return _Place(found.key, pick_by_text(found.value, map_key, f"key {key!r} in {where}") if slash else ABSENT)
