"""The event loop of a process: it is over when its main coroutine is, whatever its threads are still at work on.

A call of `asyncio.to_thread` that hangs cannot be interrupted, and Python's own `run` waits for its thread before it
returns. A job that has ended, and would keep its name until then, is not worth it.

Not here: the pools of a host, which does not wait for them either (`host.system`); the end of the process, where the
interpreter would wait once more (`host.process_end`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class _LeftBehind(ThreadPoolExecutor):
    """Where `asyncio.to_thread` runs. Nobody waits for what is under way in it."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def run(main: Coroutine[Any, Any, T]) -> T:
    """What a coroutine comes to, in a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_default_executor(_LeftBehind(thread_name_prefix="asyncio"))
        return runner.run(main)
