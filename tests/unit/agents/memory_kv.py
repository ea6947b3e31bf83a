"""Keys and values in memory: stores whose every entry a test can see and bend."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flowpoint.agents import rocks
from flowpoint.agents.holders import Holders, LocalHolders
from flowpoint.agents.kv import Entry, Part, Section, after
from flowpoint.agents.opening import core_on
from flowpoint.agents.remembered import Remembered
from flowpoint.agents.saver import CoreSaver


class MemoryKv:
    """Keys and values in memory, with an index beside the logs."""

    indexed = True

    def __init__(self) -> None:
        self.remembered = Remembered()
        self.holders: Holders = LocalHolders()
        self._values: dict[str, bytes] = {}
        self._order: list[str] = []

    def get(self, key: str) -> bytes | None:
        """See `Kv`."""
        return self._values.get(key)

    def has(self, key: str) -> bool:
        """See `Kv`."""
        return key in self._values

    def scan(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[Entry]:
        """See `Kv`."""
        for key in self.keys(prefix, start=start, reverse=reverse):
            value = self._values.get(key)
            if value is not None:
                yield key, value

    def keys(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[str]:
        """See `Kv`."""
        low = bisect_left(self._order, prefix)
        high = bisect_left(self._order, after(prefix)) if prefix else len(self._order)
        if reverse:
            return iter(self._order[low : bisect_left(self._order, start, hi=high) if start else high][::-1])
        return iter(self._order[bisect_left(self._order, start, lo=low, hi=high) : high])

    def changed(self, prefix: str) -> Hashable:
        """See `Kv`."""
        return tuple(self.keys(prefix))

    def create(
        self,
        key: str,
        value: bytes,
        *,
        beside: Sequence[Entry] = (),
        gone: Sequence[str] = (),
        sync: bool = True,
        looked: bool = False,
    ) -> bool:
        """See `Kv`."""
        if key in self._values:
            return False
        self.write([*beside, (key, value)], gone, sync=sync)
        return True

    def write(self, puts: Iterable[Entry], deletes: Iterable[str] = (), *, sync: bool = True) -> None:
        """See `Kv`."""
        for key, value in puts:
            if key not in self._values:
                insort(self._order, key)
            self._values[key] = value
        for key in deletes:
            if self._values.pop(key, None) is not None:
                del self._order[bisect_left(self._order, key)]

    def settle(self, keys: Iterable[str], *, sync: bool) -> None:
        """See `Kv`."""

    def section(self, thread: Part, kind: Section) -> AbstractContextManager[None]:
        """See `Kv`. One thread of execution at a time is the caller's duty."""
        return nullcontext()

    def close(self) -> None:
        """See `Kv`."""


class LogOnly(MemoryKv):
    """As a folder is: no batches, so the log has to be replayed."""

    indexed = False


def saver_on(kv: MemoryKv, keys: Any = None) -> CoreSaver:
    """A saver on a store."""
    return CoreSaver(core_on(kv, rocks.SIZES, alone=False, keys=keys))
