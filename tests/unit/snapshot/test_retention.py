"""Retention: what may go goes, in an order that no crash makes dangerous; what is needed stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowpoint.errors import Fenced, SnapshotError, StorageError
from flowpoint.model.commits import CommitEntry
from flowpoint.snapshot import names
from flowpoint.snapshot.manifests import read_manifest, verify, write_manifest
from flowpoint.snapshot.reader import load
from flowpoint.snapshot.retention import ATTEMPTS_KEPT, Cleaner, CleanReport, Deletions, kept_directories, plan
from tests.unit.snapshot.fakes import MemoryDisk, PowerLoss
from tests.unit.snapshot.faults import Fault, with_every_fault
from tests.unit.snapshot.worlds import ROOT, Coordinator


def entry(
    number: int, kind: str, attempt: int, checkpoint: int, *, lineage: str = "L1", written: int = 0
) -> CommitEntry:
    directory = names.checkpoint_directory(checkpoint, written or attempt) if checkpoint else ""
    return CommitEntry(number, kind, attempt, lineage, checkpoint, directory, max(checkpoint - 1, 0), f"n{number}", 0)


LOG = [
    entry(1, "attempt", 1, 0),
    entry(2, "checkpoint", 1, 1),
    entry(3, "checkpoint", 1, 2),
    entry(4, "savepoint", 1, 2),
    entry(5, "checkpoint", 1, 3),
    entry(6, "checkpoint", 1, 4),
]
NAMED = {
    "chk-1-a1": frozenset({"shared/base1", "shared/d1"}),
    "chk-2-a1": frozenset({"shared/base1", "shared/d1", "shared/d2"}),
    "chk-3-a1": frozenset({"shared/base3"}),
    "chk-4-a1": frozenset({"shared/base3", "shared/d4"}),
}


def test_the_newest_checkpoints_stay_and_the_others_go() -> None:
    assert plan(LOG, NAMED, lineage="L1", retained=2) == Deletions(
        commits=(2, 3),
        manifests=("chk-1-a1/manifest.json", "chk-2-a1/manifest.json"),
        files=("shared/base1", "shared/d1", "shared/d2", "chk-1-a1/", "chk-2-a1/"),
    )


def test_a_file_that_a_kept_checkpoint_names_stays() -> None:
    doomed = plan(LOG, NAMED, lineage="L1", retained=3)
    assert doomed == Deletions((2,), ("chk-1-a1/manifest.json",), ("chk-1-a1/",))


def test_a_pinned_checkpoint_stays_with_its_files_and_the_log_since_then() -> None:
    doomed = plan(LOG, NAMED, lineage="L1", retained=1, pinned=["chk-1-a1"])
    assert doomed.commits == (3, 5)
    assert doomed.files == ("shared/d2", "chk-2-a1/", "chk-3-a1/")


def test_while_a_kept_manifest_cannot_be_read_no_file_goes() -> None:
    doomed = plan(LOG, NAMED | {"chk-4-a1": None}, lineage="L1", retained=1)
    assert doomed.manifests and not doomed.files
    assert not plan(LOG, NAMED, lineage="L1", retained=1, pinned=["chk-99-a1"]).files


def test_a_folder_in_which_a_kept_checkpoint_has_files_stays() -> None:
    named = NAMED | {"chk-4-a1": frozenset({"chk-3-a1/shared.base"})}
    doomed = plan(LOG, named, lineage="L1", retained=1)
    assert "chk-3-a1/manifest.json" in doomed.manifests
    assert "chk-2-a1/" in doomed.files and "chk-3-a1/" not in doomed.files


def test_ancestors_of_the_newest_stay_rather_than_what_recovery_fell_back_behind() -> None:
    log = [*LOG, replace(entry(7, "checkpoint", 2, 5), parent=2)]
    assert kept_directories(log, "L1", 3) == ["chk-5-a2", "chk-2-a1", "chk-1-a1"]
    assert kept_directories(log, "L1", 4) == ["chk-5-a2", "chk-2-a1", "chk-1-a1", "chk-4-a1"]


def test_a_checkpoint_that_the_newest_entry_repeats_stays() -> None:
    log = [*LOG, entry(7, "attempt", 2, 1, written=1)]
    assert kept_directories(log, "L1", 1) == ["chk-1-a1"]
    assert kept_directories([*log, entry(8, "attempt", 3, 3, lineage="L2", written=1)], "L1", 1) == [
        "chk-1-a1",
        "chk-3-a1",
    ]
    assert "shared/base1" not in plan(log, NAMED, lineage="L1", retained=1).files


def test_an_empty_log_and_one_checkpoint_leave_nothing_to_do() -> None:
    assert not plan([], {}, lineage="L1", retained=1)
    assert not plan(LOG[:2], NAMED, lineage="L1", retained=1)


def test_nothing_is_kept_less_than_once() -> None:
    assert kept_directories(LOG, "L1", 0) == ["chk-4-a1"]


def test_the_last_attempts_stay_in_the_log_and_older_ones_go() -> None:
    log = [entry(number, "attempt", number, 0) for number in range(1, 101)]
    log.append(entry(101, "checkpoint", 100, 1))
    assert plan(log, {"chk-1-a100": frozenset()}, lineage="L1", retained=1).commits == tuple(
        range(1, 101 - ATTEMPTS_KEPT)
    )
    assert plan(log[:-1], {}, lineage="L1", retained=1).commits == tuple(range(1, 101 - ATTEMPTS_KEPT))


kinds = st.sampled_from(["attempt", "checkpoint", "checkpoint", "checkpoint", "savepoint", "finished"])
lineages = st.sampled_from(["L1", "L1", "L1", "L2"])


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[CommitEntry], dict[str, frozenset[str] | None]]:
    entries: list[CommitEntry] = []
    attempt = checkpoint = 0
    for number in range(1, draw(st.integers(0, 25)) + 1):
        kind = draw(kinds)
        attempt += kind == "attempt" or attempt == 0
        checkpoint += kind == "checkpoint"
        entries.append(entry(number, kind, attempt, checkpoint, lineage=draw(lineages)))
    entries = [one for one in entries if one is entries[-1] or draw(st.integers(0, 5))]
    files = st.frozensets(st.sampled_from([f"shared/{n}.delta" for n in range(6)]))
    directories = {one.directory for one in entries if one.directory}
    return entries, {name: draw(files | st.none() if draw(st.booleans()) else files) for name in sorted(directories)}


@given(logs(), st.integers(0, 4), st.data())
def test_what_is_needed_always_stays(
    log: tuple[list[CommitEntry], dict[str, frozenset[str] | None]], retained: int, data: st.DataObject
) -> None:
    entries, named = log
    pinned = data.draw(st.sets(st.sampled_from(sorted(named)))) if named else set()
    doomed = plan(entries, named, lineage="L1", retained=retained, pinned=pinned)
    left = [one for one in entries if one.number not in doomed.commits]
    own = [one for one in entries if one.kind == "checkpoint" and one.lineage == "L1"]
    standing = {one.directory for one in left if one.kind == "checkpoint"} | pinned
    assert left[-1:] == entries[-1:]
    assert len([one for one in left if one in own]) >= min(len(own), max(retained, 1))
    assert {one.number for one in entries if one.lineage != "L1"} <= {one.number for one in left}
    for directory in standing:
        assert names.manifest_of(directory) not in doomed.manifests and f"{directory}/" not in doomed.files
        assert not set(named.get(directory) or ()) & set(doomed.files)
    if any(named.get(directory) is None for directory in standing):
        assert not doomed.files
    # Deleting what may go leaves nothing more that may.
    assert not plan(left, named, lineage="L1", retained=retained, pinned=pinned).commits


# ------------------------------------------------------------------ the cleaner at work


async def assert_sound(coordinator: Coordinator) -> list[CommitEntry]:
    """Every checkpoint in the log has its manifest, and all that this names; the log."""
    entries = await coordinator.log.entries()
    for one in entries:
        if one.kind == "checkpoint":
            manifest = await read_manifest(coordinator.storage, one.directory)
            assert await verify(coordinator.storage, manifest, deep=True) == []
    return entries


async def test_two_hundred_checkpoints_leave_a_bounded_number_of_files() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    most = 0
    for checkpoint in range(1, 201):
        await coordinator.complete(checkpoint, full=checkpoint % 10 == 1)
        assert (await cleaner.run()).problems == ()
        most = max(most, len(coordinator.disk.files()))
    assert most <= 2 + 1 + 10
    assert len(coordinator.disk.folders) == len(["/", "/storage", ROOT, "commits", "shared", "chk-200-a1"])
    entries = await assert_sound(Coordinator(coordinator.disk, "next"))
    assert [(one.kind, one.checkpoint) for one in entries] == [("attempt", 0), ("checkpoint", 200)]


async def test_a_file_opened_two_hundred_checkpoints_ago_stays_while_it_is_needed() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    await coordinator.write(full=True, data=b"base")
    base = coordinator.files
    for checkpoint in range(1, 201):
        coordinator.files = list(base)
        await coordinator.complete(checkpoint)
        await cleaner.run()
    manifest = await read_manifest(coordinator.storage, "chk-200-a1")
    assert [data for _, data in await load(coordinator.storage, manifest.files())] == [b"base", b"state"]
    assert len(await coordinator.storage.list("shared/")) == 2


async def test_a_damaged_retained_manifest_is_reported_and_no_file_goes() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=2)
    await coordinator.begin()
    for checkpoint in range(1, 5):
        await coordinator.complete(checkpoint, full=True)
    coordinator.disk.folders[f"{ROOT}/chk-4-a1"].seen["manifest.json"].data = b"{"
    report = await coordinator.cleaner().run()
    assert len(report.problems) == 1 and "chk-4-a1/manifest.json is damaged" in report.problems[0]
    assert len(await coordinator.storage.list("shared/")) == 4
    assert len(await coordinator.storage.list("chk-")) == 2


async def test_what_could_not_be_deleted_is_reported_and_deleted_next_time() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    await coordinator.complete(1, full=True)
    await coordinator.complete(2, full=True)
    coordinator.disk.faults.fail(2, "before", counted=frozenset({"remove"}))
    report = await cleaner.run()
    assert report == CleanReport(1, (report.problems[0],)) and "cannot remove" in report.problems[0]
    coordinator.disk.faults.clear()
    assert (await cleaner.run()).problems == ()
    assert await coordinator.storage.list("shared/") == ["shared/counts-0-a1-2.base"]
    assert await coordinator.storage.list("chk-") == ["chk-2-a1/manifest.json"]


async def test_a_claimed_snapshot_that_cannot_be_removed_keeps_its_checkpoint_and_no_other() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    removed: list[str] = []
    refusal: list[StorageError] = [StorageError("cannot remove /theirs: Permission denied")]

    async def remove(path: str) -> None:
        if refusal:
            raise refusal[0]
        removed.append(path)

    cleaner = Cleaner(coordinator.storage, coordinator.log, lineage="L1", attempt=1, retained=1, remove_claimed=remove)
    await coordinator.complete(1, full=True, claimed="/theirs")
    for checkpoint in (2, 3):
        await coordinator.complete(checkpoint, full=True)

    assert (await cleaner.run()).problems == ("cannot remove /theirs: Permission denied",)
    assert await coordinator.storage.list("chk-") == ["chk-1-a1/manifest.json", "chk-3-a1/manifest.json"]

    refusal.clear()
    assert (await cleaner.run()).problems == ()
    assert removed == ["/theirs"]
    assert await coordinator.storage.list("chk-") == ["chk-3-a1/manifest.json"]


async def test_a_pinned_checkpoint_that_is_not_in_the_log_keeps_its_files_and_no_others() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    await coordinator.write(full=True)
    await write_manifest(coordinator.storage, coordinator.manifest(1))
    await coordinator.complete(2, full=True)
    await coordinator.complete(3, full=True)
    assert (await coordinator.cleaner().run(["chk-1-a1"])).problems == ()
    assert await coordinator.storage.list("shared/") == ["shared/counts-0-a1-1.base", "shared/counts-0-a1-3.base"]


async def test_files_owed_from_an_earlier_run_wait_while_a_kept_manifest_is_damaged() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    await coordinator.complete(1, full=True)
    await coordinator.complete(2, full=True)
    coordinator.disk.faults.fail(3, "before", counted=frozenset({"remove"}))
    assert "cannot remove" in (await cleaner.run()).problems[0]
    coordinator.disk.faults.clear()
    await coordinator.complete(3, full=True)
    coordinator.disk.folders[f"{ROOT}/chk-3-a1"].seen["manifest.json"].data = b""
    assert "chk-3-a1/manifest.json is damaged" in (await cleaner.run()).problems[0]
    assert len(await coordinator.storage.list("shared/")) == 3


async def test_what_has_waited_for_a_kept_manifest_goes_when_that_can_be_read_again() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    await coordinator.write(full=True)  # for a checkpoint that has failed
    abandoned = "shared/counts-0-a1-1.base"
    for checkpoint in (2, 3):
        await coordinator.complete(checkpoint, full=True)
    manifest = coordinator.disk.folders[f"{ROOT}/chk-3-a1"].seen["manifest.json"]
    whole, manifest.data = manifest.data, b""

    assert "chk-3-a1/manifest.json is damaged" in (await cleaner.run((), [abandoned])).problems[0]
    assert len(await coordinator.storage.list("shared/")) == 3
    manifest.data = whole
    assert (await cleaner.run()).problems == ()

    assert await coordinator.storage.list("shared/") == ["shared/counts-0-a1-3.base"]
    assert await coordinator.storage.list("chk-") == ["chk-3-a1/manifest.json"]


async def test_what_was_owed_stays_when_a_checkpoint_needs_it_by_then() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    cleaner = coordinator.cleaner()
    await coordinator.complete(1, full=True)
    coordinator.disk.faults.fail(1, "before", counted=frozenset({"remove"}))
    assert "cannot remove" in (await cleaner.run((), ["shared/counts-0-a1-2.base"])).problems[0]
    coordinator.disk.faults.clear()
    await coordinator.complete(2, full=True)

    assert (await cleaner.run()).problems == ()

    assert await coordinator.storage.list("shared/") == ["shared/counts-0-a1-2.base"]


async def test_whatever_fails_while_cleaning_no_commit_names_what_is_gone() -> None:
    async def scenario(fault: Fault) -> MemoryDisk:
        coordinator = Coordinator(MemoryDisk(), retained=1)
        await coordinator.begin()
        for checkpoint in range(1, 4):
            await coordinator.complete(checkpoint, full=checkpoint == 2)
        fault.arm(coordinator.disk)
        cleaner = coordinator.cleaner()
        clean = False
        try:
            report = await cleaner.run()
            clean = not report.problems
        except PowerLoss:
            pass
        fired = coordinator.disk.faults.fired
        coordinator.disk.lose_power()
        successor = Coordinator(coordinator.disk, "next", retained=1)
        entries = await assert_sound(successor)
        assert entries[-1].checkpoint == 3
        assert not clean or len(entries) == 2
        # Whatever is left over goes when the next attempt sweeps and retires once.
        await successor.begin()
        assert (await successor.cleaner().run()).problems == ()
        assert (await successor.cleaner().sweep()).problems == ()
        await assert_sound(successor)
        assert await successor.storage.list("chk-") == ["chk-3-a1/manifest.json"]
        assert await successor.storage.list("shared/") == ["shared/counts-0-a1-2.base", "shared/counts-0-a1-3.delta"]
        coordinator.disk.faults.fired = fired
        return coordinator.disk

    assert await with_every_fault(scenario) > 50


async def test_whatever_fails_in_a_checkpoint_it_counts_whole_or_not_at_all() -> None:
    async def scenario(fault: Fault) -> MemoryDisk:
        coordinator = Coordinator(MemoryDisk(), retained=1)
        await coordinator.begin()
        await coordinator.complete(1, full=True)
        fault.arm(coordinator.disk)
        completed = False
        try:
            await coordinator.complete(2)
            completed = True
            await coordinator.cleaner().run()
        except (StorageError, PowerLoss):
            pass
        fired = coordinator.disk.faults.fired
        coordinator.disk.lose_power()
        successor = Coordinator(coordinator.disk, "next", retained=1)
        begun = await successor.begin()
        assert begun.checkpoint == 2 if completed else begun.checkpoint in (1, 2)
        await assert_sound(successor)
        restored = await read_manifest(successor.storage, begun.directory)
        assert (await successor.cleaner().sweep([begun.directory])).problems == ()
        successor.files = restored.files()
        await successor.complete(begun.checkpoint + 1)
        assert (await successor.cleaner().run()).problems == ()
        assert [one.checkpoint for one in await assert_sound(successor) if one.kind == "checkpoint"] == [
            begun.checkpoint + 1
        ]
        assert await successor.storage.list("", unfinished=True) == []
        coordinator.disk.faults.fired = fired
        return coordinator.disk

    assert await with_every_fault(scenario) > 100


# ------------------------------------------------------------------ dead attempts


async def test_a_late_commit_of_a_dead_attempt_is_thrown_away_and_the_restored_one_stays() -> None:
    """AC-07: checkpoint 2 of attempt 1 has everything but its commit when attempt 2 begins."""
    old = Coordinator(MemoryDisk(), "old")
    await old.begin()
    await old.complete(1)
    await old.write()
    await write_manifest(old.storage, old.manifest(2))
    new = Coordinator(old.disk, "new")
    begun = await new.begin()
    assert begun.directory == "chk-1-a1"
    with pytest.raises(Fenced):
        await old.log.append("checkpoint", 1, checkpoint=2, directory="chk-2-a1", parent=1)
    assert (await new.cleaner().sweep()).problems == ()
    assert await new.storage.list("chk-") == ["chk-1-a1/manifest.json"]
    assert await new.storage.list("shared/") == ["shared/counts-0-a1-1.delta"]
    new.files = (await read_manifest(new.storage, "chk-1-a1")).files()
    assert (await new.complete(2)).directory == "chk-2-a2"
    await assert_sound(new)


async def test_half_written_files_of_one_attempt_are_never_certified_by_the_next() -> None:
    """AC-08: two fast restarts, the first in the middle of a checkpoint."""
    first = Coordinator(MemoryDisk(), "first")
    await first.begin()
    first.disk.faults.fail(1, "crash after", counted=frozenset({"link"}))
    with pytest.raises(PowerLoss):
        await first.write(data=b"half of checkpoint 1")
    first.disk.faults.clear()
    second = Coordinator(first.disk, "second")
    await second.begin()
    await second.complete(1)
    third = Coordinator(first.disk, "third")
    begun = await third.begin()
    assert begun.directory == "chk-1-a2"
    manifest = await read_manifest(third.storage, begun.directory)
    assert [names.attempt_of(file.path) for file in manifest.files()] == [2]
    await third.cleaner().sweep([begun.directory])
    assert await third.storage.list("shared/") == ["shared/counts-0-a2-1.delta"]


async def test_recovery_reads_commits_and_never_a_listing_of_folders() -> None:
    """Rule 4: a folder with a perfect manifest is no checkpoint without its commit."""
    coordinator = Coordinator(MemoryDisk())
    await coordinator.begin()
    await coordinator.complete(1)
    await coordinator.write()
    await write_manifest(coordinator.storage, coordinator.manifest(99))
    asked: list[str] = []

    async def listen(kind: str, path: str) -> None:
        if kind == "list":
            asked.append(path)

    coordinator.disk.gate = listen
    begun = await Coordinator(coordinator.disk, "next").begin()
    assert begun.directory == "chk-1-a1"
    assert set(asked) == {f"{ROOT}/commits"}


async def test_the_sweep_takes_only_what_older_attempts_of_the_lineage_left() -> None:
    other = Coordinator(MemoryDisk(), "other", lineage="L2")
    await other.begin()
    await other.complete(1)
    await other.write()
    own = Coordinator(other.disk, "own")
    await own.begin()
    await own.write()
    await own.disk.make_dirs(f"{ROOT}/chk-7-a2")
    own.disk.faults.fail(1, "crash before", counted=frozenset({"sync"}))
    with pytest.raises(PowerLoss):
        await own.log.append("finished", 2)
    own.disk.faults.clear()
    await own.storage.put_if_absent("notes.txt", [b"mine"])
    await own.storage.put_if_absent("shared/notes.txt", [b"mine"])
    new = Coordinator(other.disk, "new")
    await new.begin()
    await new.write()
    report = await new.cleaner().sweep()
    assert report == CleanReport(3)
    assert await new.storage.list("", unfinished=True) == []
    assert [name for name in await new.storage.list("") if not name.startswith("commits/")] == [
        "chk-1-a1/manifest.json",
        "notes.txt",
        "shared/counts-0-a1-1.delta",
        "shared/counts-0-a1-2.delta",
        "shared/counts-0-a3-1.delta",
        "shared/notes.txt",
    ]


async def test_the_sweep_removes_only_unfinished_objects_while_a_kept_manifest_is_damaged() -> None:
    old = Coordinator(MemoryDisk(), "old")
    await old.begin()
    await old.complete(1)
    await old.write()
    old.disk.faults.fail(1, "crash before", counted=frozenset({"sync"}))
    with pytest.raises(PowerLoss):
        await old.write()
    old.disk.faults.clear()
    old.disk.folders[f"{ROOT}/chk-1-a1"].seen["manifest.json"].data = b""
    new = Coordinator(old.disk, "new")
    await new.begin()
    report = await new.cleaner().sweep()
    assert report.deleted == 1 and "chk-1-a1/manifest.json is damaged" in report.problems[0]
    assert len(await new.storage.list("shared/")) == 2
    assert await new.storage.list("", unfinished=True) == []


async def test_a_log_or_storage_that_cannot_be_read_is_a_report_and_deletes_nothing() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    await coordinator.complete(1, full=True)
    await coordinator.complete(2, full=True)
    before = coordinator.disk.files()
    coordinator.disk.faults.fail(1, "before", persistent=True, counted=frozenset({"list"}))
    for clean in (coordinator.cleaner().run, coordinator.cleaner().sweep):
        report = await clean()
        assert report.deleted == 0 and "cannot list" in report.problems[0]
    assert coordinator.disk.files() == before


async def test_a_dropped_checkpoint_can_no_longer_be_read() -> None:
    coordinator = Coordinator(MemoryDisk(), retained=1)
    await coordinator.begin()
    await coordinator.complete(1)
    await coordinator.complete(2)
    await coordinator.cleaner().run()
    with pytest.raises(SnapshotError, match="incomplete or has been removed"):
        await read_manifest(coordinator.storage, "chk-1-a1")
