"""State that still lies in the files it was restored from: read as it is asked for, and moved over beside the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.codec.values import Codec
from flowpoint.errors import SnapshotError
from flowpoint.model.manifest import StateFile
from flowpoint.model.settings import StateSettings
from flowpoint.state.heap import HeapBackend
from flowpoint.state.spec import ABSENT, StateSpec

MAX = 16
VALUE = StateSpec("counts", "value")
EVERY_GROUP = (0, MAX - 1)
MANY = 5000


class Stored:
    """A file that notes what is read of it. `damage` spoils its bytes from an offset on."""

    def __init__(self, name: str, kind: str, data: bytes, seal: str) -> None:
        self.file = StateFile(name, kind, len(data), "", 0, EVERY_GROUP, {"seal": seal})
        self.data = data
        self.read = 0

    def __call__(self, offset: int, size: int) -> bytes:
        self.read += size
        return self.data[offset : offset + size]

    def damage(self, at: int) -> None:
        self.data = self.data[:at] + bytes([self.data[at] ^ 1]) + self.data[at + 1 :]


def backend() -> HeapBackend:
    return HeapBackend(Codec(), MAX, StateSettings("heap", cache_bytes=1 << 20), operator="op")


def stored(name: str, values: dict[Any, Any], deleted: tuple[Any, ...] = ()) -> Stored:
    made = backend()
    table = made.table(VALUE)
    for key, value in values.items():
        table.put(key, value)
    for key in deleted:
        table.delete(key)
    # A base would not have the deletions.
    frozen = made.freeze_detached() if deleted else made.freeze()
    data = b"".join(frozen.chunks())
    return Stored(name, "base" if not deleted else "delta", data, frozen.seal)


def restored(*files: Stored, done: Callable[[], None] = lambda: None) -> HeapBackend:
    made = backend()
    made.restore([(one.file, one) for one in files], EVERY_GROUP, done)
    return made


def move(job: HeapBackend) -> None:
    while job.merge_some():
        pass


def test_a_restore_reads_no_entry() -> None:
    base = stored("base", dict.fromkeys(range(MANY), "x" * 100))

    restored(base)

    assert base.read < len(base.data) / 10


def test_one_key_costs_one_block() -> None:
    base = stored("base", dict.fromkeys(range(MANY), "x" * 100))
    table = restored(base).table(VALUE)
    before = base.read

    assert table.load(7, None) == "x" * 100

    assert 0 < base.read - before < 64 << 10


def test_a_new_key_costs_no_block() -> None:
    base = stored("base", {n: n for n in range(MANY)})
    table = restored(base).table(VALUE)
    before = base.read

    assert table.load("new", None) is None

    assert base.read == before


def test_a_newer_file_is_right_also_about_what_was_deleted() -> None:
    base = stored("base", dict.fromkeys(range(100), "old"))
    delta = stored("delta", {1: "new"}, deleted=(2,))
    job = restored(base, delta)
    table = job.table(VALUE)

    expected = {n: "old" for n in range(100) if n not in (1, 2)} | {1: "new"}
    assert [table.get(n) for n in (0, 1, 2)] == ["old", "new", ABSENT]
    assert dict(table.items()) == expected
    move(job)
    assert dict(table.items()) == expected


def test_what_was_deleted_since_does_not_come_back_when_the_rest_moves_over() -> None:
    job = restored(stored("base", {n: n for n in range(MANY)}))
    table = job.table(VALUE)
    for key in range(0, MANY, 2):
        table.delete(key)
    list(job.freeze().chunks())
    frozen = job.freeze(full=True)
    list(frozen.chunks())
    frozen.durable()

    move(job)

    assert {key for key, _ in table.items()} == set(range(1, MANY, 2))


def test_what_was_written_since_is_not_overwritten_by_what_moves_over() -> None:
    job = restored(stored("base", dict.fromkeys(range(MANY), "old")))
    table = job.table(VALUE)
    job.merge_some()
    for key in range(MANY):
        table.put(key, "new")
    frozen = job.freeze()
    list(frozen.chunks())
    frozen.durable()

    move(job)

    assert {value for _, value in table.items()} == {"new"}


def test_a_value_that_is_read_and_changed_without_being_put_back_changes_no_file() -> None:
    base = stored("base", {"a": [1]})

    restored(base).table(VALUE).load("a", None).append(2)

    assert restored(base).table(VALUE).load("a", None) == [1]


def test_a_base_written_meanwhile_has_what_has_not_moved_yet() -> None:
    job = restored(stored("base", {n: n for n in range(MANY)}))
    job.merge_some()
    job.table(VALUE).put(1, "new")
    job.table(VALUE).delete(2)

    frozen = job.freeze(full=True)
    data = b"".join(frozen.chunks())

    again = restored(Stored("next", "base", data, frozen.seal))
    assert dict(again.table(VALUE).items()) == {n: n for n in range(MANY) if n != 2} | {1: "new"}


def test_files_are_let_go_of_when_everything_has_moved() -> None:
    said: list[str] = []
    job = restored(stored("base", {n: n for n in range(MANY)}), done=lambda: said.append("done"))

    assert said == []
    move(job)
    assert said == ["done"]
    job.close()
    assert said == ["done"]


def test_files_are_let_go_of_when_the_backend_is_closed() -> None:
    said: list[str] = []
    job = restored(stored("base", {n: n for n in range(MANY)}), done=lambda: said.append("done"))

    job.close()

    assert said == ["done"]


def test_a_damaged_block_is_found_by_whoever_needs_it_and_named() -> None:
    base = stored("shared/x.base", dict.fromkeys(range(MANY), "x" * 100))
    job = restored(base)
    base.damage(100)

    with pytest.raises(SnapshotError, match=r"shared/x\.base.* the block at byte 12 does not match its checksum"):
        move(job)


def test_a_file_that_is_not_the_one_the_manifest_names_is_refused() -> None:
    other = stored("base", {1: "other"})
    mine = stored("base", {1: "mine!"})
    other.file = mine.file

    with pytest.raises(SnapshotError, match="its index is not the one that the manifest names"):
        restored(other)


def test_it_is_said_until_the_last_block_has_been_read_that_state_is_unread() -> None:
    made = restored(stored("1.base", {n: n for n in range(MANY)}))
    table = made.table(VALUE)

    assert table.get(7) == 7
    assert made.is_unread

    while made.merge_some():
        assert made.is_unread
    assert not made.is_unread
