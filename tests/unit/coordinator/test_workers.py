"""`coordinator.workers`: what the coordinator hears of processes that are started, fail to start, and end."""

import asyncio

import pytest

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
        self.workers = Workers(self.host, lambda *_: [], None, self.told.append)

    def greet(self):
        """The worker's process says hello, before or after the coordinator has its handle."""
        link = FakeLink()
        self.host.on_link(link)
        hello = messages.Hello(0, 41, "ab12cd34ab12cd34", "data")
        link.on_frame(encode_message(hello))
        return link


@pytest.mark.parametrize("refusal", [WorkerLost("no more processes"), PermissionError("worker.log")])
async def test_a_process_that_cannot_be_started_is_told_and_ends_nothing(refusal):
    room = Room()
    room.host.outcome = refusal
    await room.workers.listen()

    async with asyncio.TaskGroup() as group:
        await room.workers.start(0, group)

    assert room.told == [NotStarted(0, f"cannot start worker 0: {refusal}")]
    assert room.workers.pids() == {}
