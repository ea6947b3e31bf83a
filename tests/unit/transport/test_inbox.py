"""A channel inside one worker: order, credit, callbacks, bounds."""

from __future__ import annotations

import asyncio

import pytest

from flowpoint.model.elements import END_OF_INPUT, Barrier, Batch, Element, Watermark
from flowpoint.protocol.credit import WINDOW_BATCHES, WINDOW_BYTES
from flowpoint.transport.inbox import BrokenBatch, Inbox, LocalChannel, estimated_bytes

pytestmark = pytest.mark.timeout(20)


def take_all(inbox: Inbox) -> list[Element]:
    return [inbox.take() for _ in range(len(inbox.queue))]


def test_elements_leave_in_the_order_in_which_they_came() -> None:
    channel = LocalChannel()

    channel.send_batch(["a"], None)
    channel.send_event(Watermark(1))
    channel.send_batch(["b"], [5])
    channel.send_event(Barrier(1))
    channel.send_event(END_OF_INPUT)

    assert take_all(channel.inbox) == [Batch(["a"]), Watermark(1), Batch(["b"], [5]), Barrier(1), END_OF_INPUT]


def test_a_local_batch_is_handed_over_without_a_copy() -> None:
    channel = LocalChannel()
    values = [object()]

    channel.send_batch(values, None)

    batch = channel.inbox.take()
    assert isinstance(batch, Batch)
    assert batch.values is values


def test_a_channel_is_writable_until_its_window_is_spent() -> None:
    channel = LocalChannel()

    for _ in range(WINDOW_BATCHES):
        assert channel.writable
        channel.send_batch(["a"], None)

    assert not channel.writable


def test_big_batches_spend_the_window_by_bytes() -> None:
    channel = LocalChannel()

    channel.send_batch(["x" * WINDOW_BYTES], None)

    assert not channel.writable
    channel.inbox.take()
    assert channel.writable


def test_events_pass_when_the_window_is_spent_and_give_no_credit_back() -> None:
    channel = LocalChannel()
    for _ in range(WINDOW_BATCHES):
        channel.send_batch([], None)

    channel.send_event(Barrier(1))
    for _ in range(WINDOW_BATCHES):
        channel.inbox.take()

    assert channel.writable
    assert channel.inbox.take() == Barrier(1)


def test_the_writer_is_called_once_when_the_window_opens_again() -> None:
    channel = LocalChannel()
    calls: list[bool] = []
    channel.on_writable = lambda: calls.append(channel.writable)
    for _ in range(WINDOW_BATCHES):
        channel.send_batch(["a"], None)

    take_all(channel.inbox)

    assert calls == [True]


def test_the_reader_is_called_when_the_queue_is_no_longer_empty() -> None:
    channel = LocalChannel()
    calls: list[int] = []
    channel.inbox.on_ready = lambda: calls.append(len(channel.inbox.queue))

    channel.send_batch(["a"], None)
    channel.send_event(Barrier(1))
    take_all(channel.inbox)
    channel.send_event(Barrier(2))

    assert calls == [1, 1]


def test_watermarks_that_nobody_took_are_merged() -> None:
    channel = LocalChannel()

    for timestamp in range(1000):
        channel.send_event(Watermark(timestamp))
    channel.send_event(Barrier(1))
    channel.send_event(Watermark(1000))

    assert take_all(channel.inbox) == [Watermark(999), Barrier(1), Watermark(1000)]


def test_queued_bytes_are_those_of_the_batches_in_the_queue() -> None:
    channel = LocalChannel()

    channel.send_batch(["x" * 1000] * 10, None)
    channel.send_event(Watermark(1))
    assert 9_000 < channel.inbox.queued_bytes < 12_000

    take_all(channel.inbox)
    assert channel.inbox.queued_bytes == 0


def test_a_batch_that_could_not_be_decoded_is_raised_where_it_is_taken_and_paid_back() -> None:
    grants: list[tuple[int, int]] = []
    inbox = Inbox(lambda batches, nbytes: grants.append((batches, nbytes)))
    inbox.put_batch(Batch(["a"]), 10)
    inbox.put_batch(BrokenBatch(ValueError("no such colour")), 20)
    inbox.put_batch(Batch(["b"]), 30)

    assert inbox.take() == Batch(["a"])
    with pytest.raises(ValueError, match="no such colour"):
        inbox.take()
    assert inbox.take() == Batch(["b"])
    assert grants == [(2, 30)]


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([], 0, 0),
        (["x" * 100] * 1000, 90_000, 120_000),
        ([("key", 1)] * 1000, 8_000, 25_000),
        ([{"a": "x" * 500, "b": [b"y" * 500]}] * 10, 9_000, 12_000),
        ([1] * 1000, 1_000, 10_000),
        ([[[[["deep" * 1000]]]]], 1, 100),
    ],
)
def test_the_size_of_a_local_batch_is_estimated_from_a_few_values(values: list[object], low: int, high: int) -> None:
    assert low <= estimated_bytes(values) <= high


async def test_ac02_no_element_is_lost_when_waits_are_cancelled() -> None:
    channel = LocalChannel()
    total = 3_000
    ready, writable = asyncio.Event(), asyncio.Event()
    channel.inbox.on_ready = ready.set
    channel.on_writable = writable.set

    async def wait_and_take() -> list[int]:
        await ready.wait()
        ready.clear()
        taken: list[int] = []
        while channel.inbox.queue:
            element = channel.inbox.take()
            assert isinstance(element, Batch)
            taken += element.values
        return taken

    async def write() -> None:
        for i in range(total):
            while not channel.writable:
                writable.clear()
                await writable.wait()
            channel.send_batch([i], None)
            if i % 7 == 0:
                await asyncio.sleep(0)

    async def read() -> tuple[list[int], int]:
        received: list[int] = []
        cancelled = rounds = 0
        while len(received) < total:
            rounds += 1
            wait = asyncio.create_task(wait_and_take())
            # Cancel at every possible moment: before it began, while it waits, when it was just woken, after it took.
            for _ in range(rounds % 5):
                await asyncio.sleep(0)
            wait.cancel()
            try:
                received += await wait
            except asyncio.CancelledError:
                cancelled += 1
                if channel.inbox.queue:
                    ready.set()
        return received, cancelled

    writing = asyncio.create_task(write())
    received, cancelled = await read()
    await writing

    assert received == list(range(total))
    assert cancelled > 100


# ---------------------------------------------------------------- recording what a barrier overtakes


def recorded(channel: LocalChannel, checkpoint: int) -> list[int]:
    seen: list[int] = []
    channel.inbox.record(checkpoint, lambda batch: seen.extend(batch.values))
    return seen


def test_recording_shows_what_is_queued_and_what_comes_up_to_the_barrier() -> None:
    channel = LocalChannel()
    channel.send_batch([1], None)

    seen = recorded(channel, 7)
    channel.send_batch([2], None)
    channel.send_event(Barrier(7))
    channel.send_batch([3], None)

    assert seen == [1, 2]
    assert [channel.inbox.take() for _ in range(2)] == [Batch([1]), Batch([2])]


def test_recording_ends_at_a_barrier_that_is_there_already_and_passes_older_ones() -> None:
    channel = LocalChannel()
    channel.send_batch([1], None)
    channel.send_event(Barrier(6))
    channel.send_batch([2], None)
    channel.send_event(Barrier(7))
    channel.send_batch([3], None)

    seen = recorded(channel, 7)
    channel.send_batch([4], None)

    assert seen == [1, 2]


def test_recording_can_be_stopped() -> None:
    channel = LocalChannel()
    seen = recorded(channel, 7)

    channel.inbox.stop_recording()
    channel.send_batch([1], None)

    assert seen == []


def test_a_barrier_is_announced_when_it_arrives_behind_what_is_queued() -> None:
    channel = LocalChannel()
    announced: list[Barrier] = []
    channel.inbox.on_barrier = announced.append
    channel.send_batch([1], None)

    channel.send_event(Barrier(1))

    assert announced == [Barrier(1)]
    assert channel.inbox.take() == Batch([1])
