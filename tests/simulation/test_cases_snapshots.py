"""Cases that went wrong elsewhere about starting from snapshots, and about what sinks and timers leave in them."""

from __future__ import annotations

from collections import Counter

import pytest

from flowpoint.coordinator.job import Wishes
from flowpoint.model import messages
from flowpoint.sim.faults import FaultKind
from flowpoint.sim.job import SAVEPOINTS
from flowpoint.sim.jobs import OUTPUT, STORAGE
from flowpoint.sim.stored_names import CHECKPOINT, Commit, files_of_manifest, parse_commit
from tests.simulation.stage import LOG, Stage, settings, witness

KEYS = 1000
RECORDS = 3 * KEYS
COUNTS = f'job.source(SequenceSource(0, {RECORDS}, rate=3000), uid="numbers").key_by(lambda n: n % {KEYS})'
COUNTS += '.count(uid="counts").sink(SINK)'
ALL_COUNTS = Counter({(key, n): 1 for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1)})
OTHER = "/flowpoint/checkpoints/other"


def newest_of(stage: Stage, storage: str) -> Commit | None:
    """The newest entry of a commit log that tells of a checkpoint."""
    names = sorted(name for name in stage.world.files.list(f"{storage}/commits") if name.endswith(".json"))
    entries = [
        parse_commit(number, bytes(stage.world.files.file(f"{storage}/commits/{name}").data))
        for number, name in enumerate(names)
    ]
    return next((entry for entry in reversed(entries) if entry.kind == CHECKPOINT), None)


def has_newer(stage: Stage, storage: str, number: int) -> bool:
    """Whether a checkpoint with a higher number is in this log."""
    newest = newest_of(stage, storage)
    return newest is not None and newest.checkpoint > number


def files_needed(stage: Stage, path: str) -> dict[str, bytes]:
    """The files of a snapshot, by path."""
    storage, _, _ = path.rpartition("/")
    manifest = bytes(stage.world.files.file(f"{path}/manifest.json").data)
    named = [f"{storage}/{file.path}" for file in files_of_manifest(manifest)]
    return {name: bytes(stage.world.files.file(name).data) for name in (f"{path}/manifest.json", *named)}


async def cut_after_checkpoint(stage: Stage, count: int) -> tuple[str, int]:
    """Run until that many checkpoints are there, and kill everybody; the newest checkpoint, and its number."""
    stage.start()
    await stage.until(lambda: stage.completed(count))
    stage.kill_all()
    await stage.all_dead()
    newest = newest_of(stage, STORAGE)
    assert newest is not None
    return f"{STORAGE}/{newest.directory}", newest.checkpoint


@pytest.mark.parametrize("seed", range(3))
def test_ac20_incremental_checkpoints_build_on_a_claimed_one_and_need_nothing_that_is_deleted_with_it(seed):
    stage = Stage(COUNTS, settings(2, retained=1), seed=seed, checked=False)

    async def script():
        claimed, number = await cut_after_checkpoint(stage, 4)
        taken = files_needed(stage, claimed)
        assert len(taken) > 2
        stage.start_from(claimed, OTHER, claim=True)
        await stage.until(lambda: has_newer(stage, OTHER, number))
        built_on = files_needed(stage, f"{OTHER}/{newest_of(stage, OTHER).directory}")
        # What was taken over is named again, and not written once more.
        assert [name for name in built_on if f"/chk-{number}-" in name]
        stage.kill_all()
        await stage.all_dead()
        # Claimed: the job may have removed it, and nobody else has a use for it.
        stage.world.files.remove_tree(STORAGE)
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == ALL_COUNTS


@pytest.mark.parametrize("seed", range(3))
def test_ac21_without_a_claim_nothing_depends_on_the_source_and_the_job_never_touches_its_files(seed):
    stage = Stage(COUNTS, settings(2, retained=1), seed=seed, checked=False)
    before: dict[str, bytes] = {}

    async def script():
        source, number = await cut_after_checkpoint(stage, 4)
        before.update(files_needed(stage, source))
        run = stage.start_from(source, OTHER)
        for further in range(1, 9):
            await stage.until(lambda further=further: has_newer(stage, OTHER, number + further))
            assert files_needed(stage, source) == before
        stage.kill(run)
        await stage.all_dead()
        stage.world.files.remove_tree(STORAGE)
        await stage.finish(stage.start())

    stage.play(script())

    assert before
    assert stage.output() == ALL_COUNTS


def test_ac21_the_source_may_be_deleted_as_soon_as_the_first_checkpoint_is_complete():
    stage = Stage(COUNTS, settings(2), checked=False)

    async def script():
        source, number = await cut_after_checkpoint(stage, 4)
        stage.start_from(source, OTHER)
        await stage.until(lambda: has_newer(stage, OTHER, number))
        stage.world.files.remove_tree(STORAGE)
        stage.kill_all()
        await stage.all_dead()
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == ALL_COUNTS


def test_ac25_what_a_sink_holds_in_memory_is_in_the_checkpoint_and_reaches_its_target_after_a_kill():
    job = """
from tests.simulation.witness import UpsertSink
job.source(LogSource(), uid="log").map(see, uid="see").map(lambda n: ("k", n), uid="pairs").sink(UpsertSink(), uid="out")
"""
    stage = Stage(job, settings(interval=0.2), files={LOG: b"1\n2\n"}, checked=False)
    # The checkpoint counts, and the sink is never told.
    stage.on_message(messages.Complete, lambda link, message: stage.kill_all() or True, once=True)

    async def script():
        run = stage.start()
        await run.wait_exit()
        await stage.all_dead()
        assert witness.seen == [1, 2]
        assert not witness.target
        stage.append("end")
        await stage.finish(stage.start())

    stage.play(script())

    assert witness.target == {"k": 2}
    assert witness.seen == [1, 2]


@pytest.mark.parametrize("counts", [False, True], ids=["aborted", "committed"])
def test_ac28_what_subtasks_that_are_no_more_had_prepared_is_settled_by_those_that_are(counts):
    numbers = 'job.source(SequenceSource(0, 2000, rate=2000), uid="numbers")'
    stage = Stage(f"{numbers}.map(lambda n: (n,), uid='rows').sink(SINK)", settings(4, interval=0.2))

    def hidden() -> list[str]:
        return [name for name in stage.world.files.list(OUTPUT) if name.startswith(".part-")]

    def owners() -> set[str]:
        return {name.split("-out-")[1][:3] for name in hidden()}

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1) and stage.output())
        if counts:
            # The next checkpoint counts, and no sink is told.
            stage.on_message(messages.Complete, lambda link, message: stage.kill_all() or True, once=True)
            await run.wait_exit()
        else:
            # All have prepared for a checkpoint that does not count yet.
            await stage.until(lambda: owners() == {"000", "001", "002", "003"})
            assert not stage.completed(2)
            stage.kill_all()
        await stage.all_dead()
        assert owners() == {"000", "001", "002", "003"}
        visible = stage.output()
        run = stage.start_with(2)
        await stage.until(lambda: stage.story("lets the records of attempt 2 flow"))
        # What was visible has stayed so, and what counts has come.
        assert visible <= stage.output()
        assert (visible < stage.output()) is counts
        await stage.finish(run)

    stage.play(script())

    assert hidden() == []
    assert stage.output() == Counter({(n,): 1 for n in range(2000)})


TIMERS = """
class First(KeyedProcessFunction):
    def process(self, record, ctx):
        ctx.timers.event(record[1] + 10)

    def on_timer(self, timestamp, ctx):
        if timestamp == 20:
            # For a time that has come, too: it fires in the same step.
            ctx.timers.event(22)
        yield (ctx.key, timestamp)


class Tumbling(KeyedProcessFunction):
    counts = MapState("counts")

    def process(self, record, ctx):
        start = ctx.timestamp // 10 * 10
        if start + 10 - 1 <= ctx.watermark:
            yield ("late", record[1])
            return
        self.counts[start] = self.counts.get(start, 0) + 1
        ctx.timers.event(start + 10 - 1)

    def on_timer(self, timestamp, ctx):
        start = timestamp + 1 - 10
        yield ("window", start, self.counts.pop(start))


records = job.source(CollectionSource([("k", 10), ("other", 26), ("other", 500)]), uid="records", parallelism=1)
(
    records.assign_timestamps(lambda record: record[1], max_out_of_orderness=0, uid="times", parallelism=1)
    .key_by(lambda record: record[0])
    .process(First(), uid="first")
    .key_by(lambda record: record[0])
    .process(Tumbling(), uid="tumbling")
    .sink(SINK)
)
"""


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_ac39_what_a_timer_emits_is_on_time_in_the_operator_behind_it(parallelism, seed):
    stage = Stage(TIMERS, settings(parallelism), seed=seed)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == Counter({("window", 20, 2): 1, ("window", 30, 1): 1, ("window", 510, 1): 1})


def test_a_start_from_a_savepoint_that_fails_after_it_took_the_output_over_is_gone_on_with_by_the_same_command():
    stage = Stage(COUNTS, settings(2), checked=False)
    broken: dict[str, bytes] = {}

    def break_what_was_taken_over(point):
        if broken or point.operation != "disk.link" or point.phase != "after" or "/commits/" not in point.subject:
            return
        newest = newest_of(stage, STORAGE)
        folder = f"{STORAGE}/{newest.directory}"
        if newest.attempt != 2 or not stage.world.files.list(folder):
            return
        name = next(name for name in stage.world.files.list(folder) if name != "manifest.json")
        file = stage.world.files.file(f"{folder}/{name}")
        broken[f"{folder}/{name}"] = bytes(file.data)
        del file.data[:]

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(3))
        stage.ask_for(FaultKind.ASK_STOP_TO)
        await stage.finish(run, 130)
        (savepoint,) = stage.world.files.list(SAVEPOINTS)
        stage.wish(Wishes(source=f"{SAVEPOINTS}/{savepoint}"))
        stage.world.watch_points(break_what_was_taken_over)
        await stage.finish(stage.start(), 1)
        for path, data in broken.items():
            stage.world.files.file(path).data[:] = data
        await stage.finish(stage.start())

    stage.play(script())

    assert broken
    assert stage.output() == ALL_COUNTS


WINDOWS = """
class Windows(KeyedProcessFunction):
    items = MapState("items")

    def process(self, item, ctx):
        start = ctx.timestamp // 10 * 10
        self.items[start] = self.items.get(start, 0) + 1
        ctx.timers.event(start + 10 - 1)

    def on_timer(self, timestamp, ctx):
        start = timestamp + 1 - 10
        yield (ctx.key, start, self.items.pop(start))

items = job.source(LogSource(), uid="log").map(lambda n: divmod(n, 100), uid="items")
(
    items.assign_timestamps(lambda item: item[1], max_out_of_orderness="10ms", uid="times")
    .key_by(lambda item: "abc"[item[0]])
    .process(Windows(), uid="windows")
    .sink(SINK)
)
"""


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (2, 3)])
def test_ac14_event_time_windows_that_were_open_at_a_kill_fire_with_what_came_before_and_after_it(before, after):
    # Item n belongs to key n // 100 and has the time n % 100.
    stage = Stage(WINDOWS, settings(before, interval=0.2), files={LOG: b"0\n4\n8\n100\n"})

    async def script():
        stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.kill_all()
        await stage.all_dead()
        assert not stage.output()
        run = stage.start_with(after)
        for item in (104, 108, 231):
            stage.append(item)
        # The watermark is 20 now: it is time that makes them fire, and not the end of the input.
        await stage.until(lambda: stage.output().total() == 2)
        stage.append("end")
        await stage.finish(run)

    stage.play(script())

    assert stage.story("deploys attempt 2, from checkpoint")
    assert stage.output() == Counter({("a", 0, 3): 1, ("b", 0, 3): 1, ("c", 30, 1): 1})
