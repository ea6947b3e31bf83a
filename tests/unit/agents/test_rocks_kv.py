"""What only the store on RocksDB has to promise: it belongs to one process, which can close it and open it again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowpoint.agents.rocks_kv import RocksKv
from flowpoint.errors import StorageError, UsageError


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("walk", ["scan", "keys"])
def test_a_store_can_be_opened_again_while_somebody_keeps_a_walk_through_it_and_that_one_does_not_end_as_if_whole(
    tmp_path: Path, walk: str, *, reverse: bool
) -> None:
    kv = RocksKv(tmp_path)
    kv.write([(f"t/{n}", b"") for n in range(3)])
    kept = getattr(kv, walk)("t/", reverse=reverse)
    next(kept)

    kv.close()
    RocksKv(tmp_path).close()

    with pytest.raises(UsageError, match="it is closed"):
        next(kept)


class CountedLock:
    """A lock that tells how many have come for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came = threading.Condition()
        self._count = 0

    def __enter__(self) -> None:
        with self._came:
            self._count += 1
            self._came.notify_all()
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()

    def wait_for(self, count: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: self._count >= count, timeout=20)


def test_writes_that_wait_while_the_log_is_synced_share_the_next_sync(tmp_path: Path) -> None:
    kv = RocksKv(tmp_path)
    database, lock = kv._db, CountedLock()
    synced: list[int] = []
    real = database.opened()

    class Slow:
        """The database, whose log takes until everybody has written."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def flush_wal(self, sync: bool) -> None:
            if not synced:
                lock.wait_for(4)
            synced.append(sync)
            real.flush_wal(sync)

    database._syncing, database._db = lock, Slow()  # type: ignore[assignment]
    with ThreadPoolExecutor(4) as pool:
        for key in "abcd":
            pool.submit(kv.write, [(key, b"1")])
    assert synced == [True, True], "one for the first, and one for the three that came meanwhile"
    database._db = real
    kv.close()


def test_a_synced_write_that_cannot_be_synced_is_refused(tmp_path: Path) -> None:
    kv = RocksKv(tmp_path)
    real = kv._db.opened()

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def flush_wal(self, sync: bool) -> None:
            raise Exception("IO error: no space left")

    kv._db._db = Failing()  # type: ignore[assignment]
    with pytest.raises(StorageError, match="cannot write .*no space left; check the disk"):
        kv.write([("a", b"1")])
    kv._db._db = real
    kv.close()
