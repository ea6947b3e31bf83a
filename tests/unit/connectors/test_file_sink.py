"""FileSink: what a checkpoint holds becomes visible once, whatever fails; what it does not hold never does."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flowpoint.connectors import FileSink, part_writer
from flowpoint.connectors.part_names import Part, final_name, hidden_name, parse_final, parse_hidden
from flowpoint.connectors.published import announce, published_up_to
from flowpoint.errors import (
    FINAL_ERRORS,
    BadRecordError,
    DamagedOutputError,
    ForeignOutputError,
    LostOutputError,
    PlanError,
    SnapshotError,
    StorageError,
)
from flowpoint.host.disk import SystemDisk
from flowpoint.runtime.contracts import ConnectorContext
from tests.unit.connectors.conftest import Crash, World

FOLDER = "/out"


@pytest.fixture
def sink() -> FileSink:
    return FileSink(FOLDER, format="jsonl")


async def write_part(sink: FileSink, ctx: ConnectorContext, checkpoint: int, *records: Any) -> Any:
    """One part through a writer of its own; gives the committable."""
    writer = await sink.open(ctx)
    await writer.write(list(records))
    committable = await writer.prepare(checkpoint)
    await writer.close()
    return json.loads(json.dumps(committable))


def visible_records(world: World) -> list[Any]:
    return [json.loads(line) for data in world.disk.visible(FOLDER).values() for line in data.splitlines()]


# The life of a part


async def test_a_part_is_hidden_until_it_is_committed(memory: World, sink: FileSink) -> None:
    ctx = memory.context(subtask=3, attempt=7, lineage="1f3c9a2b0d4e")
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 17, ("a", 1), ("b", 2))

    assert memory.disk.visible(FOLDER) == {}
    assert memory.disk.hidden_parts(FOLDER) == [".part-out-003-a7-000001-1f3c9a2b0d4e.jsonl"]
    await sink.commit(committable, ctx)

    assert memory.disk.visible(FOLDER) == {"part-00000017-out-003-a7-1f3c9a2b0d4e.jsonl": b'["a",1]\n["b",2]\n'}
    assert memory.disk.hidden_parts(FOLDER) == []
    assert (committable["records"], committable["bytes"]) == (2, 16)


async def test_a_checkpoint_without_records_makes_no_file(memory: World, sink: FileSink) -> None:
    await sink.begin(memory.context())
    writer = await sink.open(memory.context())
    await writer.write([])

    assert await writer.prepare(1) is None
    assert memory.disk.hidden_parts(FOLDER) == []


async def test_each_checkpoint_begins_a_new_part(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    writer = await sink.open(ctx)

    for checkpoint in (1, 2):
        await writer.write([checkpoint])
        await sink.commit(await writer.prepare(checkpoint), ctx)

    assert list(memory.disk.visible(FOLDER).values()) == [b"1\n", b"2\n"]


async def test_what_is_written_while_a_checkpoint_is_prepared_belongs_to_the_next(
    memory: World, sink: FileSink
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    writer = await sink.open(ctx)
    await writer.write([1])

    preparing = writer.prepare(1)
    await writer.write([2])
    first = await preparing
    second = await writer.prepare(2)
    await sink.commit(first, ctx)
    await sink.commit(second, ctx)

    assert list(memory.disk.visible(FOLDER).values()) == [b"1\n", b"2\n"]


async def test_the_disk_is_asked_once_per_block_and_not_once_per_batch(
    memory: World, sink: FileSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_writer, "BLOCK", 1000)
    writer = await sink.open(memory.context())

    for _ in range(1000):
        await writer.write(["12345678"])

    created, blocks = 1, 10
    assert memory.disk.operations == created + blocks


async def test_text_lines_are_written_as_they_are(memory: World) -> None:
    sink = FileSink(FOLDER)
    ctx = memory.context()
    await sink.begin(ctx)
    await sink.commit(await write_part(sink, ctx, 1, "zwölf", ""), ctx)

    assert memory.disk.visible(FOLDER) == {"part-00000001-out-000-a1-lin1.txt": "zwölf\n\n".encode()}


async def test_when_a_record_cannot_be_written_then_sink_value_and_remedy_are_named(memory: World) -> None:
    writer = await FileSink(FOLDER).open(memory.context(uid="report"))

    with pytest.raises(BadRecordError, match=r"sink 'report' cannot write 7 \(int\): .* format='jsonl'"):
        await writer.write(["fine", 7])


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(PlanError, match="FileSink: format='csv' is not supported yet"):
        FileSink("out", format="csv")


# Committing again, aborting, cleaning


async def test_ac27_commit_may_be_repeated(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 1, "a")

    for attempt in (1, 2, 3):
        await sink.commit(committable, memory.context(attempt=attempt, restored_checkpoint=1))

    assert visible_records(memory) == ["a"]


@pytest.mark.parametrize("interrupted", [False, True])
async def test_what_commit_has_confirmed_survives_a_loss_of_power(
    memory: World, sink: FileSink, interrupted: bool
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 1, "a")
    if interrupted:
        await memory.disk.rename(f"{FOLDER}/{committable['hidden']}", f"{FOLDER}/{committable['final']}")

    await sink.commit(committable, ctx)
    memory.disk.crash()

    assert visible_records(memory) == ["a"]


async def test_when_a_reader_took_the_part_then_a_repeated_commit_says_so_and_goes_on(
    memory: World, sink: FileSink
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committables = [await write_part(sink, memory.context(attempt=n), n, "a") for n in (1, 2)]
    for committable in committables:
        await sink.commit(committable, ctx)
        await memory.disk.remove(f"{FOLDER}/{committable['final']}")

    for committable in committables:
        await sink.commit(committable, ctx)

    assert "a reader has taken it" in memory.logged[-1]
    assert visible_records(memory) == []


async def test_when_a_hidden_part_vanished_before_it_was_published_then_it_is_a_failure(
    memory: World, sink: FileSink
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    await sink.commit(await write_part(sink, ctx, 1, "a"), ctx)
    lost = await write_part(sink, memory.context(attempt=2), 2, "b", "c")
    await memory.disk.remove(f"{FOLDER}/{lost['hidden']}")

    with pytest.raises(LostOutputError, match=r"checkpoint 2 \(2 records\): it is not in /out"):
        await sink.commit(lost, ctx)


@pytest.fixture
def system() -> Iterator[World]:
    """A world on the real file system, with all that a sink does to it."""
    with ThreadPoolExecutor(1) as executor:
        yield World(SystemDisk(executor))


async def test_output_has_the_rights_that_the_umask_leaves_and_markers_are_private(
    system: World, tmp_path: Path
) -> None:
    before = os.umask(0o027)
    try:
        sink = FileSink(tmp_path / "deep" / "out")
        await sink.begin(system.context())
        await sink.commit(await write_part(sink, system.context(), 1, "a"), system.context())
    finally:
        os.umask(before)

    out = tmp_path / "deep" / "out"
    assert [path.stat().st_mode & 0o777 for path in (out.parent, out, *out.glob("part-*"))] == [0o750, 0o750, 0o640]
    assert {path.stat().st_mode & 0o777 for path in out.glob(".*")} == {0o600}


async def test_when_the_folder_was_moved_then_what_the_failure_says_to_do_mends_it(
    system: World, tmp_path: Path
) -> None:
    out, moved = tmp_path / "out", tmp_path / "moved"
    sink = FileSink(out)
    await sink.begin(system.context())
    prepared = await write_part(sink, system.context(), 1, "a")
    out.rename(moved)
    again = system.context(attempt=2, restored_checkpoint=1)
    await sink.begin(again)

    with pytest.raises(LostOutputError, match=f"remove the new {out} .* and move the old one back"):
        await sink.commit(prepared, again)

    shutil.rmtree(out)
    moved.rename(out)
    await sink.begin(again)
    await sink.commit(prepared, again)
    assert (out / prepared["final"]).exists()


@pytest.mark.parametrize("is_branch", [False, True])
async def test_a_folder_that_is_new_is_told_of_unless_the_job_is_a_branch(
    memory: World, sink: FileSink, is_branch: bool
) -> None:
    told: list[str] = []

    await sink.begin(memory.context(attempt=2, restored_checkpoint=1, log=told.append, is_branch=is_branch))

    assert ["which is new to this job" in text for text in told] == [True] * (not is_branch)


async def test_two_workers_may_publish_parts_of_one_subtask_at_once(memory: World, sink: FileSink) -> None:
    first, second = memory.context(subtask=0), memory.context(subtask=1)
    await sink.begin(first)
    writer = await sink.open(first)
    committables = []
    for checkpoint in (5, 6):
        await writer.write([checkpoint])
        committables.append(await writer.prepare(checkpoint))
    memory.disk.take_turns = True

    await asyncio.gather(sink.commit(committables[0], first), sink.commit(committables[1], second))

    assert sorted(memory.disk.visible(FOLDER).values()) == [b"5\n", b"6\n"]
    assert [name for name in await memory.disk.list(FOLDER) if name.startswith(".tmp")] == []


async def test_a_part_that_is_announced_late_lowers_no_mark(memory: World, sink: FileSink) -> None:
    ctx = memory.context(subtask=3)
    await sink.begin(ctx)
    for checkpoint in (6, 5):
        await announce(FOLDER, 3, checkpoint, ctx)

    assert await published_up_to(FOLDER, 3, ctx) == 6


async def test_what_a_dead_attempt_left_of_its_mark_is_removed(memory: World, sink: FileSink) -> None:
    dead, other = memory.context(attempt=2), memory.context(attempt=2, lineage="another")
    await sink.begin(dead)
    for ctx in (dead, other):
        memory.disk.fail_at(1, Crash(), "rename")
        with pytest.raises(Crash):
            await announce(FOLDER, 0, 5, ctx)
        memory.disk.kill()

    await sink.begin(memory.context(attempt=3, restored_checkpoint=4))

    left = [name for name in await memory.disk.list(FOLDER) if name.startswith(".tmp")]
    assert [name for name in left if "another" not in name] == []
    assert len(left) == 1


async def test_abort_removes_the_hidden_part_and_may_be_repeated(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 1, "a")

    await sink.abort(committable, ctx)
    await sink.abort(committable, ctx)

    assert memory.disk.hidden_parts(FOLDER) == []


async def test_clean_removes_only_older_attempts_of_this_sink_and_lineage(memory: World, sink: FileSink) -> None:
    await sink.begin(memory.context())
    for changes in ({"attempt": 1}, {"attempt": 2}, {"uid": "other"}, {"lineage": "lin2"}):
        await write_part(sink, memory.context(**changes), 1, "a")

    await sink.clean(memory.context(attempt=2))

    assert memory.disk.hidden_parts(FOLDER) == [
        ".part-other-000-a1-000001-lin1.jsonl",
        ".part-out-000-a1-000001-lin2.jsonl",
        ".part-out-000-a2-000001-lin1.jsonl",
    ]


# Going back to an older checkpoint


async def test_begin_takes_back_what_is_newer_than_the_restored_checkpoint(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    for checkpoint in (1, 2, 3):
        part = await write_part(sink, memory.context(attempt=checkpoint), checkpoint, checkpoint)
        await sink.commit(part, ctx)
    others = await write_part(sink, memory.context(uid="other"), 3, "other")
    await sink.commit(others, memory.context(uid="other"))

    await sink.begin(memory.context(attempt=2, restored_checkpoint=1))

    assert visible_records(memory) == [1, "other"]
    assert any("took back part-00000003" in line for line in memory.logged)
    assert not any("cannot be taken back" in line for line in memory.logged)


async def test_after_going_back_a_lost_part_with_a_number_seen_before_is_a_failure_again(
    memory: World, sink: FileSink
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    await sink.commit(await write_part(sink, ctx, 2, "a"), ctx)
    again = memory.context(attempt=2, restored_checkpoint=1)
    await sink.begin(again)
    lost = await write_part(sink, again, 2, "a")
    await memory.disk.remove(f"{FOLDER}/{lost['hidden']}")

    with pytest.raises(LostOutputError):
        await sink.commit(lost, again)


async def test_when_a_reader_took_what_should_be_taken_back_then_it_is_said(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 2, "a")
    await sink.commit(committable, ctx)
    await memory.disk.remove(f"{FOLDER}/{committable['final']}")

    await sink.begin(memory.context(attempt=2, restored_checkpoint=1))

    assert "published at checkpoint 2 is not in /out any more and cannot be taken back" in memory.logged[-1]


# Whose folder it is


async def test_a_folder_with_files_of_somebody_else_is_refused_and_nothing_in_it_is_touched(
    memory: World, sink: FileSink
) -> None:
    memory.disk.put(f"{FOLDER}/thesis.doc", b"precious")

    with pytest.raises(ForeignOutputError, match=r"/out.*'thesis.doc'.*--take-output"):
        await sink.begin(memory.context())

    await sink.begin(memory.context(take_output=True))
    assert memory.disk.visible(FOLDER) == {"thesis.doc": b"precious"}


async def test_dot_files_of_other_programs_do_not_make_a_folder_foreign(memory: World, sink: FileSink) -> None:
    memory.disk.put(f"{FOLDER}/.DS_Store", b"")

    await sink.begin(memory.context())


@pytest.mark.parametrize("committed", [True, False])
async def test_a_folder_with_parts_of_another_lineage_is_refused_until_it_is_taken(
    memory: World, sink: FileSink, committed: bool
) -> None:
    older = memory.context()
    await sink.begin(older)
    committable = await write_part(sink, older, 1, "old")
    if committed:
        await sink.commit(committable, older)
    newer = memory.context(lineage="lin2", job="other job")

    with pytest.raises(ForeignOutputError, match=r"job 'wordcount' \(lineage lin1\).*--take-output"):
        await sink.begin(newer)
    await sink.begin(memory.context(lineage="lin2", job="other job", take_output=True))
    await sink.begin(newer)
    await sink.commit(await write_part(sink, newer, 1, "new"), newer)
    await sink.clean(newer)

    assert visible_records(memory) == (["old", "new"] if committed else ["new"])


async def test_an_emptied_folder_is_free_for_the_next_start_of_the_same_job(memory: World, sink: FileSink) -> None:
    await sink.begin(memory.context())

    await sink.begin(memory.context(lineage="lin2"))


async def test_the_folder_of_another_job_is_refused_also_before_anything_was_published_in_it(
    memory: World, sink: FileSink
) -> None:
    older = memory.context()
    await sink.begin(older)

    with pytest.raises(
        ForeignOutputError, match=r"/out: it belongs to job 'wordcount' \(lineage lin1\).*--take-output"
    ):
        await sink.begin(memory.context(lineage="lin2", job="other job"))

    await sink.commit(await write_part(sink, older, 1, "first"), older)
    assert visible_records(memory) == ["first"]


async def test_an_empty_folder_of_another_job_is_taken_over_aloud(memory: World, sink: FileSink) -> None:
    await sink.begin(memory.context())

    await sink.begin(memory.context(lineage="lin2", job="other job", take_output=True))

    assert "took over /out of job 'wordcount' (lineage lin1)" in memory.logged[-1]


async def test_when_the_folder_was_taken_over_then_the_old_job_cannot_publish_into_it(
    memory: World, sink: FileSink
) -> None:
    older = memory.context()
    await sink.begin(older)
    committable = await write_part(sink, older, 1, "old")
    await sink.begin(memory.context(lineage="lin2", job="other job", take_output=True))

    with pytest.raises(ForeignOutputError, match=r"job 'other job' \(lineage lin2\) has taken the folder over"):
        await sink.commit(committable, older)


async def test_when_the_folder_is_a_file_then_it_is_refused(memory: World, sink: FileSink) -> None:
    memory.disk.put(FOLDER, b"")

    with pytest.raises(ForeignOutputError, match="/out: it is a file"):
        await sink.begin(memory.context())


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"lineage": 5, "checkpoint": "x"}', b"\xff\0", b"[" * 99999]
)
@pytest.mark.parametrize("damaged", [".flowpoint-owner", ".committed-out-000-lin1"])
async def test_what_flowpoint_keeps_in_the_folder_and_is_damaged_ends_the_job(
    memory: World, sink: FileSink, damaged: str, content: bytes
) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    await sink.commit(await write_part(sink, ctx, 1, "a"), ctx)
    following = await write_part(sink, ctx, 2, "b")
    memory.disk.put(f"{FOLDER}/{damaged}", content)

    for step in (sink.commit(following, ctx), sink.begin(memory.context(attempt=2))):
        with pytest.raises(FINAL_ERRORS, match=f"cannot understand {FOLDER}/{damaged}: it is not what FlowPoint wrote"):
            await step


async def test_a_damaged_marker_is_mended_by_what_the_failure_says_to_do(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    prepared = await write_part(sink, ctx, 1, "a")
    memory.disk.put(f"{FOLDER}/.flowpoint-owner", b"")
    with pytest.raises(DamagedOutputError, match="remove it and run the job once with --take-output"):
        await sink.commit(prepared, ctx)

    await memory.disk.remove(f"{FOLDER}/.flowpoint-owner")
    again = memory.context(attempt=2, restored_checkpoint=1, take_output=True)
    await sink.begin(again)
    await sink.commit(prepared, again)

    assert visible_records(memory) == ["a"]


async def test_what_stands_in_the_place_of_a_part_ends_the_job(system: World, tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    await sink.begin(system.context())
    prepared = await write_part(sink, system.context(), 1, "a")
    (tmp_path / "out" / prepared["final"]).mkdir()

    with pytest.raises(FINAL_ERRORS, match=f"cannot publish .*{prepared['final']}: .*move it away"):
        await sink.commit(prepared, system.context())


async def test_when_the_folder_is_deleted_while_the_job_runs_then_the_next_part_ends_the_job(
    system: World, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path / "out")
    await sink.begin(system.context())
    writer = await sink.open(system.context())
    shutil.rmtree(tmp_path / "out")

    await writer.write(["a"])
    with pytest.raises(LostOutputError, match="the folder was deleted or moved while the job ran"):
        await writer.prepare(1)
    await writer.close()


async def test_when_the_folder_is_moved_while_a_part_is_written_then_that_ends_the_job(
    system: World, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path / "out")
    await sink.begin(system.context())
    writer = await sink.open(system.context())
    await writer.write(["a" * part_writer.BLOCK])
    (tmp_path / "out").rename(tmp_path / "gone")

    with pytest.raises(LostOutputError, match="the folder was deleted or moved while the job ran"):
        await writer.prepare(1)
    with pytest.raises(StorageError, match="does not go on after a failed write"):
        await writer.write(["b"])
    await writer.close()


async def test_when_the_folder_is_replaced_while_the_job_runs_then_nothing_is_published_in_the_new_one(
    system: World, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sink = FileSink(out)
    await sink.begin(system.context())
    await sink.commit(await write_part(sink, system.context(), 1, "a"), system.context())
    shutil.rmtree(out)
    out.mkdir()
    prepared = await write_part(sink, system.context(), 2, "b")

    with pytest.raises(LostOutputError, match=r"\.flowpoint-owner is gone from it.* may be gone with it"):
        await sink.commit(prepared, system.context())


async def test_two_sinks_of_one_job_share_a_folder(memory: World, sink: FileSink) -> None:
    for uid in ("one", "two/2", "two_2"):
        ctx = memory.context(uid=uid)
        await sink.begin(ctx)
        await sink.commit(await write_part(sink, ctx, 1, uid), ctx)

    assert sorted(visible_records(memory)) == ["one", "two/2", "two_2"]


# A disk that fails


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_dir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_after_a_failed_write_or_sync_the_writer_refuses_to_go_on(
    memory: World, sink: FileSink, operation: str, code: int
) -> None:
    await sink.begin(memory.context())
    writer = await sink.open(memory.context())
    await writer.write(["lost"])
    memory.disk.fail_at(1, OSError(code, "the disk says no"), operation)

    with pytest.raises(StorageError, match=r"/out/\.part-out-000-a1-000001-lin1\.jsonl.*: the disk says no") as error:
        await writer.prepare(1)
    assert ("free some space" in str(error.value)) == (code == errno.ENOSPC)

    with pytest.raises(StorageError, match="does not go on after a failed write"):
        await writer.write(["later"])
    with pytest.raises(StorageError, match="does not go on after a failed write"):
        await writer.prepare(2)
    await writer.close()


class Run:
    """A little job: one checkpoint per record, all state in `log`, restarted after each crash."""

    def __init__(self, world: World, sink: FileSink, records: int) -> None:
        self._world, self._sink, self._records = world, sink, records
        self.log: list[Any] = []
        self.attempt = 0

    async def attempt_once(self) -> None:
        self.attempt += 1
        ctx = self._world.context(attempt=self.attempt, restored_checkpoint=len(self.log))
        await self._sink.begin(ctx)
        for committable in self.log[-2:]:
            await self._sink.commit(committable, ctx)
        await self._sink.clean(ctx)
        writer = await self._sink.open(ctx)
        while len(self.log) < self._records:
            checkpoint = len(self.log) + 1
            await writer.write([checkpoint])
            committable = await writer.prepare(checkpoint)
            self.log.append(json.loads(json.dumps(committable)))
            await self._sink.commit(committable, ctx)
        await writer.close()


def lose_power(share: float) -> Callable[[World], None]:
    return lambda world: world.disk.crash(share)


@pytest.mark.parametrize(
    "end_process",
    [lambda world: world.disk.kill(), lose_power(0.0), lose_power(0.5), lose_power(1.0)],
    ids=["kill", "power lost, no name kept", "power lost, half of the names kept", "power lost, names kept"],
)
async def test_wherever_the_process_ends_and_ends_again_each_record_is_visible_once(
    memory: World, sink: FileSink, crash: type[BaseException], end_process: Callable[[World], None]
) -> None:
    crashes = 0
    while True:
        world = World(type(memory.disk)())
        run = Run(world, sink, records=3)
        world.disk.fail_at(crashes + 1, crash())
        try:
            await run.attempt_once()
            break
        except crash:
            crashes += 1
            end_process(world)
        # A second crash soon after, inside the recovery from the first.
        world.disk.fail_at(1 + crashes % 13, crash())
        try:
            await run.attempt_once()
        except crash:
            end_process(world)
        world.disk.kill()
        await run.attempt_once()

        assert visible_records(world) == [1, 2, 3], f"crashed at operation {crashes}"
        assert world.disk.hidden_parts(FOLDER) == []
    assert crashes > 40


# Names


@pytest.mark.parametrize("uid", ["out", "word counts", "ausgänge/-.x", "x" * 300])
def test_a_name_tells_what_it_was_made_of(uid: str) -> None:
    part = Part(uid, 1234, 56, "1f3c9a2b0d4e7788", 123_456_789)

    found, hidden = parse_final(final_name(part, ".jsonl")), parse_hidden(hidden_name(part, 7, ".txt"))

    assert found is not None
    assert hidden is not None
    assert (found.subtask, found.attempt, found.checkpoint) == (1234, 56, 123_456_789)
    assert found.belongs_to(uid, part.lineage)
    assert hidden.belongs_to(uid, part.lineage)
    assert not found.belongs_to(uid + "2", part.lineage)
    assert not found.belongs_to(uid, "another")
    assert len(final_name(part, ".jsonl")) < 150


@pytest.mark.parametrize("name", ["part-1.txt", "part-00000001.jsonl", ".part-x", "thesis.doc", ".flowpoint-owner"])
def test_names_of_others_are_not_taken_for_parts(name: str) -> None:
    assert parse_final(name) is None
    assert parse_hidden(name) is None


# Savepoints and hand-overs


async def test_a_part_travels_in_a_savepoint_and_comes_out_under_the_new_lineage(memory: World, sink: FileSink) -> None:
    old, new = memory.context(lineage="L1", attempt=3), memory.context(lineage="L2", attempt=5, restored_checkpoint=7)
    await sink.begin(old)
    committable = await write_part(sink, old, 7, "a", "b")
    branch = FileSink("/branch", format="jsonl")
    await branch.begin(new)

    taken = await branch.take_in(committable, await sink.files_of(committable, old), new)
    await branch.commit(taken, new)

    assert memory.disk.visible("/branch") == {"part-00000007-out-000-a5-L2.jsonl": b'"a"\n"b"\n'}
    assert memory.disk.visible(FOLDER) == {}


async def test_a_part_that_was_committed_meanwhile_is_found_under_its_final_name(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 1, "a")
    await sink.commit(committable, ctx)

    assert await sink.files_of(committable, ctx) == [f"{FOLDER}/{committable['final']}"]


async def test_a_savepoint_without_the_part_is_refused(memory: World, sink: FileSink) -> None:
    ctx = memory.context()
    await sink.begin(ctx)
    committable = await write_part(sink, ctx, 1, "a")

    with pytest.raises(SnapshotError, match="does not hold the part"):
        await sink.take_in(committable, [], ctx)


async def test_a_lineage_goes_on_in_the_folder_that_was_handed_on_to_it_and_the_other_cannot(
    memory: World, sink: FileSink
) -> None:
    old, heir = memory.context(lineage="L1"), memory.context(lineage="L2", inherits="L1")
    await sink.begin(old)
    await sink.commit(await write_part(sink, old, 1, "a"), old)

    await sink.begin(heir)
    await sink.begin(heir)

    for other in old, memory.context(lineage="L3", inherits="L1"):
        with pytest.raises(ForeignOutputError):
            await sink.begin(other)
    assert visible_records(memory) == ["a"]
