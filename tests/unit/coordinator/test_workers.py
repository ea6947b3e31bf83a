"""`coordinator.workers`: what the coordinator hears of processes that are started, fail to start, and end."""

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flowpoint.coordinator import workers
from flowpoint.coordinator.steps import Steps
from flowpoint.coordinator.workers import Ended, Joined, Lost, NotStarted, Started, Workers
from flowpoint.errors import LinkLost, WorkerLost
from flowpoint.host.base import FileStat
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
        self.exit_code = -9
        self.is_killed = False
        self.is_gone = asyncio.Event()

    async def wait(self):
        await self.is_gone.wait()
        return self.exit_code

    def kill(self):
        self.is_killed = True


class FakeDisk:
    """Reads real files at once."""

    async def stat(self, path):
        return FileStat(Path(path).stat().st_size, 0, Path(path).is_dir())

    async def read(self, path, offset=0, size=-1):
        return Path(path).read_bytes()[offset:]


class FakeHost:
    """Starts what the test hands it, when the test allows it."""

    def __init__(self):
        self.disk = FakeDisk()
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

    def __init__(self, log_path=None):
        self.host, self.told = FakeHost(), []
        self.steps = Steps()
        self.workers = Workers(self.host, lambda *_: [], log_path, self.told.append, self.steps.start)

    @asynccontextmanager
    async def opened(self):
        """Workers can be started; at the end every step has ended."""
        await self.workers.listen()
        async with asyncio.TaskGroup() as group:
            self.steps.enter(group)
            yield group

    def greet(self):
        """The worker's process says hello, before or after the coordinator has its handle."""
        link = FakeLink()
        self.host.on_link(link)
        hello = messages.Hello(0, 41, 1.5, "ab12cd34ab12cd34", "data")
        link.on_frame(encode_message(hello))
        return link


@pytest.fixture
def room():
    return Room()


async def until_lost(room):
    """Wait until a worker is told to be lost."""
    async with asyncio.timeout(5):
        while not any(isinstance(told, Lost) for told in room.told):
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("refusal", [WorkerLost("no more processes"), PermissionError("worker.log")])
async def test_a_process_that_cannot_be_started_is_told_and_ends_nothing(room, refusal):
    room.host.outcome = refusal

    async with room.opened():
        await room.workers.start(0)

    assert room.told == [NotStarted(0, f"cannot start worker 0: {refusal}")]
    assert room.workers.pids() == {}


@pytest.mark.parametrize("frame", [b"", b"GET / HTTP/1.1", b"\xc1"])
async def test_what_a_stranger_says_is_no_bug_of_the_engine(room, frame):
    link = FakeLink()

    async with room.opened():
        room.host.on_link(link)
        with pytest.raises(LinkLost, match="no worker of this job is at its other end"):
            link.on_frame(frame)
        link.on_lost("it is closed")

    assert room.told == []


async def test_a_link_that_breaks_before_the_process_is_at_hand_is_told_after_its_start_with_its_pid(room):
    room.host.may_start.clear()

    async with room.opened() as group:
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


async def test_a_hello_that_comes_before_the_process_is_at_hand_is_told_after_its_start(room):
    room.host.may_start.clear()

    async with room.opened() as group:
        starting = group.create_task(room.workers.start(0))
        await asyncio.sleep(0)
        room.greet()
        room.host.may_start.set()
        await starting
        assert room.told == [Started(0, 41), Joined(0, 41, "ab12cd34ab12cd34")]
        room.host.outcome.is_gone.set()


async def test_a_lost_process_is_among_the_pids_until_it_is_reaped(room):
    async with room.opened() as group:
        await room.workers.start(0)
        room.greet().on_lost("connection reset")
        assert room.workers.pids() == {0: (41, 1.5)}
        killing = group.create_task(room.workers.kill(0))
        room.host.outcome.is_gone.set()
        await killing

    assert room.workers.pids() == {}


async def test_a_link_that_breaks_by_the_death_of_its_process_is_told_as_that_death(room):
    async with room.opened():
        await room.workers.start(0)
        room.greet().on_lost("connection reset")
        await asyncio.sleep(0)
        assert room.told == [Started(0, 41), Joined(0, 41, "ab12cd34ab12cd34")]
        room.host.outcome.is_gone.set()

    assert room.told[2:] == [Lost(0, 41, "worker 0 (pid 41) was killed by signal 9")]


async def test_a_link_that_breaks_while_its_process_lives_is_told_after_a_moment(room):
    async with room.opened() as group:
        await room.workers.start(0)
        room.greet().on_lost("connection reset")
        await until_lost(room)
        killing = group.create_task(room.workers.kill(0))
        await asyncio.sleep(0)
        room.host.outcome.is_gone.set()
        await killing

    assert room.told[2:] == [Lost(0, 41, "worker 0 (pid 41): control link lost: connection reset")]


@pytest.mark.parametrize(
    ("code", "how"), [(7, "ended with exit code 7"), (-11, "was killed by signal 11"), (0, ""), (75, "")]
)
async def test_how_a_process_has_ended_is_told_also_when_its_link_was_told_before(room, code, how):
    room.host.outcome.exit_code = code

    async with room.opened():
        await room.workers.start(0)
        room.greet().on_lost("connection reset")
        await until_lost(room)
        room.host.outcome.is_gone.set()

    assert room.told[3:] == ([Ended(0, f"worker 0 (pid 41) {how}")] if how else [])


async def test_how_a_process_has_ended_is_told_before_the_last_one_is_said_to_be_gone(room):
    room.host.outcome.exit_code = 7
    room.host.outcome.is_gone.set()

    async with room.opened():
        await room.workers.start(0)
        await room.workers.shut_down("the job is over", 5)
        assert room.told[1:] == [Lost(0, 41, "worker 0 (pid 41) ended with exit code 7", 7)]


async def test_a_process_that_ends_with_an_error_is_told_with_what_it_printed_last(tmp_path):
    log = tmp_path / "log"
    log.write_text("ValueError: of an older process\n")
    room = Room(str(log))
    room.host.outcome.exit_code = 3

    async with room.opened():
        await room.workers.start(0)
        with log.open("a") as file:
            file.write("Traceback (most recent call last):\nModuleNotFoundError: No module named 'polars'\n\n")
            file.write("2026-01-31T10:00:00.000Z warning: an event of the job\n")
        room.host.outcome.is_gone.set()

    reason = "worker 0 (pid 41) ended with exit code 3: ModuleNotFoundError: No module named 'polars'"
    assert room.told == [Started(0, 41), Lost(0, 41, reason, 3)]


async def test_an_end_whose_reason_cannot_be_read_is_told_without_it(tmp_path):
    room = Room(str(tmp_path))
    room.host.outcome.exit_code = 3

    async with room.opened():
        await room.workers.start(0)
        room.host.outcome.is_gone.set()

    assert room.told == [Started(0, 41), Lost(0, 41, "worker 0 (pid 41) ended with exit code 3", 3)]


async def test_nothing_is_kept_of_a_worker_that_another_one_has_replaced(room):
    async with room.opened():
        await room.workers.start(0)
        link = weakref.ref(room.greet())
        room.host.outcome.is_gone.set()
        await until_lost(room)
        room.host.outcome = FakeProcess(42)
        room.host.outcome.is_gone.set()
        await room.workers.start(0)

    gc.collect()
    assert link() is None


@pytest.mark.parametrize("end", ["kill", "retire", "shut_down"])
async def test_a_process_that_outlives_its_kill_is_told_while_it_is_waited_for(room, monkeypatch, end):
    monkeypatch.setattr(workers, "STUCK_SECONDS", 0.01)
    arguments = {"kill": (0,), "retire": (0, "fewer", 0), "shut_down": ("over", 0)}[end]

    async with room.opened() as group:
        await room.workers.start(0)
        ending = group.create_task(getattr(room.workers, end)(*arguments))
        async with asyncio.timeout(5):
            while not any(isinstance(told, Ended) for told in room.told):
                await asyncio.sleep(0.001)
        assert not ending.done()
        room.host.outcome.is_gone.set()

    (stuck,) = (told for told in room.told if isinstance(told, Ended))
    assert stuck.worker == 0
    assert "worker 0 (pid 41) is still there 0.01 s after SIGKILL" in stuck.how
    assert "it is waited for" in stuck.how
