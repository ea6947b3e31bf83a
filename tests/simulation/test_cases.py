"""Cases that went wrong elsewhere, each as a short script on a simulated machine with the real job on it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from flowpoint.connectors import FileSink
from flowpoint.coordinator.job import Wishes
from flowpoint.errors import Fenced, OutcomeUnknown, StorageError, WorkerLost
from flowpoint.model import messages
from flowpoint.model.commits import CommitKind
from flowpoint.sim.faults import FaultKind
from flowpoint.sim.host import SimHost
from flowpoint.sim.jobs import OUTPUT, STORAGE
from flowpoint.sim.world import EPOCH_MS, SimProcess
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.retention import Cleaner
from tests.simulation.stage import LOG, Stage, settings, witness

LOG_NUMBERS = 'job.source(LogSource(), uid="log").map(see, uid="see")'
ROWS = ".map(lambda n: (n,), uid='rows').sink(SINK)"


def numbers(end: int, rate: int | None = None) -> str:
    """A source of 1 to before `end`."""
    return f'job.source(SequenceSource(1, {end}, rate={rate}), uid="numbers")'


def counts(key: object, upto: int) -> Counter:
    """What a running count of one key emits."""
    return Counter({(key, n): 1 for n in range(1, upto + 1)})


def once_each(*values: object) -> Counter:
    """Rows of one column, each once."""
    return Counter({(value,): 1 for value in values})


# ---------------------------------------------------------------------- recovery


def test_ac01_one_key_over_20_splits_stays_one_key_after_a_restart_from_a_checkpoint():
    files = {f"/data/in/{i:02}.txt": b"foo\n" * 15 for i in range(20)}
    parts = [{"path": path, "start": 0, "end": 60, "size": 60, "mtime_ms": EPOCH_MS} for path in files]
    splits = f"    def splits(self):\n        return [Split(part['path'], part) for part in {parts}]"
    job = 'job.source(Twenty("/data/in"), uid="lines").key_by(str).count(uid="counts").sink(SINK)'
    stage = Stage(f"class Twenty(FileSource):\n{splits}\n{job}", settings(4, interval=0.02), files=files)

    async def script():
        stage.world.disk_faults.slowness = 60.0
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        for worker in stage.workers():
            stage.kill(worker)
        stage.world.disk_faults.slowness = 1.0
        await stage.finish(run)

    stage.play(script())

    assert stage.story("deploys attempt 2, from checkpoint")
    assert stage.output() == counts("foo", 300)


def test_ac05_after_a_kill_only_what_the_checkpoint_does_not_cover_is_read_again():
    stage = Stage(LOG_NUMBERS + ROWS, settings(), files={LOG: b"1\n2\n3\n"})

    async def script():
        stage.start()
        await stage.until(lambda: stage.output().total() == 3)
        stage.kill_all()
        await stage.all_dead()
        witness.reset()
        stage.append(4)
        stage.append("end")
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == once_each(1, 2, 3, 4)
    assert witness.seen == [4]


def test_ac06_a_first_checkpoint_that_only_one_worker_acknowledged_is_none():
    stage = Stage(numbers(11, rate=40) + ROWS, settings(2))
    acknowledged: set[str] = set()

    def pause_one(link, message):
        stage.world.pause(stage.workers()[1])
        return True

    stage.on_message(messages.Trigger, pause_one, once=True)
    stage.on_message(messages.Ack, lambda link, message: acknowledged.add(link.owner.name))

    async def script():
        stage.start()
        await stage.until(lambda: acknowledged)
        await asyncio.sleep(0.03)
        stage.kill_all()
        await stage.all_dead()
        assert len(acknowledged) == 1
        assert not stage.completed(1)
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("deploys attempt 2, from the start")
    assert stage.output() == once_each(*range(1, 11))


def test_ac07_an_acknowledgement_that_comes_after_the_failover_began_counts_for_nothing():
    stage = Stage(numbers(201, rate=200) + ".key_by(lambda n: n % 5).count(uid='counts').sink(SINK)", settings(2))
    held: list[messages.Ack] = []

    def hold_and_kill(link, ack):
        """The last acknowledgement of checkpoint 2 is on its way for long; the other worker dies meanwhile."""
        if ack.checkpoint < 2:
            return False
        link.stall(0.6)
        held.append(ack)
        other = next(worker for worker in stage.workers() if worker is not link.owner)
        stage.world.loop.call_later(0.05, stage.kill, other)
        return True

    def say_it_again(link, message):
        """The same arrives while the next attempt restores, and under the number of each checkpoint that it takes."""
        if message.attempt == 2:
            survivor, *_ = stage.workers()
            again.add(type(message))
            number = message.checkpoint if isinstance(message, messages.Trigger) else held[0].checkpoint
            stage.slip_in(survivor, link.owner, replace(held[0], checkpoint=number))

    again: set[type] = set()
    stage.on_message(messages.Ack, hold_and_kill, once=True)
    for kind in (messages.Deploy, messages.Trigger):
        stage.on_message(kind, say_it_again)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(4))
        # What the next attempt starts from has nothing of the late words in it.
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert again == {messages.Deploy, messages.Trigger}
    assert stage.story("commit", "chk-1-a1")
    assert not stage.story("commit", "chk-2-a1")
    assert stage.story("deploys attempt 2, from checkpoint 1")
    assert stage.output() == sum((counts(key, 40) for key in range(5)), Counter())


def test_ac08_files_of_a_run_that_died_in_a_checkpoint_are_never_adopted_by_the_next_ones():
    job = numbers(10_001, rate=20_000) + ".key_by(lambda n: n % 7).count(uid='counts').sink(SINK)"
    stage = Stage(job, settings(2))
    stage.on_point("disk.link", "/shared/counts-1", lambda process: stage.kill_all())

    async def script():
        run_1 = stage.start()
        await stage.until(lambda: not run_1.alive)
        await stage.all_dead()
        assert not stage.completed(1)
        run_2 = stage.start()
        await stage.until(lambda: stage.completed(1))
        stage.kill(run_2)
        await stage.all_dead()
        await stage.finish(stage.start())

    stage.play(script())

    expected = Counter(n % 7 for n in range(1, 10_001))
    assert stage.output() == sum((counts(key, count) for key, count in expected.items()), Counter())


def test_ac09_state_that_no_checkpoint_holds_is_gone_with_its_worker():
    job = """
class Changes(KeyedProcessFunction):
    last = ValueState("last")

    def process(self, value, ctx):
        if value != self.last.value:
            self.last.value = value
            yield see(("A", value))
"""
    stream = 'job.source(LogSource(), uid="log").key_by(lambda n: "A").process(Changes(), uid="changes").sink(SINK)'
    stage = Stage(f"{job}\n{stream}", settings(interval=60.0), files={LOG: b"1\n"})

    async def script():
        run = stage.start()
        await stage.until(lambda: witness.seen == [("A", 1)])
        stage.kill(stage.workers()[0])
        await stage.until(lambda: witness.seen == [("A", 1), ("A", 1)])
        stage.append("end")
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == Counter({("A", 1): 1})


def test_ac14_a_timer_that_was_due_while_the_job_was_down_fires_at_once_after_the_restart():
    job = """
class Later(KeyedProcessFunction):
    def process(self, n, ctx):
        ctx.timers.processing(ctx.timers.now() + 500)

    def on_timer(self, timestamp, ctx):
        yield see((ctx.key,))
"""
    stream = 'job.source(LogSource(), uid="log").key_by(lambda n: n).process(Later(), uid="later").sink(SINK)'
    stage = Stage(f"{job}\n{stream}", settings(), files={LOG: b"7\n"})

    async def script():
        stage.start()
        await stage.until(lambda: stage.completed(2))
        assert witness.seen == []
        stage.kill_all()
        await asyncio.sleep(5.0)
        run = stage.start()
        await stage.until(lambda: stage.story("lets the records of attempt 2 flow"))
        await stage.until(lambda: witness.seen, seconds=0.05)
        stage.append("end")
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == once_each(7)


def test_ac19_two_chained_keyed_operators_may_give_their_states_one_name():
    job = """
class Counts(KeyedProcessFunction):
    total = ValueState("total", default=0)

    def process(self, n, ctx):
        self.total.value += 1
        yield self.total.value

class Sums(KeyedProcessFunction):
    total = ValueState("total", default=0)

    def process(self, count, ctx):
        self.total.value += 10
        yield (count, self.total.value)
"""
    stream = (
        'job.source(LogSource(), uid="log").key_by(lambda n: "a").process(Counts(), uid="op1")'
        '.key_by(lambda n: "a").process(Sums(), uid="op2").sink(SINK)'
    )
    stage = Stage(f"{job}\n{stream}", settings(), files={LOG: b"1\n1\n1\n"})

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.output().total() == 3)
        stage.kill(stage.workers()[0])
        stage.append(1)
        stage.append("end")
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == Counter({(1, 10): 1, (2, 20): 1, (3, 30): 1, (4, 40): 1})
    assert stage.story("attempt 2", "state files opened locally", "from the checkpoint storage: 0 (0 bytes)")


def test_ac46_a_deleted_entry_is_gone_at_once_and_none_is_a_value():
    job = """
class Entries(KeyedProcessFunction):
    entries = MapState("entries")

    def process(self, n, ctx):
        if n == 1:
            self.entries["a"], self.entries[""], self.entries[0] = 1, None, None
        elif n == 2:
            del self.entries["a"]
            yield ("deleted", "a" in self.entries)
            yield ("kept", "" in self.entries, 0 in self.entries, self.entries[""])
"""
    stream = 'job.source(LogSource(), uid="log").key_by(lambda n: "k").process(Entries(), uid="entries").sink(SINK)'
    stage = Stage(f"{job}\n{stream}", settings(), files={LOG: b"1\n"})

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.append(2)
        stage.append("end")
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == Counter({("deleted", False): 1, ("kept", True, True, None): 1})


def test_rule21_each_subtask_has_its_own_copy_of_a_users_function():
    job = """
class Remembers(KeyedProcessFunction):
    def __init__(self):
        self.keys = []

    def process(self, n, ctx):
        if ctx.key not in self.keys:
            self.keys.append(ctx.key)
        yield (ctx.key, sorted(self.keys))
"""
    stream = (
        f'{numbers(401, rate=2000)}.key_by(lambda n: n % 8).process(Remembers(), uid="remembers").map(see, uid="see")'
    )
    stage = Stage(f"{job}\n{stream}.map(lambda row: (row[0],)).sink(SINK)", settings(2, workers=1))

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    last = {key: tuple(keys) for key, keys in witness.seen}  # of each key, whichever subtask was the last to run
    longest = set(last.values())
    assert len(longest) == 2
    assert sorted(key for keys in longest for key in keys) == list(range(8))


# ---------------------------------------------------------------------- stopping and ending


def test_ac12_a_failed_commit_moves_no_position_and_a_graceful_stop_leaves_nothing_to_read_again():
    sink = f'CommitFailsSink("{OUTPUT}", format="jsonl"), uid="out"'
    stage = Stage(LOG_NUMBERS + ROWS, settings(), files={LOG: b"1\n2\n3\n"}, output=sink)

    async def script():
        run = stage.start()
        witness.failures["commit"] = 1
        await stage.until(lambda: stage.output().total() == 3)
        assert stage.story("fails", "the commit is refused")
        stage.ask_to_stop()
        await stage.finish(run, code=130)
        witness.reset()
        stage.append(4)
        stage.append("end")
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == once_each(1, 2, 3, 4)
    assert witness.seen == [4]


def test_ac24_the_end_of_input_commits_the_tail_without_any_periodic_checkpoint():
    stage = Stage(numbers(1001) + ROWS, settings(2, interval=3600.0))

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.output() == once_each(*range(1, 1001))


def test_a_job_whose_end_was_recorded_and_not_heard_of_has_ended():
    stage = Stage(numbers(11) + ROWS, settings(interval=3600.0))

    def lose_the_answer(process):
        """Entry 3 is "finished". It is there; that its folder is synced is not heard."""
        stage.world.disk_faults.lost_answer_rate = 1.0
        stage.world.loop.call_later(0.01, stage.world.heal)

    stage.on_point("disk.link", "/commits/00000003", lose_the_answer)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("restarting", "cannot tell whether")
    assert not stage.story("deploys attempt 2")
    assert stage.output() == once_each(*range(1, 11))


def test_a_last_checkpoint_published_while_the_next_attempt_is_prepared_is_restored_and_finished():
    stage = Stage(numbers(11) + ROWS, settings(interval=3600.0))

    def slow_down(process):
        stage.world.disk_faults.slowness = 100.0
        stage.kill(stage.workers()[0])

    stage.on_point("disk.create", "/chk-1-a1", slow_down)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        stage.world.heal()
        await stage.finish(run)

    stage.play(script())

    assert stage.story("deploys attempt 2, from checkpoint 1")
    assert stage.output() == once_each(*range(1, 11))


# ---------------------------------------------------------------------- files and sinks


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (4, 3), (3, 1)])
def test_what_savepoints_had_prepared_is_published_in_order_by_the_subtasks_of_another_parallelism(before, after):
    stage = Stage(numbers(1000, rate=1000) + ROWS, settings(before, interval=1000.0))

    async def script():
        run = stage.start()
        for _ in range(4):
            await asyncio.sleep(0.2)
            stage.ask_for(FaultKind.ASK_SAVEPOINT)
        await asyncio.sleep(0.2)
        # The first checkpoint holds all of it, and nobody hears that it counts.
        stage.on_message(messages.Complete, lambda link, message: stage.kill_all() or True, once=True)
        stage.ask_for(FaultKind.ASK_CHECKPOINT)
        await run.wait_exit()
        await stage.all_dead()
        await stage.finish(stage.start_with(after))

    stage.play(script())

    assert stage.story("deploys attempt 2, from checkpoint")
    assert not stage.story("deploys attempt 3")
    assert stage.output() == once_each(*range(1, 1000))
    for old in range(before):
        published = [line.partition("part-")[2] for line in stage.story(f"-out-{old:03}-a1-") if "is committed" in line]
        assert len(published) == 5
        assert published == sorted(published)


def test_ac23_with_one_retained_checkpoint_200_of_them_leave_no_more_files_than_a_few():
    job = numbers(1001, rate=100) + ".key_by(lambda n: n % 5).count(uid='counts').sink(SINK)"
    stage = Stage(job, settings(interval=0.02, retained=1))

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(200))
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == sum((counts(key, 200) for key in range(5)), Counter())
    left = [path for path, _ in stage.world.files.walk(STORAGE)]
    assert len([path for path in left if path.endswith("manifest.json")]) == 1
    assert len(left) < 40


def test_ac26_no_checkpoint_completes_while_the_target_refuses_what_it_had_taken():
    sink = f'RefusingSink("{OUTPUT}", format="jsonl"), uid="out"'
    stage = Stage(numbers(1001, rate=1000) + ROWS, settings(), output=sink)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(3))
        before = len(stage.storage.commits)
        witness.failures["prepare"] = 3
        await stage.until(lambda: not witness.failures["prepare"])
        kinds = [entry.kind for number, entry in stage.storage.commits.items() if number > before + 1]
        assert "checkpoint" not in kinds
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == once_each(*range(1, 1001))


def test_ac26_while_a_write_is_not_confirmed_no_checkpoint_completes_and_its_failure_loses_nothing():
    sink = f'SlowlyRefusingSink("{OUTPUT}", format="jsonl"), uid="out"'
    stage = Stage(numbers(1001, rate=1000) + ROWS, settings(timeout=60.0), output=sink)
    completed: list[int] = []

    def known() -> int:
        return sum(entry.kind == "checkpoint" for entry in stage.storage.commits.values())

    async def script():
        run = stage.start()
        witness.failures["target"] = 1
        await stage.until(lambda: "refused" in witness.seen)
        completed.append(known())
        await stage.until(lambda: "failed" in witness.seen)
        completed.append(known())
        assert not any(400 <= n < 500 for (n,) in stage.output())
        await stage.finish(run)

    stage.play(script())

    before, after = completed
    # One may have been on its way whose barrier came before the write.
    assert 1 < before <= after <= before + 1
    assert stage.story("fails", "the target had no room for 400 to 499 after 5 s")
    assert stage.output() == once_each(*range(1, 1001))


def test_ac27_a_commit_whose_answer_is_lost_twice_in_a_row_is_neither_lost_nor_doubled():
    sink = f'CommitNotHeardSink("{OUTPUT}", format="jsonl"), uid="out"'
    stage = Stage(numbers(3001, rate=6000) + ROWS, settings(3), output=sink)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        witness.failures["commit answer"] = 2
        await stage.finish(run)

    stage.play(script())

    assert stage.story("fails", "the answer to a commit is lost")
    assert witness.failures["commit answer"] == 0
    assert stage.output() == once_each(*range(1, 3001))


# ---------------------------------------------------------------------- the coordinator's own trouble


def test_a_process_that_the_system_refuses_is_started_again(monkeypatch):
    stage = Stage(numbers(51, rate=100) + ROWS, settings(2))
    refused: list[str] = []
    start = SimHost.start_process

    async def refuse_once(host, role, args, log_path):
        if not refused:
            refused.append(role)
            raise WorkerLost("cannot start a process: Resource temporarily unavailable; see the limits of this user")
        return await start(host, role, args, log_path)

    monkeypatch.setattr(SimHost, "start_process", refuse_once)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("restarting", "Resource temporarily unavailable")
    assert stage.output() == once_each(*range(1, 51))


def test_a_stop_that_is_cancelled_after_its_checkpoint_is_not_reported_as_done():
    stage = Stage(numbers(1001, rate=100) + ROWS, settings())

    def cancel(link, message):
        if stage.story("person", "asks for a stop"):
            stage.ask_to_cancel()

    stage.on_message(messages.Committed, cancel)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        stage.ask_to_stop()
        await stage.finish(run, code=130)

    stage.play(script())

    assert stage.story("answers ask_stop", "cancelled")


def refuse_append(monkeypatch, error, when):
    """The commit log answers so, once, to a checkpoint's entry that is not appended."""
    append = CommitLog.append
    refused: list[str] = []

    async def refuse_once(log, kind, *args, **more):
        if not refused and kind == "checkpoint" and when():
            refused.append(kind)
            raise error
        return await append(log, kind, *args, **more)

    monkeypatch.setattr(CommitLog, "append", refuse_once)


def test_a_stop_whose_commit_entry_is_uncertain_is_carried_out_after_the_failover(monkeypatch):
    stage = Stage(numbers(1001, rate=100) + ROWS, settings())
    stops: list[messages.Trigger] = []
    stage.on_message(messages.Trigger, lambda link, message: stops.append(message) if message.halt else None)
    resumed: list[messages.Resume] = []
    stage.on_message(messages.Resume, lambda link, message: resumed.append(message))
    refuse_append(monkeypatch, OutcomeUnknown("cannot tell whether it has been appended"), lambda: stops)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        stage.ask_to_stop()
        await stage.finish(run, code=130)

    stage.play(script())

    assert [message.attempt for message in stops] == [1, 2]
    assert not resumed
    assert stage.story("answers ask_stop", "is completed")


def test_a_final_checkpoint_that_is_fenced_is_not_triggered_again(monkeypatch):
    stage = Stage(numbers(11) + ROWS, settings(interval=5.0))
    finals: list[messages.Trigger] = []
    stage.on_message(messages.Trigger, lambda link, message: finals.append(message) if message.final else None)
    refuse_append(monkeypatch, Fenced("attempt 2 has begun"), lambda: finals)

    async def script():
        await stage.finish(stage.start(), code=1)

    stage.play(script())

    assert len(finals) == 1
    assert stage.story("the job is failed", "attempt 2 has begun")


def test_a_fresh_start_that_is_refused_at_its_second_try_does_not_change_what_the_next_run_continues(monkeypatch):
    stage = Stage(numbers(101, rate=100) + ROWS, settings())
    tries: list[int] = []
    begin = FileSink.begin

    async def fail_once(sink, ctx):
        tries.append(ctx.attempt)
        if len(tries) == 2:
            raise StorageError("the disk stumbles")
        await begin(sink, ctx)

    monkeypatch.setattr(FileSink, "begin", fail_once)

    async def script():
        stage.start()
        await stage.until(lambda: stage.output().total() >= 10)
        stage.kill_all()
        await stage.all_dead()
        stage.wish(Wishes(fresh=True))
        await stage.finish(stage.start(), code=1)
        stage.wish(Wishes())
        await stage.finish(stage.start())

    stage.play(script())

    assert tries == [1, 2, 3, 4]
    assert stage.story("deploys attempt 4, from checkpoint")
    assert stage.output() == once_each(*range(1, 101))


def test_whatever_a_users_sink_raises_in_the_coordinator_is_the_users_error_and_names_the_sink(monkeypatch):
    stage = Stage(numbers(11) + ROWS, settings())

    async def fail(sink, ctx):
        raise ValueError("no such table")

    monkeypatch.setattr(FileSink, "begin", fail)

    async def script():
        await stage.finish(stage.start(), code=1)

    stage.play(script())

    assert stage.story("the job is failed", "operator 'out': begin() failed: ValueError: no such table", "3 times")


def test_a_worker_that_fell_silent_is_dead_before_the_next_attempt_is_deployed_though_it_never_wakes_up():
    stage = Stage(numbers(201, rate=100) + ROWS, settings(2))
    silent: list[SimProcess] = []
    alive_at_deployment: list[bool] = []

    def look(link, message):
        if message.attempt == 2:
            alive_at_deployment.append(silent[0].alive)

    stage.on_message(messages.Deploy, look)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        silent.append(stage.workers()[0])
        stage.world.pause(silent[0])
        await stage.finish(run)

    stage.play(script())

    assert set(alive_at_deployment) == {False}
    assert stage.output() == once_each(*range(1, 201))


@pytest.mark.parametrize("kind", [messages.Trigger, messages.Release])
def test_a_coordinator_that_stood_still_takes_nobody_for_late(kind):
    stage = Stage(numbers(201, rate=100) + ROWS, settings(2))

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))

        def stand_still(link, message):
            stage.world.pause(run)
            return True

        stage.on_message(kind, stand_still, once=True)
        if kind is messages.Release:
            stage.kill(stage.workers()[0])
        await stage.until(lambda: run.paused)
        await asyncio.sleep(8.0)
        stage.world.resume(run)
        await stage.finish(run)

    stage.play(script())

    assert stage.story("goes on (SIGCONT)")
    assert not stage.story("did not let go")
    assert not stage.story("failed:")
    assert stage.output() == once_each(*range(1, 201))


def test_a_cancel_does_not_wait_for_a_sink_that_hangs(monkeypatch):
    stage = Stage(numbers(11) + ROWS, settings())

    async def hang(sink, ctx):
        await asyncio.Event().wait()

    monkeypatch.setattr(FileSink, "begin", hang)

    async def script():
        run = stage.start()
        await asyncio.sleep(2.0)
        stage.ask_to_cancel()
        await stage.finish(run, code=130)

    stage.play(script())

    assert stage.story("had not ended after 5 s: prepare attempt")


def test_a_job_that_has_failed_does_not_wait_for_a_storage_that_hangs(monkeypatch):
    stage = Stage(numbers(5001, rate=100) + ".map(see, uid='see')" + ROWS, settings(restart_strategy="none"))

    async def hang(cleaner, *args, **options):
        await asyncio.Event().wait()

    monkeypatch.setattr(Cleaner, "run", hang)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.kill(stage.workers()[0])
        await stage.finish(run, code=1)

    stage.play(script())

    assert stage.story("failed, and given up", "remove old checkpoints")


def test_a_sink_that_does_not_commit_in_time_fails_the_attempt_and_the_next_one_commits():
    stage = Stage(
        numbers(21) + ROWS,
        settings(timeout=2.0, interval=0),
        output='HangingSink("/data/out", format="jsonl"), uid="out"',
    )
    witness.failures["commit"] = 1

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("restarting at once", "the last checkpoint was not committed within", "out#0")
    assert stage.output() == once_each(*range(1, 21))


def test_an_attempt_that_is_not_deployed_in_time_is_tried_again(monkeypatch):
    stage = Stage(numbers(21) + ROWS, settings(timeout=2.0))
    begin = FileSink.begin
    begun: list[int] = []

    async def hang_once(sink, ctx):
        begun.append(ctx.attempt)
        if len(begun) == 1:
            await asyncio.sleep(5.0)
        await begin(sink, ctx)

    monkeypatch.setattr(FileSink, "begin", hang_once)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("restarting at once", "the attempt was not deployed within", "storage or a sink hangs")
    assert stage.output() == once_each(*range(1, 21))


class HangingEnd:
    """The last entry of the job hangs on its way into the commit log, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_open: asyncio.Event | None = None
        append = CommitLog.append

        async def hang(log, kind, *args, **options):
            if kind in (CommitKind.FINISHED, CommitKind.STOPPED):
                self._is_open = self._is_open or asyncio.Event()
                await self._is_open.wait()
            return await append(log, kind, *args, **options)

        monkeypatch.setattr(CommitLog, "append", hang)

    def let_go(self) -> None:
        assert self._is_open is not None
        self._is_open.set()


def test_a_job_whose_end_cannot_be_recorded_says_so_again_and_again_and_ends_when_it_can(monkeypatch):
    stage = Stage(numbers(21) + ROWS, settings(timeout=2.0))
    end = HangingEnd(monkeypatch)
    late = "the end of the job could not be recorded for"

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.story("all output is committed", f"{late} 4 s", STORAGE))
        assert stage.output() == once_each(*range(1, 21))
        end.let_go()
        await stage.finish(run)

    stage.play(script())

    assert len(stage.story(late)) == 2 and not stage.story("restarting")
    assert stage.story("the job is finished")


def test_a_job_whose_end_cannot_be_recorded_can_be_cancelled_and_the_next_run_ends_it(monkeypatch):
    stage = Stage(numbers(21) + ROWS, settings(timeout=2.0))

    async def script():
        with monkeypatch.context() as patch:
            HangingEnd(patch)
            run = stage.start()
            await stage.until(lambda: stage.story("the end of the job could not be recorded"))
            stage.ask_to_cancel()
            await stage.finish(run, code=130)
        await stage.finish(stage.start())

    stage.play(script())

    assert stage.story("the job is finished")
    assert stage.output() == once_each(*range(1, 21))


def test_old_checkpoints_are_removed_one_run_at_a_time(monkeypatch):
    stage = Stage(numbers(101, rate=100) + ROWS, settings(interval=0.01))
    running: list[Cleaner] = []
    most: list[int] = []
    run_once = Cleaner.run

    async def slow(cleaner, *args, **options):
        running.append(cleaner)
        most.append(len(running))
        await asyncio.sleep(0.05)
        report = await run_once(cleaner, *args, **options)
        running.remove(cleaner)
        return report

    monkeypatch.setattr(Cleaner, "run", slow)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert len(most) > 2
    assert set(most) == {1}


# ---------------------------------------------------------------------- how a death is told


@pytest.mark.parametrize("seed", range(1, 7))
def test_the_death_of_a_worker_is_told_as_such_and_not_as_the_links_that_break_by_it(seed):
    job = numbers(101, rate=200) + ".key_by(lambda n: n % 5).count(uid='counts').sink(SINK)"
    stage = Stage(job, settings(3), seed=seed)
    killed: list[float] = []

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(1))
        killed.append(stage.world.loop.time())
        stage.kill(stage.workers()[1])
        await stage.finish(run)

    stage.play(script())

    [told] = stage.story("restarting at once")
    assert "was killed by signal 9" in told
    assert not stage.story("link lost")
    assert stage.output().total() == 100


def test_workers_that_end_by_themselves_at_their_start_fail_the_job_after_three_rounds():
    stage = Stage(numbers(10) + ROWS, settings(2))

    async def refuse(host, args):
        await asyncio.sleep(0.01)
        return 3

    stage.world.programs["worker"] = refuse

    async def script():
        await stage.finish(stage.start(), code=1)

    stage.play(script())

    assert len(stage.story("restarting")) == 2
    assert stage.story("the job is failed", "ended with exit code 3", "3 times in a row")


def test_workers_that_are_killed_at_their_start_never_fail_the_job():
    stage = Stage(numbers(10) + ROWS, settings(2))
    born: set[int] = set()

    async def script():
        run = stage.start()
        while len(born) < 12:
            await asyncio.sleep(0.001)
            for worker in stage.workers():
                born.add(worker.pid)
                stage.kill(worker)
        await stage.finish(run)

    stage.play(script())

    assert stage.output() == once_each(*range(1, 10))


# ---------------------------------------------------------------------- a storage that is taken away


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_running_job_whose_storage_was_deleted_fails_and_takes_nothing_back(seed):
    stage = Stage(numbers(20_001, rate=1000) + ROWS, settings(2, interval=0.5), seed=seed, checked=False)
    published: list[Counter] = []

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(3))
        await stage.until(lambda: stage.output().total() > 1000)
        stage.world.files.remove_tree(STORAGE)
        published.append(stage.output())
        stage.kill(stage.workers()[0])
        await stage.finish(run, code=1)

    stage.play(script())

    assert published[0] <= stage.output()
    assert stage.story("the job is failed", f"cannot go on from the checkpoints in {STORAGE}", "put them back")
