"""Who may move the head of a thread: what becomes of a put, as the log stands.

A put moves the head of its namespace if it continues the head. A run that read an old checkpoint on purpose (time
travel) moves it too, with its first put. Everything else is a conflict: somebody else has moved the head since this run
read it. How a run read is told by its token, which the saver hands out with a checkpoint and the framework carries to
every put of that run.

Pure: looks at the index, changes nothing, tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from flowpoint.agents.entry_names import Place
from flowpoint.agents.log import Index
from flowpoint.agents.reading import Record

OnConflict = Literal["branch", "raise"]

_HEAD: Final = "head"
_EXPLICIT: Final = "explicit"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the keeper of a thread may want to know."""

    kind: Literal["conflict", "late", "note"]
    thread: str
    ns: str
    checkpoint_id: str
    text: str


class Verdict(NamedTuple):
    """What becomes of a put."""

    moves: bool
    event: Event | None = None
    refusal: str = ""
    """Why nothing is written; empty when it is."""


def token(explicit: bool, ns: str, id: str) -> str:
    """How a run has read, in one word: the framework copies it around."""
    return f"{_EXPLICIT if explicit else _HEAD}\x1f{ns}\x1f{id}"


def judged(
    index: Index,
    earlier: Callable[[Place, str], Record | None],
    on_conflict: OnConflict,
    place: Place,
    id: str,
    parent: str | None,
    told: str | None,
) -> Verdict:
    """Whether a put moves the head, makes a branch, or is refused.

    Args:
        index: what the log says now.
        earlier: finds a checkpoint of the same place.
        on_conflict: whether a conflict makes a branch, or refuses the put.
        place: where the checkpoint is put.
        id: of the checkpoint.
        parent: the checkpoint that it was made from.
        told: the token of its run.
    """
    head = index.head(*place)
    if head is not None and head.id == parent:
        return Verdict(True)
    if parent is not None and index.is_cut(place.thread) and index.find(*place, parent) is None:
        text = f"its checkpoint {parent} was deleted while the run was going; start it anew"
        return Verdict(False, Event("late", *place, id, text), text)
    if head is None or head.id == id or _travels(told, place.ns, parent):
        return Verdict(True)
    seen = f"the run started from {parent or 'nothing'}, but another run has moved the head to {head.id}"
    if on_conflict == "raise":
        event = Event("conflict", *place, id, f"refused: {seen}")
        return Verdict(False, event, f"{seen}; run again, or use invoke_with_retry")
    before = None if parent is None else earlier(place, parent)
    if before is None or before.header.moves:
        return Verdict(False, Event("conflict", *place, id, f"kept as a branch: {seen}"))
    return Verdict(False)  # its branch was told of when it began


def _travels(told: str | None, ns: str, parent: str | None) -> bool:
    """Whether a put is the first of a run that goes back in time on purpose.

    A sub-graph with a memory of its own, which did not exist yet at the time that its graph goes back to, starts anew:
    it has read nothing, and carries the token of its graph.
    """
    if parent is not None:
        return told == token(True, ns, parent)
    how, _, rest = (told or "").partition("\x1f")
    return how == _EXPLICIT and rest.partition("\x1f")[0] != ns
