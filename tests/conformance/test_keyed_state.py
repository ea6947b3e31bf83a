"""Every state backend keeps the same promises: one suite, run on heap, on rocksdb, and on rocksdb without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowpoint.codec.keys import canonical
from flowpoint.codec.placement import group_of
from flowpoint.codec.values import Codec
from flowpoint.errors import BadRecordError, ConfigError, IncompatibleStateError, InternalError, SnapshotError
from flowpoint.model.key_groups import group_range
from flowpoint.model.manifest import StateFile
from flowpoint.model.settings import StateSettings
from flowpoint.state.backend import Backend, Frozen
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.kinds import ListState, MapState, ReducingState, ValueState
from flowpoint.state.open import open_backend
from flowpoint.state.rocksdb import RocksBase
from flowpoint.state.spec import ABSENT, TOMBSTONE, StateSpec
from flowpoint.state.tables import LayeredMapTable, LayeredTable
from tests.conformance.state_jobs import KINDS, LIST, MAP, MAX, VALUE, Job, contents

Open = Callable[[], Backend]


@pytest.fixture(params=KINDS)
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Backend] = []

    def one() -> Backend:
        folder = str(tmp_path / f"a{len(opened)}")
        opened.append(open_backend(KINDS[request.param], Codec(), MAX, folder, "words"))
        return opened[-1]

    yield one
    for backend in opened:
        backend.close()


def restored(open_one: Open, *jobs: Job, groups: tuple[int, int] = (0, MAX - 1)) -> Backend:
    backend = open_one()
    for job in jobs:
        backend.restore(job.files, groups)
    return backend


# ---------------------------------------------------------------------- reading and writing


def test_what_was_put_is_read_and_what_was_not_is_absent(open_one: Open) -> None:
    table = open_one().table(VALUE)

    table.put("a", 1)

    assert table.get("a") == 1
    assert table.get("b") is ABSENT
    assert table.load("b", 7) == 7


@pytest.mark.parametrize("key", ["", 0, None, "a\x00b", b"", (1, ("x",)), 2**70, 1.5, frozenset({1})])
@pytest.mark.parametrize("value", [None, 0, "", [], False, {"x": (1,)}])
def test_any_key_and_any_value_survive_everything(open_one: Open, key: Any, value: Any) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    table.put(key, value)

    for step in (lambda: None, job.checkpoint, job.merge, job.checkpoint, job.merge):
        step()
        assert table.get(key) == value
        assert type(table.get(key)) is type(value)
    again = restored(open_one, job)
    assert contents(again) == {key: value}
    assert [type(found) for found in contents(again)] == [type(key)]


class Reader:
    """A keyed function with a state of each kind."""

    number = ValueState("number", default=0)
    profile = ValueState("profile", default={"visits": [], "seen": set()})
    events = ListState("events")
    days = MapState("days")
    longest = ReducingState("longest", max)


READS: dict[str, Callable[[Reader], object]] = {
    "a value": lambda state: state.number.value,
    "a mutable default": lambda state: state.profile.value,
    "a list": lambda state: state.events.value,
    "the elements of a list": lambda state: (list(state.events), len(state.events), bool(state.events)),
    "a map": lambda state: (dict(state.days), len(state.days), bool(state.days), "x" in state.days),
    "one entry of a map": lambda state: state.days.get("x"),
    "what was reduced": lambda state: state.longest.value,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_a_key_that_has_no_entry_makes_none(open_one: Open, read: Callable[[Reader], object]) -> None:
    backend, cell, function = open_one(), KeyCell(), Reader()
    bind(function, backend, cell)

    for key in ("a", "b", "a"):
        cell.key = key
        read(function)
    cell.clear()

    assert backend.freeze().entries == 0


def test_a_default_that_is_changed_in_place_becomes_an_entry(open_one: Open) -> None:
    backend, cell, function = open_one(), KeyCell(), Reader()
    bind(function, backend, cell)

    for key in ("a", "b"):
        cell.key = key
        function.profile.value["seen"].add(key)
        function.events.value.append(key)
    cell.clear()

    cell.key = "b"
    assert function.profile.value == {"visits": [], "seen": {"b"}}
    assert list(function.events) == ["b"]
    assert backend.freeze().entries == 4


def test_a_default_is_what_it_was_when_the_state_was_opened(open_one: Open) -> None:
    declared = ["as declared"]

    class Notes:
        notes = ValueState("notes", default=declared)

    backend, cell, function = open_one(), KeyCell(), Notes()
    bind(function, backend, cell)
    for key, change in (("a", lambda: declared.append("more")), ("b", declared.clear)):
        change()
        cell.key = key
        assert function.notes.value == ["as declared"]
    cell.clear()

    assert backend.freeze().entries == 0


def test_none_that_was_stored_is_not_absent(open_one: Open) -> None:
    table = open_one().table(VALUE)

    table.put("a", None)

    assert table.get("a") is None
    assert table.load("a", 5) is None


@pytest.mark.parametrize("layers", range(4))
def test_a_delete_is_read_at_once_however_deep_the_value_lies(open_one: Open, layers: int) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    table.put("a", 1)
    steps: list[Callable[[], Any]] = [lambda: None, job.backend.freeze, job.checkpoint, job.merge]
    for step in steps[:1] if not layers else [steps[min(layers, 2)], *steps[3 : layers + 1]]:
        step()

    table.delete("a")

    assert table.get("a") is ABSENT
    assert table.load("a", 0) == 0
    assert contents(job.backend) == {}
    assert table.dirty["a"] is TOMBSTONE


def test_a_deleted_key_may_come_back(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    table.put("a", 1)
    job.checkpoint()
    table.delete("a")
    job.checkpoint()
    table.put("a", 2)
    job.checkpoint()
    job.merge()

    assert table.get("a") == 2
    assert contents(restored(open_one, job)) == {"a": 2}


def test_the_loop_of_generated_code_counts_right(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    for turn in range(30):
        dirty, load = table.dirty, table.load
        get = dirty.get
        for n in range(100):
            key = f"k{n % 17}"
            count = get(key)
            if count is None:
                count = load(key, 0)
            dirty[key] = count + 1
        if turn % 3 == 0:
            job.checkpoint(full=turn % 9 == 0)
        job.backend.merge_some()

    job.checkpoint()

    expected = {f"k{n}": 30 * len(range(n, 100, 17)) for n in range(17)}
    assert contents(job.backend) == expected
    assert contents(restored(open_one, job)) == expected


def test_the_same_name_gives_the_same_table_and_another_kind_is_a_bug(open_one: Open) -> None:
    backend = open_one()

    assert backend.table(VALUE) is backend.table(VALUE)
    with pytest.raises(InternalError, match="'counts' opened as map and as value"):
        backend.map_table(StateSpec("counts", "map"))


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="'memory'; it must be 'heap' or 'rocksdb'"):
        open_backend(StateSettings("memory"), Codec(), MAX, "", "words")


# ---------------------------------------------------------------------- maps


def test_map_entries_are_kept_one_by_one(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.map_table(MAP)
    table.put("k", "a", 1)
    table.put("k", "b", 2)
    table.put("other", "a", 3)
    job.checkpoint()
    job.merge()
    table.put("k", "c", 4)
    table.delete("k", "a")

    assert dict(table.items("k")) == {"b": 2, "c": 4}
    assert table.contains("k", "b")
    assert not table.contains("k", "a")
    assert not table.contains("nobody", "a")
    assert table.get("k", "a", "none") == "none"
    job.checkpoint()
    expected = {("k", "b"): 2, ("k", "c"): 4, ("other", "a"): 3}
    assert contents(job.backend, MAP) == expected
    assert contents(restored(open_one, job), MAP) == expected


def test_a_cleared_map_is_empty_and_stays_so_after_a_restore(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.map_table(MAP)
    for n in range(5):
        table.put("k", n, n)
        job.checkpoint()
    job.merge()
    table.put("k", 5, 5)
    table.put("kk", 1, 1)

    table.clear("k")

    assert list(table.items("k")) == []
    job.checkpoint()
    assert contents(restored(open_one, job), MAP) == {("kk", 1): 1}


def test_maps_are_walked_through_in_one_order_whatever_happened(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.map_table(MAP)
    for n, map_key in enumerate(["bb", "a", 300, -1, ("x", 1), "c", 2.5, None]):
        table.put("k", map_key, n)
        if n % 3 == 0:
            job.checkpoint()
            job.merge()
    job.checkpoint()

    order = [map_key for map_key, _ in table.items("k")]

    assert order == sorted(["bb", "a", 300, -1, ("x", 1), "c", 2.5, None], key=canonical)
    again = restored(open_one, job).map_table(MAP)
    assert [map_key for map_key, _ in again.items("k")] == order


def test_a_map_may_be_changed_while_it_is_walked_through(open_one: Open) -> None:
    table = open_one().map_table(MAP)
    for n in range(4):
        table.put("k", n, n)

    for map_key, _ in table.items("k"):
        table.delete("k", map_key)
        table.put("k", map_key + 10, 0)

    assert [map_key for map_key, _ in table.items("k")] == [10, 11, 12, 13]


# ---------------------------------------------------------------------- freezing


def test_what_is_written_after_a_freeze_is_not_in_its_file(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    table.put("a", 1)
    frozen = job.backend.freeze()
    table.put("a", 2)
    table.put("b", 3)

    job.write(frozen)

    assert contents(restored(open_one, job)) == {"a": 1}
    assert contents(job.backend) == {"a": 2, "b": 3}


@pytest.mark.parametrize("full", [False, True])
def test_a_value_changed_in_place_after_a_freeze_is_not_in_its_file(open_one: Open, full: bool) -> None:
    job = Job(open_one())
    values, days = job.backend.table(LIST), job.backend.map_table(MAP)
    for name in ("in a layer", "in the base"):
        values.put(name, [1])
        days.put(name, "d", [1])
        if name == "in the base":
            job.checkpoint()
            job.merge()
            values.put("in a layer", values.load("in a layer", None))
    frozen = job.backend.freeze(full=full)
    chunks = frozen.chunks()
    next(chunks)

    for name in ("in a layer", "in the base"):
        for change in (values.load(name, None), days.get(name, "d"), dict(days.items(name))["d"]):
            change.append(2)
        values.put(name, values.load(name, None))
        days.put(name, "d", days.get(name, "d"))
    job.write(frozen)

    again = restored(open_one, job)
    assert contents(again, LIST) == {"in a layer": [1], "in the base": [1]}
    assert set(map(str, contents(again, MAP).values())) == {"[1]"}


def test_a_delta_holds_only_what_changed(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    for n in range(1000):
        table.put(n, n)
    job.checkpoint()
    table.put(5, "changed")

    job.checkpoint()

    assert [file.entries for file, _ in job.files] == [1000, 1]
    assert contents(restored(open_one, job))[5] == "changed"


def test_nothing_changed_needs_no_file(open_one: Open) -> None:
    job = Job(open_one())
    job.checkpoint()
    assert job.files == ()

    job.backend.table(VALUE).put("a", 1)
    job.checkpoint()
    job.checkpoint()

    assert len(job.files) == 1


@pytest.mark.parametrize("full", [False, True])
def test_the_entries_of_a_failed_write_go_into_the_next_file(open_one: Open, full: bool) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    table.put("base", 0)
    job.checkpoint()
    table.put("a", 1)
    first = job.backend.freeze(full=full)
    table.put("b", 2)
    table.delete("base")
    second = job.backend.freeze()
    list(first.chunks())

    first.failed()
    job.write(second)

    assert contents(restored(open_one, job)) == {"a": 1, "b": 2}


def test_a_base_that_failed_is_asked_for_again(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)
    job.checkpoint()
    job.backend.freeze(full=True).failed()

    frozen = job.backend.freeze()

    assert frozen.full
    job.write(frozen)
    assert contents(restored(open_one, job)) == {"a": 1}


def test_a_base_leaves_deleted_entries_out(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    for n in range(10):
        table.put(n, n)
    job.checkpoint()
    for n in range(9):
        table.delete(n)

    job.checkpoint(full=True)

    assert [(file.kind, file.entries) for file, _ in job.files] == [("base", 1)]
    assert contents(restored(open_one, job)) == {9: 9}


def test_reading_and_writing_go_on_while_a_base_is_written(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    expected = {n: n for n in range(5000)}
    for n in expected:
        table.put(n, n)
    job.checkpoint()
    job.merge()
    frozen = job.backend.freeze(full=True)

    data = []
    for turn, chunk in enumerate(frozen.chunks()):
        data.append(chunk)
        table.put(turn, "later")
        table.delete(4999 - turn)
        job.backend.merge_some()
        assert table.get(2500) == 2500
    file = StateFile("b", "base", sum(map(len, data)), "", frozen.entries, (0, MAX - 1))
    frozen.durable()
    job.merge()

    again = open_one()
    again.restore([(file, b"".join(data))], (0, MAX - 1))
    assert contents(again) == expected


def test_slices_are_small_and_can_be_made_again(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    for n in range(3000):
        table.put(n, "x" * 1000)
    frozen = job.backend.freeze()

    first, second = list(frozen.chunks()), list(frozen.chunks())

    assert b"".join(first) == b"".join(second)
    assert max(map(len, first)) <= 256 << 10
    assert len(first) > 10


def test_a_value_that_cannot_be_written_is_named(open_one: Open) -> None:
    backend = open_one()
    backend.table(VALUE).put("a", object())

    with pytest.raises(BadRecordError, match="cannot write state 'counts' of operator 'words': .*object"):
        list(backend.freeze().chunks())


# ---------------------------------------------------------------------- the chain of files


def test_the_chain_of_files_stays_short_and_the_base_is_not_rewritten_for_small_changes(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    expected = dict.fromkeys(range(4000), "x" * 500)
    for n, value in expected.items():
        table.put(n, value)
    job.checkpoint()
    base = job.files[0]
    longest = 0
    for turn in range(60):
        for n in range(turn, turn + 5):
            expected[n] = str(turn)
            table.put(n, str(turn))
        del expected[4000 - turn - 1]
        table.delete(4000 - turn - 1)
        job.checkpoint()
        job.backend.merge_some()
        longest = max(longest, len(job.files))

    assert longest <= 18
    assert job.files[0] is base
    assert contents(restored(open_one, job)) == expected
    assert contents(job.backend) == expected


def test_a_new_base_is_written_when_the_changes_outgrow_the_old_one(open_one: Open) -> None:
    job = Job(open_one())
    table = job.backend.table(VALUE)
    kinds = []
    for turn in range(12):
        for n in range(1000):
            table.put(n, f"{turn}" * 100)
        job.checkpoint()
        job.merge()
        kinds.append(job.files[-1][0].kind)

    assert kinds.count("base") >= 3
    assert sum(file.bytes for file, _ in job.files[1:]) <= job.files[0][0].bytes + 300_000
    assert contents(restored(open_one, job)) == contents(job.backend)


def test_the_chain_goes_on_after_a_restore(open_one: Open) -> None:
    job = Job(open_one())
    for n in range(1000):
        job.backend.table(VALUE).put(n, n)
    job.checkpoint()
    after = Job(restored(open_one, job), job.files)
    after.backend.table(VALUE).put(1, "one")

    after.checkpoint()

    assert [file.kind for file, _ in after.files] == ["base", "delta"]
    assert contents(restored(open_one, after)) == {**{n: n for n in range(1000)}, 1: "one"}


# ---------------------------------------------------------------------- restoring by key groups


def test_state_moves_to_another_parallelism_and_back(open_one: Open) -> None:
    one = Job(open_one())
    table = one.backend.table(VALUE)
    for n in range(500):
        table.put(f"k{n}", n)
    one.checkpoint()
    for n in range(0, 500, 7):
        table.delete(f"k{n}")
    one.checkpoint()
    expected = {f"k{n}": n for n in range(500) if n % 7}

    three = [
        Job(restored(open_one, one, groups=group_range(i, 3, MAX)), one.share(*group_range(i, 3, MAX)))
        for i in range(3)
    ]

    for i, job in enumerate(three):
        first, last = group_range(i, 3, MAX)
        assert all(first <= group_of(key, MAX) <= last for key in contents(job.backend))
        for key in contents(job.backend):
            job.backend.table(VALUE).put(key, -1)
        expected |= dict.fromkeys(contents(job.backend), -1)
        job.checkpoint()
        job.files = job.share(first, last)
    merged = Job(restored(open_one, *three), tuple(file for job in three for file in job.files))
    assert contents(merged.backend) == expected
    merged.backend.table(VALUE).put("k1", "changed")
    merged.checkpoint()
    assert merged.files[-1][0].kind == "delta", "nothing is written again that the files have"
    assert contents(restored(open_one, merged)) == expected | {"k1": "changed"}


def test_restoring_reads_only_the_blocks_it_needs(open_one: Open) -> None:
    job = Job(open_one())
    for n in range(20_000):
        job.backend.table(VALUE).put(n, "x" * 50)
    job.checkpoint()
    [(file, data)] = job.files
    read = 0

    def read_range(offset: int, size: int) -> bytes:
        nonlocal read
        read += size
        return data[offset : offset + size]

    backend = open_one()
    backend.restore([(file, read_range)], (0, 0))

    assert 0 < len(contents(backend)) < 2000
    assert read < len(data) / 4


def test_several_states_share_a_file(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)
    job.backend.table(LIST).put("a", [1, (2,)])
    job.backend.map_table(MAP).put("a", ("d", 1), {"x"})
    job.checkpoint()

    again = restored(open_one, job)

    assert again.schemas() == {
        "counts": {"kind": "value", "version": 1},
        "events": {"kind": "list", "version": 1},
        "days": {"kind": "map", "version": 1},
    }
    assert again.unclaimed() == ["counts", "days", "events"]
    assert contents(again, LIST) == {"a": [1, (2,)]}
    assert contents(again, MAP) == {("a", ("d", 1)): {"x"}}
    assert again.unclaimed() == ["counts"]


def test_a_state_that_nobody_opens_is_carried_on(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)
    job.checkpoint()
    after = Job(restored(open_one, job), job.files)

    after.checkpoint(full=True)

    assert contents(restored(open_one, after)) == {"a": 1}


def test_a_state_of_another_kind_is_refused(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)
    job.checkpoint()

    with pytest.raises(
        IncompatibleStateError, match="'counts' of operator 'words' as a map: the snapshot holds it as a value"
    ):
        restored(open_one, job).map_table(StateSpec("counts", "map"))
    backend = open_one()
    backend.map_table(StateSpec("counts", "map"))
    with pytest.raises(IncompatibleStateError, match="'counts' of operator 'words' from 1.base: it is a value there"):
        backend.restore(job.files, (0, MAX - 1))


def test_a_damaged_file_is_named(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)
    job.checkpoint()
    [(file, data)] = job.files

    with pytest.raises(SnapshotError, match=r"1\.base"):
        contents(restored(open_one, Job(open_one(), ((file, data[:20] + b"?" + data[21:]),))))


# ---------------------------------------------------------------------- memory


def test_rocksdb_asks_for_a_spill_and_heap_does_not(tmp_path: Path) -> None:
    heap = open_backend(StateSettings("heap"), Codec(), MAX, "", "words")
    rocks = open_backend(StateSettings("rocksdb", cache_bytes=1 << 20), Codec(), MAX, str(tmp_path), "words")
    for backend in (heap, rocks):
        table = backend.table(VALUE)
        assert not backend.needs_spill()
        for n in range(2000):
            table.put(f"key number {n}", n)

    assert rocks.needs_spill()
    assert not heap.needs_spill()
    Job(rocks).checkpoint()
    assert not rocks.needs_spill()


def test_state_much_bigger_than_the_memory_allowed_is_kept(tmp_path: Path) -> None:
    job = Job(open_backend(StateSettings("rocksdb", cache_bytes=200_000), Codec(), MAX, str(tmp_path / "a"), "words"))
    table = job.backend.table(VALUE)
    expected: dict[Any, Any] = {}
    for n in range(20_000):
        key, value = n if n % 3 else str(n), n % 101
        table.put(key, value)
        expected[key] = value
        if n % 100 == 0 and job.backend.needs_spill():
            job.checkpoint()
            job.merge()
    for key in list(expected)[::5]:
        table.delete(key)
        del expected[key]
    job.checkpoint()
    job.merge()

    assert contents(job.backend) == expected
    assert all(table.get(key) == value for key, value in list(expected.items())[::50])
    again = open_backend(StateSettings("rocksdb", cache_bytes=200_000), Codec(), MAX, str(tmp_path / "b"), "words")
    again.restore(job.files, (0, MAX - 1))
    assert contents(again) == expected
    job.backend.close()
    again.close()


def test_closing_removes_the_local_database_even_while_a_base_is_being_written(tmp_path: Path) -> None:
    job = Job(open_backend(StateSettings("rocksdb", cache_bytes=1), Codec(), MAX, str(tmp_path), "words"))
    for n in range(5000):
        job.backend.table(VALUE).put(n, n)
    job.checkpoint()
    job.merge()
    chunks = job.backend.freeze(full=True).chunks()
    for _ in range(3):
        next(chunks)

    job.backend.close()
    job.backend.close()

    assert not list(tmp_path.glob("rocksdb/*.sst"))


# ---------------------------------------------------------------------- savepoints


def detached(job: Job) -> Job:
    """A savepoint of a job's state: its chain of files, and one file of what is newer."""
    return Job(job.backend, (*job.files, written(job.backend.freeze_detached())))


def written(frozen: Frozen) -> tuple[StateFile, bytes]:
    data = b"".join(frozen.chunks())
    frozen.durable()
    return StateFile("savepoint", "delta", len(data), "", 0, (0, MAX - 1)), data


def test_a_detached_file_holds_what_the_chain_does_not_and_the_chain_goes_on_without_it(open_one: Open) -> None:
    job = Job(open_one())
    table, entries = job.backend.table(VALUE), job.backend.map_table(MAP)
    for number in range(500):
        table.put(number, number)
        entries.put(number, "x", number)
    job.checkpoint()
    job.merge()
    table.put(1, "changed")
    table.delete(2)

    savepoint = detached(job)
    table.put(3, "later")
    job.checkpoint()

    assert [(file.kind, file.entries) for file, _ in job.files] == [("base", 1000), ("delta", 3)]
    expected = {number: number for number in range(500) if number != 2} | {1: "changed"}
    assert contents(restored(open_one, savepoint)) == expected
    assert contents(restored(open_one, job)) == expected | {3: "later"}


@pytest.mark.parametrize("ends_well", [True, False])
def test_what_is_written_while_a_detached_file_is_made_is_not_in_it(open_one: Open, ends_well: bool) -> None:
    job = Job(open_one())
    table = job.backend.table(LIST)
    for number in range(300):
        table.put(number, [number])
    job.checkpoint()
    job.merge()
    for number in range(0, 300, 3):
        table.put(number, [number])
    chain = job.files
    frozen = job.backend.freeze_detached()

    data = bytearray()
    for part in frozen.chunks():
        data += part
        for number in (1, 299):
            value = table.load(number, [])
            value.append("later")
            table.put(number, value)
        job.backend.merge_some()
    frozen.durable() if ends_well else frozen.failed()
    job.checkpoint()
    job.merge()

    savepoint = Job(
        job.backend, (*chain, (StateFile("savepoint", "delta", len(data), "", 0, (0, MAX - 1)), bytes(data)))
    )
    assert contents(restored(open_one, savepoint), LIST) == {number: [number] for number in range(300)}
    assert contents(restored(open_one, job), LIST) == contents(job.backend, LIST)


def test_a_detached_file_of_state_that_has_no_checkpoint_yet_leaves_it_to_the_next_one(open_one: Open) -> None:
    job = Job(open_one())
    job.backend.table(VALUE).put("a", 1)

    savepoint = detached(job)
    job.checkpoint()

    assert contents(restored(open_one, savepoint)) == contents(restored(open_one, job)) == {"a": 1}


@pytest.mark.parametrize("spec", [LIST, MAP])
def test_a_deletion_that_hides_a_stored_value_is_read_as_absent_while_all_state_is_being_written(
    tmp_path: Path, spec: StateSpec
) -> None:
    backend = open_backend(KINDS["rocksdb"], Codec(), MAX, str(tmp_path / "state"), "words")
    job, key = Job(backend), ("a", "b") if spec.is_map else ("a",)
    table = backend.map_table(spec) if spec.is_map else backend.table(spec)
    table.put(*key, [1])
    job.checkpoint()
    job.merge()
    assert isinstance(table, LayeredTable | LayeredMapTable)
    assert isinstance(table.base, RocksBase)
    table.base.evict(1)
    table.delete(*key)
    job.checkpoint()
    job.merge()

    backend.freeze(full=True)

    assert table.get(*key) is ABSENT
    backend.close()
