"""Timers of one keyed operator in one subtask: set, deleted, fired in order, and part of the state.

Each timer is an entry of the map table `__timers__`: key -> (domain, timestamp). A heap per domain finds those that are
due; it is rebuilt from the table after a restore. Timers that are not due cost nothing.

Invariants: the table and the pending timers say the same. A timer is known by (key, domain, timestamp): set twice, it
fires once. Due timers come in the order of (timestamp, canonical key bytes), whatever the order in which they were set.

Not here: what time it is, and the call of `on_timer` (the runtime).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, Final

from flowpoint.codec.keys import canonical
from flowpoint.errors import UserCodeError
from flowpoint.state.backend import Backend
from flowpoint.state.handles import NO_KEY, KeyCell
from flowpoint.state.spec import StateSpec

EVENT: Final = "event"
PROCESSING: Final = "processing"
TIMERS: Final = StateSpec("__timers__", "map")

_GARBAGE_MIN: Final = 1024


class _Domain:
    """The pending timers of one kind of time."""

    __slots__ = ("heap", "pending")

    def __init__(self) -> None:
        self.pending: set[tuple[int, bytes]] = set()
        # What was deleted stays in the heap until it comes up.
        self.heap: list[tuple[int, bytes, Any]] = []

    def add(self, timestamp: int, data: bytes, key: Any) -> bool:
        """False when it is pending already."""
        if (timestamp, data) in self.pending:
            return False
        self.pending.add((timestamp, data))
        heapq.heappush(self.heap, (timestamp, data, _Key(key)))
        return True

    def remove(self, timestamp: int, data: bytes) -> bool:
        """False when it is not pending."""
        if (timestamp, data) not in self.pending:
            return False
        self.pending.remove((timestamp, data))
        if len(self.heap) > _GARBAGE_MIN + 2 * len(self.pending):
            self.heap = list({entry[:2]: entry for entry in self.heap if entry[:2] in self.pending}.values())
            heapq.heapify(self.heap)
        return True

    def first(self) -> tuple[int, bytes, Any] | None:
        """The earliest pending timer."""
        while self.heap and self.heap[0][:2] not in self.pending:
            heapq.heappop(self.heap)
        return self.heap[0] if self.heap else None


class _Key:
    """A key in a heap entry: two entries of one timer must be comparable, and keys need not be."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Key) -> bool:
        return False


class TimerService:
    """Timers of the key in `cell`; made after the backend was restored. Timestamps are epoch milliseconds."""

    def __init__(self, backend: Backend, cell: KeyCell) -> None:
        self._cell = cell
        self._table = backend.map_table(TIMERS)
        self._domains = {EVENT: _Domain(), PROCESSING: _Domain()}
        for key, (domain, timestamp), _ in self._table.all_items():
            self._domains[domain].add(timestamp, canonical(key), key)

    def event(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once the watermark has reached `timestamp`."""
        self._set(EVENT, timestamp)

    def processing(self, timestamp: int) -> None:
        """Call `on_timer` for the current key once the clock has reached `timestamp`."""
        self._set(PROCESSING, timestamp)

    def delete_event(self, timestamp: int) -> None:
        """Take an event-time timer of the current key back; nothing happens when there is none."""
        self._delete(EVENT, timestamp)

    def delete_processing(self, timestamp: int) -> None:
        """Take a processing-time timer of the current key back; nothing happens when there is none."""
        self._delete(PROCESSING, timestamp)

    def _set(self, domain: str, timestamp: int) -> None:
        key = self._key(timestamp)
        if self._domains[domain].add(timestamp, canonical(key), key):
            self._table.put(key, (domain, timestamp), True)

    def _delete(self, domain: str, timestamp: int) -> None:
        key = self._key(timestamp)
        if self._domains[domain].remove(timestamp, canonical(key)):
            self._table.delete(key, (domain, timestamp))

    def _key(self, timestamp: int) -> Any:
        if self._cell.key is NO_KEY:
            raise UserCodeError(
                "timers were used outside a keyed call, so they have no key; "
                "use them only inside process() and on_timer()"
            )
        if type(timestamp) is not int:
            raise UserCodeError(
                f"cannot set a timer at {timestamp!r}: a timestamp is an int, epoch milliseconds; use int(...)"
            )
        return self._cell.key

    # ------------------------------------------------------------------ for the runtime

    def next_due(self, domain: str) -> int | None:
        """The timestamp of the earliest timer, or None when there is none."""
        first = self._domains[domain].first()
        return None if first is None else first[0]

    def pop_due(self, domain: str, now: int | None) -> Iterator[tuple[Any, int]]:
        """Take (key, timestamp) of timers with timestamp <= now (None: all), earliest first.

        Each is gone once it comes out. Timers set in between come out as well when they are due.
        """
        timers = self._domains[domain]
        while (first := timers.first()) is not None and (now is None or first[0] <= now):
            timestamp, data, held = first
            heapq.heappop(timers.heap)
            timers.pending.discard((timestamp, data))
            self._table.delete(held.key, (domain, timestamp))
            yield held.key, timestamp

    def __len__(self) -> int:
        """How many timers are pending."""
        return sum(len(domain.pending) for domain in self._domains.values())
