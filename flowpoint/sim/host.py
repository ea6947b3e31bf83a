"""The door to the simulated world: `host.base.Host` for one simulated process.

Each incarnation of a process has its own host. Once the process is dead every call is refused with `ProcessGone`, which
no `except Exception` catches: code that still runs is a `finally` of something that a real kill would have erased.

Not here: the world behind the door (`world`, `network`, `files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from flowpoint.errors import LinkLost
from flowpoint.host.base import ORPHANED_EXIT_CODE, Disk, Link, Listener, Process
from flowpoint.sim.disk import SimDisk

if TYPE_CHECKING:
    from flowpoint.sim.network import SimLink
    from flowpoint.sim.world import SimProcess, SimWorld

T = TypeVar("T")

SPAWN_DELAY = (0.02, 0.15)
BLOCKING_DELAY = (0.0001, 0.005)
KILL_DELAY = (0.0005, 0.01)
CONNECT_DELAY = (0.00005, 0.002)


class SimHost:
    """Implements `host.base.Host`."""

    def __init__(self, world: SimWorld, process: SimProcess) -> None:
        self._world = world
        self._process = process
        self.name = process.name
        self.pid = process.pid
        self.start_time = process.start_time
        self.random: Random = world.stream(f"host:{process.serial}")
        self.disk: Disk = SimDisk(process, world.files, world.disk_faults, world.stream(f"disk:{process.serial}"))

    def wall_ms(self) -> int:
        self._process.require_alive("wall_ms")
        return self._world.wall_ms()

    def new_id(self) -> str:
        self._process.require_alive("new_id")
        return f"{self._world.ids.getrandbits(64):016x}"

    def socket_address(self, name: str) -> str:
        return f"/sim/sockets/{name}"

    async def listen(self, address: str, on_link: Callable[[Link], None]) -> Listener:
        self._process.require_alive("listen")
        return self._world.network.listen(self._process, address, on_link)

    async def connect(self, address: str) -> Link:
        self._process.require_alive("connect")

        opened: list[SimLink] = []
        is_given_up = False

        def attempt() -> SimLink:
            if is_given_up:
                raise LinkLost(f"cannot connect to {address}: given up meanwhile")
            opened.append(self._world.network.connect(self._process, address))
            return opened[0]

        delay = self._world.delays.uniform(*CONNECT_DELAY)
        try:
            return await self._process.perform("connect", address, attempt, delay, 0.0)
        except asyncio.CancelledError:
            # As in the real world: whoever gives up connecting leaves no open socket behind.
            is_given_up = True
            for link in opened:
                link.close()
            raise

    async def run_blocking(self, fn: Callable[..., T], *args: Any) -> T:
        self._process.require_alive("run_blocking")
        draw = self._world.delays
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        return await self._process.perform(
            "run_blocking", name, lambda: fn(*args), draw.uniform(*BLOCKING_DELAY), draw.uniform(*BLOCKING_DELAY)
        )

    async def start_process(self, role: str, args: Sequence[str], log_path: str | None) -> Process:
        self._process.require_alive("start_process")

        def attempt() -> SimChild:
            child = self._world.start(role, args, parent=self._process, log_path=log_path)
            return SimChild(self._process, child)

        delay = self._world.delays.uniform(*SPAWN_DELAY)
        return await self._process.perform("start_process", role, attempt, delay, 0.001)

    def end_copy(self) -> None:
        """See `host.base.Host`. Nobody forks here."""

    async def kill_stale(self, pid: int, start_time: float) -> bool:
        self._process.require_alive("kill_stale")

        def attempt() -> bool:
            for process in self._world.living():
                if process.pid == pid and process.start_time == start_time:
                    self._world.kill(process, f"as a left-over, by {self.name}")
                    return True
            return False

        delay = self._world.delays.uniform(*KILL_DELAY)
        return await self._process.perform("kill_stale", str(pid), attempt, delay, delay)

    def start_heartbeat(self, address: str, frame: bytes, interval: float) -> Callable[[], None]:
        self._process.require_alive("start_heartbeat")
        return _Heartbeat(self._world, self._process, address, frame, interval).stop


class SimChild:
    """A parent's handle on its child. Implements `host.base.Process`."""

    def __init__(self, parent: SimProcess, child: SimProcess) -> None:
        self._parent = parent
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def start_time(self) -> float:
        return self._child.start_time

    async def wait(self) -> int:
        self._parent.require_alive("process.wait")
        return await self._child.wait_exit()

    def kill(self) -> None:
        self._parent.require_alive("process.kill")
        self._child.world.kill(self._child, f"by {self._parent.name}")


class _Heartbeat:
    """The heartbeat thread of a process: beats while the process is not paused, ends it when the link is lost."""

    def __init__(self, world: SimWorld, process: SimProcess, address: str, frame: bytes, interval: float) -> None:
        self._world = world
        self._process = process
        self._frame = frame
        self._interval = interval
        self._link = world.network.connect(process, address)
        self._link.start(lambda _frame: None, self._on_lost)
        # Called by the process, so its context comes along: pausing and killing reach the beats too.
        self._timer: asyncio.Handle = world.loop.call_soon(self._beat)

    def stop(self) -> None:
        """End the thread and its link."""
        self._process.require_alive("heartbeat.stop")
        self._timer.cancel()
        self._link.close()

    def _beat(self) -> None:
        self._link.send_nowait(self._frame)
        self._timer = self._world.loop.call_later(self._interval, self._beat)

    def _on_lost(self, reason: str) -> None:
        self._world.exit(self._process, ORPHANED_EXIT_CODE, f"its heartbeat link is lost: {reason}")
