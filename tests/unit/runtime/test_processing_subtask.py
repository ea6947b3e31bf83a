"""A processing subtask takes every record once, aligns, snapshots, acknowledges and commits in the right order."""

from __future__ import annotations

import asyncio
import gc
import warnings
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.errors import BadRecordError, IncompatibleStateError, StorageError, TransientError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, Barrier
from flowpoint.model.manifest import StateFile
from flowpoint.runtime.closing import finish
from flowpoint.runtime.parts import KeyedPart
from flowpoint.runtime.slices import SLICE_FIRST, WRITE_SECONDS
from flowpoint.sim.loop import SimLoop
from flowpoint.transport.inbox import BrokenBatch
from tests.unit.runtime.fakes import FakeOutlet, plain
from tests.unit.runtime.harness import (
    FakeBackend,
    FakeFrozen,
    FakeSink,
    Processing,
    no_savepoint,
    run,
    running,
    sink_part,
)


def file(name, kind="delta"):
    return StateFile(name, kind, 1, "c")


class Writer:
    """Writes frozen state: gives each write a file, or what the test put into `outcomes`; may be held back."""

    def __init__(self):
        self.outcomes = []
        self.frozen = []
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, uid, frozen):
        await self.open.wait()
        self.frozen.append((uid, frozen.content))
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return [file(f"{uid}-{len(self.frozen)}", "base" if frozen.full else "delta")]


def keyed_part(uid, writer, **more):
    return KeyedPart(uid, FakeBackend(), (0, 127), writer, no_savepoint, **more)


# ---------------------------------------------------------------- records


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 700), min_size=1, max_size=12), slice_max=st.integers(1, 300))
def test_every_record_is_processed_once_and_in_order_however_batches_and_slices_fall(sizes, slice_max):
    async def main():
        it = Processing(operators=[plain("map", lambda value: value)], slice_max=slice_max)
        numbers = iter(range(10_000))
        async with running(it):
            for size in sizes:
                it.send(*[next(numbers) for _ in range(size)])
                await asyncio.sleep(0.01)
            it.event(END_OF_INPUT)
            await asyncio.sleep(1)
            return it.records, it.subtask.statistics()

    records, counters = run(main())

    assert records == [*range(sum(sizes)), END_OF_INPUT]
    assert (counters.records_in, counters.records_out) == (sum(sizes), sum(sizes))


def test_a_batch_of_just_over_a_slice_is_not_taken_again_when_the_slice_grows():
    async def main():
        it = Processing()
        async with running(it):
            it.send(*range(SLICE_FIRST + 1))
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == list(range(SLICE_FIRST + 1))


def test_slow_code_gets_small_slices_so_that_a_barrier_waits_only_for_a_few_records():
    async def main():
        def slow(value):
            asyncio.get_running_loop()._now += 0.005
            return value

        it = Processing(operators=[plain("map", slow)])
        async with running(it):
            it.send(*range(200))
            await asyncio.sleep(10)
            return it.subtask._slice.records

    assert run(main()) <= 4


def test_what_multiplies_records_gets_slices_that_make_about_a_batch():
    async def main():
        it = Processing(operators=[plain("flat_map", lambda value: [value] * 100)])
        async with running(it):
            for _ in range(10):
                it.send(*range(1024))
                await asyncio.sleep(1)
            return max(map(len, it.outlets[0].sent)), it.subtask.statistics().records_out

    largest, records_out = run(main())

    assert largest <= 64 * 100
    assert records_out == 1024 * 100 * 10


def test_a_sink_that_takes_its_time_per_call_is_still_given_whole_batches():
    async def main():
        sink = FakeSink(write_delay=WRITE_SECONDS / 4)
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            for _ in range(20):
                it.send(*range(1024))
                await asyncio.sleep(1)
            return sink.sizes

    assert run(main())[-1] == 1024


def test_a_very_slow_sink_is_given_less_but_never_crumbs():
    async def main():
        sink = FakeSink(write_delay=WRITE_SECONDS * 3)
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            it.send(*range(2000))
            await asyncio.sleep(100)
            return sink.sizes

    sizes = run(main())

    assert sum(sizes) == 2000
    assert min(sizes[:-1]) == SLICE_FIRST


def test_without_credit_nothing_is_taken_and_with_credit_all_of_it():
    async def main():
        outlet = FakeOutlet(writable=False)
        it = Processing(outlets=[outlet])
        async with running(it):
            it.send(1, 2)
            await asyncio.sleep(1)
            waiting = len(it.channels[0].inbox.queue)
            outlet.writable = True
            await asyncio.sleep(1)
            return waiting, it.records, it.subtask.statistics().blocked.total

    waiting, records, blocked = run(main())

    assert (waiting, records) == (1, [1, 2])
    assert 0.9 < blocked < 1.1


def test_a_batch_that_could_not_be_decoded_fails_the_subtask():
    async def main():
        it = Processing()
        async with running(it):
            it.channels[0].inbox.put_batch(BrokenBatch(BadRecordError("type Point is not known")), 1)
            return await it.failure()

    assert "type Point is not known" in str(run(main()))


# ---------------------------------------------------------------- barriers


def test_a_barrier_passes_to_all_channels_behind_every_record_before_it():
    async def main():
        it = Processing(outlets=[FakeOutlet(), FakeOutlet()])
        async with running(it):
            it.send(1, 2, 3)
            it.event(Barrier(1))
            it.send(4)
            await asyncio.sleep(1)
            return [outlet.records for outlet in it.outlets], it.reported(messages.Ack)

    channels, acks = run(main())

    assert channels == [[1, 3, Barrier(1)], [2, Barrier(1), 4]]
    assert [(ack.attempt, ack.checkpoint, ack.subtask) for ack in acks] == [(3, 1, [1, 0])]


def test_a_barrier_needs_no_credit():
    async def main():
        outlet = FakeOutlet()
        it = Processing(outlets=[outlet])
        async with running(it):
            it.send(1)
            await asyncio.sleep(0.001)
            outlet.writable = False
            it.outlets[0].writable = False
            await it.subtask.snapshot(Barrier(1))
            return it.records

    assert run(main()) == [1, Barrier(1)]


def test_a_channel_whose_barrier_came_is_held_until_all_have_come():
    async def main():
        it = Processing(channels=2)
        async with running(it):
            it.send("a1", channel=0)
            it.event(Barrier(1), channel=0)
            it.send("a2", channel=0)
            it.send("b1", channel=1)
            await asyncio.sleep(1)
            before = list(it.records)
            it.event(Barrier(1), channel=1)
            it.send("b2", channel=1)
            await asyncio.sleep(1)
            return before, it

    before, it = run(main())

    assert before == ["a1", "b1"]
    assert it.records[:3] == ["a1", "b1", Barrier(1)]
    assert sorted(it.records[3:]) == ["a2", "b2"]
    alignment = it.reported(messages.Ack)[0].stats["alignment_ms"]
    assert 990 <= alignment <= 1010


def test_at_least_once_holds_nothing_back():
    async def main():
        it = Processing(channels=2, exactly_once=False)
        async with running(it):
            it.event(Barrier(1), channel=0)
            it.send("a", channel=0)
            await asyncio.sleep(1)
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == ["a", Barrier(1)]


def test_an_abort_lets_held_channels_go_on_and_its_late_barrier_is_swallowed():
    async def main():
        it = Processing(channels=2)
        async with running(it):
            it.event(Barrier(1), channel=0)
            it.send("a", channel=0)
            await asyncio.sleep(1)
            it.subtask.abort(1)
            await asyncio.sleep(1)
            after_abort = list(it.records)
            it.event(Barrier(1), channel=1)
            for channel in range(2):
                it.event(Barrier(2), channel=channel)
            await asyncio.sleep(1)
            return after_abort, it

    after_abort, it = run(main())

    assert after_abort == ["a"]
    assert it.records == ["a", Barrier(2)]
    assert [ack.checkpoint for ack in it.reported(messages.Ack)] == [2]
    assert it.reported(messages.Ack)[0].stats["alignment_ms"] <= 10


def test_a_newer_barrier_declines_the_older_checkpoint():
    async def main():
        it = Processing(channels=2)
        async with running(it):
            it.event(Barrier(1), channel=0)
            await asyncio.sleep(1)
            it.event(Barrier(2), channel=1)
            it.event(Barrier(2), channel=0)
            await asyncio.sleep(0.01)
            return it

    it = run(main())

    assert [(d.checkpoint, d.subtask) for d in it.reported(messages.Decline)] == [(1, [1, 0])]
    assert it.records == [Barrier(2)]


# ---------------------------------------------------------------- writing and acknowledging


def test_an_acknowledgement_comes_only_when_every_part_is_durable_and_the_stream_goes_on_meanwhile():
    async def main():
        writer = Writer()
        writer.open.clear()
        it = Processing(parts=[keyed_part("a", writer), keyed_part("b", writer)])
        async with running(it):
            it.event(Barrier(1))
            it.send(1)
            await asyncio.sleep(1)
            before = list(it.records), it.reported(messages.Ack)
            writer.open.set()
            await asyncio.sleep(1)
            return before, it

    before, it = run(main())

    assert before == ([Barrier(1), 1], [])
    assert list(it.acked(1)) == ["a", "b"]
    assert it.acked(1)["a"]["files"][0]["path"] == "a-1"
    assert it.acked(1)["a"]["states"] == {"value": {"kind": "value"}}


@pytest.mark.parametrize("error", [StorageError("disk full"), OSError("input/output error")])
def test_a_failed_write_declines_and_the_state_goes_into_the_next_snapshot(error):
    async def main():
        writer = Writer()
        writer.outcomes = [error, None, None, None]
        parts = [keyed_part("a", writer), keyed_part("b", writer)]
        it = Processing(parts=parts)
        async with running(it):
            parts[0].backend.dirty = {"k": 1}
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.event(Barrier(2))
            await asyncio.sleep(1)
            return it, parts, writer.frozen

    it, parts, frozen = run(main())

    assert [(d.checkpoint, str(error) in d.reason) for d in it.reported(messages.Decline)] == [(1, True)]
    assert [(ack.checkpoint, ack.partial) for ack in it.reported(messages.Ack)] == [(1, True), (2, False)]
    assert frozen == [("a", {"k": 1}), ("b", {}), ("a", {"k": 1}), ("b", {})]
    assert [part.backend.ended for part in parts] == [["failed", "durable"], ["durable", "durable"]]


def saved_part(uid, writer, folders):
    """Keyed state whose savepoint is written when the test sets an event."""

    async def write_savepoint(name, chain, frozen, folder):
        folders.append(folder)
        await writer.open.wait()
        return [file(f"{folder}/{name}")]

    return KeyedPart(uid, SavedBackend(), (0, 127), Writer(), write_savepoint)


class SavedBackend(FakeBackend):
    """A backend of which savepoints are taken."""

    detached = 0

    def freeze_detached(self):
        self.detached += 1
        return FakeFrozen(self, {}, full=True)


def savepoint(checkpoint, kind="savepoint"):
    return Barrier(checkpoint, kind=kind, savepoint=f"/savepoint-{checkpoint}")


@pytest.mark.parametrize("kind", ["savepoint", "checkpoint"])
def test_a_savepoint_that_is_given_up_holds_nothing_up_and_nothing_of_it_is_acknowledged(kind):
    async def main():
        slow, folders = Writer(), []
        slow.open.clear()
        parts = [saved_part("a", slow, folders), saved_part("b", slow, folders)]
        it = Processing(parts=parts)
        async with running(it):
            it.event(savepoint(1, kind))
            it.event(savepoint(2, kind))
            it.event(Barrier(3))
            await asyncio.sleep(1)
            it.subtask.abort(2)
            it.subtask.abort(1)
            await asyncio.sleep(1)
            return it, folders, [part.backend.ended for part in parts]

    it, folders, ended = run(main())

    acks = it.reported(messages.Ack)
    assert [ack.checkpoint for ack in acks] == ([1, 2, 3] if kind == "checkpoint" else [3])
    assert not any(ack.savepoint for ack in acks)
    assert it.reported(messages.Decline) == []
    assert folders == ["/savepoint-1"]
    assert [outcomes.count("failed") for outcomes in ended] == [2, 2]
    written = 3 if kind == "checkpoint" else 1
    assert [outcomes.count("durable") for outcomes in ended] == [written, written]


def test_of_a_checkpoint_given_up_while_it_is_written_the_coordinator_learns_the_files_which_stay_in_the_chain():
    async def main():
        writer = Writer()
        writer.open.clear()
        it = Processing(parts=[keyed_part("a", writer)])
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.abort(1)
            writer.open.set()
            it.event(Barrier(2))
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert [f["path"] for f in it.acked(1)["a"]["files"]] == ["a-1"]
    assert [f["path"] for f in it.acked(2)["a"]["files"]] == ["a-1", "a-2"]


def test_of_a_checkpoint_of_which_one_part_was_not_written_the_coordinator_learns_the_files_of_the_others():
    async def main():
        writer = Writer()
        writer.outcomes = [None, StorageError("disk full"), None]
        it = Processing(parts=[keyed_part("a", writer), keyed_part("b", writer), keyed_part("c", writer)])
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it

    it = run(main())

    told = [type(one) for one in it.reports if isinstance(one, messages.Decline | messages.Ack)]
    assert told == [messages.Decline, messages.Ack], "before the decline, it would be this subtask's part"
    assert {uid: [f["path"] for f in state["files"]] for uid, state in it.acked(1).items()} == {
        "a": ["a-1"],
        "c": ["c-3"],
    }


@pytest.mark.parametrize(("error", "is_partial"), [(StorageError("disk full"), True), (None, False)])
def test_of_a_checkpoint_that_was_given_up_the_coordinator_learns_whether_the_files_are_all_that_is_built_on(
    error, is_partial
):
    async def main():
        writer = Writer()
        writer.outcomes = [None, error]
        writer.open.clear()
        it = Processing(parts=[keyed_part("a", writer), keyed_part("b", writer)])
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.abort(1)
            writer.open.set()
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert it.reported(messages.Decline) == []
    assert [ack.partial for ack in it.reported(messages.Ack)] == [is_partial]


@pytest.mark.parametrize("turns", range(8))
def test_whenever_a_savepoint_is_given_up_every_freeze_learns_how_it_ended(turns):
    async def main():
        part = saved_part("a", Writer(), [])
        it = Processing(parts=[part])
        async with running(it):
            await asyncio.sleep(1)
            it.event(savepoint(1))
            for _ in range(turns):
                await asyncio.sleep(0)
            it.subtask.abort(1)
            await asyncio.sleep(1)
            return part.backend

    backend = run(main())

    assert len(backend.ended) == backend.detached


def test_an_attempt_may_end_while_a_savepoint_is_written():
    async def main():
        slow, folders = Writer(), []
        slow.open.clear()
        it = Processing(parts=[saved_part("a", slow, folders)])
        async with running(it):
            it.event(savepoint(1))
            await asyncio.sleep(1)
        return it

    it = run(main())

    assert it.task.cancelled()
    assert it.reports == []


def test_state_that_cannot_be_serialised_fails_the_subtask_and_names_the_operator():
    async def main():
        writer = Writer()
        writer.outcomes = [BadRecordError("cannot serialise a Socket")]
        it = Processing(parts=[keyed_part("a", writer)])
        async with running(it):
            it.event(Barrier(1))
            return await it.failure()

    error = run(main())

    assert (type(error), error.operator) == (BadRecordError, "a")


def test_the_chain_of_files_grows_by_deltas_and_starts_again_with_a_base():
    async def main():
        writer = Writer()
        part = keyed_part("a", writer, files=(file("old-1"), file("old-2")))
        chains = []
        for full, replaces in [(False, 0), (False, 2), (True, 0)]:
            part.must_be_full, part.backend.replaces = full, replaces
            captured = await part.capture(Barrier(1))
            chains.append([f.path for f in (await captured.write()).files])
        return chains, part.must_be_full

    chains, must_be_full = run(main())

    assert chains == [["old-1", "old-2", "a-1"], ["old-1", "a-2"], ["a-3"]]
    assert must_be_full is False


def test_a_base_that_could_not_be_written_is_tried_again():
    async def main():
        writer = Writer()
        writer.outcomes = [StorageError("full")]
        part = keyed_part("a", writer, must_be_full=True)
        kinds = []
        for _ in range(3):
            captured = await part.capture(Barrier(1))
            try:
                kinds.append([f.kind for f in (await captured.write()).files])
            except StorageError:
                kinds.append("failed")
        return kinds

    assert run(main()) == ["failed", ["base"], ["base", "delta"]]


def test_state_that_outgrows_its_memory_goes_out_early_and_belongs_to_the_next_snapshot():
    async def main():
        writer = Writer()
        part = keyed_part("a", writer)
        it = Processing(parts=[part])
        async with running(it):
            part.backend.spilling = True
            it.send(1)
            await asyncio.sleep(1)
            assert it.reports == []
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it.acked(1)["a"]["files"]

    assert [f["path"] for f in run(main())] == ["a-1", "a-2"]


def test_when_the_disk_is_slower_than_the_stream_the_stream_waits():
    async def main():
        writer = Writer()
        writer.open.clear()
        part = keyed_part("a", writer)
        it = Processing(parts=[part])
        async with running(it):
            for number in range(4):
                part.backend.spilling = True
                it.send(number)
                await asyncio.sleep(1)
            before = list(it.records)
            writer.open.set()
            await asyncio.sleep(1)
            return before, it.records

    before, after = run(main())

    assert before == [0, 1, 2]
    assert after == [0, 1, 2, 3]


def test_an_early_write_that_fails_fails_the_subtask():
    async def main():
        writer = Writer()
        writer.outcomes = [StorageError("input/output error")]
        part = keyed_part("a", writer)
        it = Processing(parts=[part])
        async with running(it):
            part.backend.spilling = True
            it.send(1)
            return await it.failure()

    assert type(run(main())) is StorageError


# ---------------------------------------------------------------- sinks


def test_a_sink_prepares_at_the_barrier_and_commits_only_when_the_checkpoint_is_complete():
    async def main():
        sink = FakeSink()
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            it.send(1, 2)
            it.event(Barrier(1))
            it.send(3)
            await asyncio.sleep(1)
            before = list(sink.commits)
            it.subtask.complete(1)
            await asyncio.sleep(1)
            return before, sink, it

    before, sink, it = run(main())

    assert (before, sink.commits, sink.written) == ([], [[1, 2]], [3])
    assert it.acked(1)["sink"]["committables"] == [{"checkpoint": 1, "data": {"records": [1, 2]}}]
    assert [(c.checkpoint, c.subtask) for c in it.reported(messages.Committed)] == [(1, [1, 0])]
    assert it.subtask.statistics().records_out == 3


def test_what_a_failed_checkpoint_prepared_is_committed_with_the_next_one_in_order():
    async def main():
        sink = FakeSink()
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            for checkpoint in (1, 2, 3):
                it.send(checkpoint)
                it.event(Barrier(checkpoint))
                await asyncio.sleep(1)
            it.subtask.abort(1)
            it.subtask.complete(2)
            await asyncio.sleep(1)
            it.event(Barrier(4))
            await asyncio.sleep(1)
            return sink.commits, it

    commits, it = run(main())

    assert commits == [[1], [2]]
    assert [c["checkpoint"] for c in it.acked(3)["sink"]["committables"]] == [1, 2, 3]
    assert [c["checkpoint"] for c in it.acked(4)["sink"]["committables"]] == [3]


class BesideSink(FakeSink):
    """Prepares beside the stream: makes durable what it took off when it was asked, as soon as the test lets it."""

    prepares_beside = True

    def __init__(self):
        super().__init__()
        self.disk = asyncio.Event()
        self.error = None
        self.events = []

    def prepare(self, checkpoint):
        self.events.append(f"ask {checkpoint}")
        prepared, self.written = self.written, []
        return self._sync(checkpoint, prepared)

    async def _sync(self, checkpoint, prepared):
        await self.disk.wait()
        self.events.append(f"durable {checkpoint}")
        if self.error is not None:
            raise self.error
        return {"records": prepared} if prepared else None


def test_a_sink_may_prepare_beside_the_stream_and_its_committables_stay_in_order():
    async def main():
        sink = BesideSink()
        it = Processing(parts=[sink_part(sink)])
        async with running(it):
            for checkpoint in (1, 2, 3):
                if checkpoint != 2:
                    it.send(checkpoint)
                it.event(Barrier(checkpoint))
            it.send(4)
            await asyncio.sleep(1)
            before = list(sink.events), list(sink.written), list(it.reports)
            sink.disk.set()
            await asyncio.sleep(1)
            it.subtask.complete(3)
            await asyncio.sleep(1)
            return before, sink, it

    before, sink, it = run(main())

    assert before == (["ask 1", "ask 2", "ask 3"], [4], [])
    assert sink.events[3:] == ["durable 1", "durable 2", "durable 3"]
    first = {"checkpoint": 1, "data": {"records": [1]}}
    assert it.acked(1)["sink"]["committables"] == [first]
    assert it.acked(2)["sink"]["committables"] == [first]
    assert it.acked(3)["sink"]["committables"] == [first, {"checkpoint": 3, "data": {"records": [3]}}]
    assert sink.commits == [[1], [3]]


def test_a_sink_that_fails_to_prepare_beside_the_stream_fails_the_subtask():
    async def main():
        sink = BesideSink()
        sink.error = StorageError("input/output error")
        sink.disk.set()
        it = Processing(parts=[sink_part(sink)])
        async with running(it):
            it.send(1)
            it.event(Barrier(1))
            return await it.failure(), it.reports

    failure, reports = run(main())

    assert type(failure) is StorageError
    assert reports == []


def test_what_was_to_be_prepared_when_the_attempt_ends_is_let_go():
    async def main():
        sink = BesideSink()
        it = Processing(parts=[sink_part(sink)])
        async with running(it):
            for checkpoint in (1, 2):
                it.event(Barrier(checkpoint))
            await asyncio.sleep(1)
        return sink.events, sink.closed

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(main()) == (["ask 1", "ask 2"], 1)


class LosingSink(FakeSink):
    """Its files are never there."""

    async def files_of(self, committable, ctx):
        return ["/out/.part"]

    async def take_in(self, committable, files, ctx): ...


@pytest.mark.parametrize("committed", [False, True])
def test_a_savepoint_whose_output_is_not_to_be_found_is_declined_unless_it_was_committed_meanwhile(committed):
    async def main():
        sink = LosingSink()
        part = sink_part(sink)

        async def save_files(uid, files, folder):
            if committed:
                part.uncommitted.clear()
            raise FileNotFoundError(files[0])

        part.save_files = save_files
        it = Processing(parts=[part])
        async with running(it):
            it.send(1)
            it.event(savepoint(1))
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert len(it.reported(messages.Decline)) == (0 if committed else 1)
    if committed:
        assert "committables" not in it.reported(messages.Ack)[0].savepoint["sink"]


def test_a_checkpoint_without_output_is_confirmed_too():
    async def main():
        it = Processing(outlets=[], parts=[sink_part(FakeSink())])
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.complete(1)
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert it.acked(1) == {"sink": {}}
    assert [c.checkpoint for c in it.reported(messages.Committed)] == [1]


def test_a_commit_that_has_begun_is_finished_although_the_attempt_ends():
    async def main():
        sink = FakeSink()
        sink.committing = asyncio.Event()
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            it.send(1)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.complete(1)
            await asyncio.sleep(1)
            it.task.cancel()
            await asyncio.sleep(1)
            assert not it.task.done()
            sink.committing.set()
            await asyncio.sleep(1)
            return sink, it.task

    sink, task = run(main())

    assert sink.commits == [[1]]
    assert task.cancelled()
    assert sink.closed == 1


class Refusing(FakeSink):
    """Fails at one step with one error."""

    def __init__(self, step, error):
        super().__init__()
        self.step = step
        self.error = error

    async def fail(self, step):
        if self.step == step:
            raise self.error

    async def write(self, batch):
        await self.fail("write")
        await super().write(batch)

    async def prepare(self, checkpoint):
        await self.fail("prepare")
        return await super().prepare(checkpoint)

    async def commit(self, committable, ctx):
        await self.fail("commit")

    async def close(self):
        await super().close()
        await self.fail("close")


@pytest.mark.parametrize("step", ["write", "prepare", "commit"])
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("no"), UserCodeError, "operator 'sink': {step}() failed: ValueError: no"),
        (ConnectionResetError("gone"), TransientError, "operator 'sink': {step}() failed: ConnectionResetError: gone"),
        (StorageError("full"), StorageError, "full"),
        (asyncio.CancelledError(), UserCodeError, "cancelled"),
    ],
)
def test_a_sink_that_fails_fails_the_subtask_and_is_named(step, error, kind, words):
    async def main():
        sink = Refusing(step, error)
        it = Processing(outlets=[], parts=[sink_part(sink)])
        async with running(it):
            it.send(1)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.complete(1)
            failure = await it.failure()
        return failure, sink

    failure, sink = run(main())

    assert type(failure) is kind
    assert words.format(step=step) in str(failure)
    assert sink.closed == 1


def test_a_commit_that_cancels_itself_is_named_too():
    async def main():
        it = Processing(outlets=[], parts=[sink_part(Refusing("commit", asyncio.CancelledError()))])
        async with running(it):
            it.send(1)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.complete(1)
            return await it.failure()

    assert str(run(main())).startswith("operator 'sink': commit() has cancelled itself")


def test_a_committable_that_json_does_not_carry_names_the_sink():
    class Odd(FakeSink):
        async def prepare(self, checkpoint):
            return {"when": (1, 2)}

    async def main():
        it = Processing(outlets=[], parts=[sink_part(Odd())])
        async with running(it):
            it.event(Barrier(1))
            return await it.failure()

    error = run(main())

    assert type(error) is BadRecordError
    assert "the committable of sink 'sink' does not survive JSON" in str(error)


def test_a_close_that_fails_is_logged_and_hides_nothing():
    async def main():
        sink = Refusing("close", ValueError("cannot close"))
        writer = Writer()
        part = keyed_part("a", writer)
        it = Processing(operators=[plain("map", lambda v: 1 / v, "m")], outlets=[], parts=[sink_part(sink), part])
        async with running(it):
            it.send(0)
            failure = await it.failure()
        return failure, it, part

    failure, it, part = run(main())

    assert failure.operator == "m"
    assert ["cannot close" in line for line in it.logs] == [True]
    assert part.backend.closed == 1


# ---------------------------------------------------------------- ends


def test_it_ends_once_when_all_inputs_have_and_goes_on_passing_barriers():
    async def main():
        it = Processing(channels=2)
        async with running(it):
            it.event(END_OF_INPUT, channel=0)
            it.send(1, channel=1)
            await asyncio.sleep(1)
            before = list(it.records), it.reported(messages.Ended)
            it.event(END_OF_INPUT, channel=1)
            for channel in range(2):
                it.event(Barrier(1, final=True), channel=channel)
            await asyncio.sleep(1)
            return before, it

    before, it = run(main())

    assert before == ([1], [])
    assert it.records == [1, END_OF_INPUT, Barrier(1, final=True)]
    assert it.reported(messages.Ended) == [messages.Ended(3, [1, 0])]
    assert [ack.checkpoint for ack in it.reported(messages.Ack)] == [1]


async def no_channels(recording):
    raise AssertionError(f"nothing was overtaken: {recording}")


def test_a_subtask_that_is_cancelled_before_its_first_step_leaves_nothing_unawaited():
    async def main():
        it = Processing(parts=[sink_part(FakeSink())], write_channels=no_channels)
        it.task = asyncio.create_task(it.subtask.run())
        await asyncio.sleep(0)
        await it.stop()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # In some of the orders it is cancelled when its duties exist and have not had their turn.
        for order in range(30):
            # Not disposed of: that would be done without a word.
            SimLoop(Random(order)).run_until_complete(main())
            gc.collect()

    assert [str(one.message) for one in caught] == []


def test_closing_twice_closes_once():
    async def main():
        sink = FakeSink()
        it = Processing(outlets=[], parts=[sink_part(sink)])
        await it.subtask.close()
        await it.subtask.close()
        return sink.closed

    assert run(main()) == 1


# ---------------------------------------------------------------- finish


def test_finish_gives_the_result_or_the_error():
    async def good():
        return 5

    async def bad():
        raise ValueError("no")

    async def main():
        assert await finish(good()) == 5
        with pytest.raises(ValueError, match="no"):
            await finish(bad())

    run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_finish_outlives_any_number_of_cancellations(fails):
    done = []

    async def step():
        await asyncio.sleep(10)
        done.append(1)
        if fails:
            raise ValueError("too late to matter")

    async def main():
        task = asyncio.create_task(finish(step()))
        for _ in range(3):
            await asyncio.sleep(1)
            task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), asyncio.get_running_loop().time()

    cancelled, now = run(main())

    assert (cancelled, done) == (True, [1])
    assert now > 10


# ---------------------------------------------------------------- keys of another type


def part_held_to(stored, seen):
    part = keyed_part("counts", Writer(), stored_keys=frozenset(stored), seen_keys=lambda: seen)
    part.backend.freeze_detached = part.backend.freeze
    return part


@pytest.mark.parametrize("capture", ["capture", "capture_savepoint"])
async def test_a_snapshot_with_keys_of_another_type_than_the_stored_ones_is_refused_before_it_is_taken(capture):
    part = part_held_to({"str"}, [1])

    with pytest.raises(IncompatibleStateError, match="operator 'counts': its keys are stored as str, and"):
        await getattr(part, capture)(Barrier(2))


async def test_keys_are_looked_at_until_there_are_some_and_then_never_again():
    seen = {}
    part = part_held_to({"str"}, seen)

    await part.capture(Barrier(2))
    seen["a"] = 1
    await part.capture(Barrier(3))
    del seen["a"]
    seen[1] = 1
    await part.capture(Barrier(4))

    assert part.stored_keys == frozenset()
