"""Removes what no longer counts: after dead attempts, after new checkpoints, at the end of the job (rule 9).

One run at a time of each, as a step beside the stream; the next attempt is prepared only when all have ended (`busy`).
What cannot be removed is said, and is tried again by a later run: nothing fails by it.

Not here: what may be removed (`snapshot.retention`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from flowpoint.coordinator.mail import Cleaned, Mail
from flowpoint.coordinator.prepare import Preparation, PreparedAttempt
from flowpoint.coordinator.steps import Steps
from flowpoint.errors import FlowPointError


class Housekeeping:
    """The one cleaner of a job. `warn` gets one line for a person."""

    def __init__(
        self, preparation: Preparation, steps: Steps, post: Callable[[Mail], None], warn: Callable[[str], None]
    ) -> None:
        self._preparation = preparation
        self._steps = steps
        self._post = post
        self._warn = warn
        self._cleaning: asyncio.Task[None] | None = None
        self._retaining: asyncio.Task[None] | None = None
        self._is_retention_due = False

    def busy(self) -> list[asyncio.Task[None]]:
        """What is under way, or has ended."""
        return [task for task in (self._cleaning, self._retaining) if task is not None]

    async def wait_idle(self) -> None:
        """Wait until nothing is under way."""
        if busy := self.busy():
            await asyncio.wait(busy)

    def clean(self, prepared: PreparedAttempt) -> None:
        """Every worker is deployed, restored committables are committed: remove what dead attempts left behind."""
        self._cleaning = self._steps.start_on_storage(self._clean(prepared), "clean up")

    async def _clean(self, prepared: PreparedAttempt) -> None:
        error: Exception | None = None
        try:
            await self._preparation.clean(prepared)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._post(Cleaned(prepared.number, error))

    def retain(self, prepared: PreparedAttempt, take_abandoned: Callable[[], list[str]]) -> None:
        """A checkpoint has completed: remove the oldest ones, and files of failed ones."""
        self._is_retention_due = True
        if self._retaining is None or self._retaining.done():
            step = self._retain(prepared, take_abandoned)
            self._retaining = self._steps.start_on_storage(step, "remove old checkpoints")

    async def _retain(self, prepared: PreparedAttempt, take_abandoned: Callable[[], list[str]]) -> None:
        # Once more when a checkpoint completes meanwhile.
        while self._is_retention_due:
            self._is_retention_due = False
            report = await prepared.cleaner.run(abandoned=take_abandoned())
            for problem in report.problems:
                self._warn(f"cannot remove old checkpoints: {problem}")
