"""What a signal asks of a job, depending on what the job is doing."""

from __future__ import annotations

import asyncio
import signal

from flowpoint.coordinator.checkpoint_record import CheckpointRecord
from flowpoint.errors import CheckpointFailed
from flowpoint.launch.control import Event, EventKind
from flowpoint.launch.interrupts import Interrupts

AT_ONCE = Event(EventKind.RESTARTING, "restarting at once", {"delay": 0.0})
LATER = Event(EventKind.RESTARTING, "restarting in 60 s", {"delay": 60.0})
RUNNING = Event(EventKind.RUNNING, "running")


class Asked:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.stopped: asyncio.Future[CheckpointRecord] = asyncio.get_running_loop().create_future()

    def stop(self, exit_code: int) -> asyncio.Future[CheckpointRecord]:
        self.asked.append(f"stop {exit_code}")
        return self.stopped

    def cancel(self, exit_code: int) -> None:
        self.asked.append(f"cancel {exit_code}")


async def asked(*steps: Event | None) -> list[str]:
    """What is asked for after these events and signals (None)."""
    requests = Asked()
    interrupts = Interrupts(requests, lambda _event: None)
    for step in steps:
        if step is None:
            interrupts.interrupt()
        else:
            interrupts.on_event(step)
    return requests.asked


async def test_the_first_signal_stops_and_the_second_cancels() -> None:
    assert await asked(RUNNING, None) == ["stop 130"]
    assert await asked(RUNNING, None, None) == ["stop 130", "cancel 130"]


async def test_a_job_that_waits_to_be_restarted_is_cancelled_at_once() -> None:
    assert await asked(LATER, None) == ["cancel 130"]


async def test_a_job_that_restarts_at_once_or_has_restarted_is_stopped() -> None:
    assert await asked(AT_ONCE, None) == ["stop 130"]
    assert await asked(LATER, RUNNING, None) == ["stop 130"]


async def test_a_stop_outlives_a_restart_at_once_but_does_not_wait_for_a_later_one() -> None:
    assert await asked(RUNNING, None, AT_ONCE) == ["stop 130"]
    assert await asked(RUNNING, None, AT_ONCE, LATER) == ["stop 130", "cancel 130"]


async def test_a_stop_that_failed_is_told_and_can_be_asked_for_again() -> None:
    requests, told = Asked(), []
    interrupts = Interrupts(requests, told.append)
    interrupts.interrupt()
    requests.stopped.set_exception(CheckpointFailed("the disk is full"))
    await asyncio.sleep(0)

    interrupts.interrupt()

    assert [event.text for event in told] == ["the disk is full"]
    assert requests.asked == ["stop 130", "stop 130"]


async def test_a_stop_that_a_cancel_has_overtaken_is_not_told_as_failed() -> None:
    requests, told = Asked(), []
    interrupts = Interrupts(requests, told.append)
    interrupts.interrupt()
    interrupts.interrupt()
    requests.stopped.set_exception(CheckpointFailed("the job ended: cancelled"))
    await asyncio.sleep(0)

    assert told == []


async def test_a_terminal_that_is_closed_asks_for_a_stop_however_often_it_says_so() -> None:
    requests = Asked()
    interrupts = Interrupts(requests, lambda _event: None)

    interrupts.hang_up()
    interrupts.hang_up()

    assert requests.asked == ["stop 130"]
    assert interrupts.reason == "the terminal that it ran in was closed"


async def test_ctrl_c_and_then_a_closed_terminal_are_one_stop() -> None:
    requests = Asked()
    interrupts = Interrupts(requests, lambda _event: None)

    interrupts.interrupt()
    interrupts.hang_up()

    assert requests.asked == ["stop 130"]
    assert interrupts.reason == ""


async def test_a_hang_up_that_is_ignored_from_the_start_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    requests = Asked()
    try:
        with Interrupts(requests, lambda _event: None):
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

    assert requests.asked == []
