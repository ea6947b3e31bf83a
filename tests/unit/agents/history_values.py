"""Values by chance for histories: small, large, None, and lists that grow, slide and repeat."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

CHANNELS: Final = ("a", "b", "c", "branch:to:n")
_LENGTH_MAX: Final = 700
"""Long enough for a list whose parts' names are cut into parts, too."""


def value(chance: random.Random, old: Any) -> Any:
    """What may come after an old value."""
    kind = chance.randrange(10)
    if kind < 2:
        return chance.randrange(100)
    if kind == 2:
        return None
    if kind == 3:
        return chance.choice("xyz") * chance.choice((61, 90, 150, 5000))
    if kind == 4:
        return {"k": _element(chance), "n": [chance.randrange(9)], "": None}
    return _list(chance, old if type(old) is list else [])


def _list(chance: random.Random, old: list[Any]) -> list[Any]:
    more = [_element(chance) for _ in range(chance.choice((1, 2, 3, 40, 300)))]
    match chance.randrange(8):
        case 0:
            return old[len(old) // 3 :] + more
        case 1:
            return (old * 2)[:_LENGTH_MAX]
        case 2 if old:
            at = chance.randrange(len(old))
            return old[:at] + more[:2] + old[at + 1 :]
        case 3:
            return old[: len(old) // 2]
        case 4:
            return [old[-3:], more[:3]]
    return (old + more)[-_LENGTH_MAX:]


def _element(chance: random.Random) -> Any:
    number = chance.randrange(50)
    if number == 0:
        return f"long {chance.randrange(3)}" * 50
    return number if number % 2 else f"message {number}"


def changed(
    chance: random.Random, values: Mapping[str, Any], versions: Mapping[str, int], channels: Sequence[str]
) -> Any:
    """The values of a step's end, the versions of its channels, and which of them it has changed."""
    new, numbers = dict(values), dict(versions)
    version = max(numbers.values(), default=0) + 1
    names = chance.sample(channels, chance.choice((0, 1, 1, 2)))
    for name in names:
        new[name], numbers[name] = value(chance, new.get(name)), version
    if new and chance.random() < 0.08:
        gone = chance.choice(sorted(new))
        names = [name for name in names if name != gone]
        del new[gone]
        if chance.random() < 0.5:  # as a channel that is emptied has a version and no value
            numbers[gone] = version
            names.append(gone)
        else:
            del numbers[gone]
    return new, numbers, names
