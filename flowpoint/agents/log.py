"""The commit log of a thread: which commits there are, and which is the head of each namespace.

The log is `t/<thread>/c/<number>`, one commit each, created only if absent. What it says is found in two ways:

- `StoredIndex` (`stored_index`), where a batch is all or nothing: small entries beside the log, written with each commit.
- `ReplayedIndex` (`replayed_index`), where only single objects are: the log itself, replayed once and then followed.

Invariants of both: the head moves by commits that say so (`Header.moves`), never by the greatest id. After a cut only the
numbers that it names, and later ones, count; quiet ones (`envelope.QUIET`) only once a cut names them. The last commit
is never removed, so a number is never used twice; nor, where the log is all there is, the last cut, so that a number
that is missing after it is damage.

Not here: who may move the head (`conflicts`), appending (`appending`), what goes in a cut (`retention`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from flowpoint.agents.envelope import Header
from flowpoint.agents.kv import Entry
from flowpoint.agents.remembered import Head


class Index(Protocol):
    """What the log of each thread says. Threads and namespaces are given by their names, not their parts."""

    def tip(self, thread: str) -> int:
        """The number of the last commit; 0 when there is none."""

    def is_cut(self, thread: str) -> bool:
        """Whether anything was ever deleted from the thread."""

    def head(self, thread: str, ns: str) -> Head | None:
        """The head of a namespace."""

    def find(self, thread: str, ns: str, id: str) -> int | None:
        """The number of a checkpoint."""

    def newest(self, thread: str, ns: str, below: int | None = None) -> Iterator[Head]:
        """The checkpoints of a namespace, by commit, newest first; only those with numbers below `below`."""

    def namespaces(self, thread: str) -> list[str]:
        """The namespaces that have a head."""

    def beside(self, header: Header, older: int | None) -> tuple[list[Entry], list[str]]:
        """What to put and to delete in the same batch as a commit; `older` is the number that its id has so far."""

    def revealed(self, thread: str, checkpoints: Sequence[tuple[str, Head]]) -> list[Entry]:
        """What to put in the same batch as the cut that makes quiet commits count."""

    def appended(self, header: Header) -> None:
        """A commit of our own is in the log."""

    def refresh(self, thread: str) -> None:
        """Look what others have appended. To be called first in every section."""

    def is_current(self, thread: str) -> bool:
        """After an append: whether nothing was cut off meanwhile that our number was based on."""

    def is_needed(self, thread: str, number: int) -> bool:
        """Whether the log cannot do without a commit that is no checkpoint which counts."""
