"""Goes on with merging durable state between two slices of records, in steps that are turns of the loop.

Not here: what a step is, and how many are due (`state.layers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flowpoint.state.backend import Backend

TURN_SECONDS: Final = 0.003
"""Merging for longer than this lets the others have their turn."""


async def merge(backend: Backend, records: int, now: Callable[[], float]) -> None:
    """Do the steps that are due.

    Args:
        records: that were processed since the last time.
        now: in seconds, from any start.
    """
    begun = now()
    for _ in range(backend.merge_steps(records)):
        if not backend.merge_some():
            return
        if now() - begun >= TURN_SECONDS:
            await asyncio.sleep(0)
            begun = now()
