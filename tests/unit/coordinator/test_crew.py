"""`coordinator.crew`: a process that is noted nowhere is not used."""

from __future__ import annotations

import asyncio

from flowpoint.coordinator.crew import Crew
from flowpoint.coordinator.mail import Mail
from flowpoint.coordinator.steps import Steps
from flowpoint.coordinator.workers import Lost, Started
from flowpoint.errors import StorageError
from flowpoint.model.settings import HeartbeatSettings
from tests.unit.coordinator.test_workers import FakeHost


async def test_a_worker_that_cannot_be_recorded_is_given_up() -> None:
    host, steps, told = FakeHost(), Steps(), list[Mail]()

    def refuse(pids: dict[int, tuple[int, float]]) -> None:
        raise StorageError("cannot write run.json: No space left on device")

    crew = Crew(host, 1, lambda *_: [], None, HeartbeatSettings(), steps=steps, post=told.append, record=refuse)
    await crew.listen()
    async with asyncio.TaskGroup() as group:
        steps.enter(group)
        crew.start_missing()
        while not told:
            await asyncio.sleep(0)
        (started,) = told
        assert isinstance(started, Started)
        crew.heard(started, 0.0)
        host.outcome.is_gone.set()

    lost = told[1]
    assert isinstance(lost, Lost)
    assert lost.reason == "worker 0 was started and is given up: cannot write run.json: No space left on device"
