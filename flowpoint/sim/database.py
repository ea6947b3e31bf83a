"""`state.database.LocalDatabase` in a simulated world: a dict. It ends with its process, as nothing starts from one.

So the code that keeps state in a database below a cache, and moves restored state into it, runs under every fault.
RocksDB itself is proved by the conformance suite, and by the stress loop on the real disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

EVICTED = "state left memory for the database"


class SimDatabase:
    """Sorted bytes to bytes."""

    def __init__(self, mark: Callable[[str], None]) -> None:
        """`mark` is told what a campaign wants to have seen."""
        self._mark = mark
        self._entries: dict[bytes, bytes] = {}
        self._is_closed = False

    def get(self, key: bytes) -> bytes | None:
        """See `LocalDatabase`."""
        return self._entries.get(key)

    def write(self, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `LocalDatabase`."""
        assert not self._is_closed, "state of an attempt that is over is written"
        self._mark(EVICTED)
        for key, value in entries:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value

    def scan(self, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """See `LocalDatabase`. What is seen is as it was when the scan was asked for, not when it began."""
        found = sorted(entry for entry in self._entries.items() if entry[0] >= start)
        return (entry for entry in found)

    def close(self) -> None:
        """See `LocalDatabase`."""
        self._is_closed = True
        self._entries.clear()
