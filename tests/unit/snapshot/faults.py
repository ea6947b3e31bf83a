"""Drive a piece of code through every fault and every interleaving at its disk calls."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.unit.snapshot.fakes import MODIFYING, MemoryDisk

READING = frozenset({"read", "list", "stat"})
CALLS_MAX = 500
TURNS_MAX = 50


@dataclass(frozen=True)
class Fault:
    """The `at`th disk call fails."""

    at: int
    mode: str
    persistent: bool
    error: int

    def arm(self, disk: MemoryDisk) -> None:
        disk.faults.fail(self.at, self.mode, error=self.error, persistent=self.persistent, counted=MODIFYING | READING)


KINDS = [
    ("before", False, errno.EIO),
    ("before", True, errno.EIO),
    ("before", True, errno.ENOSPC),
    ("after", False, errno.EIO),
    ("after", True, errno.EIO),
    ("crash before", False, 0),
    ("crash after", False, 0),
]


async def with_every_fault(scenario: Callable[[Fault], Awaitable[MemoryDisk]]) -> int:
    """Run a scenario with the 1st, 2nd, ... disk call failing, until one runs untouched; how many runs that took.

    The scenario makes its world anew, arms the fault, checks what must hold, and returns the disk.
    """
    runs = 0
    for mode, persistent, error in KINDS:
        for at in range(1, CALLS_MAX):
            runs += 1
            disk = await scenario(Fault(at, mode, persistent, error))
            if not disk.faults.fired:
                break
        else:
            raise AssertionError(f"still failing after {CALLS_MAX} calls")
    return runs


class Interleaver:
    """Lets several coroutines run one at a time, from gate to gate, in an order given by `choices`.

    Where `choices` ends, the first that waits goes on. `branches` records how many could have gone on at each step.
    """

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = list(choices)
        self.branches: list[int] = []
        self.taken: list[int] = []
        self._waiting: dict[str, asyncio.Future[None]] = {}

    def gate(self, kinds: frozenset[str]) -> Callable[[str, str], Awaitable[None]]:
        """A gate for `MemoryDisk.gate` that stops at these kinds of calls."""

        async def wait(kind: str, path: str) -> None:
            task = asyncio.current_task()
            assert task is not None
            if kind in kinds and task.get_name().startswith("racer"):
                self._waiting[task.get_name()] = asyncio.get_running_loop().create_future()
                await self._waiting[task.get_name()]

        return wait

    async def run(self, *racers: Coroutine[Any, Any, Any]) -> list[Any]:
        """What each racer returned or raised."""
        tasks = [asyncio.create_task(racer, name=f"racer{i}") for i, racer in enumerate(racers)]
        while not all(task.done() for task in tasks):
            # Everything is in memory: whoever has not come to a gate after this many turns waits for another racer.
            for _ in range(TURNS_MAX):
                if all(task.done() or task.get_name() in self._waiting for task in tasks):
                    break
                await asyncio.sleep(0)
            ready = sorted(self._waiting)
            assert ready or all(task.done() for task in tasks), "the racers wait for each other"
            if ready:
                choice = self._choices[len(self.taken)] if len(self.taken) < len(self._choices) else 0
                self.taken.append(choice)
                self.branches.append(len(ready))
                self._waiting.pop(ready[choice]).set_result(None)
        return [task.exception() or task.result() for task in tasks]

    def next_choices(self) -> list[int] | None:
        """The next order to try, or None when all have been."""
        taken = list(self.taken)
        for step in reversed(range(len(taken))):
            if taken[step] + 1 < self.branches[step]:
                return [*taken[:step], taken[step] + 1]
        return None


async def in_every_order(scenario: Callable[[Interleaver], Awaitable[None]]) -> int:
    """Run a scenario in every order that its gates allow; how many there were."""
    choices: list[int] | None = []
    orders = 0
    while choices is not None:
        interleaver = Interleaver(choices)
        await scenario(interleaver)
        orders += 1
        choices = interleaver.next_choices()
    return orders
