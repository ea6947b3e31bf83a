"""Stores what tasks wrote, beside the log: entries of their own, which never contend for a number of it.

Of what a task writes for one checkpoint under one index, the first counts; of special channels (an error, an interrupt,
an answer) the last. So each set of writes of a task is an entry with a number, and what earlier ones have is left out.

Where nobody else writes to the store, that a task has no earlier ones is known, as a rule, without a look: checkpoints
are written for in the order of their ids, and who has written for the newest is remembered.

Invariant: an entry is never replaced. To be called in sections of the thread.
Not here: encoding the values (`values`), reading them back in their order (`reading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowpoint.agents.entry_names import Place, mark_name, names, writes_name, writes_prefix
from flowpoint.agents.envelope import Envelopes, Writes
from flowpoint.agents.kv import Entry, Kv, part
from flowpoint.agents.remembered import Writers
from flowpoint.agents.stored_index import StoredIndex
from flowpoint.errors import InternalError

_SETS_MAX: Final = 10_000


class TaskWrites:
    """The pending writes of one store."""

    def __init__(self, kv: Kv, envelopes: Envelopes, index: StoredIndex | None) -> None:
        """`index`: where nobody else writes to the store."""
        self._kv = kv
        self._envelopes = envelopes
        self._index = index
        self._known = kv.remembered

    def add(self, place: Place, writes: Writes, blobs: Sequence[Entry], *, sync: bool) -> None:
        """Store a set of writes in a place, without what earlier ones have. Its number is found here."""
        prefix = f"{writes_prefix(place, writes.id)}{part(writes.task_id)}~"
        writers = self._writers(place, part(writes.id))
        tasks = None if writers is None else writers.tasks
        if writers is not None and tasks is not None and writes.task_id not in tasks:
            writers.tasks = None  # until it is known how this ends
            data = self._envelopes.writes(writes)
            # A thread that has commits is marked; this is looked at first, as it is so for nearly all writes.
            beside = blobs if self._known.tips.get(place.thread) else self._marked(place.thread, blobs)
            self._kv.create(f"{prefix}000000", data, beside=beside, sync=sync, looked=True)
            tasks.add(writes.task_id)
            writers.tasks = tasks
        else:
            self._add_to_earlier(prefix, writes, self._marked(place.thread, blobs), sync)

    def _add_to_earlier(self, prefix: str, writes: Writes, blobs: Sequence[Entry], sync: bool) -> None:
        taken: set[int] = set()
        for number in range(_SETS_MAX):
            key = f"{prefix}{number:06d}"
            there = self._kv.get(key)
            if there is None:
                items = [item for item in writes.items if item[0] < 0 or item[0] not in taken]
                data = self._envelopes.writes(writes._replace(number=number, items=items))
                if not items:
                    # Our own, perhaps, whose answer was lost.
                    self._kv.settle([f"{prefix}{earlier:06d}" for earlier in range(number)], sync=sync)
                    return
                if self._kv.create(key, data, beside=blobs, sync=sync, looked=True):
                    return
                there = self._kv.get(key)
            if there is not None:
                taken.update(index for index, _channel, _ref in self._envelopes.read_writes(there, writes.thread).items)
        raise InternalError(f"task {writes.task_id} of thread {writes.thread!r} has {_SETS_MAX} sets of writes")

    def entry(self, writes: Writes) -> Entry:
        """The entry of writes that come from another thread or store, with the number that they had there."""
        place = Place(writes.thread, writes.ns)
        with self._known.lock:
            self._known.known(place).writers = None
        return writes_name(place, writes.id, writes.task_id, writes.number), self._envelopes.writes(writes)

    def _marked(self, thread: str, blobs: Sequence[Entry]) -> Sequence[Entry]:
        if self._index is None or not self._index.is_new(thread):
            return blobs
        return [*blobs, (mark_name(thread), b"")]

    def _writers(self, place: Place, id: str) -> Writers | None:
        """The tasks that have written for a checkpoint, if it is the newest that any have written for."""
        if self._index is None:
            return None
        known = self._known.places.get(place)
        writers = None if known is None else known.writers
        if writers is None:
            writers = self._looked_up(place, self._index)
            with self._known.lock:
                self._known.known(place).writers = writers
        if id > writers.id:
            writers.id, writers.tasks = id, set()
        return writers if id == writers.id else None

    def _looked_up(self, place: Place, index: StoredIndex) -> Writers:
        prefix = names(*place).writes
        last = None if index.is_new(place.thread) else next(self._kv.keys(prefix, reverse=True), None)
        return Writers("" if last is None else last[len(prefix) :].partition("/")[0], None)
