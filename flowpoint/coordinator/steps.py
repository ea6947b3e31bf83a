"""What a coordinator has under way beside its mailbox; all of it ends before the coordinator does.

Work on workers is waited for, always: none may be left behind. Work on storage and sinks may hang for as long as they
do; a person who cancels does not wait for it without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Steps:
    """The tasks of one coordinator, in the group that `enter` is given."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup
        self._on_storage: set[asyncio.Task[None]] = set()

    def enter(self, group: asyncio.TaskGroup) -> None:
        """From now on steps can be started."""
        self._group = group

    def start(self, step: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin work on workers."""
        return self._group.create_task(step, name=name)

    def start_on_storage(self, step: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin work on storage or sinks."""
        task = self._group.create_task(step, name=name)
        self._on_storage.add(task)
        task.add_done_callback(self._on_storage.discard)
        return task

    async def cut_short(self, seconds: float) -> list[str]:
        """Give work on storage and sinks so long, then cancel it. Returns the names of what had to be cancelled."""
        if not self._on_storage:
            return []
        _, hanging = await asyncio.wait(self._on_storage, timeout=seconds)
        for task in hanging:
            task.cancel()
        return sorted(task.get_name() for task in hanging)
