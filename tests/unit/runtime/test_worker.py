"""A worker, with a test as its coordinator, in a simulated machine: it obeys, reports, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from flowpoint.api.functions import CoProcessFunction, KeyedProcessFunction
from flowpoint.api.job import Job
from flowpoint.connectors.collection import CollectionSource
from flowpoint.connectors.sequence import SequenceSource
from flowpoint.errors import StorageError
from flowpoint.model import messages
from flowpoint.model.settings import Settings, StateSettings
from flowpoint.plan.compile import compile_graph
from flowpoint.runtime.contracts import Split
from flowpoint.runtime.worker import worker_main
from flowpoint.sim.world import SimWorld
from flowpoint.state.broadcast import BroadcastState
from flowpoint.transport.control import decode_message, encode_message

SETTINGS = Settings(state=StateSettings(backend="heap"))
PATIENCE = 30.0


class ListSink:
    """Gathers committed records. A test may let any step fail or wait."""

    guarantee = "exactly-once"
    can_take_back = False

    def __init__(self):
        self.committed = []
        self.opened = 0
        self.closed = 0
        self.troubles = {}
        """step -> exception to raise, or seconds to wait."""

    async def _trouble(self, step):
        trouble = self.troubles.get(step)
        if isinstance(trouble, BaseException):
            raise trouble
        if trouble:
            await asyncio.sleep(trouble)

    async def open(self, ctx):
        await self._trouble("open")
        self.opened += 1
        return ListWriter(self)

    async def commit(self, committable, ctx):
        await self._trouble("commit")
        self.committed += committable

    async def begin(self, ctx): ...

    async def abort(self, committable, ctx): ...

    async def clean(self, ctx): ...


class ListWriter:
    def __init__(self, sink):
        self.sink = sink
        self.written = []

    async def write(self, batch):
        await self.sink._trouble("write")
        self.written += batch

    async def prepare(self, checkpoint):
        prepared, self.written = self.written, []
        return list(map(list, prepared)) or None

    async def close(self):
        await self.sink._trouble("close")
        self.sink.closed += 1


class Boss:
    """The coordinator's end of the control links."""

    def __init__(self, host):
        self.host = host
        self.links = {}
        self.received = []
        self.heard = []
        """The kinds of all messages, in order, also those of which there is one each second."""
        self.lost = []
        self._news = asyncio.Event()

    def on_link(self, link):
        def on_frame(frame):
            message = decode_message(frame)
            if isinstance(message, messages.Hello):
                self.links[message.worker] = link
            self.heard.append(type(message))
            if not isinstance(message, messages.Heartbeat | messages.Stats):
                self.received.append(message)
                self._news.set()

        link.start(on_frame, self.lost.append)

    def send(self, message, worker=0):
        self.links[worker].send_nowait(encode_message(message))

    async def expect(self, kind, count=1, **fields):
        """Wait until `count` messages of a kind with these fields have come; the last one."""

        def found():
            return [
                m for m in self.received if isinstance(m, kind) and all(getattr(m, k) == v for k, v in fields.items())
            ]

        try:
            async with asyncio.timeout(PATIENCE):
                while len(found()) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"no {count} of {kind.__name__} {fields}, but {self.received}") from None
        return found()[-1]

    def all(self, kind):
        return [m for m in self.received if isinstance(m, kind)]


class Plan:
    """A job, compiled, and the `Deploy` messages for it."""

    def __init__(self, job, parallelism=1, settings=SETTINGS):
        self.compiled = compile_graph(job.graph(), parallelism, 128)
        self.settings = settings
        self.load_error = None

    def load(self, deploy):
        if self.load_error is not None:
            raise self.load_error
        return self.compiled.operators

    def splits(self):
        """The restored state that deals every source's splits out, as the coordinator does at the first start."""
        restore = {}
        for uid, definition in self.compiled.operators.items():
            if hasattr(definition.function, "splits"):
                parallelism = self.compiled.plan.operator(uid).parallelism
                dealt = [[] for _ in range(parallelism)]
                for number, split in enumerate(definition.function.splits()):
                    state = {"id": split.id, "data": split.data, "position": None, "ended": False}
                    dealt[number % parallelism].append(state)
                restore[uid] = [[{"splits": splits}] for splits in dealt]
        return restore

    def deploy(self, attempt, boss, workers=1, restore=None, restored_checkpoint=0):
        plan = self.compiled.plan
        assignment = {str(worker): [] for worker in range(workers)}
        for subtask in plan.subtasks():
            assignment[str(subtask.index % workers)].append(list(subtask))
        hellos = {hello.worker: hello.data_address for hello in boss.all(messages.Hello)}
        return messages.Deploy(
            attempt=attempt,
            job="job",
            lineage="lineage",
            plan=plan.to_data(),
            settings=self.settings.to_data(),
            source={},
            assignment=assignment,
            peers={str(worker): hellos[worker] for worker in range(workers)},
            restore={**self.splits(), **(restore or {})},
            restored_checkpoint=restored_checkpoint,
            storage="/storage",
            work_dir="/work_dir",
        )


def simulate(plan, act, workers=1, seed=0):
    """Run `act(boss, world)` as the coordinator of `workers` workers; returns what it returned. Nothing may be left."""
    world = SimWorld(seed, fifo=seed == 0)
    outcome = {}

    async def coordinator(host, args):
        boss = Boss(host)
        listener = await host.listen("boss", boss.on_link)
        children = [await host.start_process("worker", [str(index)], None) for index in range(workers)]
        try:
            await boss.expect(messages.Hello, workers)
            outcome["result"] = await act(boss, world)
        except Exception as error:
            outcome["error"] = error
        for link in boss.links.values():
            link.close()
        outcome["codes"] = [await child.wait() for child in children]
        listener.close()
        return 0

    async def worker(host, args):
        await worker_main(host, "boss", int(args[0]), f"i{args[0]}", 0.5, plan.load, lambda text: None)
        return 0

    world.programs.update(coordinator=coordinator, worker=worker)

    async def main():
        async with asyncio.timeout(1000):
            await world.start("coordinator", ()).wait_exit()

    try:
        world.run(main())
        if "error" in outcome:
            raise outcome["error"]
        assert [complaint for complaint in world.complaints if complaint.startswith("worker")] == []
        return outcome["result"]
    finally:
        world.close()


def words_job(sink, values=("a", "b", "a", "c", "a")):
    job = Job("job")
    stream = job.source(CollectionSource(list(values)), uid="words")
    stream.key_by(lambda word: word).count(uid="counts").sink(sink, uid="out")
    return job


async def deployed(boss, plan, attempt=1, workers=1, **more):
    for worker in range(workers):
        boss.send(plan.deploy(attempt, boss, workers, **more), worker)
    await boss.expect(messages.Deployed, workers, attempt=attempt)


def trigger(attempt, checkpoint, final=False):
    return messages.Trigger(attempt, checkpoint, "checkpoint", halt=False, final=final)


# ---------------------------------------------------------------- a whole life


@pytest.mark.parametrize("seed", range(4))
def test_a_job_runs_from_deploy_to_the_last_commit(seed):
    sink = ListSink()
    plan = Plan(words_job(sink))

    async def act(boss, world):
        await deployed(boss, plan)
        await asyncio.sleep(1)
        assert boss.all(messages.Ended) == []
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended)
        boss.send(trigger(1, 1, final=True))
        ack = await boss.expect(messages.Ack)
        assert sink.committed == []
        boss.send(messages.Complete(1, 1))
        await boss.expect(messages.Committed, checkpoint=1)
        boss.send(messages.Release(1))
        await boss.expect(messages.Released, attempt=1)
        return ack

    ack = simulate(plan, act, seed=seed)

    assert sorted(map(tuple, sink.committed)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    assert set(ack.operators) == {"words", "counts", "out"}
    assert (sink.opened, sink.closed) == (1, 1)


def test_figures_go_once_with_all_answers_of_a_worker_about_a_checkpoint_and_before_the_last_one():
    plan = Plan(words_job(ListSink()), parallelism=4)

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended, 8)
        ended = len(boss.heard)
        boss.send(trigger(1, 1, final=True))
        await boss.expect(messages.Ack, 8)
        boss.send(messages.Complete(1, 1))
        await boss.expect(messages.Committed, 4, checkpoint=1)
        return [kind for kind in boss.heard[ended:] if kind is not messages.Heartbeat]

    heard = simulate(plan, act)

    answers = [messages.Ack] * 7 + [messages.Stats, messages.Ack]
    commits = [messages.Committed] * 3 + [messages.Stats, messages.Committed]
    assert heard == answers + commits


@pytest.mark.parametrize("seed", range(6))
def test_a_second_attempt_goes_on_from_the_acknowledged_state(seed):
    sink = ListSink()
    plan = Plan(words_job(sink), parallelism=2)

    async def act(boss, world):
        await deployed(boss, plan, workers=2)
        for worker in range(2):
            boss.send(messages.Start(1), worker)
        await boss.expect(messages.Ended, 4)
        for worker in range(2):
            boss.send(trigger(1, 1), worker)
        await boss.expect(messages.Ack, 4)
        restore: dict = {}
        for ack in sorted(boss.all(messages.Ack), key=lambda ack: ack.subtask):
            for uid, state in ack.operators.items():
                restore.setdefault(uid, []).append([state])
        for worker in range(2):
            boss.send(messages.Release(1), worker)
        await boss.expect(messages.Released, 2)
        await deployed(boss, plan, 2, workers=2, restore=restore, restored_checkpoint=1)
        committed = list(sink.committed)
        for worker in range(2):
            boss.send(messages.Start(2), worker)
        await boss.expect(messages.Ended, 4, attempt=2)
        return committed

    committed = simulate(plan, act, workers=2, seed=seed)

    assert sorted(map(tuple, committed)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    assert sink.committed == committed


class Rules(CoProcessFunction):
    """Remembers what is broadcast."""

    rules = BroadcastState("rules")

    def process1(self, value, ctx):
        yield value

    def process2(self, value, ctx):
        self.rules[value] = True


class NoRules(Rules):
    """The same, later: it remembers nothing any more."""

    rules = None

    def process2(self, value, ctx):
        return None


def rules_job(function):
    job = Job("job")
    rules = job.source(CollectionSource(["r"]), uid="rules").broadcast()
    stream = job.source(CollectionSource(["a"]), uid="words").connect(rules)
    stream.process(function, uid="p").sink(ListSink(), uid="out")
    return job


def test_the_files_of_broadcast_state_that_is_left_behind_are_closed():
    plan = Plan(rules_job(Rules()))

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended, 3)
        boss.send(trigger(1, 1))
        await boss.expect(messages.Ack, 3)
        restore = {uid: [[state]] for ack in boss.all(messages.Ack) for uid, state in ack.operators.items()}
        assert restore["p"][0][0]["broadcast"]
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        plan.compiled = compile_graph(rules_job(NoRules()).graph(), 1, 128)
        boss.send(replace(plan.deploy(2, boss, restore=restore), source={"allow_non_restored": True}))
        await boss.expect(messages.Deployed, attempt=2)

    simulate(plan, act)


def test_when_taking_over_broadcast_state_fails_then_its_files_are_closed(monkeypatch):
    plan = Plan(rules_job(Rules()))

    def refused(evolution):
        raise StorageError("the disk says no")

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended, 3)
        boss.send(trigger(1, 1))
        await boss.expect(messages.Ack, 3)
        restore = {uid: [[state]] for ack in boss.all(messages.Ack) for uid, state in ack.operators.items()}
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        monkeypatch.setattr("flowpoint.state.evolution.Evolution.found", refused)
        boss.send(plan.deploy(2, boss, restore=restore))
        failure = await boss.expect(messages.Failure)
        boss.send(messages.Release(2))
        await boss.expect(messages.Released, attempt=2)
        return failure

    assert "the disk says no" in simulate(plan, act).message


# ---------------------------------------------------------------- failures


class Failing(KeyedProcessFunction):
    def open(self, ctx):
        raise ValueError(f"no model for subtask {ctx.subtask} of {ctx.parallelism}")

    def process(self, value, ctx):
        return None


def test_a_job_file_that_cannot_be_loaded_is_reported_and_the_next_attempt_may_work():
    sink = ListSink()
    plan = Plan(words_job(sink))

    async def act(boss, world):
        errors = [ImportError("no module named numpy"), SystemExit(2), KeyboardInterrupt()]
        for attempt, error in enumerate(errors, 1):
            plan.load_error = error
            boss.send(plan.deploy(attempt, boss))
            await boss.expect(messages.Failure, attempt=attempt)
            boss.send(messages.Release(attempt))
            await boss.expect(messages.Released, attempt=attempt)
        plan.load_error = None
        await deployed(boss, plan, 4)
        return boss.all(messages.Failure)

    first, second, third = simulate(plan, act)

    assert "no module named numpy" in first.message
    assert "SystemExit" in second.message
    assert "KeyboardInterrupt" in third.message


def test_a_function_whose_open_fails_is_named_and_what_was_opened_before_is_closed():
    sink = ListSink()
    job = Job("job")
    job.source(CollectionSource(["a"]), uid="words").sink(sink, uid="out")
    job.source(CollectionSource(["a"]), uid="more").key_by(str).process(Failing(), uid="p").sink(ListSink(), uid="out2")
    plan = Plan(job)

    async def act(boss, world):
        boss.send(plan.deploy(1, boss))
        failure = await boss.expect(messages.Failure)
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        return failure

    failure = simulate(plan, act)

    assert (failure.operator, failure.kind, failure.retry) == ("p", "UserCodeError", True)
    assert "open() failed: ValueError: no model for subtask 0 of 1" in failure.message
    assert (sink.opened, sink.closed) == (1, 1)


class Opened(KeyedProcessFunction):
    """Tells when it is opened and closed."""

    calls: list = []  # noqa: RUF012  shared by the copies that the subtasks get

    def open(self, ctx):
        self.calls.append("open")

    def process(self, value, ctx):
        return [value]

    def close(self):
        self.calls.append("close")


def test_what_the_same_subtask_had_opened_before_is_closed_too():
    Opened.calls.clear()
    job = Job("job")
    stream = job.source(CollectionSource(["a"]), uid="words").key_by(str).process(Opened(), uid="first")
    stream.key_by(str).process(Failing(), uid="second").sink(ListSink(), uid="out")
    plan = Plan(job)

    async def act(boss, world):
        boss.send(plan.deploy(1, boss))
        return await boss.expect(messages.Failure)

    assert simulate(plan, act).operator == "second"
    assert Opened.calls == ["open", "close"]


def test_what_was_deployed_and_never_started_is_closed():
    Opened.calls.clear()
    sink = ListSink()
    job = Job("job")
    job.source(CollectionSource(["a"]), uid="words").key_by(str).process(Opened(), uid="p").sink(sink, uid="out")
    plan = Plan(job)

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        return sink.closed, list(Opened.calls)

    assert simulate(plan, act) == (1, ["open", "close"])


def test_a_commit_that_fails_at_restore_is_reported_and_nothing_is_opened():
    sink = ListSink()
    sink.troubles["commit"] = ConnectionResetError("database gone")
    plan = Plan(words_job(sink))
    restore = {"out": [[{"committables": [{"checkpoint": 1, "data": ["x"]}]}]]}

    async def act(boss, world):
        boss.send(plan.deploy(1, boss, restore=restore, restored_checkpoint=1))
        return await boss.expect(messages.Failure)

    failure = simulate(plan, act)

    assert (failure.operator, failure.kind, failure.retry) == ("out", "TransientError", True)
    assert "commit() failed: ConnectionResetError: database gone" in failure.message
    assert sink.opened == 0


def test_what_a_restored_checkpoint_had_prepared_is_committed_in_order_before_records_flow():
    sink = ListSink()
    plan = Plan(words_job(sink))
    committables = [{"checkpoint": 3, "data": ["z"]}, {"checkpoint": 2, "data": ["y"]}]

    async def act(boss, world):
        await deployed(boss, plan, restore={"out": [[{"committables": committables}]]}, restored_checkpoint=3)
        return list(sink.committed)

    assert simulate(plan, act) == ["y", "z"]


def test_two_subtasks_that_fail_are_both_reported_and_the_others_go_on():
    def fail(value):
        raise ValueError(f"bad number {value}")

    job = Job("job")
    job.source(SequenceSource(0, 2), uid="numbers").map(fail, uid="m").sink(ListSink(), uid="out")
    fine = ListSink()
    job.source(CollectionSource(["a"]), uid="words").sink(fine, uid="fine")
    plan = Plan(job, parallelism=2)

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Failure, 2)
        await boss.expect(messages.Ended, 2)
        return boss.all(messages.Failure)

    failures = simulate(plan, act)

    assert sorted((f.subtask[1], f.operator, f.kind) for f in failures) == [
        (0, "m", "UserCodeError"),
        (1, "m", "UserCodeError"),
    ]
    assert all("ValueError: bad number" in f.trace for f in failures)
    assert all("flowpoint/runtime" not in f.trace for f in failures)


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_of_another_worker_is_reported(seed):
    sink = ListSink()
    job = Job("job")
    job.source(SequenceSource(0, 10**6, rate=100), uid="n").key_by(lambda n: n).count(uid="c").sink(sink, uid="out")
    plan = Plan(job, parallelism=2)

    async def act(boss, world):
        await deployed(boss, plan, workers=2)
        for worker in range(2):
            boss.send(messages.Start(1), worker)
        await asyncio.sleep(1)
        world.kill(world.processes[2], "by the test")
        failure = await boss.expect(messages.Failure)
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        return failure

    failure = simulate(plan, act, workers=2, seed=seed)

    assert (failure.worker, failure.attempt, failure.kind, failure.retry) == (0, 1, "LinkLost", True)


# ---------------------------------------------------------------- orders at the wrong time


@pytest.mark.parametrize("slow", ["open", "commit"])
@pytest.mark.parametrize("seed", range(3))
def test_a_release_is_heard_during_a_slow_deployment(slow, seed):
    sink = ListSink()
    sink.troubles[slow] = 20.0
    plan = Plan(words_job(sink))
    restore = {"out": [[{"committables": [{"checkpoint": 1, "data": ["x"]}]}]]}

    async def act(boss, world):
        boss.send(plan.deploy(1, boss, restore=restore, restored_checkpoint=1))
        await asyncio.sleep(1)
        boss.send(messages.Release(1))
        released_at = asyncio.get_running_loop().time()
        await boss.expect(messages.Released)
        return asyncio.get_running_loop().time() - released_at, boss.all(messages.Failure)

    seconds, failures = simulate(plan, act, seed=seed)

    # A commit that has begun is finished first; what only opens is given up at once.
    assert seconds < 1 if slow == "open" else 15 < seconds < 21
    assert sink.committed == ["x"]
    assert failures == []
    assert sink.opened == sink.closed == 0


@pytest.mark.parametrize("fails", ["build", "run"])
def test_a_release_that_comes_while_what_failed_is_closed_waits_for_the_end_of_it(fails):
    sink = ListSink()
    sink.troubles["close"] = 5.0
    job = Job("job")
    if fails == "build":
        job.source(CollectionSource(["a"]), uid="words").sink(sink, uid="out")
        failing = job.source(CollectionSource(["a"]), uid="more").key_by(str).process(Failing(), uid="p")
        failing.sink(ListSink(), uid="out2")
    else:
        sink.troubles["write"] = StorageError("disk full")
        job.source(CollectionSource(["a"]), uid="words").sink(sink, uid="out")
    plan = Plan(job)

    async def act(boss, world):
        boss.send(plan.deploy(1, boss))
        if fails == "run":
            await boss.expect(messages.Deployed)
            boss.send(messages.Start(1))
        await asyncio.sleep(1)
        boss.send(messages.Release(1))
        await boss.expect(messages.Released)
        return sink.closed

    assert simulate(plan, act) == 1


def test_orders_that_come_while_it_deploys_do_no_harm():
    sink = ListSink()
    sink.troubles["open"] = 5.0
    plan = Plan(words_job(sink))

    async def act(boss, world):
        boss.send(plan.deploy(1, boss))
        await asyncio.sleep(1)
        for message in (messages.Abort(1, 1), messages.Complete(1, 1), messages.Resume(1)):
            boss.send(message)
        await boss.expect(messages.Deployed)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended)
        return boss.all(messages.Failure)

    assert simulate(plan, act) == []


def test_messages_of_another_attempt_are_dropped():
    sink = ListSink()
    plan = Plan(words_job(sink))

    async def act(boss, world):
        await deployed(boss, plan, 5)
        boss.send(messages.Start(4))
        boss.send(trigger(6, 1))
        boss.send(plan.deploy(4, boss))
        await asyncio.sleep(1)
        assert boss.received[-1] == messages.Deployed(5, 0)
        boss.send(messages.Release(4))
        await boss.expect(messages.Released, attempt=4)
        boss.send(messages.Start(5))
        await boss.expect(messages.Ended, attempt=5)
        return boss.all(messages.Ack)

    assert simulate(plan, act) == []


def test_a_release_without_an_attempt_is_answered():
    plan = Plan(words_job(ListSink()))

    async def act(boss, world):
        boss.send(messages.Release(1))
        return await boss.expect(messages.Released)

    assert simulate(plan, act) == messages.Released(1, 0)


@pytest.mark.parametrize("how", ["exit", "link lost"])
def test_it_ends_in_order_when_it_is_told_to_or_its_coordinator_is_gone(how):
    sink = ListSink()
    plan = Plan(words_job(sink))

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended)
        if how == "exit":
            boss.send(messages.Exit("the job is done"))
            await asyncio.sleep(1)
        else:
            boss.links[0].close()
            await asyncio.sleep(1)

    simulate(plan, act)

    assert (sink.opened, sink.closed) == (1, 1)


class Faulty:
    """A source whose splits cannot be opened."""

    guarantee = "none"

    def splits(self):
        return [Split("s")]

    async def open(self, split, position, ctx):
        raise ValueError("no such topic")


def test_a_source_that_cannot_be_opened_is_reported_when_records_should_flow():
    job = Job("job")
    job.source(Faulty(), uid="in").sink(ListSink(), uid="out")
    plan = Plan(job)

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        return await boss.expect(messages.Failure)

    failure = simulate(plan, act)

    assert (failure.operator, failure.subtask) == ("in", [0, 0])
    assert "open() of split 's' failed: ValueError: no such topic" in failure.message


def test_settings_reach_the_subtasks():
    sink = ListSink()
    plan = Plan(words_job(sink, ["a"] * 100), settings=replace(SETTINGS, batch_size=7))

    async def act(boss, world):
        await deployed(boss, plan)
        boss.send(messages.Start(1))
        await boss.expect(messages.Ended)

    simulate(plan, act)
