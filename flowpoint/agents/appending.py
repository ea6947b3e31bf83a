"""Appends to the log of a thread.

A commit is numbered one above the last, and its key is created only if absent: of all who try to be the next, one is.
Whoever was not looks again, and judges anew. All of this is done in a section of the thread.

Invariants: the nonce of a commit tells whether it is ours, when the answer to an earlier try was lost. What came with a
commit (values, the index) is there before the commit counts. Quiet commits count from `reveal` on, all at once.

Not here: what the log says (`log`), who may move the head (`conflicts`), what is committed (`core`, `retention`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flowpoint.agents.conflicts import Verdict
from flowpoint.agents.entry_names import commit_name
from flowpoint.agents.envelope import CUT, QUIET, Envelopes, Header
from flowpoint.agents.kv import Entry, Kv
from flowpoint.agents.log import Index
from flowpoint.agents.remembered import Head
from flowpoint.errors import InternalError, UsageError

_TRIES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class World:
    """What may not be got by oneself here."""

    wall_ms: Callable[[], int]
    new_nonce: Callable[[], bytes]


class Appender:
    """The end of the logs of one store."""

    def __init__(self, kv: Kv, index: Index, envelopes: Envelopes, world: World) -> None:
        self._kv = kv
        self._index = index
        self._envelopes = envelopes
        self._world = world

    def commit(
        self,
        header: Header,
        body: bytes,
        blobs: Sequence[Entry],
        judge: Callable[[], Verdict],
        older: int | None,
        sync: bool,
    ) -> Verdict:
        """Append to the log, unless the verdict, given anew whenever somebody else came first, is against it.

        Args:
            header: with the next number, or 0. Whether it moves the head is set here.
            body: from `Envelopes.body`, or empty.
            blobs: the values that it needs and that are not stored yet.
            judge: gives the verdict.
            older: the number that its checkpoint has so far, and loses.
            sync: whether it is to survive a loss of power from now on, not soon.
        """
        thread = header.thread
        for _ in range(_TRIES_MAX):
            verdict = judge()
            if not header.number or header.moves is not verdict.moves:
                header = header.numbered(header.number or self._index.tip(thread) + 1, verdict.moves)
            if verdict.refusal or self._append(header, body, blobs, older, sync=sync):
                return verdict
            self._index.refresh(thread)
            header = header.numbered(0, verdict.moves)
        raise InternalError(f"{_TRIES_MAX} commits to thread {thread!r} in a row were taken by others")

    def _append(self, header: Header, body: bytes, blobs: Sequence[Entry], older: int | None, *, sync: bool) -> bool:
        """Try to be the next in the log."""
        thread, key = header.thread, commit_name(header.thread, header.number)
        puts, gone = self._index.beside(header, older)
        data = self._envelopes.commit(header, body)
        if not self._kv.create(key, data, beside=[*blobs, *puts] if blobs else puts, gone=gone, sync=sync, looked=True):
            # Somebody's, or ours, if the answer to an earlier try was lost.
            there = self._kv.get(key)
            if there is None or self._envelopes.read_commit(there, thread, header.number)[0].nonce != header.nonce:
                return False
        if not self._index.is_current(thread):
            self._kv.write([], [key])
            return False
        # From here on the commit counts.
        self._index.appended(header)
        return True

    def append(self, header: Header, body: bytes, blobs: Sequence[Entry], *, moves: bool) -> Head:
        """Commit what another thread or store has committed once; it is seen from `reveal` on.

        To be called in a section of the thread.
        """
        quiet = header._replace(extra=QUIET)
        self.commit(quiet, body, blobs, lambda: Verdict(moves), None, sync=True)
        return Head(self._index.tip(header.thread), header.id)

    def reveal(self, thread: str, checkpoints: Sequence[tuple[str, Head]], heads: Mapping[str, Head], why: str) -> None:
        """Make what was appended the thread, all at once. To be called in a section of the thread.

        Args:
            thread: which has no checkpoints yet that are seen.
            checkpoints: what was appended, with the namespaces.
            heads: of the namespaces.
            why: for the log.

        Raises:
            UsageError: somebody has begun the thread meanwhile.
        """

        def judge() -> Verdict:
            begun = self._index.namespaces(thread)
            return Verdict(not begun, refusal="a run has begun it meanwhile; delete it and try again" if begun else "")

        self._index.refresh(thread)
        header = self._cut_header(thread, [head.number for _, head in checkpoints], heads, why)
        verdict = self.commit(header, b"", self._index.revealed(thread, checkpoints), judge, None, sync=True)
        if verdict.refusal:
            raise UsageError(f"cannot make thread {thread!r}: {verdict.refusal}")

    def cut(self, thread: str, kept: Sequence[int], heads: Mapping[str, tuple[int, str]], why: str) -> None:
        """Commit that only these numbers count. To be called in a section for cutting."""
        self.commit(self._cut_header(thread, kept, heads, why), b"", [], lambda: Verdict(True), None, sync=True)

    def cut_unread(self, thread: str, last: int, why: str) -> None:
        """Commit that nothing counts, after a log that cannot be read and ends with the number `last`.

        To be called in a section for cutting, where nobody else can take the number; the index looks anew after it.
        """
        header = self._cut_header(thread, [], {}, why).numbered(last + 1, True)
        if not self._kv.create(commit_name(thread, header.number), self._envelopes.commit(header, b"")):
            raise InternalError(f"commit {header.number} of thread {thread!r} was made while it was ours alone")

    def _cut_header(self, thread: str, kept: Sequence[int], heads: Mapping[str, tuple[int, str]], why: str) -> Header:
        extra = [list(kept), {ns: list(head) for ns, head in heads.items()}, why]
        return Header(CUT, 0, self._world.new_nonce(), self._world.wall_ms(), thread, extra=extra)
