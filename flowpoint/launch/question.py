"""A question to storage from a command that has no loop: a host and a loop for as long as it takes.

Not here: reading snapshots without any loop (`host.blocking`), running a job (`run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowpoint.host.base import Host
from flowpoint.host.system import SystemHost

T = TypeVar("T")


def ask(question: Callable[[Host], Awaitable[T]], folder: str) -> T:
    """What a question comes to. `folder` is for what the host may have to put somewhere."""
    host = SystemHost("shell", folder)

    async def asked() -> T:
        try:
            return await question(host)
        finally:
            await host.close()

    return asyncio.run(asked())
