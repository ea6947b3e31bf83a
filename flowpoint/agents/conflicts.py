"""Who may move the head of a thread: what becomes of a put, as the log stands.

A put moves the head of its namespace if it continues the head. A run that read an old checkpoint on purpose (time
travel) moves it too, with its first put. Everything else is a conflict: somebody else has moved the head since this run
read it. How a run read is told by its token, which the saver hands out with a checkpoint and the framework carries to
every put of that run.

While a run has the thread (`running`), it is a conflict for everybody else to move a head, even from the head. Otherwise
a run that starts from the middle of another one takes over from it, as from one that has crashed.

Pure: looks at the index, changes nothing, tells nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from flowpoint.agents.entry_names import Place
from flowpoint.agents.log import Index
from flowpoint.agents.reading import Record

OnConflict = Literal["branch", "raise"]

_HEAD: Final = "head"
_EXPLICIT: Final = "explicit"
_TAKEN_OVER: Final = (
    "it took this run for one that had crashed and went on from it, so that what the run was given is in the history: do "
    "not give it again"
)


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


MOVES: Final = Verdict(True)
"""Of a put that continues the head of a thread which no run has."""


def token(explicit: bool, ns: str, id: str) -> str:
    """How a run has read, in one word: the framework copies it around."""
    return f"{_EXPLICIT if explicit else _HEAD}\x1f{ns}\x1f{id}"


class Claim(NamedTuple):
    """What a put goes by."""

    place: Place
    id: str
    parent: str | None
    """The checkpoint that it was made from."""
    told: str | None
    """The token of its run."""
    holder: str | None
    """The other run that has the thread."""
    reads: Mapping[Place, str | None]
    """The heads that its run has read, if it is about to take the thread: what it puts later has to fit all of them."""


def judged(
    index: Index, earlier: Callable[[Place, str], Record | None], on_conflict: OnConflict, claim: Claim
) -> Verdict:
    """Whether a put moves the head, makes a branch, or is refused.

    Args:
        index: what the log says now.
        earlier: finds a checkpoint of the same place.
        on_conflict: whether a conflict makes a branch, or refuses the put.
        claim: what the put goes by.
    """
    place, id, parent, told, holder, reads = claim
    head = index.head(*place)
    continues = head is not None and head.id == parent
    if continues and holder is None and not reads:
        return MOVES
    if not continues and parent is not None and index.is_cut(place.thread) and index.find(*place, parent) is None:
        text = f"its checkpoint {parent} was deleted while the run was going; start it anew"
        return Verdict(False, Event("late", *place, id, text), text)
    moves = continues or head is None or head.id == id or _travels(told, place.ns, parent)
    moved = _moved(index, reads)
    if moves and moved is None and (holder is None or (head is None and on_conflict == "branch")):
        return MOVES
    if moves and moved is not None:
        where = f"namespace {moved.ns!r}" if moved.ns else "the graph itself"
        seen = f"another run has moved the head of {where} since this run read it"
        what_to_do = "run again, or use invoke_with_retry"
    elif head is None or moves:
        seen = f"{in_progress(holder)} has the thread"
        what_to_do = "wait until it has ended, or use invoke_with_retry"
    else:
        seen = f"the run started from {parent or 'nothing'}, but another run has moved the head to {head.id}"
        taken_over = not _is_first(told, place.ns, parent) and grew_from(earlier, place, head.id, parent)
        what_to_do = _TAKEN_OVER if taken_over else "run again, or use invoke_with_retry"
    if on_conflict == "raise":
        return Verdict(False, Event("conflict", *place, id, f"refused: {seen}"), f"{seen}; {what_to_do}")
    if head is None or head.id == id:
        # What is no head, and grew into none, is seen by nobody.
        return Verdict(True, Event("conflict", *place, id, f"kept at the head: {seen}"))
    before = None if parent is None else earlier(place, parent)
    if before is None or before.header.moves:
        return Verdict(False, Event("conflict", *place, id, f"kept as a branch: {seen}"))
    return Verdict(False)  # its branch was told of when it began


def in_progress(holder: str | None) -> str:
    """A run that has a thread, for messages."""
    return f"a run that is in progress in process {(holder or '?').partition('.')[0]}"


def grew_from(earlier: Callable[[Place, str], Record | None], place: Place, id: str, root: str | None) -> bool:
    """Whether a checkpoint is another one, or was made from it by way of others."""
    oldest = None if root is None else earlier(place, root)
    if oldest is None:
        return False
    for one in lineage(earlier, place, id):
        if one.header.number <= oldest.header.number:
            return one.header.id == root
    return False


def lineage(earlier: Callable[[Place, str], Record | None], place: Place, id: str | None) -> Iterator[Record]:
    """A checkpoint and what it was made from, the youngest first; each once, should it lead back to itself."""
    seen: set[str] = set()
    while id is not None and id not in seen and (one := earlier(place, id)) is not None:
        yield one
        seen.add(id)
        id = one.header.parent


def _moved(index: Index, reads: Mapping[Place, str | None]) -> Place | None:
    """A place whose head is no longer what was read."""
    for place, id in reads.items():
        head = index.head(*place)
        if (None if head is None else head.id) != id:
            return place
    return None


def _is_first(told: str | None, ns: str, parent: str | None) -> bool:
    """Whether a put is the first of its run, made from what the run has read."""
    return parent is None or told in (token(False, ns, parent), token(True, ns, parent))


def _travels(told: str | None, ns: str, parent: str | None) -> bool:
    """Whether a put is the first of a run that goes back in time on purpose.

    A sub-graph with a memory of its own, which did not exist yet at the time that its graph goes back to, starts anew:
    it has read nothing, and carries the token of its graph.
    """
    if parent is not None:
        return told == token(True, ns, parent)
    how, _, rest = (told or "").partition("\x1f")
    return how == _EXPLICIT and rest.partition("\x1f")[0] != ns
