"""`coordinator.workers`: what the coordinator hears of processes that are started, fail to start, and end."""

import asyncio

import pytest

from flowpoint.coordinator.steps import Steps
from flowpoint.coordinator.workers import Joined, Lost, NotStarted, Started, Workers
from flowpoint.errors import WorkerLost
from flowpoint.model import messages
from flowpoint.transport.control import encode_message


class FakeLink:
    """The coordinator's end of a worker's link; the test plays the worker."""

    def __init__(self):
        self.is_closed = False

    def start(self, on_frame, on_lost):
        self.on_frame, self.on_lost = on_frame, on_lost

    def send_nowait(self, *parts):
        pass

    def close(self):
        self.is_closed = True


class FakeProcess:
    """A process that runs until it is killed, and is reaped when the test allows it."""

    def __init__(self, pid):
        self.pid, self.start_time = pid, 1.5
        self.is_killed = False
        self.is_gone = asyncio.Event()

    async def wait(self):
        await self.is_gone.wait()
        return -9

    def kill(self):
        self.is_killed = True


class FakeHost:
    """Starts what the test hands it, when the test allows it."""

    def __init__(self):
        self.outcome = FakeProcess(41)
        self.may_start = asyncio.Event()
        self.may_start.set()

    def new_id(self):
        return "ab12cd34ab12cd34"

    def socket_address(self, name):
        return name

    async def listen(self, address, on_link):
        self.on_link, self.address = on_link, address
        return self

    def close(self):
        pass

    async def start_process(self, role, args, log_path):
        await self.may_start.wait()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Room:
    """`Workers` in a fake world, and all that it told."""

    def __init__(self):
        self.host, self.told = FakeHost(), []
        self.steps = Steps()
        self.workers = Workers(self.host, lambda *_: [], None, self.told.append, self.steps.start)

    def greet(self):
        """The worker's process says hello, before or after the coordinator has its handle."""
        link = FakeLink()
        self.host.on_link(link)
        hello = messages.Hello(0, 41, 1.5, "ab12cd34ab12cd34", "data")
        link.on_frame(encode_message(hello))
        return link


@pytest.mark.parametrize("refusal", [WorkerLost("no more processes"), PermissionError("worker.log")])
async def test_a_process_that_cannot_be_started_is_told_and_ends_nothing(refusal):
    room = Room()
    room.host.outcome = refusal
    await room.workers.listen()

    async with asyncio.TaskGroup() as group:
        room.steps.enter(group)
        await room.workers.start(0)

    assert room.told == [NotStarted(0, f"cannot start worker 0: {refusal}")]
    assert room.workers.pids() == {}


async def test_a_link_that_breaks_before_the_process_is_at_hand_is_told_after_its_start_with_its_pid():
    room = Room()
    room.host.may_start.clear()
    await room.workers.listen()

    async with asyncio.TaskGroup() as group:
        room.steps.enter(group)
        starting = group.create_task(room.workers.start(0))
        await asyncio.sleep(0)
        room.greet().on_lost("connection reset")
        assert room.told == []
        room.host.may_start.set()
        await starting
        assert room.host.outcome.is_killed
        room.host.outcome.is_gone.set()

    reason = "worker 0 (pid 41): control link lost: connection reset"
    assert room.told == [Started(0, 41), Lost(0, 41, reason)]


async def test_a_hello_that_comes_before_the_process_is_at_hand_is_told_after_its_start():
    room = Room()
    room.host.may_start.clear()
    await room.workers.listen()

    async with asyncio.TaskGroup() as group:
        room.steps.enter(group)
        starting = group.create_task(room.workers.start(0))
        await asyncio.sleep(0)
        room.greet()
        room.host.may_start.set()
        await starting
        assert room.told == [Started(0, 41), Joined(0, 41, "ab12cd34ab12cd34")]
        room.host.outcome.is_gone.set()


async def test_a_lost_process_is_among_the_pids_until_it_is_reaped():
    room = Room()
    await room.workers.listen()

    async with asyncio.TaskGroup() as group:
        room.steps.enter(group)
        await room.workers.start(0)
        room.greet().on_lost("connection reset")
        assert room.workers.pids() == {0: (41, 1.5)}
        killing = group.create_task(room.workers.kill(0))
        room.host.outcome.is_gone.set()
        await killing

    assert room.workers.pids() == {}
