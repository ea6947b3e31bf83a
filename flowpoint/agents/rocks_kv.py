"""Keys and values in a local RocksDB: one process writes, others may read.

Every write is in RocksDB's log, so `kill -9` loses nothing that returned. What is not synced by itself is synced soon
after, by a thread of ours, so that a loss of power takes at most the last `FLUSH_SECONDS`.

A synced write is a write, and then a sync of the log: the binding lets other threads run during that, but not during a
write, so that nobody else waits for the disk. Whoever comes while the log is synced shares the next sync.

A database is opened once in a process, however many savers use it: its lock is the process's. RocksDB does not say who
holds a lock, so the owner's pid stands in a file beside it.

Settings: small memtables and recycled log files make a synced write cheap (a new log file changes its length with every
write, which costs a second write of the file system's own). Two memtables become one table file, so that there are
fewer to merge: threads are written all over the keys, and merging rewrites whatever overlaps.

Invariants: after a fork, the child is refused. The binding raises bare `Exception`; here these become StorageError.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final
from weakref import WeakSet

import rocksdict

from flowpoint.agents.holders import Holders, LocalHolders
from flowpoint.agents.kinds import is_rocks, require_rocks_or_none
from flowpoint.agents.kv import Entry, Part, Section, after
from flowpoint.agents.remembered import Remembered
from flowpoint.errors import DamagedStoreError, StorageError, StoreInUseError, UsageError

FLUSH_SECONDS: Final = 0.2
"""A sync of the log costs the disk some work: more often would take more than it saves."""

_OWNER: Final = "flowpoint-owner"
_MEMTABLE_BYTES: Final = 4 << 20
_MEMTABLES_MERGED: Final = 2
_MEMTABLES_MAX: Final = 4
_BLOCK_CACHE_BYTES: Final = 32 << 20
_BLOOM_BITS: Final = 10
_RECYCLED_LOGS: Final = 4
_STRIPES: Final = 256

_open_lock = threading.Lock()
_open: dict[str, _Database] = {}
"""The databases that this process has open for writing. The lock on each is the process's, so the list must be, too."""


class RocksKv:
    """One user's handle of a database in a folder."""

    indexed = True

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, statistics: bool = False) -> None:
        """`read_only`: beside whoever writes; what they have written until then is seen by each section.

        Raises:
            StoreInUseError: another process has it open for writing.
            StorageError: it cannot be opened.
            UsageError: there is no store, and it is to be read; or it is one of another kind.
        """
        self._path = os.path.realpath(path)
        self._read_only = read_only
        self._closed = False
        self._db = _Database(self._path, True) if read_only else _shared(self._path, statistics)
        self.remembered = self._db.remembered
        self.holders: Holders = self._db.holders

    @property
    def read_only(self) -> bool:
        """Whether writing is refused."""
        return self._read_only

    def get(self, key: str) -> bytes | None:
        """See `Kv`."""
        db = self._db.opened()
        try:
            value: bytes | None = db.get(key.encode())
        except Exception as error:
            raise self._db.failed("read", error) from error
        return value

    def has(self, key: str) -> bool:
        """See `Kv`."""
        db = self._db.opened()
        try:
            return key.encode() in db
        except Exception as error:
            raise self._db.failed("read", error) from error

    def scan(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[Entry]:
        """See `Kv`. Entries as they are now: later writes are not seen."""
        at, end = _range(prefix, start, reverse)
        for key, value in self._items("items", at, reverse):
            if not key.startswith(end):
                return
            yield self._text(key), value
        self._db.opened()  # what was cut off by closing the store did not come to its end

    def keys(self, prefix: str, *, start: str = "", reverse: bool = False) -> Iterator[str]:
        """See `Kv`."""
        at, end = _range(prefix, start, reverse)
        for key in self._items("keys", at, reverse):
            if not key.startswith(end):
                return
            yield self._text(key)
        self._db.opened()

    def _text(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise DamagedStoreError(f"cannot read {self._path}: it has an entry {key!r}; restore the store") from error

    def _items(self, what: str, at: bytes, reverse: bool) -> Iterator[Any]:
        found = self._found(what, at, reverse)
        self._db.scans.add(found)
        return found

    def _found(self, what: str, at: bytes, reverse: bool) -> Generator[Any]:
        db = self._db.opened()
        try:
            # In reverse RocksDB starts at the key itself, which is above the range.
            found = getattr(db, what)(backwards=reverse, from_key=at)
            for item in found:
                if reverse and (item if what == "keys" else item[0]) >= at:
                    continue
                yield item
        except (StorageError, UsageError):
            raise
        except Exception as error:
            raise self._db.failed("read", error) from error

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
        """See `Kv`. To be called in a section of the key's thread: that is what makes it exclusive."""
        if not looked and self.has(key):
            return False
        db = self._writing() if self._read_only else self._db
        if beside or gone:
            db.write([*beside, (key, value)], gone, sync)
        else:
            db.put(key, value, sync)
        return True

    def write(self, puts: Iterable[Entry], deletes: Iterable[str] = (), *, sync: bool = True) -> None:
        """See `Kv`."""
        self._writing().write(puts, deletes, sync)

    def settle(self, keys: Iterable[str], *, sync: bool) -> None:
        """See `Kv`: what is written later is later in the log."""
        if sync:
            self._writing().settle()

    def _writing(self) -> _Database:
        if self._read_only:
            raise UsageError(f"cannot write to {self._path}: it was opened read-only; open it for writing")
        return self._db

    def changed(self, prefix: str) -> Hashable:
        """See `Kv`: not told."""
        return None

    def section(self, thread: Part, kind: Section) -> AbstractContextManager[None]:
        """See `Kv`. Reading takes no lock: a removal is one batch, and what a scan sees does not change."""
        if kind is not Section.READ:
            stripes = self._db.stripes
            return stripes[hash(thread) % len(stripes)]
        if self._read_only:
            self._db.catch_up()
        return nullcontext()

    def compact(self) -> None:
        """Write everything to table files and merge them: for measuring, and after a large removal."""
        self._db.compact()

    def statistics(self) -> str:
        """RocksDB's own counters, if it was opened with them."""
        return self._db.options.get_statistics() or ""

    def close(self) -> None:
        """See `Kv`. The database is closed with its last handle."""
        with _open_lock:
            if not self._closed:
                self._closed = True
                self._db.release()


class _Database:
    """An open RocksDB, shared by the handles of one process."""

    def __init__(self, path: str, read_only: bool, statistics: bool = False) -> None:
        self._path = path
        self._pid = os.getpid()
        self._users = 1
        self.scans: WeakSet[Generator[Any]] = WeakSet()
        """Those that nobody has read to the end, such as those in the traceback of an error that somebody keeps: RocksDB
        stays open as long as one of its iterators is there."""
        self.remembered = Remembered()
        self.holders = LocalHolders()
        self._secondary = tempfile.mkdtemp(prefix="flowpoint-reader-") if read_only else None
        self.stripes: list[AbstractContextManager[Any]] = [threading.RLock() for _ in range(_STRIPES)]
        """Locks of threads of graphs, some threads to a lock."""
        self._writes = itertools.count(1)
        self._durable = 0
        """Up to which of the `_writes` all are."""
        self._syncing = threading.Lock()
        self.options = _options(read_only)
        if statistics:
            self.options.enable_statistics()
        self._db: rocksdict.Rdict | None = self._open()
        self._is_unsynced = False
        """Whether something was written that is to be synced soon."""
        self._dirty, self._ended = threading.Event(), threading.Event()
        """Wake the thread that does it."""
        self._flusher: threading.Thread | None = None

    def _open(self) -> rocksdict.Rdict:
        require_rocks_or_none(self._path)
        if self._secondary is not None:
            if not is_rocks(self._path):
                raise UsageError(f"cannot open {self._path}: there is no store of threads; check the path")
            access = rocksdict.AccessType.secondary(self._secondary)
        else:
            try:
                os.makedirs(self._path, mode=0o700, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"cannot make the folder {self._path}: {error.strerror}; give the path of a folder, or of one that "
                    "can be made"
                ) from error
            access = rocksdict.AccessType.read_write()
        try:
            db = rocksdict.Rdict(self._path, self.options, access_type=access)
        except Exception as error:
            raise self._refused(error) from error
        if self._secondary is None:
            with open(os.path.join(self._path, _OWNER), "w") as file:
                file.write(str(self._pid))
        return db

    def _refused(self, error: Exception) -> Exception:
        if "lock" not in str(error).lower():
            return self.failed("open", error)
        owner = "another process"
        with suppress(OSError, ValueError), open(os.path.join(self._path, _OWNER)) as file:
            owner = f"process {int(file.read())}"
        return StoreInUseError(
            f"cannot open {self._path}: {owner} has it open, and only one may write to it; close it there, open it "
            "with read_only=True, or use a FolderSaver, which many processes can share"
        )

    def opened(self) -> rocksdict.Rdict:
        """The database, for its own process and as long as it is open."""
        if os.getpid() != self._pid:
            raise UsageError(
                f"cannot use the saver of {self._path} in process {os.getpid()}: it was opened by process "
                f"{self._pid} before a fork; open one after the fork, or use a FolderSaver"
            )
        if self._db is None:
            raise UsageError(f"cannot use the saver of {self._path}: it is closed")
        return self._db

    def write(self, puts: Iterable[Entry], deletes: Iterable[str], sync: bool) -> None:
        """Write one batch."""
        db = self.opened()
        batch = rocksdict.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in puts:
            put(key.encode(), value)
        for key in deletes:
            batch.delete(key.encode())
        try:
            db.write(batch)
        except Exception as error:
            raise self._unknown(error) from error
        if sync or not self._is_unsynced:
            self._written(sync)

    def put(self, key: str, value: bytes, sync: bool) -> None:
        """Write one entry: what a batch of one does, without the batch."""
        try:
            self.opened().put(key.encode(), value)
        except (StorageError, UsageError):
            raise
        except Exception as error:
            raise self._unknown(error) from error
        if sync or not self._is_unsynced:
            self._written(sync)

    def _written(self, sync: bool) -> None:
        if sync:
            self.settle()
        else:
            self._flush_soon()

    def settle(self) -> None:
        """Make what was written until now durable."""
        try:
            self._sync(next(self._writes))
        except Exception as error:
            raise self._unknown(error) from error

    def catch_up(self) -> None:
        """See what the writer has written."""
        try:
            self.opened().try_catch_up_with_primary()
        except Exception as error:
            raise self.failed("read", error) from error

    def compact(self) -> None:
        """See `RocksKv`."""
        db = self.opened()
        db.flush()
        options = rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(rocksdict.BottommostLevelCompaction.force())
        db.compact_range(None, None, options)

    def _flush_soon(self) -> None:
        self._is_unsynced = True
        self._dirty.set()
        if self._flusher is None:
            self._flusher = threading.Thread(target=self._flush, name="flowpoint-flush", daemon=True)
            self._flusher.start()

    def _flush(self) -> None:
        """Sync what was written without, until the database is closed."""
        while not self._ended.is_set():
            self._dirty.wait()
            self._ended.wait(FLUSH_SECONDS)
            self._sync_rest()

    def _sync_rest(self) -> None:
        if self._is_unsynced:
            self._dirty.clear()
            self._is_unsynced = False
            # A failure is no news here: RocksDB refuses every later write, and the close, and their callers are told.
            with suppress(Exception):
                self._sync(next(self._writes))

    def _sync(self, write: int) -> None:
        """Make a write durable, by its number, with all that were made before it."""
        with self._syncing:
            if self._durable >= write or self._db is None:
                return
            newest = next(self._writes)
            self._db.flush_wal(True)
            self._durable = newest

    def release(self) -> None:
        """A handle is closed."""
        self._users -= 1
        if self._users or self._db is None or os.getpid() != self._pid:
            return
        if self._secondary is None:
            _open.pop(self._path, None)
        self._ended.set()
        if self._secondary is None:
            self._sync_rest()
        self._dirty.set()
        if self._flusher is not None:
            self._flusher.join()
        try:
            with self._syncing:  # the binding cannot close a database that a thread is just syncing
                db, self._db = self._db, None
                for scan in list(self.scans):
                    scan.close()
                db.close()
        except Exception as error:
            raise self.failed("close", error) from error
        finally:
            if self._secondary is not None:
                shutil.rmtree(self._secondary, ignore_errors=True)

    @property
    def is_ours(self) -> bool:
        """Whether this process has opened it, not one that forked this."""
        return self._pid == os.getpid()

    def add_user(self) -> None:
        """One more handle."""
        self._users += 1

    def _unknown(self, error: Exception) -> StorageError:
        """What to raise for a write that failed: whether it is there, nobody can tell without a look."""
        self.remembered.forget()
        return self.failed("write", error)

    def failed(self, what: str, error: Exception) -> StorageError:
        """What to raise for an exception of the binding."""
        return StorageError(f"cannot {what} {self._path}: {error}; check the disk's free space and permissions")


def _shared(path: str, statistics: bool) -> _Database:
    with _open_lock:
        there = _open.get(path)
        if there is not None and there.is_ours:
            there.add_user()
            return there
        _open[path] = opened = _Database(path, False, statistics)
        return opened


def _range(prefix: str, start: str, reverse: bool) -> tuple[bytes, bytes]:
    """Where to start, and what every key of the range starts with."""
    at = start or (after(prefix) if reverse else prefix)
    return at.encode(), prefix.encode()


def _options(read_only: bool) -> rocksdict.Options:
    blocks = rocksdict.BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(rocksdict.Cache(_BLOCK_CACHE_BYTES))
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(not read_only)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_min_write_buffer_number_to_merge(_MEMTABLES_MERGED)
    options.set_max_write_buffer_number(_MEMTABLES_MAX)
    options.set_recycle_log_file_num(_RECYCLED_LOGS)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_bottommost_compression_type(rocksdict.DBCompressionType.zstd())
    options.set_keep_log_file_num(2)
    options.set_block_based_table_factory(blocks)
    if read_only:
        options.set_max_open_files(-1)
    return options
