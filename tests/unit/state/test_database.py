"""The local RocksDB of a backend: nothing but an extension of memory."""

from __future__ import annotations

from pathlib import Path

import rocksdict

from flowpoint.state.database import Database


def leave_behind(path: Path) -> None:
    """What a process leaves that was killed after its database had flushed."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(path), options)
    database[b"key"] = b"value"
    database.flush()
    database.close()


def test_what_an_earlier_attempt_left_behind_is_not_read(tmp_path: Path) -> None:
    leave_behind(tmp_path / "rocksdb")
    database = Database(str(tmp_path / "rocksdb"))

    database.write([(b"other", b"1")])

    assert database.get(b"key") is None
    assert list(database.scan(b"")) == [(b"other", b"1")]
    database.close()


def test_closing_leaves_no_data(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "rocksdb"))
    database.write([(b"key", b"1")])

    database.close()
    database.close()

    assert not list(tmp_path.rglob("*.sst"))
    assert database.get(b"key") is None
