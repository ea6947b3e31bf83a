"""How the entries of a thread are named: text, parts divided by "/", the thread and its namespaces as `kv.part` has them.

    t/<thread>/n                                something was written here (`stored_index`)
    t/<thread>/c/<number>                       a commit
    t/<thread>/g/<number>                       something is about to be removed (`replayed_index`)
    t/<thread>/w/<ns>/<checkpoint>/<task>~<n>   what a task wrote
    t/<thread>/b/<content>                      a value (`values`)

Not here: what they hold (`envelope`), the index beside the log (`stored_index`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from flowpoint.agents.kv import part
from flowpoint.errors import DamagedStoreError

_DIGITS_MAX: Final = 15


class Place(NamedTuple):
    """A namespace of a thread."""

    thread: str
    ns: str


class Names(NamedTuple):
    """What the names of the entries of one place begin with. Put together once, as every step of a graph needs them."""

    head: str
    """This one is whole."""
    ids: str
    order: str
    writes: str
    commits: str


@lru_cache(maxsize=4096)
def names(thread: str, ns: str) -> Names:
    """The names of a namespace of a thread."""
    below, ns = root(thread), part(ns)
    return Names(f"{below}h/{ns}", f"{below}i/{ns}/", f"{below}o/{ns}/", f"{below}w/{ns}/", f"{below}c/")


def root(thread: str) -> str:
    """The prefix of all that belongs to a thread."""
    return f"t/{part(thread)}/"


def mark_name(thread: str) -> str:
    """The name of the mark that something was written in a thread."""
    return f"{root(thread)}n"


def commits_prefix(thread: str) -> str:
    """The prefix of the commits of a thread."""
    return f"{root(thread)}c/"


def commit_name(thread: str, number: int) -> str:
    """The name of a commit."""
    return f"{root(thread)}c/{number:012d}"


def cut_name(thread: str, count: int) -> str:
    """The name of the mark that something is about to be removed, for those who follow the log."""
    return f"{root(thread)}g/{count:06d}"


def writes_prefix(place: Place, id: str) -> str:
    """The prefix of the pending writes of a checkpoint."""
    return f"{names(*place).writes}{part(id)}/"


def writes_name(place: Place, id: str, task: str, number: int) -> str:
    """The name of a set of pending writes of a task."""
    return f"{writes_prefix(place, id)}{part(task)}~{number:06d}"


def number_of(key: str) -> int:
    """The number that a key ends with.

    Raises:
        DamagedStoreError: it does not.
    """
    digits = key.rpartition("/")[2]
    if _is_number(digits):  # without an f-string for each of thousands of keys
        return int(digits)
    return parsed_number(digits, f"the log of a thread: it has an entry {key!r}")


def parsed_number(digits: str, what: str) -> int:
    """A number that stands in a store.

    Raises:
        DamagedStoreError: it is none; `what` tells what cannot be read.
    """
    if not _is_number(digits):
        raise DamagedStoreError(f"cannot read {what}; restore the store from a good copy")
    return int(digits)


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
