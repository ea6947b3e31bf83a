"""What the log of a thread says, from entries that are written beside it, in one batch with each commit.

    h/<ns>              the head of a namespace: [ns, number, id]
    i/<ns>/<id>         the number of a checkpoint
    o/<ns>/<number>     the id of a checkpoint, in the order of commits
    x                   something was cut off: a parent that is not found was deleted
    n                   something was written in the thread; in a store that has `MARKED` every thread has it

What is held in memory of them, the last number and the heads of threads, is only for speed. So is `n`: that a thread is
new is told by one look for one key, where to find that a stretch of keys is empty takes twenty times as long.

Invariant: what is remembered is what is stored, or nothing, whoever reads at the same time without a lock.
Not here: logs without such entries (`replayed_index`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgpack

from flowpoint.agents.entry_names import (
    Place,
    commit_name,
    mark_name,
    names,
    number_of,
    parsed_number,
    root,
)
from flowpoint.agents.envelope import CUT, PUT, Header
from flowpoint.agents.kv import Entry, Kv, part
from flowpoint.agents.packing import Packers
from flowpoint.agents.remembered import Head, Writers, remember
from flowpoint.errors import DamagedStoreError

MARKED: Final = "m"
"""Of a store: all its threads are marked. One that has threads already, made by older code, never gets it."""


class StoredIndex:
    """Reads the index that is written beside the log."""

    def __init__(self, kv: Kv, *, alone: bool = True) -> None:
        """`alone`: nobody else writes to the store, so what was seen of it stays true."""
        self._kv = kv
        self._alone = alone
        self._known = kv.remembered
        self._pack = Packers().pack
        self._marked = alone and _is_marked(kv)

    def tip(self, thread: str) -> int:
        """See `Index`."""
        tip = self._known.tips.get(thread)
        if tip is None:
            appends = self._known.appends
            tip = 0 if self.is_new(thread) else self._last(thread)
            if self._alone:
                self._known.tip_seen(thread, tip, appends)
        return tip

    def _last(self, thread: str) -> int:
        last = next(self._kv.keys(f"{root(thread)}c/", reverse=True), None)
        return 0 if last is None else number_of(last)

    def is_new(self, thread: str) -> bool:
        """Whether it is known that nothing was ever written in a thread."""
        return self._marked and not self._known.tips.get(thread) and not self._kv.has(mark_name(thread))

    def is_cut(self, thread: str) -> bool:
        """See `Index`."""
        return self._kv.has(f"{root(thread)}x")

    def head(self, thread: str, ns: str) -> Head | None:
        """See `Index`."""
        known = self._known.places.get((thread, ns))
        if known is not None and known.head is not None:
            return known.head
        if self._alone and not self.tip(thread):
            return None
        appends = self._known.appends
        data = self._kv.get(names(thread, ns).head)
        if data is None:
            return None
        head = _head_in(thread, data)[1]
        if self._alone:
            self._known.head_seen((thread, ns), head, appends)
        return head

    def find(self, thread: str, ns: str, id: str) -> int | None:
        """See `Index`. Ids hold a time: that there is none above the greatest is known without a look, as a rule."""
        if self._alone and part(id) > self._greatest(thread, ns):
            return None
        data = self._kv.get(names(thread, ns).ids + part(id))
        if data is None:
            return None
        return parsed_number(data.decode("latin-1"), f"the number of checkpoint {id} of thread {thread!r}")

    def continued(self, place: Place, id: str, parent: str | None) -> Head | None:
        """The head, if it is known without a look that it is the parent of a checkpoint, and that this one is new.

        To be asked in a section of a store that nobody else writes to.
        """
        known = self._known.places.get(place)
        if known is None or (head := known.head) is None or (greatest := known.greatest) is None:
            return None
        return head if head.id == parent and part(id) > greatest else None

    def append(self, header: Header, envelope: bytes, blobs: Sequence[Entry], sync: bool) -> None:
        """Commit a put whose head is `continued`: all that `Appender` does with `beside` and `appended`, in one go.

        Spelt out, since nearly every step of a graph is one of these.
        """
        _kind, number, _nonce, _at, thread, ns, id_, _parent, _moves, _version, _extra = header
        of = names(thread, ns)
        self._kv.write(
            [
                *blobs,
                (of.ids + part(id_), b"%d" % number),
                (f"{of.order}{number:012d}", id_.encode("utf-8", "surrogatepass")),
                (of.head, self._pack([ns, number, id_])),
                (f"{of.commits}{number:012d}", envelope),
            ],
            sync=sync,
        )
        self.appended(header)

    def _greatest(self, thread: str, ns: str) -> str:
        """What no id of a namespace is above. It need not be there any more."""
        known = self._known.places.get((thread, ns))
        if known is not None and known.greatest is not None:
            return known.greatest
        appends = self._known.appends
        last = next(self._kv.keys(names(thread, ns).ids, reverse=True), None) if self.tip(thread) else None
        greatest = "" if last is None else last.rpartition("/")[2]
        self._known.greatest_seen((thread, ns), greatest, appends)
        return greatest

    def newest(self, thread: str, ns: str, below: int | None = None) -> Iterator[Head]:
        """See `Index`."""
        prefix = names(thread, ns).order
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
        if header.kind == PUT:
            puts, deletes = ([], []) if header.is_quiet else self._beside_put(header, older)
        else:
            puts, deletes = self._beside_cut(header)
        if header.number == 1:
            self._begun(header.thread, header.ns)
            puts.append((mark_name(header.thread), b""))
        return puts, deletes

    def _begun(self, thread: str, ns: str) -> None:
        """Where nothing was written, nobody has written for a checkpoint: `TaskWrites` need not look."""
        if self.is_new(thread):
            with self._known.lock:
                self._known.known((thread, ns)).writers = Writers("", None)

    def _beside_put(self, header: Header, older: int | None) -> tuple[list[Entry], list[str]]:
        _kind, number, _nonce, _at, thread, ns, id_, _parent, moves, _version, _extra = header
        puts = _found_by(thread, ns, number, id_)
        if moves:
            puts.append((names(thread, ns).head, self._pack([ns, number, id_])))
        return puts, [] if older is None else [_order_name(thread, ns, older), commit_name(thread, older)]

    def revealed(self, thread: str, checkpoints: Sequence[tuple[str, Head]]) -> list[Entry]:
        """See `Index`."""
        return [entry for ns, head in checkpoints for entry in _found_by(thread, ns, *head)]

    def _beside_cut(self, header: Header) -> tuple[list[Entry], list[str]]:
        thread = header.thread
        kept, heads, _why = header.extra
        numbers = set(kept)
        puts: list[Entry] = [(f"{root(thread)}x", b"")]
        if not kept:
            # Nothing is read of what goes: it may be damaged.
            return puts, [key for below in "hio" for key in self._kv.keys(f"{root(thread)}{below}/")]
        deletes: list[str] = []
        for ns in self.namespaces(thread):
            ids = names(thread, ns).ids
            for number, id_ in self.newest(thread, ns):
                if number not in numbers:
                    deletes += [ids + part(id_), _order_name(thread, ns, number)]
            if ns not in heads:
                deletes.append(names(thread, ns).head)
        puts += [(names(thread, ns).head, self._pack([ns, *head])) for ns, head in heads.items()]
        return puts, deletes

    def appended(self, header: Header) -> None:
        """See `Index`."""
        if not self._alone:
            return
        known = self._known
        kind, number, _nonce, _at, thread, ns, id_, _parent, moves, _version, quiet = header
        with known.lock:
            known.appends += 1
            if thread in known.tips:
                known.tips[thread] = number
            else:
                remember(known.tips, thread, number)
            if kind == CUT:
                known.places.clear()
                return
            at = known.places.get((thread, ns)) or known.known((thread, ns))
            if moves and not quiet:
                at.head = Head(number, id_)
            # Where it is not known, the next look finds this id, too.
            if at.greatest is not None and (id_part := part(id_)) > at.greatest:
                at.greatest = id_part

    def refresh(self, thread: str) -> None:
        """See `Index`: what is stored is always true."""

    def is_current(self, thread: str) -> bool:
        """See `Index`."""
        return True

    def is_needed(self, thread: str, number: int) -> bool:
        """See `Index`: the last number is never used twice."""
        return number == self.tip(thread)


def _is_marked(kv: Kv) -> bool:
    """Whether new threads can be told by their missing mark: so it is from the first thread on, or never."""
    if kv.has(MARKED):
        return True
    if next(kv.keys("t/"), None) is not None:
        return False
    kv.write([(MARKED, b"")])
    return True


def _order_name(thread: str, ns: str, number: int) -> str:
    return f"{names(thread, ns).order}{number:012d}"


def _found_by(thread: str, ns: str, number: int, id: str) -> list[Entry]:
    """What a checkpoint is found by: its id, and its place in the order of commits."""
    of = names(thread, ns)
    return [
        (of.ids + part(id), b"%d" % number),
        (f"{of.order}{number:012d}", id.encode("utf-8", "surrogatepass")),
    ]


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
