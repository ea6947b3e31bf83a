"""What is held in memory of the logs in a store, so that a step of a graph need not look for it.

Who writes to a thread has its lock, and who reads has none, so that what was read may be old by the time it is to be
remembered: `seen` tells, by the appends since then.

Invariants: what is remembered is what is stored, or nothing. The tables are no longer than they may be: one that is full
begins anew.

Not here: what is remembered when (`stored_index`, `task_writes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, TypeVar

_REMEMBERED_MAX: Final = 4096


class Head(NamedTuple):
    """A commit that a checkpoint of this id made."""

    number: int
    id: str


@dataclass(slots=True)
class Writers:
    """The tasks that have written for one checkpoint, above whose id none have."""

    id: str
    """As a part of keys."""
    tasks: set[str] | None
    """None: not known."""


@dataclass(slots=True)
class Known:
    """What is remembered of a namespace of a thread; None stands for what is not."""

    head: Head | None = None
    greatest: str | None = None
    """What no id of a checkpoint is above, as a part of keys."""
    writers: Writers | None = None
    """The newest checkpoint that tasks have written for."""


_Key = TypeVar("_Key", str, tuple[str, str])
_Value = TypeVar("_Value", int, Known)


class Remembered:
    """Of some thousands of threads. All handles of one store in a process share it, as each of them writes."""

    def __init__(self) -> None:
        self.lock = Lock()
        """For every change of what is below."""
        self.appends = 0
        """How often something was appended to a log."""
        self.tips: dict[str, int] = {}
        """The last number, by thread."""
        self.places: dict[tuple[str, str], Known] = {}
        """By thread and namespace."""

    def tip_seen(self, thread: str, tip: int, appends: int) -> None:
        """Remember what was read, unless it is known, or something was appended since there were so many `appends`."""
        with self.lock:
            if appends == self.appends and thread not in self.tips:
                remember(self.tips, thread, tip)

    def head_seen(self, place: tuple[str, str], head: Head, appends: int) -> None:
        """See `tip_seen`."""
        with self.lock:
            if appends == self.appends and (known := self.known(place)).head is None:
                known.head = head

    def greatest_seen(self, place: tuple[str, str], greatest: str, appends: int) -> None:
        """See `tip_seen`."""
        with self.lock:
            if appends == self.appends and (known := self.known(place)).greatest is None:
                known.greatest = greatest

    def forget(self) -> None:
        """Begin anew: of something that was written nobody can tell whether it is there."""
        with self.lock:
            self.appends += 1
            self.tips.clear()
            self.places.clear()

    def known(self, place: tuple[str, str]) -> Known:
        """What is remembered of a place, to be changed by a caller who holds the lock."""
        known = self.places.get(place)
        if known is None:
            known = Known()
            remember(self.places, place, known)
        return known


def remember(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Put into a table of `Remembered`, whose lock the caller holds."""
    if key not in table and len(table) >= _REMEMBERED_MAX:
        table.clear()
    table[key] = value
