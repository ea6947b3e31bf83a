"""The simulated world as one of the worlds of `tests/conformance`: `run(check)` with two hosts and a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from flowpoint.host.base import Host
from flowpoint.sim.host import SimHost
from flowpoint.sim.world import SimProcess, SimWorld

Check = Callable[[Host, Host, str], Awaitable[None]]


async def idle(host: SimHost, args: Sequence[str]) -> int:
    """A program that only lives."""
    await asyncio.Event().wait()
    return 0


def start_idle(world: SimWorld) -> SimProcess:
    """A process that a test acts in the name of."""
    world.programs["idle"] = idle
    return world.start("idle", ())


class SimulatedWorld:
    """A fresh simulated machine per check, several seeds each; both hosts are processes of it."""

    def __init__(self, name: str, seeds: Sequence[int], fifo: bool) -> None:
        self.name = name
        self._seeds = seeds
        self._fifo = fifo

    def run(self, check: Check) -> None:
        for seed in self._seeds:
            world = SimWorld(seed, fifo=self._fifo)
            try:
                world.run(self._run(world, check))
            finally:
                world.close()

    @staticmethod
    async def _run(world: SimWorld, check: Check) -> None:
        a, b = start_idle(world), start_idle(world)

        async def act() -> None:
            await check(a.host, b.host, "/conformance/data")

        async with asyncio.timeout(10):
            await world.loop.create_task(act(), context=a.context.copy())


SIMULATED_WORLDS = [
    SimulatedWorld("simulated, in order", range(2), fifo=True),
    SimulatedWorld("simulated, any order", range(5), fifo=False),
]
