"""Steps that come to their end whatever happens around them: what has begun is finished, what is open is closed.

Not here: what there is to close (`subtask`, `assembly`, `attempt`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from flowpoint.errors import UserCodeError

T = TypeVar("T")


async def finish(step: Coroutine[Any, Any, T], what: str = "a step at the end") -> T:
    """Run a step to its end even when the caller is cancelled meanwhile; the cancellation follows afterwards.

    Args:
        what: the step as a message calls it, such as "operator 'out': commit()".

    Raises:
        UserCodeError: the step has cancelled itself, which would look as if the caller had been.
    """
    task = asyncio.get_running_loop().create_task(step)
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            cancellation = error
    if task.cancelled():
        raise cancellation or UserCodeError(f"{what} has cancelled itself; let it raise another exception")
    failure = task.exception()
    if cancellation is not None:
        # Whatever the step's own outcome: it is repeated when the state that holds it is restored.
        raise cancellation
    if failure is not None:
        raise failure
    return task.result()


async def close_quietly(closing: Callable[[], Awaitable[None] | None], where: str, log: Callable[[str], None]) -> None:
    """Let go of something where an error must hide no other: it is logged."""
    try:
        waiting = closing()
        if waiting is not None:
            await waiting
    except Exception as error:  # noqa: BLE001  whatever a connector or function does at its end
        log(f"{where}: {type(error).__name__} while closing: {error}")
