"""The local RocksDB of one backend: opened when first needed, thrown away with the attempt.

It only extends memory. Its write-ahead log is off, and no recovery starts from it: whatever an earlier attempt left
in its folder is destroyed before opening.

The binding raises bare `Exception`; here, and only here, these become StorageError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

import rocksdict

from flowpoint.errors import StorageError

_BLOCK_CACHE_BYTES: Final = 8 << 20
_MEMTABLE_BYTES: Final = 16 << 20
_BLOOM_BITS: Final = 10


class LocalDatabase(Protocol):
    """Sorted bytes to bytes, on this machine, for as long as one attempt."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key.

        Raises:
            StorageError: it cannot be read.
        """

    def write(self, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put these entries; None deletes. Holds the interpreter for about 1 us an entry.

        Raises:
            StorageError: they cannot be written.
        """

    def scan(self, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """Entries from `start` on, in order, as they are now: later writes are not seen. Closing ends it.

        Raises:
            StorageError: they cannot be read.
        """

    def close(self) -> None:
        """Close and remove. Idempotent."""


OpenDatabase: TypeAlias = Callable[[str], LocalDatabase]
"""Makes the database of a folder, which need not exist."""


class Database:
    """`LocalDatabase` in RocksDB."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._db: rocksdict.Rdict | None = None
        self._writing = rocksdict.WriteOptions()
        self._writing.disable_wal = True  # type: ignore[method-assign, assignment]  # the binding's stub is wrong here
        # An open iterator keeps RocksDB open, so that it could not be removed.
        self._scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()

    def get(self, key: bytes) -> bytes | None:
        """See `LocalDatabase`."""
        if self._db is None:
            return None
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._failed("read", error) from error
        return value

    def write(self, entries: Sequence[tuple[bytes, bytes | None]]) -> None:
        """See `LocalDatabase`."""
        try:
            db = self._opened()
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in entries:
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            db.write(batch, self._writing)
        except Exception as error:
            raise self._failed("write", error) from error

    def scan(self, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        """See `LocalDatabase`."""
        scan = self._scan(start)
        self._scans.add(scan)
        return scan

    def _scan(self, start: bytes) -> Generator[tuple[bytes, bytes], None, None]:
        if self._db is None:
            return
        try:
            yield from self._db.items(from_key=start)
        except Exception as error:
            raise self._failed("read", error) from error

    def close(self) -> None:
        """See `LocalDatabase`."""
        db, self._db = self._db, None
        if db is None:
            return
        for scan in list(self._scans):
            scan.close()
        try:
            db.close()
            rocksdict.Rdict.destroy(self._path)
        except Exception as error:
            raise self._failed("remove", error) from error

    def _opened(self) -> rocksdict.Rdict:
        if self._db is None:
            if Path(self._path).exists():
                rocksdict.Rdict.destroy(self._path)
            self._db = rocksdict.Rdict(self._path, _options())
        return self._db

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(
            f"cannot {what} the local state database in {self._path}: {error}; "
            f"check the disk's free space and permissions"
        )


def _options() -> rocksdict.Options:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(rocksdict.Cache(_BLOCK_CACHE_BYTES))
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_error_if_exists(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_block_based_table_factory(blocks)
    return options
