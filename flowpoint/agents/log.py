"""The commit log of a thread: which commits there are, and which is the head of each namespace.

The log is `t/<thread>/c/<number>`, one commit each, created only if absent. What it says is found in two ways:

- `StoredIndex`, where a batch is all or nothing: small entries beside the log, written with each commit. What
  is held in memory of them, the last number and the heads of threads, is only for speed.
- `ReplayedIndex`, where only single objects are: the log itself, replayed once and then followed.

    h/<ns>              the head of a namespace: [ns, number, id]
    i/<ns>/<id>         the number of a checkpoint
    o/<ns>/<number>     the id of a checkpoint, in the order of commits
    x                   something was cut off: a parent that is not found was deleted

Invariants: the head moves by commits that say so (`Header.moves`), never by the greatest id. After a cut only the
numbers that it names, and later ones, count; quiet ones (`envelope.QUIET`) only once a cut names them. The last commit
is never removed, so a number is never used twice; nor, where the log is all there is, the last cut, so that a number
that is missing after it is damage.

Not here: who may move the head (`core`), what goes in a cut (`retention`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from flowpoint.agents.envelope import CUT, Header
from flowpoint.agents.kv import Entry, Kv, part, remember
from flowpoint.agents.packing import Packers
from flowpoint.errors import DamagedStoreError

_VIEWS_MAX: Final = 256
_DIGITS_MAX: Final = 15


class Head(NamedTuple):
    """A commit that a checkpoint of this id made."""

    number: int
    id: str


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


def root(thread: str) -> str:
    """The prefix of all that belongs to a thread."""
    return f"t/{part(thread)}/"


def commit_name(thread: str, number: int) -> str:
    """The name of a commit."""
    return f"{root(thread)}c/{number:012d}"


def cut_name(thread: str, count: int) -> str:
    """The name of the mark that something is about to be removed, for those who follow the log."""
    return f"{root(thread)}g/{count:06d}"


def number_of(key: str) -> int:
    """The number that a key ends with.

    Raises:
        DamagedStoreError: it does not.
    """
    digits = key.rpartition("/")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise DamagedStoreError(f"cannot read the log of a thread: it has an entry {key!r}; remove it")
    return int(digits)


class StoredIndex:
    """Reads the index that is written beside the log."""

    def __init__(self, kv: Kv, *, alone: bool = True) -> None:
        """`alone`: nobody else writes to the store, so what was seen of it stays true."""
        self._kv = kv
        self._alone = alone
        self._known = kv.remembered
        self._pack = Packers().pack

    def tip(self, thread: str) -> int:
        """See `Index`."""
        tip = self._known.tips.get(thread)
        if tip is None:
            appends = self._known.appends
            last = next(self._kv.keys(f"{root(thread)}c/", reverse=True), None)
            tip = 0 if last is None else number_of(last)
            if self._alone:
                self._known.seen(self._known.tips, thread, tip, appends)
        return tip

    def is_cut(self, thread: str) -> bool:
        """See `Index`."""
        return self._kv.has(f"{root(thread)}x")

    def head(self, thread: str, ns: str) -> Head | None:
        """See `Index`."""
        known = self._known.heads.get((thread, ns))
        if known is not None:
            return Head(*known)
        appends = self._known.appends
        data = self._kv.get(_head_name(thread, ns))
        if data is None:
            return None
        head = _head_in(thread, data)[1]
        if self._alone:
            self._known.seen(self._known.heads, (thread, ns), head, appends)
        return head

    def find(self, thread: str, ns: str, id: str) -> int | None:
        """See `Index`. Ids hold a time: that there is none above the greatest is known without a look, as a rule."""
        if self._alone and part(id) > self._greatest(thread, ns):
            return None
        data = self._kv.get(_id_name(thread, ns, id))
        if data is None:
            return None
        if not (data.isdigit() and len(data) <= _DIGITS_MAX):
            raise _damaged(thread, f"the number of checkpoint {id}")
        return int(data)

    def _greatest(self, thread: str, ns: str) -> str:
        """What no id of a namespace is above. It need not be there any more."""
        known = self._known.greatest.get((thread, ns))
        if known is not None:
            return known
        appends = self._known.appends
        last = next(self._kv.keys(f"{root(thread)}i/{part(ns)}/", reverse=True), None) if self.tip(thread) else None
        greatest = "" if last is None else last.rpartition("/")[2]
        self._known.seen(self._known.greatest, (thread, ns), greatest, appends)
        return greatest

    def newest(self, thread: str, ns: str, below: int | None = None) -> Iterator[Head]:
        """See `Index`."""
        prefix = f"{root(thread)}o/{part(ns)}/"
        start = "" if below is None else f"{prefix}{below:012d}"
        for key, value in self._kv.scan(prefix, start=start, reverse=True):
            try:
                yield Head(number_of(key), value.decode("utf-8", "surrogatepass"))
            except UnicodeDecodeError as error:
                raise _damaged(thread, "the id of a checkpoint") from error

    def namespaces(self, thread: str) -> list[str]:
        """See `Index`."""
        return [_head_in(thread, value)[0] for _key, value in self._kv.scan(f"{root(thread)}h/")]

    def beside(self, header: Header, older: int | None) -> tuple[list[Entry], list[str]]:
        """See `Index`."""
        thread = header.thread
        if header.kind == CUT:
            return self._beside_cut(header)
        if header.is_quiet:
            return [], []
        ns, id_, number = header.ns, header.id, header.number
        puts = _found_by(thread, ns, number, id_)
        if header.moves:
            puts.append((_head_name(thread, ns), self._pack([ns, number, id_])))
        return puts, [] if older is None else [_order_name(thread, ns, older), commit_name(thread, older)]

    def revealed(self, thread: str, checkpoints: Sequence[tuple[str, Head]]) -> list[Entry]:
        """See `Index`."""
        return [entry for ns, head in checkpoints for entry in _found_by(thread, ns, *head)]

    def _beside_cut(self, header: Header) -> tuple[list[Entry], list[str]]:
        thread = header.thread
        kept, heads, _why = header.extra
        numbers = set(kept)
        puts: list[Entry] = [(f"{root(thread)}x", b"")]
        deletes: list[str] = []
        for ns in self.namespaces(thread):
            order = f"{root(thread)}o/{part(ns)}/"
            for number, id_ in self.newest(thread, ns):
                if number not in numbers:
                    deletes += [_id_name(thread, ns, id_), f"{order}{number:012d}"]
            if ns not in heads:
                deletes.append(_head_name(thread, ns))
        puts += [(_head_name(thread, ns), self._pack([ns, *head])) for ns, head in heads.items()]
        return puts, deletes

    def appended(self, header: Header) -> None:
        """See `Index`."""
        if not self._alone:
            return
        known, thread = self._known, header.thread
        place = thread, header.ns
        with known.lock:
            known.appends += 1
            remember(known.tips, thread, header.number)
            if header.kind == CUT:
                known.heads.clear()
                return
            if header.moves and not header.is_quiet:
                remember(known.heads, place, (header.number, header.id))
            # Where it is not known, the next look finds this id, too.
            if (greatest := known.greatest.get(place)) is not None:
                known.greatest[place] = max(greatest, part(header.id))

    def refresh(self, thread: str) -> None:
        """See `Index`: what is stored is always true."""

    def is_current(self, thread: str) -> bool:
        """See `Index`."""
        return True

    def is_needed(self, thread: str, number: int) -> bool:
        """See `Index`: the last number is never used twice."""
        return number == self.tip(thread)


class _View:
    """What one thread's log says, as far as it was read."""

    def __init__(self) -> None:
        self.tip = 0
        self.cuts = 0
        self.last_cut = 0
        self.missing = 0
        """The first commit that should be there and is not; 0 when there is none."""
        self.heads: dict[str, Head] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.order: dict[str, dict[int, str]] = {}
        self.quiet: dict[int, tuple[str, str]] = {}

    def apply(self, header: Header) -> None:
        """Take in the next commit."""
        if header.number != self.tip + 1 and not self.missing:
            self.missing = self.tip + 1
        self.tip = header.number
        if header.kind == CUT:
            self._cut(header.extra)
            return
        if header.is_quiet:
            self.quiet[header.number] = header.ns, header.id
            return
        self._add(header.ns, Head(header.number, header.id))
        if header.moves:
            self.heads[header.ns] = Head(header.number, header.id)

    def _add(self, ns: str, here: Head) -> None:
        order = self.order.setdefault(ns, {})
        older = self.numbers.get((ns, here.id))
        if older is not None:
            del order[older]
        self.numbers[ns, here.id] = here.number
        order[here.number] = here.id

    def _cut(self, extra: Any) -> None:
        kept, heads, _why = extra
        numbers = set(kept)
        self.last_cut = self.tip
        for number in sorted(numbers & self.quiet.keys()):
            ns, id_ = self.quiet[number]
            self._add(ns, Head(number, id_))
        self.quiet.clear()
        self.missing = min(numbers.difference(*self.order.values()), default=0)
        self.numbers = {place: number for place, number in self.numbers.items() if number in numbers}
        orders = {ns: {n: i for n, i in order.items() if n in numbers} for ns, order in self.order.items()}
        self.order = {ns: order for ns, order in orders.items() if order}
        self.heads = {ns: Head(*head) for ns, head in heads.items()}


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
        self._view(header.thread).apply(header)

    def refresh(self, thread: str) -> None:
        """See `Index`."""
        view = self._views.get(thread)
        if view is None or self._kv.has(cut_name(thread, view.cuts + 1)):
            view = self._replayed(thread)
        # Other threads use this table at the same time: each step of this is one, and none counts on another.
        self._views.pop(thread, None)
        self._views[thread] = view
        while len(self._views) > _VIEWS_MAX:
            self._views.popitem(last=False)
        while (data := self._kv.get(commit_name(thread, view.tip + 1))) is not None:
            view.apply(self._read(data, thread, view.tip + 1))

    def is_current(self, thread: str) -> bool:
        """See `Index`."""
        return not self._kv.has(cut_name(thread, self._view(thread).cuts + 1))

    def is_needed(self, thread: str, number: int) -> bool:
        """See `Index`: the last cut says what was removed before it, and nothing else was."""
        return number >= self._view(thread).last_cut

    def _replayed(self, thread: str) -> _View:
        view = _View()
        last = next(self._kv.keys(f"{root(thread)}g/", reverse=True), None)
        view.cuts = 0 if last is None else number_of(last)
        for key, data in self._kv.scan(f"{root(thread)}c/"):
            view.apply(self._read(data, thread, number_of(key)))
        if view.missing:
            raise DamagedStoreError(
                f"cannot read thread {thread!r}: commit {view.missing} is missing, and was not removed; restore the store"
            )
        return view

    def _view(self, thread: str) -> _View:
        view = self._views.get(thread)
        if view is None:
            self.refresh(thread)
            view = self._views[thread]
        return view


def _head_name(thread: str, ns: str) -> str:
    return f"{root(thread)}h/{part(ns)}"


def _order_name(thread: str, ns: str, number: int) -> str:
    return f"{root(thread)}o/{part(ns)}/{number:012d}"


def _found_by(thread: str, ns: str, number: int, id: str) -> list[Entry]:
    """What a checkpoint is found by: its id, and its place in the order of commits."""
    below, ns = root(thread), part(ns)
    return [
        (f"{below}i/{ns}/{part(id)}", b"%d" % number),
        (f"{below}o/{ns}/{number:012d}", id.encode("utf-8", "surrogatepass")),
    ]


def _id_name(thread: str, ns: str, id: str) -> str:
    return f"{root(thread)}i/{part(ns)}/{part(id)}"


def _head_in(thread: str, data: bytes) -> tuple[str, Head]:
    """The namespace and its head, of the bytes of an entry `h/`."""
    try:
        fields = msgpack.unpackb(data, unicode_errors="surrogatepass")
    except (ValueError, msgpack.UnpackException) as error:
        raise _damaged(thread, "a head") from error
    match fields:
        case [str(ns), int(number), str(id_)]:
            return ns, Head(number, id_)
    raise _damaged(thread, "a head")


def _damaged(thread: str, what: str) -> DamagedStoreError:
    return DamagedStoreError(f"cannot read {what} of thread {thread!r}: its bytes are damaged; restore the store")
