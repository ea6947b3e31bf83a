"""The heartbeat beats without the loop, and ends its process when the coordinator is gone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flowpoint.errors import LinkLost
from flowpoint.host.base import ORPHANED_EXIT_CODE, Link
from flowpoint.host.heartbeat import Heartbeat, start_heartbeat
from flowpoint.host.system import SystemHost

pytestmark = pytest.mark.timeout(20)


class Coordinator:
    """Listens for heartbeats and can wait for a number of them."""

    def __init__(self) -> None:
        self.beats: list[bytes] = []
        self.losses: list[str] = []
        self.links: list[Link] = []
        self._changed = asyncio.Event()

    def on_link(self, link: Link) -> None:
        self.links.append(link)
        link.start(self._on_frame, self._on_lost)

    def _on_frame(self, frame: bytes) -> None:
        self.beats.append(frame)
        self._changed.set()

    def _on_lost(self, reason: str) -> None:
        self.losses.append(reason)
        self._changed.set()

    async def wait_for(self, *, beats: int = 0, losses: int = 0) -> None:
        async with asyncio.timeout(10):
            while len(self.beats) < beats or len(self.losses) < losses:
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[SystemHost]:
    host = SystemHost("coordinator", str(tmp_path))
    yield host
    await host.close()


async def test_beats_come_until_it_is_stopped(host: SystemHost) -> None:
    coordinator = Coordinator()
    listener = await host.listen(host.socket_address("beats"), coordinator.on_link)

    stop = start_heartbeat(listener.address, b"alive", 0.001)
    await coordinator.wait_for(beats=3)
    stop()
    await coordinator.wait_for(losses=1)

    assert set(coordinator.beats) == {b"alive"}
    stop()


async def test_beats_come_while_the_loop_is_blocked(host: SystemHost) -> None:
    coordinator = Coordinator()
    listener = await host.listen(host.socket_address("beats"), coordinator.on_link)
    stop = start_heartbeat(listener.address, b"alive", 0.001)
    await coordinator.wait_for(beats=1)
    seen = len(coordinator.beats)

    time.sleep(0.05)  # noqa: ASYNC251  blocking the loop is what this test is about
    await coordinator.wait_for(beats=seen + 10)

    stop()


async def test_the_end_of_the_link_ends_the_process(host: SystemHost) -> None:
    coordinator = Coordinator()
    ends: list[int] = []
    ended = threading.Event()
    listener = await host.listen(host.socket_address("beats"), coordinator.on_link)

    def end_process(status: int) -> None:
        ends.append(status)
        ended.set()

    heartbeat = Heartbeat(listener.address, b"alive", 60, end_process)
    heartbeat.start()
    await coordinator.wait_for(beats=1)

    coordinator.links[0].close()
    await asyncio.to_thread(ended.wait, 10)

    assert ends == [ORPHANED_EXIT_CODE]


async def test_a_worker_whose_main_thread_is_blocked_ends_with_its_coordinator(host: SystemHost) -> None:
    coordinator = Coordinator()
    listener = await host.listen(host.socket_address("beats"), coordinator.on_link)
    code = (
        "import sys, time; from flowpoint.host.heartbeat import start_heartbeat;"
        "start_heartbeat(sys.argv[1], b'alive', 0.01); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, listener.address, env=environment)
    await coordinator.wait_for(beats=2)

    coordinator.links[0].close()

    assert await worker.wait() == ORPHANED_EXIT_CODE


async def test_no_heartbeat_starts_where_nobody_listens(host: SystemHost) -> None:
    with pytest.raises(LinkLost, match="coordinator"):
        start_heartbeat(host.socket_address("nobody"), b"alive", 1)
