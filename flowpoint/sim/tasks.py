"""Owners of callbacks, and tasks and futures that behave the same in every run.

asyncio iterates sets of tasks (`TaskGroup`, `wait`), and a task's own hash is its address. Here the hash is a serial
number, so that the order in which, say, the children of a failing group are cancelled is a matter of the seed alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flowpoint.sim.loop import SimLoop


class Owner:
    """Callbacks that live and die together. `serial` tells owners apart in a digest."""

    def __init__(self, name: str, serial: int) -> None:
        self.name = name
        self.serial = serial
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []

    def on_system_exit(self, code: int) -> None:
        """A callback of this owner raised SystemExit."""
        raise SystemExit(code)


OWNER: ContextVar[Owner | None] = ContextVar("flowpoint_sim_owner", default=None)


class SimFuture(asyncio.Future[Any]):
    """A future whose hash is the same in every run."""

    def __init__(self, *, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self.serial = loop.next_serial()

    def __hash__(self) -> int:
        return self.serial


class SimTask(asyncio.Task[Any]):
    """A task whose hash is the same in every run. `owner` is the process that it belongs to."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, name: str | None, context: Context | None
    ) -> None:
        self.serial = loop.next_serial()
        self.owner = OWNER.get() if context is None else context.get(OWNER)
        super().__init__(coro, loop=loop, name=name or f"task-{self.serial}", context=context)

    def __hash__(self) -> int:
        return self.serial

    def place(self) -> str:
        """Who waits where, for a person: process, coroutine, file and line of the innermost await."""
        owner = self.owner.name if self.owner is not None else "world"
        return f"{owner}: {self.get_name()} {_innermost(self.get_coro())}"


def _innermost(awaitable: Any) -> str:
    """The deepest frame of a suspended coroutine as "function (file:line)"."""
    frame, name = None, getattr(awaitable, "__qualname__", type(awaitable).__name__)
    while awaitable is not None:
        inner = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if inner is not None:
            frame, name = inner, getattr(awaitable, "__qualname__", name)
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    if frame is None:
        return name
    file = frame.f_code.co_filename.rsplit("/flowpoint/", 1)[-1]
    return f"{name} ({file}:{frame.f_lineno})"
