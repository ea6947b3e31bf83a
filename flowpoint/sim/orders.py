"""What a person at the shell asks of a running job in a simulation: savepoints, a stop that hands output on, rescales.

A `Person` outlives the coordinators that it talks to: an order is given once, to whichever runs when its time has come.
Whether it comes about is the job's affair; what the person was told has to be true afterwards, and is kept.

Not here: when which order is given (`scenario`), what must have come of it (the scenario's judge).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.errors import FlowPointError
from flowpoint.protocol.job_table import JobState

LOOK_SECONDS = 0.05


class OrderKind(StrEnum):
    """What can be asked for."""

    SAVEPOINT = "savepoint"
    STOP = "stop"
    RESCALE = "rescale"


@dataclass(frozen=True, slots=True)
class Order:
    """Something to ask for at `at` virtual seconds or later; `parallelism` is for RESCALE."""

    at: float
    kind: OrderKind
    parallelism: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{f' to {self.parallelism}' if self.parallelism else ''} at {self.at:.2f} s"


def draw_orders(random: Random, parallelism_max: int, within: float) -> list[Order]:
    """Draw up to three orders, in the order of their times."""
    kinds = random.choices(list(OrderKind), weights=(3, 2, 5), k=random.randint(1, 3))
    orders = [
        Order(random.uniform(0.0, within), kind, random.randint(1, parallelism_max) if kind is OrderKind.RESCALE else 0)
        for kind in kinds
    ]
    return sorted(orders, key=lambda order: order.at)


@dataclass(slots=True)
class Person:
    """Gives orders. `savepoints`: the paths of those that the person was told exist."""

    folder: str
    orders: list[Order]
    tell: Callable[[str], None]
    mark: Callable[[str], None]
    savepoints: list[str] = field(default_factory=list)

    async def attend(self, coordinator: Coordinator) -> None:
        """Give this coordinator what is due while it runs."""
        while self.orders:
            await asyncio.sleep(LOOK_SECONDS)
            is_due = self.orders[0].at <= asyncio.get_running_loop().time()
            if is_due and coordinator.state is JobState.RUNNING:
                await self._give(self.orders.pop(0), coordinator)

    async def _give(self, order: Order, coordinator: Coordinator) -> None:
        self.tell(f"asks for {order}")
        try:
            match order.kind:
                case OrderKind.SAVEPOINT:
                    record = await coordinator.request_savepoint(self.folder)
                    self.savepoints.append(record.savepoint)
                case OrderKind.STOP:
                    await coordinator.request_stop(0, self.folder)
                case OrderKind.RESCALE:
                    await coordinator.request_rescale(order.parallelism)
        except FlowPointError as error:
            self.mark(f"order {order.kind} failed")
            self.tell(f"is told: {error}")
        else:
            self.mark(f"order {order.kind} done")
            self.tell(f"has got: {order}")
