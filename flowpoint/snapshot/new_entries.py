"""Whether an entry that a state does not have yet may be put into it: only where its types are known by those it has.

A key must be of a type that keys of the state have, and a value must fit one that is stored. Of a big state the first
entries are looked at. What a key of a class is hashed by only the job knows, so such keys cannot be new here.

Not here: entries that are there (`keyed_state`), writing (`edited`).
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, NamedTuple

from flowpoint.errors import NotFoundError
from flowpoint.snapshot.keyed_state import MAP, KeyedState
from flowpoint.snapshot.value_text import text_of

SAMPLES_MAX: Final = 1000


class Samples(NamedTuple):
    """Of the entries that a state has, those that were looked at. `map_keys` is empty unless it is a map."""

    keys: list[Any]
    map_keys: list[Any]
    values: list[Any]


def samples_of(state: KeyedState) -> Samples:
    """The first entries of a state.

    Raises:
        SnapshotError: a file is damaged.
    """
    entries = list(islice(state.entries(), SAMPLES_MAX))
    values = [value for _, value in entries]
    if state.kind == MAP:
        return Samples([key for (key, _), _ in entries], [map_key for (_, map_key), _ in entries], values)
    return Samples([key for key, _ in entries], [], values)


def require_like(key: Any, samples: list[Any], what: str) -> None:
    """Refuse a new key of another type than those that are there. `what`: such as "state 'count' has no key".

    Raises:
        NotFoundError: none of them is of its type, or there are none.
    """
    if not samples:
        raise NotFoundError(f"{what} {text_of(key)}, and no other by which its type could be told: let the job make it")
    if not any(is_like(key, sample) for sample in samples):
        raise NotFoundError(
            f"{what} {text_of(key)}, and none of its type: there is, for example, {text_of(samples[0])}"
        )


def is_like(key: Any, sample: Any) -> bool:
    """Whether a key is of the very type of another one; of tuples, item by item."""
    if type(key) is not type(sample):
        return False
    return type(key) is not tuple or (len(key) == len(sample) and all(map(is_like, key, sample)))
