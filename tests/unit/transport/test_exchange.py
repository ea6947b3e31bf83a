"""Channels between workers, over real sockets: order, bounds, fences, losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flowpoint.errors import BadRecordError, InternalError, LinkLost
from flowpoint.host.base import Link
from flowpoint.host.system import SystemHost
from flowpoint.model.elements import END_OF_INPUT, Barrier, Batch, Element, Watermark
from flowpoint.protocol.credit import WINDOW_BATCHES, WINDOW_BYTES
from flowpoint.transport import exchange as exchange_module
from flowpoint.transport import wire
from flowpoint.transport.exchange import BATCH_BYTES_MAX, Exchange, Reception
from flowpoint.transport.inbox import Inbox, Outlet
from tests.unit.transport.stand_in import StandInCodec

pytestmark = pytest.mark.timeout(20)


@dataclass
class Worker:
    """A worker as far as its data channels go."""

    index: int
    host: SystemHost
    address: str = ""
    reception: Reception = field(default_factory=Reception)
    losses: list[str] = field(default_factory=list)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    exchange: Exchange | None = None

    async def listen(self) -> None:
        listener = await self.host.listen(self.host.socket_address(f"data-{self.index}"), self.reception.on_link)
        self.address = listener.address

    def deploy(self, workers: list[Worker], attempt: int = 1) -> Exchange:
        peers = {worker.index: worker.address for worker in workers}
        self.exchange = Exchange(self.host, attempt, self.index, StandInCodec(), peers, self._on_lost)
        self.reception.begin(self.exchange)
        return self.exchange

    def _on_lost(self, reason: str) -> None:
        self.losses.append(reason)
        self.lost.set()


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[Worker]]:
    workers = [Worker(index, SystemHost(f"worker-{index}", str(tmp_path))) for index in range(3)]
    for worker in workers:
        await worker.listen()
    yield workers
    for worker in workers:
        if worker.exchange is not None:
            await worker.exchange.close()
    for worker in workers:
        await worker.host.close(timeout=0.1)


async def channel_between(source: Worker, target: Worker, workers: list[Worker]) -> tuple[Outlet, Inbox]:
    """One channel, connected."""
    outlet = source.deploy(workers).outlet(0, 0, 0, to_worker=target.index)
    inbox = target.deploy(workers).inbox(0, 0, 0, from_worker=source.index)
    await connect_all(source, target)
    return outlet, inbox


async def connect_all(*workers: Worker) -> None:
    for worker in workers:
        assert worker.exchange is not None
        await worker.exchange.connect()


class Reader:
    """Waits for what an inbox gets, in tests."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._ready = asyncio.Event()
        inbox.on_ready = self._ready.set

    async def wait_queued(self, count: int) -> None:
        while len(self._inbox.queue) < count:
            await asyncio.sleep(0)

    async def take(self) -> Element:
        while not self._inbox.queue:
            self._ready.clear()
            await self._ready.wait()
        return self._inbox.take()


class Writer:
    """Sends batches when the outlet is writable, in tests."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._writable = asyncio.Event()
        outlet.on_writable = self._writable.set

    async def send(self, values: list[object], timestamps: list[int] | None = None) -> None:
        while not self._outlet.writable:
            self._writable.clear()
            await self._writable.wait()
        self._outlet.send_batch(values, timestamps)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is true. The timeout of the test is the bound."""
    while not condition():
        await asyncio.sleep(0)


async def test_elements_arrive_in_the_order_in_which_they_were_sent(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    reader = Reader(inbox)

    outlet.send_batch(["a", "b"], [1, 2])
    outlet.send_event(Watermark(2))
    outlet.send_batch(["c"], None)
    outlet.send_event(Barrier(1, kind="savepoint", halt=True))
    outlet.send_event(END_OF_INPUT)

    assert [await reader.take() for _ in range(5)] == [
        Batch(["a", "b"], [1, 2]),
        Watermark(2),
        Batch(["c"]),
        Barrier(1, kind="savepoint", halt=True),
        END_OF_INPUT,
    ]


async def test_two_workers_exchange_in_both_directions_over_many_channels(workers: list[Worker]) -> None:
    outlets: dict[tuple[int, int, int], Outlet] = {}
    inboxes: dict[tuple[int, int, int], Inbox] = {}
    for worker in workers:
        exchange = worker.deploy(workers)
        for other in workers:
            for edge in range(2):
                outlets[edge, worker.index, other.index] = exchange.outlet(edge, worker.index, other.index, other.index)
                inboxes[edge, other.index, worker.index] = exchange.inbox(edge, other.index, worker.index, other.index)
    await connect_all(*workers)

    for channel, outlet in outlets.items():
        outlet.send_batch([list(channel)], None)
        outlet.send_event(END_OF_INPUT)

    assert outlets.keys() == inboxes.keys()
    for channel, inbox in inboxes.items():
        reader = Reader(inbox)
        assert [await reader.take(), await reader.take()] == [Batch([list(channel)]), END_OF_INPUT]


async def test_a_slow_reader_bounds_what_is_queued_anywhere(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    reader, writer = Reader(inbox), Writer(outlet)
    total = 10_000
    most_batches = most_bytes = most_in_link = 0

    async def write() -> None:
        nonlocal most_in_link
        for i in range(total):
            await writer.send([i] * 50)
            most_in_link = max(most_in_link, sum(link.queued_bytes for link in workers[0].host.open_links))

    writing = asyncio.create_task(write())
    for i in range(total):
        most_batches, most_bytes = max(most_batches, len(inbox.queue)), max(most_bytes, inbox.queued_bytes)
        batch = await reader.take()
        assert isinstance(batch, Batch)
        assert batch.values[0] == i
        if i % 3 == 0:
            await asyncio.sleep(0)
    await writing

    assert 1 <= most_batches <= WINDOW_BATCHES
    assert most_bytes <= WINDOW_BYTES
    assert most_in_link <= WINDOW_BYTES


async def test_a_writer_that_nobody_reads_stops_at_its_window(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)

    sent = 0
    while outlet.writable:
        outlet.send_batch(["a"], None)
        sent += 1
    await Reader(inbox).wait_queued(sent)

    assert (sent, len(inbox.queue)) == (WINDOW_BATCHES, WINDOW_BATCHES)


async def test_a_blocked_channel_holds_up_no_other_and_no_event(workers: list[Worker]) -> None:
    source, target = workers[0].deploy(workers), workers[1].deploy(workers)
    blocked_out, open_out = (source.outlet(0, 0, i, to_worker=1) for i in range(2))
    blocked_in, open_in = (target.inbox(0, 0, i, from_worker=0) for i in range(2))
    await connect_all(workers[0], workers[1])
    while blocked_out.writable:
        blocked_out.send_batch(["stuck"], None)
    blocked_out.send_event(Barrier(1))

    reader, writer = Reader(open_in), Writer(open_out)
    for i in range(100):
        await writer.send([i])
        assert await reader.take() == Batch([i])

    await Reader(blocked_in).wait_queued(WINDOW_BATCHES + 1)
    assert blocked_in.queue[-1] == Barrier(1)


async def test_an_oversized_batch_is_cut_and_arrives_whole(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    values = [f"{i:05}" * 200 for i in range(3000)]
    timestamps = list(range(3000))

    outlet.send_batch(list(values), list(timestamps))
    reader = Reader(inbox)
    got = Batch([], [])
    pieces = 0
    while len(got) < len(values):
        assert inbox.queued_bytes <= len(values) * 1100
        piece = await reader.take()
        assert isinstance(piece, Batch) and piece.timestamps is not None and got.timestamps is not None
        got.values += piece.values
        got.timestamps += piece.timestamps
        pieces += 1

    assert got == Batch(values, timestamps)
    assert pieces >= 3_000_000 // BATCH_BYTES_MAX
    await wait_until(lambda: outlet.writable)


async def test_a_batch_with_one_huge_record_among_small_ones_is_cut_around_it(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    values = ["small"] * 10 + ["x" * (3 * BATCH_BYTES_MAX)] + ["small"] * 10

    outlet.send_batch(list(values), None)
    reader = Reader(inbox)
    got: list[object] = []
    while len(got) < len(values):
        piece = await reader.take()
        assert isinstance(piece, Batch)
        got += piece.values

    assert got == values


async def test_a_record_bigger_than_the_window_passes(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    reader, writer = Reader(inbox), Writer(outlet)
    big = "x" * (4 * WINDOW_BYTES)

    for _ in range(3):
        await writer.send([big])
        assert not outlet.writable
        assert await reader.take() == Batch([big])


async def test_a_record_bigger_than_a_frame_is_refused(workers: list[Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "RECORD_BYTES_MAX", 1000)
    outlet, _ = await channel_between(workers[0], workers[1], workers)

    with pytest.raises(BadRecordError, match="cannot send a record of 10.. bytes: the limit is 1000"):
        outlet.send_batch(["x" * 1000], None)


async def test_a_record_that_cannot_be_encoded_is_refused_and_spends_nothing(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)

    for _ in range(10):
        with pytest.raises(BadRecordError):
            outlet.send_batch([object()], None)

    outlet.send_batch(["good"], None)
    assert await Reader(inbox).take() == Batch(["good"])


async def test_a_batch_that_cannot_be_decoded_fails_its_reader_and_not_the_link(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    reader = Reader(inbox)

    outlet.send_batch(["poison"], None)
    outlet.send_batch(["good"], None)

    with pytest.raises(BadRecordError, match="cannot be decoded"):
        await reader.take()
    assert await reader.take() == Batch(["good"])
    assert workers[1].losses == []


async def test_channels_inside_a_worker_need_no_link(workers: list[Worker]) -> None:
    exchange = workers[0].deploy(workers)
    outlet, inbox = exchange.outlet(0, 1, 2, to_worker=0), exchange.inbox(0, 1, 2, from_worker=0)
    await exchange.connect()
    values: list[object] = [object()]

    outlet.send_batch(values, None)

    batch = inbox.take()
    assert isinstance(batch, Batch)
    assert batch.values is values
    assert len(workers[0].host.open_links) == 0


async def test_links_that_come_before_the_attempt_is_deployed_are_kept(workers: list[Worker]) -> None:
    outlet = workers[0].deploy(workers).outlet(0, 0, 0, to_worker=1)
    await connect_all(workers[0])
    outlet.send_batch(["early"], None)

    inbox = workers[1].deploy(workers).inbox(0, 0, 0, from_worker=0)
    await connect_all(workers[1])

    assert await Reader(inbox).take() == Batch(["early"])


async def test_frames_of_another_attempt_are_dropped(workers: list[Worker]) -> None:
    zombie = workers[2].deploy(workers, attempt=1).outlet(0, 0, 0, to_worker=1)
    await connect_all(workers[2])
    zombie.send_batch(["old"], None)
    outlet = workers[0].deploy(workers, attempt=2).outlet(0, 0, 0, to_worker=1)
    target = workers[1].deploy(workers, attempt=2)
    inbox, other = target.inbox(0, 0, 0, from_worker=0), target.inbox(0, 0, 0, from_worker=2)
    await connect_all(workers[0], workers[1])

    outlet.send_batch(["new"], None)
    assert await Reader(inbox).take() == Batch(["new"])
    await workers[2].lost.wait()

    assert (len(inbox.queue), len(other.queue), workers[1].losses) == (0, 0, [])


async def test_a_new_attempt_takes_over_where_the_old_one_was_closed(workers: list[Worker]) -> None:
    for attempt in 1, 2, 3:
        outlet = workers[0].deploy(workers, attempt).outlet(0, 0, 0, to_worker=1)
        inbox = workers[1].deploy(workers, attempt).inbox(0, 0, 0, from_worker=0)
        await connect_all(workers[0], workers[1])
        outlet.send_batch([attempt], None)

        assert await Reader(inbox).take() == Batch([attempt])

        for worker in workers[:2]:
            assert worker.exchange is not None
            worker.reception.end()
            await worker.exchange.close()
    assert workers[0].losses == workers[1].losses == []


async def test_the_loss_of_links_is_told_once(workers: list[Worker]) -> None:
    exchange = workers[0].deploy(workers)
    for worker in workers[1:]:
        exchange.outlet(0, 0, worker.index, to_worker=worker.index)
        exchange.inbox(1, worker.index, 0, from_worker=worker.index)
        worker.deploy(workers).inbox(0, 0, worker.index, from_worker=0)
        assert worker.exchange is not None
        worker.exchange.outlet(1, worker.index, 0, to_worker=0)
    await connect_all(*workers)
    await wait_until(lambda: len(workers[0].host.open_links) == 4)

    for worker in workers[1:]:
        for link in list(worker.host.open_links):
            link.abort()
    await workers[0].lost.wait()
    await wait_until(lambda: not workers[0].host.open_links)

    assert len(workers[0].losses) == 1
    assert "data link between worker 0 and worker" in workers[0].losses[0]


async def test_nothing_is_told_after_close(workers: list[Worker]) -> None:
    outlet, _ = await channel_between(workers[0], workers[1], workers)
    assert workers[0].exchange is not None and workers[1].exchange is not None

    await workers[0].exchange.close()
    await workers[1].lost.wait()
    outlet.send_batch(["nobody takes this"], None)
    outlet.send_event(Barrier(1))
    await workers[1].exchange.close()

    assert workers[0].losses == []


async def test_a_link_that_is_opened_when_the_attempt_has_ended_meanwhile_is_closed(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = workers[0].deploy(workers)
    exchange.outlet(0, 0, 0, to_worker=1)
    connect = workers[0].host.connect

    async def slow(address: str) -> Link:
        link = await connect(address)
        await exchange.close()
        return link

    monkeypatch.setattr(workers[0].host, "connect", slow)
    with pytest.raises(LinkLost, match="attempt 1 ended while worker 0 was connecting"):
        await exchange.connect()

    await wait_until(lambda: not workers[0].host.open_links)


async def test_a_worker_that_cannot_be_reached_is_a_lost_link(workers: list[Worker]) -> None:
    exchange = workers[0].deploy(workers)
    exchange.outlet(0, 0, 0, to_worker=1)
    workers[1].address = workers[0].host.socket_address("nobody")
    exchange = workers[0].deploy(workers)
    exchange.outlet(0, 0, 0, to_worker=1)

    with pytest.raises(LinkLost, match="cannot connect"):
        await exchange.connect()


async def test_an_element_for_a_channel_that_does_not_lead_here_ends_the_attempt(workers: list[Worker]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    outlet = workers[0].deploy(workers).outlet(0, 0, 7, to_worker=1)
    workers[1].deploy(workers).inbox(0, 0, 0, from_worker=0)
    await connect_all(workers[0], workers[1])

    outlet.send_batch(["lost"], None)
    await workers[1].lost.wait()
    await workers[0].lost.wait()

    assert "channel that does not lead here" in workers[1].losses[0]


async def test_a_second_link_of_the_same_worker_is_refused(workers: list[Worker]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    outlet.send_batch(["first"], None)
    assert await Reader(inbox).take() == Batch(["first"])

    impostor: Link = await workers[2].host.connect(workers[1].address)
    ended = asyncio.Event()
    impostor.start(lambda frame: None, lambda reason: ended.set())
    impostor.send_nowait(wire.encode_greeting(1, 0))
    await ended.wait()

    outlet.send_batch(["second"], None)
    assert await Reader(inbox).take() == Batch(["second"])
    assert workers[1].losses == []


async def test_using_an_exchange_out_of_order_is_a_bug_that_says_so(workers: list[Worker]) -> None:
    exchange = workers[0].deploy(workers)
    outlet = exchange.outlet(3, 0, 1, to_worker=1)

    with pytest.raises(InternalError, match="edge 3 from subtask 0 to subtask 1 was used before"):
        outlet.send_event(Barrier(1))
    await exchange.connect()
    with pytest.raises(InternalError, match="edge 4 .* declared after"):
        exchange.outlet(4, 0, 1, to_worker=1)
    assert exchange.outlet(3, 0, 1, to_worker=1) is outlet


async def test_ac02_no_element_is_lost_when_readers_are_cancelled(workers: list[Worker]) -> None:
    outlet, inbox = await channel_between(workers[0], workers[1], workers)
    reader, writer = Reader(inbox), Writer(outlet)
    total = 2_000
    cancelled = rounds = 0

    async def write() -> None:
        for i in range(total):
            await writer.send([i])

    writing = asyncio.create_task(write())
    received: list[object] = []
    while len(received) < total:
        rounds += 1
        wait = asyncio.create_task(reader.take())
        for _ in range(rounds % 5):
            await asyncio.sleep(0)
        wait.cancel()
        try:
            batch = await wait
        except asyncio.CancelledError:
            cancelled += 1
        else:
            assert isinstance(batch, Batch)
            received += batch.values
    await writing

    assert received == list(range(total))
    assert cancelled > 100
