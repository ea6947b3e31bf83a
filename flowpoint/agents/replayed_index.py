"""What the log of a thread says, from the log itself: replayed once, and then followed.

Whoever removes entries of a thread first leaves a mark (`g/<number>`): who has replayed the log begins anew, before its
numbers have gaps.

Who follows a log looks only for the next number, and so would not see that commits are lost: those it has read long ago,
or the next one while there are later ones, whose place it would take. So whenever names have come to the log or gone that
it did not make itself, it looks at all of them.

Invariants: a number that is missing, and that no cut has removed, is damage, not the end of the log, and is told before
anything is appended; so is a log that ends before what was read of it. A commit that cannot
be read is as one that is missing: a later cut that does not keep it ends its importance, so that a damaged thread can be
deleted, and is so for everybody at once.
Not here: logs with an index beside them (`stored_index`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from flowpoint.agents.entry_names import commit_name, commits_prefix, cut_name, number_of, root
from flowpoint.agents.envelope import CUT, Header
from flowpoint.agents.every_thread import UNREADABLE
from flowpoint.agents.kv import Entry, Kv
from flowpoint.agents.remembered import Head
from flowpoint.errors import DamagedStoreError

_VIEWS_MAX: Final = 256


class _View:
    """What one thread's log says, as far as it was read."""

    def __init__(self) -> None:
        self.tip = 0
        self.cuts = 0
        self.last_cut = 0
        self.kept: frozenset[int] = frozenset()
        """The numbers that the last cut names."""
        self.missing = 0
        """The first commit that should be there and is not, or cannot be read; 0 when there is none."""
        self.heads: dict[str, Head] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.order: dict[str, dict[int, str]] = {}
        self.quiet: dict[int, tuple[str, str]] = {}
        self.needed: set[str] = set()
        """The names of the commits that have to be there, as far as the log was read."""
        self.seen: Hashable = None
        """How the log's names were when none was missing, by `Kv.changed`."""

    def apply(self, header: Header) -> None:
        """Take in the next commit."""
        self._pass(header.number)
        if header.kind == CUT:
            self._cut(header)
            return
        self.needed.add(commit_name(header.thread, header.number))
        if header.is_quiet:
            self.quiet[header.number] = header.ns, header.id
            return
        self._add(header.ns, Head(header.number, header.id))
        if header.moves:
            self.heads[header.ns] = Head(header.number, header.id)

    def lose(self, number: int) -> None:
        """Take note of a commit that cannot be read."""
        self._pass(number)
        self.missing = self.missing or number

    def _pass(self, number: int) -> None:
        if number != self.tip + 1 and not self.missing:
            self.missing = self.tip + 1
        self.tip = number

    def _add(self, ns: str, here: Head) -> None:
        order = self.order.setdefault(ns, {})
        older = self.numbers.get((ns, here.id))
        if older is not None:
            del order[older]
        self.numbers[ns, here.id] = here.number
        order[here.number] = here.id

    def _cut(self, header: Header) -> None:
        kept, heads, _why = header.extra
        numbers = self.kept = frozenset(kept)
        self.last_cut = self.tip
        for number in sorted(numbers & self.quiet.keys()):
            ns, id_ = self.quiet[number]
            self._add(ns, Head(number, id_))
        self.quiet.clear()
        self.missing = min(numbers.difference(*self.order.values()), default=0)
        self.numbers = {place: number for place, number in self.numbers.items() if number in numbers}
        # In order: what was quiet until now may have numbers below those of others.
        orders = {ns: {n: i for n, i in sorted(order.items()) if n in numbers} for ns, order in self.order.items()}
        self.order = {ns: order for ns, order in orders.items() if order}
        self.heads = {ns: Head(*head) for ns, head in heads.items()}
        counted = {self.tip}.union(*self.order.values())
        self.needed = {commit_name(header.thread, number) for number in counted}


class ReplayedIndex:
    """Replays the log of a thread and follows it. `read` gives the header of a commit from its bytes."""

    def __init__(self, kv: Kv, read: Callable[[bytes, str, int], Header]) -> None:
        self._kv = kv
        self._read = read
        self._views: OrderedDict[str, _View] = OrderedDict()

    def tip(self, thread: str) -> int:
        """See `Index`."""
        return self._view(thread).tip

    def is_cut(self, thread: str) -> bool:
        """See `Index`."""
        return self._view(thread).last_cut > 0

    def head(self, thread: str, ns: str) -> Head | None:
        """See `Index`."""
        return self._view(thread).heads.get(ns)

    def find(self, thread: str, ns: str, id: str) -> int | None:
        """See `Index`."""
        return self._view(thread).numbers.get((ns, id))

    def newest(self, thread: str, ns: str, below: int | None = None) -> Iterator[Head]:
        """See `Index`."""
        order = self._view(thread).order.get(ns, {})
        return iter([Head(n, i) for n, i in reversed(list(order.items())) if below is None or n < below])

    def namespaces(self, thread: str) -> list[str]:
        """See `Index`."""
        return sorted(self._view(thread).heads)

    def beside(self, header: Header, older: int | None) -> tuple[list[Entry], list[str]]:
        """See `Index`: nothing, the log is all there is."""
        return [], []

    def revealed(self, thread: str, checkpoints: Sequence[tuple[str, Head]]) -> list[Entry]:
        """See `Index`."""
        return []

    def appended(self, header: Header) -> None:
        """See `Index`."""
        view = self._view(header.thread)
        view.apply(header)
        view.seen = self._kv.changed(commits_prefix(header.thread))

    def refresh(self, thread: str) -> None:
        """See `Index`."""
        self._refreshed(thread)

    def _refreshed(self, thread: str) -> _View:
        view = self._views.get(thread)
        if view is None or self._kv.has(cut_name(thread, view.cuts + 1)):
            view = self._replayed(thread)
        # Other threads use this table at the same time: each step of this is one, and none counts on another.
        self._views.pop(thread, None)
        self._views[thread] = view
        while len(self._views) > _VIEWS_MAX:
            self._views.popitem(last=False)
        try:
            self._follow(thread, view)
        except UNREADABLE:
            # Unless a later cut says that it does not count any more.
            anew = self._replayed(thread)
            if anew.tip < view.tip:
                raise
            view = self._views[thread] = anew
        return view

    def _follow(self, thread: str, view: _View) -> None:
        seen = self._kv.changed(commits_prefix(thread))
        while (data := self._kv.get(commit_name(thread, view.tip + 1))) is not None:
            view.apply(self._read(data, thread, view.tip + 1))
        if seen != view.seen:
            self._look_for_losses(thread, view)
            view.seen = seen

    def _look_for_losses(self, thread: str, view: _View) -> None:
        there = set(self._kv.keys(commits_prefix(thread)))
        following = commit_name(thread, view.tip + 1)
        lost = view.needed - there
        if max(there, default="") > following and self._kv.get(following) is None:
            # The numbers come in order, so that this one was there when a later one came.
            lost.add(following)
        if lost:
            raise _lost(thread, number_of(min(lost)))

    def is_current(self, thread: str) -> bool:
        """See `Index`."""
        return not self._kv.has(cut_name(thread, self._view(thread).cuts + 1))

    def is_needed(self, thread: str, number: int) -> bool:
        """See `Index`: the last cut says what was removed before it, and nothing else was.

        What it kept stays, also where another put has taken its place since.
        """
        view = self._view(thread)
        return number >= view.last_cut or number in view.kept

    def _replayed(self, thread: str) -> _View:
        while True:
            view, unreadable = self._read_all(thread)
            # Of commits that are made meanwhile a listing may have a later one and not the one before it.
            if (
                not view.missing
                or view.missing in unreadable
                or self._kv.get(commit_name(thread, view.missing)) is None
            ):
                break
        if view.missing in unreadable:
            raise unreadable[view.missing]
        if view.missing:
            raise _lost(thread, view.missing)
        return view

    def _read_all(self, thread: str) -> tuple[_View, dict[int, Exception]]:
        """What the commits of a listing say, and which of them cannot be read."""
        view = _View()
        view.seen = self._kv.changed(commits_prefix(thread))
        last = next(self._kv.keys(f"{root(thread)}g/", reverse=True), None)
        view.cuts = 0 if last is None else number_of(last)
        unreadable: dict[int, Exception] = {}
        for key in self._kv.keys(commits_prefix(thread)):
            number = number_of(key)
            try:
                data = self._kv.get(key)
                if data is not None:
                    view.apply(self._read(data, thread, number))
            except UNREADABLE as error:
                unreadable[number] = error
                view.lose(number)
        return view, unreadable

    def _view(self, thread: str) -> _View:
        # Another thread may have pushed it out of the table meanwhile.
        return self._views.get(thread) or self._refreshed(thread)


def _lost(thread: str, number: int) -> DamagedStoreError:
    return DamagedStoreError(
        f"cannot read thread {thread!r}: commit {number} is missing, and was not removed; restore the store from a good "
        "copy, or delete the thread"
    )
