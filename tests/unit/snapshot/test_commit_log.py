"""The commit log: one winner per number, attempts that fence, appends that are settled or end the attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from flowpoint.errors import Fenced, LostLogError, OutcomeUnknown, SnapshotError, StorageError
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog, decode_entry, encode_entry
from flowpoint.snapshot.storage import Chunks, FolderStorage
from tests.unit.snapshot.fakes import FakeHost, MemoryDisk, PowerLoss
from tests.unit.snapshot.faults import Fault, Interleaver, in_every_order, with_every_fault
from tests.unit.snapshot.worlds import ROOT, Coordinator


async def test_an_empty_log_has_no_entries() -> None:
    assert await Coordinator(MemoryDisk()).log.entries() == []


async def test_every_entry_repeats_the_attempt_and_the_newest_checkpoint() -> None:
    coordinator = Coordinator(MemoryDisk())
    first = await coordinator.begin()
    assert (first.number, first.kind, first.attempt, first.checkpoint, first.directory) == (1, "attempt", 1, 0, "")
    done = await coordinator.complete(17)
    assert (done.number, done.checkpoint, done.directory, done.parent) == (2, 17, "chk-17-a1", 16)
    saved = await coordinator.log.append("savepoint", 1, extra={"path": "/elsewhere"})
    assert (saved.number, saved.checkpoint, saved.directory, saved.parent) == (3, 17, "chk-17-a1", 16)
    again = await Coordinator(coordinator.disk, "d").begin()
    assert (again.number, again.attempt, again.checkpoint, again.directory) == (4, 2, 17, "chk-17-a1")
    entries = await coordinator.log.entries()
    assert [entry.kind for entry in entries] == ["attempt", "checkpoint", "savepoint", "attempt"]
    assert entries[2].extra == {"path": "/elsewhere"}


async def test_a_new_lineage_starts_without_a_checkpoint_but_with_the_next_attempt() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.complete(1)
    fresh = await Coordinator(coordinator.disk, "d", lineage="L2").begin()
    assert (fresh.attempt, fresh.checkpoint, fresh.directory, fresh.lineage) == (2, 0, "", "L2")
    back = await Coordinator(coordinator.disk, "e", lineage="L1").begin()
    assert (back.attempt, back.checkpoint, back.directory) == (3, 1, "chk-1-a1")


async def test_a_newer_attempt_fences_the_older_one_also_in_the_same_process() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.begin()
    with pytest.raises(Fenced, match="attempt 1 is fenced: attempt 2 has begun"):
        await coordinator.log.append("checkpoint", 1, checkpoint=1, directory="chk-1-a1")
    assert len(await coordinator.log.entries()) == 2


async def test_a_newer_attempt_fences_another_process_that_has_not_seen_it() -> None:
    old = Coordinator(MemoryDisk(), "old")
    await old.begin()
    new = Coordinator(old.disk, "new")
    await new.begin()
    await new.complete(1)
    with pytest.raises(Fenced):
        await old.complete(1)
    assert [entry.attempt for entry in await new.log.entries()] == [1, 2, 2]


@pytest.mark.parametrize("left", [0, 2])
async def test_a_log_whose_newest_entries_were_removed_is_neither_a_new_one_nor_an_older_one(left: int) -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.complete(1)
    newest = await coordinator.complete(2)

    await coordinator.storage.delete(*map(names.commit_entry, range(left + 1, newest.number + 1)))

    with pytest.raises(LostLogError, match="entry 3 was in it"):
        await coordinator.log.entries()
    with pytest.raises(LostLogError):
        await coordinator.begin()
    assert len(await coordinator.storage.list(names.COMMITS)) == left


async def test_an_old_number_that_was_cleaned_away_is_no_way_in() -> None:
    old = Coordinator(MemoryDisk(), "old")
    await old.begin()
    new = Coordinator(old.disk, "new")
    await new.begin()
    await new.complete(1)
    # The number after the old one's last is free again, as though retention had kept no "attempt" entry.
    await new.storage.delete(names.commit_entry(2))
    with pytest.raises(Fenced):
        await old.log.append("finished", 1)


async def test_a_number_that_is_cleaned_away_during_the_append_is_not_taken() -> None:
    old = Coordinator(MemoryDisk(), "old")
    await old.begin()
    new = Coordinator(old.disk, "new")
    await new.begin()
    await new.complete(1)

    async def clean_before_it_is_read(kind: str, path: str) -> None:
        if kind == "read" and path.endswith("00000002.json"):
            old.disk.gate = None
            await new.storage.delete(names.commit_entry(2))

    old.disk.gate = clean_before_it_is_read
    with pytest.raises(Fenced):
        await old.log.append("finished", 1)
    assert await new.storage.list(names.commit_entry(2)) == []


async def test_an_attempt_that_begins_on_a_number_cleaned_away_begins_again_behind_the_newest() -> None:
    old = Coordinator(MemoryDisk(), "old", retained=1)
    await old.begin()
    await old.complete(1)
    new = Coordinator(old.disk, "new")

    async def go_on_before_the_link(kind: str, path: str) -> None:
        if kind == "link":
            old.disk.gate = None
            await old.complete(2)
            await old.complete(3)
            await old.cleaner().run()

    old.disk.gate = go_on_before_the_link
    begun = await new.begin()
    assert (begun.number, begun.attempt, begun.checkpoint) == (5, 3, 3)
    with pytest.raises(Fenced):
        await old.complete(4)


async def test_a_slow_reading_of_the_log_does_not_forget_what_was_appended_meanwhile() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    await coordinator.complete(1)
    slow = asyncio.Event()
    listed = asyncio.Event()

    async def hold_the_slow_reader(kind: str, path: str) -> None:
        task = asyncio.current_task()
        if kind == "read" and task is not None and task.get_name() == "slow":
            listed.set()
            await slow.wait()

    coordinator.log._known.clear()
    coordinator.disk.gate = hold_the_slow_reader
    reading = asyncio.create_task(coordinator.log.entries(), name="slow")
    await listed.wait()
    await coordinator.complete(2)
    await coordinator.complete(3)
    await coordinator.cleaner().run()
    slow.set()
    await reading
    assert (await coordinator.complete(4)).number == 5


async def test_an_append_that_landed_on_an_old_number_is_unknown() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.log.append("savepoint", 1)
    # As though this very attempt had gone on elsewhere, and the number had been cleaned away.
    elsewhere = replace((await coordinator.log.entries())[0], number=3, kind="savepoint")
    await coordinator.storage.delete(names.commit_entry(2))
    await coordinator.storage.put_if_absent(names.commit_entry(3), [encode_entry(elsewhere)])
    coordinator.log._known.pop(2, None)
    with pytest.raises(OutcomeUnknown, match="an old one that was cleaned away"):
        await coordinator.log.append("finished", 1)


async def test_appends_of_one_log_go_one_after_the_other() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    entries = await asyncio.gather(*(coordinator.log.append("savepoint", 1, extra={"n": n}) for n in range(5)))
    assert [entry.number for entry in entries] == [2, 3, 4, 5, 6]
    assert [entry.extra["n"] for entry in await coordinator.log.entries() if entry.extra] == [0, 1, 2, 3, 4]


async def test_an_append_after_a_cancelled_one_that_landed_takes_the_next_number() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    reached = asyncio.Event()

    async def stop_after_link(kind: str, path: str) -> None:
        if kind == "sync_dir" and path.endswith("commits"):
            reached.set()
            await asyncio.Event().wait()

    coordinator.disk.gate = stop_after_link
    append = asyncio.create_task(coordinator.log.append("savepoint", 1))
    await reached.wait()
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    coordinator.disk.gate = None
    assert (await coordinator.log.append("finished", 1)).number == 3


async def test_an_append_to_a_log_whose_files_are_gone_is_refused() -> None:
    coordinator = Coordinator(MemoryDisk())
    with pytest.raises(SnapshotError, match="is empty, though attempt 3 began in it"):
        await coordinator.log.append("finished", 3)


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: b"", "not JSON"),
        (lambda data: data[: len(data) // 2], "not JSON"),
        (lambda data: data.replace(b'"attempt": 1', b'"attempt": 2'), "checksum"),
        (
            lambda data: data.replace(b'"format": 1', b'"format": 2'),
            "has format 2, and this FlowPoint reads formats up to 1",
        ),
        (lambda data: b"[1]", "type list"),
    ],
)
async def test_a_damaged_entry_is_an_error_that_names_the_file(change: Callable[[bytes], bytes], says: str) -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    inode = coordinator.disk.folders[f"{ROOT}/commits"].seen["00000001.json"]
    inode.data = change(inode.data)
    with pytest.raises(SnapshotError, match=says) as caught:
        await Coordinator(coordinator.disk, "next").log.entries()
    assert "commits/00000001.json" in str(caught.value)


async def test_an_entry_of_the_wrong_shape_is_refused_though_its_checksum_holds() -> None:
    coordinator = Coordinator(MemoryDisk())
    entry = replace(await coordinator.begin(), attempt="1")
    with pytest.raises(SnapshotError, match="'attempt' is '1', not of type int"):
        decode_entry(encode_entry(entry), "commits/00000001.json", 1)


async def test_other_files_beside_the_entries_are_left_alone() -> None:
    coordinator = Coordinator(MemoryDisk())
    await coordinator.storage.put_if_absent("commits/notes.txt", [b"mine"])
    await coordinator.begin()
    assert len(await coordinator.log.entries()) == 1


# ------------------------------------------------------------------ settling (rule 5)


class Flaky(FolderStorage):
    """Storage over a network: a put may land and its answer be lost."""

    def __init__(self, disk: MemoryDisk, host: FakeHost, lands: list[bool], reads: list[bool]) -> None:
        super().__init__(disk, host.new_id, ROOT)
        self.lands = lands
        self.reads = reads

    async def put_if_absent(self, name: str, chunks: Chunks) -> bool:
        if not self.lands:
            return await super().put_if_absent(name, chunks)
        if self.lands.pop(0):
            await super().put_if_absent(name, chunks)
        raise StorageError("the answer was lost")

    async def get(self, name: str, offset: int = 0, size: int = -1) -> bytes:
        if self.reads and not self.reads.pop(0):
            raise StorageError("not readable now")
        return await super().get(name, offset, size)


async def flaky_log(lands: list[bool], reads: list[bool] | None = None) -> tuple[CommitLog, Flaky]:
    disk = MemoryDisk()
    host = FakeHost(disk)
    storage = Flaky(disk, host, [], [])
    log = CommitLog(storage, "", host)
    await log.begin_attempt("L1")
    storage.lands, storage.reads = lands, reads or []
    return log, storage


async def test_a_put_that_landed_though_its_answer_was_lost_counts_once() -> None:
    log, _ = await flaky_log([True])
    entry = await log.append("finished", 1)
    assert entry.number == 2 and [found.number for found in await log.entries()] == [1, 2]


async def test_a_put_that_did_not_land_is_tried_again() -> None:
    log, _ = await flaky_log([False, False])
    assert (await log.append("finished", 1)).number == 2


async def test_a_put_that_never_lands_has_not_happened() -> None:
    log, _ = await flaky_log([False] * 3)
    with pytest.raises(StorageError, match="the answer was lost") as caught:
        await log.append("finished", 1)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert len(await log.entries()) == 1
    assert (await log.append("finished", 1)).number == 2


async def test_a_put_that_landed_but_was_never_confirmed_is_unknown() -> None:
    log, _ = await flaky_log([True, False, False])
    with pytest.raises(OutcomeUnknown, match=r"cannot tell whether commits/00000002.json \(finished, attempt 1\)"):
        await log.append("finished", 1)


@pytest.mark.parametrize("lands", [[False] * 3, [True]])
async def test_an_append_that_cannot_be_read_back_is_unknown(lands: list[bool]) -> None:
    log, _ = await flaky_log(lands, [False])
    with pytest.raises(OutcomeUnknown):
        await log.append("finished", 1)


async def test_a_conflict_is_not_mistaken_for_an_own_entry() -> None:
    log, storage = await flaky_log([False])
    other = Coordinator(storage._disk, "other")
    await other.begin()
    with pytest.raises(Fenced):
        await log.append("finished", 1)


# ------------------------------------------------------------------ every fault


@pytest.mark.parametrize("beginning", [False, True], ids=["append", "begin_attempt"])
async def test_whatever_fails_an_entry_is_whole_and_counts_as_was_said(beginning: bool) -> None:
    async def scenario(fault: Fault) -> MemoryDisk:
        disk = MemoryDisk()
        old = Coordinator(disk, "old")
        await old.begin()
        await old.complete(1)
        acting = Coordinator(disk, "acting") if beginning else old
        outcome = ""
        fault.arm(disk)
        try:
            entry = await (
                acting.begin()
                if beginning
                else old.log.append("checkpoint", 1, checkpoint=2, directory="chk-2-a1", parent=1)
            )
            outcome = "appended"
            assert entry.number == 3
        except OutcomeUnknown:
            outcome = "unknown"
        except StorageError:
            outcome = "refused"
        except PowerLoss:
            outcome = "lost power"
        fired = disk.faults.fired
        disk.faults.clear()
        visible = [entry.number for entry in await Coordinator(disk, "reader").log.entries()]
        disk.lose_power()
        successor = Coordinator(disk, "next")
        durable = [entry.number for entry in await successor.log.entries()]
        assert durable in ([1, 2], [1, 2, 3])
        if outcome == "appended":
            assert durable == [1, 2, 3]
        if outcome == "refused":
            assert visible == durable == [1, 2]
        begun = await successor.begin()
        assert begun.number == len(durable) + 1
        assert begun.checkpoint == (2 if 3 in durable and not beginning else 1)
        with pytest.raises((Fenced, StorageError)):
            await old.log.append("finished", 1)
        assert (await successor.log.append("finished", begun.attempt)).number == len(durable) + 2
        disk.faults.fired = fired
        return disk

    assert await with_every_fault(scenario) > 30


# ------------------------------------------------------------------ every order

RACING = frozenset({"create", "link", "list", "read"})


async def test_an_append_and_a_new_attempt_agree_in_every_order() -> None:
    outcomes: set[str] = set()

    async def scenario(interleaver: Interleaver) -> None:
        old = Coordinator(MemoryDisk(), "old")
        await old.begin()
        new = Coordinator(old.disk, "new")
        old.disk.gate = interleaver.gate(RACING)
        append = old.log.append("checkpoint", 1, checkpoint=1, directory="chk-1-a1")
        appended, begun = await interleaver.run(append, new.log.begin_attempt("L1"))
        entries = await Coordinator(old.disk, "reader").log.entries()
        assert begun.attempt == 2
        assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.attempt for entry in entries] == sorted(entry.attempt for entry in entries)
        stands = entries[1].kind == "checkpoint"
        # What the old one was told, or might believe, the new one knows.
        assert begun.checkpoint == (1 if stands else 0)
        if not isinstance(appended, Fenced):
            assert stands and appended == entries[1]
        outcomes.add(f"{type(appended).__name__} {'stands' if stands else 'does not'}")
        with pytest.raises(Fenced):
            await old.log.append("finished", 1)

    assert await in_every_order(scenario) > 50
    assert outcomes == {"CommitEntry stands", "Fenced stands", "Fenced does not"}


async def test_of_two_attempts_that_begin_at_once_exactly_one_can_go_on_in_every_order() -> None:
    async def scenario(interleaver: Interleaver) -> None:
        one = Coordinator(MemoryDisk(), "one")
        await one.storage.put_if_absent("commits/notes.txt", [b"so that the folder exists"])
        other = Coordinator(one.disk, "other")
        one.disk.gate = interleaver.gate(RACING)
        results = await interleaver.run(one.begin(), other.begin())
        begun = [result.attempt for result in results if not isinstance(result, Fenced)]
        assert begun in ([1], [2], [1, 2], [2, 1])
        survivors = []
        for coordinator in (one, other):
            try:
                await coordinator.log.append("finished", coordinator.attempt or 1)
                survivors.append(coordinator)
            except Fenced:
                pass
        assert len(survivors) == 1 and survivors[0].attempt == 2

    assert await in_every_order(scenario) > 50


async def test_two_appends_of_one_log_both_happen_in_every_order() -> None:
    async def scenario(interleaver: Interleaver) -> None:
        coordinator = Coordinator(MemoryDisk())
        await coordinator.begin()
        coordinator.disk.gate = interleaver.gate(RACING)
        appends = [coordinator.log.append("savepoint", 1, extra={"n": n}) for n in range(2)]
        entries = await interleaver.run(*appends)
        assert [(entry.number, entry.extra["n"]) for entry in entries] == [(2, 0), (3, 1)]

    await in_every_order(scenario)


async def test_thousands_of_entries_are_read_once_each() -> None:
    disk = MemoryDisk()
    coordinator = Coordinator(disk)
    await coordinator.begin()
    first = (await coordinator.log.entries())[0]
    for number in range(2, 2001):
        data = encode_entry(replace(first, number=number))
        await coordinator.storage.put_if_absent(names.commit_entry(number), [data])
    reader = Coordinator(disk, "reader")
    reads = 0

    async def count(kind: str, path: str) -> None:
        nonlocal reads
        reads += kind in ("read", "stat")

    disk.gate = count
    assert len(await reader.log.entries()) == 2000
    assert reads == 2000
    assert len(await reader.log.entries()) == 2000
    assert reads == 2000
