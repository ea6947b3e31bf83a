"""The worlds that the conformance suites run in. Add one here and every suite runs in it.

A suite is a module of plain `async def check_...(a, b, folder)` functions: two hosts of one world, and an absolute path
at which no folder exists yet. A world runs a check in a loop of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import uvloop

from flowpoint.host.base import Host
from flowpoint.host.system import SystemHost
from tests.simulation.worlds import SIMULATED_WORLDS

Check = Callable[[Host, Host, str], Awaitable[None]]


class World(Protocol):
    name: str

    def run(self, check: Check) -> None:
        """Run one check from start to end in a fresh world."""


class SystemWorld:
    """This machine, on one kind of event loop."""

    def __init__(self, name: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.name = name
        self._loop_factory = loop_factory

    def run(self, check: Check) -> None:
        with tempfile.TemporaryDirectory() as root, asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._run(check, Path(root)))

    @staticmethod
    async def _run(check: Check, root: Path) -> None:
        a, b = SystemHost("a", str(root / "a")), SystemHost("b", str(root / "b"))
        try:
            async with asyncio.timeout(10):
                await check(a, b, str(root / "data"))
        finally:
            await a.close()
            await b.close()


WORLDS: list[World] = [
    SystemWorld("asyncio", asyncio.new_event_loop),
    SystemWorld("uvloop", uvloop.new_event_loop),
    *SIMULATED_WORLDS,
]


def checks_of(module: dict[str, object]) -> list[Check]:
    """The checks that a suite's module defines, in order."""
    return [value for name, value in module.items() if name.startswith("check_") and callable(value)]
