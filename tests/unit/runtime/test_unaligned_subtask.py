"""A processing subtask lets barriers overtake records, and takes in first what was under way when it is restored."""

from __future__ import annotations

import asyncio

import pytest

from flowpoint.errors import StorageError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, Barrier, Batch
from flowpoint.model.manifest import NO_GROUPS, StateFile, SubtaskState
from flowpoint.runtime.channel_state import RestoredBatch
from flowpoint.runtime.processing_subtask import Unaligned
from flowpoint.transport.batches import decode_batch
from tests.unit.runtime.fakes import CODEC, FakeOutlet, plain
from tests.unit.runtime.harness import FakeSink, Processing, run, running, sink_part


class Channels:
    """Keeps the channel state that is written, per checkpoint. `failure` is raised instead, once."""

    def __init__(self):
        self.written = {}
        self.failure = None

    async def __call__(self, recording):
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        batches = recording.batches()
        values = [value for one in batches for value in decode_batch(CODEC, one.data).values]
        self.written[recording.checkpoint] = values
        if not values:
            return "sink", SubtaskState()
        return "sink", SubtaskState(channels=(StateFile("f", "channel", 1, "c", len(values), NO_GROUPS),))


def processing(channels=2, timeout=0.0, **more):
    """A subtask with a sink, which takes 10 ms a call, and where its channel state goes."""
    written = Channels()
    more.setdefault("parts", [sink_part(more.pop("sink", None) or FakeSink(0.01))])
    it = Processing(channels, unaligned=Unaligned(timeout, CODEC), write_channels=written, slice_max=1, **more)
    return it, written


def test_ac15_nothing_after_the_barrier_enters_the_snapshot_and_what_is_before_it_is_in_once():
    async def main():
        it, channels = processing()
        async with running(it):
            it.send("r1", "r2")
            it.send(*[f"x{n}" for n in range(1, 101)], channel=1)
            await asyncio.sleep(0.1)
            it.event(Barrier(1))
            it.send("r3")
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            return it, channels

    it, channels = run(main())

    snapshot = it.acked(1)["sink"]["committables"][0]["data"]["records"]
    before = ["r1", "r2", *[f"x{n}" for n in range(1, 101)]]
    assert sorted([*snapshot, *channels.written[1]]) == sorted(before)
    assert 2 < len(snapshot) < 20
    assert "r3" not in [*snapshot, *channels.written[1]]
    assert it.acked(1)["sink"]["channels"][0]["entries"] == len(channels.written[1])


def test_what_is_left_of_the_batch_in_hand_is_channel_state_in_its_order():
    async def main():
        it, channels = processing(channels=1)
        async with running(it):
            it.send(*range(10))
            await asyncio.sleep(0.035)
            it.send(10, 11)
            it.event(Barrier(1))
            it.send(12)
            await asyncio.sleep(5)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"], channels.written[1]

    snapshot, under_way = run(main())

    assert 0 < len(snapshot) < 10
    assert [*snapshot, *under_way] == list(range(12))


def test_records_that_arrive_after_the_snapshot_and_before_their_barrier_are_channel_state_too():
    async def main():
        it, channels = processing()
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            assert not it.reported(messages.Ack), "the other channel's barrier has not come"
            it.send("late", channel=1)
            await asyncio.sleep(1)
            it.event(Barrier(1), channel=1)
            it.send("after", channel=1)
            await asyncio.sleep(1)
            return channels.written[1]

    assert run(main()) == ["late"]


def test_a_value_that_is_changed_after_it_was_recorded_stands_in_the_snapshot_as_it_was():
    def spoil(value):
        value.append("spoiled")
        return value

    async def main():
        it, channels = processing(operators=[plain("map", spoil)])
        async with running(it):
            it.event(Barrier(1))
            it.send(["a"], channel=1)
            await asyncio.sleep(1)
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(1)
            return channels.written[1]

    assert run(main()) == [["a"]]


def test_a_barrier_passes_a_subtask_that_waits_for_credit():
    async def main():
        outlet = FakeOutlet()
        outlet.writable = False
        it, channels = processing(parts=[], outlets=[outlet], operators=[plain("map", lambda value: value)])
        async with running(it):
            it.send(1, 2, 3)
            it.event(Barrier(1))
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(1)
            return it.records, channels.written[1]

    assert run(main()) == ([Barrier(1)], [1, 2, 3])


def test_a_checkpoint_in_time_is_aligned_and_holds_no_channel_state():
    async def main():
        it, channels = processing(timeout=1.0, clock=lambda: 0)
        async with running(it):
            it.send(*range(10))
            it.event(Barrier(1))
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            return it.acked(1)["sink"], channels.written

    sink, written = run(main())

    assert sink["committables"][0]["data"]["records"] == list(range(10))
    assert "channels" not in sink
    assert written == {}


def test_a_checkpoint_that_becomes_too_old_turns_unaligned_and_reads_on():
    async def main():
        it, channels = processing(timeout=0.2, clock=lambda: 0)
        async with running(it):
            it.event(Barrier(1))
            it.send("after")
            it.send(*range(100), channel=1)
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"], channels.written[1]

    snapshot, under_way = run(main())

    assert 10 < len(snapshot) < 40
    assert [*snapshot, *under_way] == list(range(100))


@pytest.mark.parametrize("barrier", [Barrier(1, halt=True), Barrier(1, final=True)])
def test_last_checkpoints_stay_aligned(barrier):
    async def main():
        it, channels = processing()
        async with running(it):
            it.send(*range(10))
            it.event(barrier)
            it.event(barrier, channel=1)
            await asyncio.sleep(5)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"], channels.written

    assert run(main()) == (list(range(10)), {})


def test_a_forward_channel_is_read_up_to_its_barrier():
    async def main():
        it, channels = processing(forward={0})
        async with running(it):
            it.send(*range(10))
            it.event(Barrier(1))
            for n in range(100, 200):
                it.send(n, channel=1)
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"], channels.written[1]

    snapshot, under_way = run(main())

    assert set(range(10)) <= set(snapshot)
    assert sorted([*snapshot, *under_way]) == [*range(10), *range(100, 200)]
    assert under_way


def test_an_abort_ends_the_recording_and_the_next_checkpoint_is_whole():
    async def main():
        it, channels = processing()
        async with running(it):
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.abort(1)
            it.send("a", channel=1)
            it.event(Barrier(2), channel=1)
            it.event(Barrier(2))
            await asyncio.sleep(1)
            return [ack.checkpoint for ack in it.reported(messages.Ack)], channels.written

    acks, written = run(main())

    assert acks == [1, 2], "of 1 the coordinator learns what was written"
    assert list(written) == [2]


def test_when_channel_state_cannot_be_written_then_the_checkpoint_is_declined_and_the_next_one_works():
    async def main():
        it, channels = processing(channels=1)
        channels.failure = StorageError("the disk says no")
        async with running(it):
            it.send(1, 2)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            it.subtask.abort(1)
            it.event(Barrier(2))
            await asyncio.sleep(1)
            return it.reported(messages.Decline), [ack.checkpoint for ack in it.reported(messages.Ack)]

    declined, acks = run(main())

    assert [(one.checkpoint, one.restoring) for one in declined] == [(1, False)]
    assert "the disk says no" in declined[0].reason
    assert acks == [1, 2], "of 1 the coordinator learns what was written"


# ---------------------------------------------------------------- restoring


def restored(*values):
    return RestoredBatch("map", 0, Batch(list(values)))


def test_restored_records_come_before_anything_new():
    async def main():
        it, _ = processing(operators=[plain("map", lambda value: value)], restored=[restored(1, 2), restored(3)])
        it.send(4)
        it.event(END_OF_INPUT)
        it.event(END_OF_INPUT, channel=1)
        async with running(it):
            await asyncio.sleep(5)
            it.event(Barrier(1))
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"]

    assert run(main()) == [1, 2, 3, 4]


def test_ac16_a_checkpoint_is_declined_at_once_while_restored_records_are_taken_in():
    async def main():
        it, channels = processing(operators=[plain("map", lambda value: value)], restored=[restored(*range(100))])
        async with running(it):
            await asyncio.sleep(0.1)
            it.event(Barrier(1))
            await asyncio.sleep(0.05)
            early = list(it.reported(messages.Decline))
            it.event(Barrier(1), channel=1)
            await asyncio.sleep(5)
            it.event(Barrier(2))
            it.event(Barrier(2), channel=1)
            await asyncio.sleep(5)
            return early, it.reported(messages.Decline), it.acked(2)["sink"], channels.written

    early, declined, sink, written = run(main())

    assert [(one.checkpoint, one.restoring) for one in early] == [(1, True)]
    assert declined == early
    assert sink["committables"][0]["data"]["records"] == list(range(100))
    assert written == {2: []}


def test_ac16_a_trigger_alone_is_enough_to_decline():
    async def main():
        it, _ = processing(operators=[plain("map", lambda value: value)], restored=[restored(*range(100))])
        async with running(it):
            await asyncio.sleep(0.1)
            assert it.subtask.is_restoring
            it.subtask.decline_restoring(7)
            it.subtask.decline_restoring(7)
            await asyncio.sleep(5)
            assert not it.subtask.is_restoring
            it.event(Barrier(7))
            it.event(Barrier(7), channel=1)
            await asyncio.sleep(1)
            return it.reported(messages.Decline), it.reported(messages.Ack)

    declined, acks = run(main())

    assert [one.checkpoint for one in declined] == [7]
    assert acks == []


def test_records_enter_at_the_operator_that_they_were_on_their_way_to():
    async def main():
        double = plain("map", lambda value: value * 2, uid="double")
        add = plain("map", lambda value: value + 1, uid="add")
        batches = [RestoredBatch(uid, 0, Batch([10])) for uid in ("sink", "add", "double")]
        written = Channels()
        it = Processing(
            1,
            operators=[double, add],
            parts=[sink_part(FakeSink())],
            unaligned=Unaligned(0.0, CODEC),
            write_channels=written,
            restored=batches,
            entries={"add", "double"},
        )
        async with running(it):
            it.send(100)
            await asyncio.sleep(1)
            it.event(Barrier(1))
            await asyncio.sleep(1)
            return it.acked(1)["sink"]["committables"][0]["data"]["records"]

    assert run(main()) == [10, 11, 21, 201]
