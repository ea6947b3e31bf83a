"""Removes what no longer counts: after dead attempts, after new checkpoints, at the end of the job (rule 9).

After dead attempts, in this order: files that no retained manifest names, output that is void (sinks abort it), and what
sinks themselves find of it (they clean). All of it comes after every sink has committed what was restored (rule 7).

One run at a time of each, as a step beside the stream; the next attempt is prepared only when all have ended (`busy`).
What cannot be removed is said, and is tried again by a later run: nothing fails by it.

Not here: what may be removed (`snapshot.retention`), which output is void (`protocol.prepared_output`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from flowpoint.coordinator.mail import Cleaned, Mail
from flowpoint.coordinator.prepare import Preparation, PreparedAttempt
from flowpoint.coordinator.steps import Steps
from flowpoint.errors import FlowPointError
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.runtime.contracts import ConnectorContext, Sink
from flowpoint.runtime.failures import naming


class Housekeeping:
    """The one cleaner of a job. `warn` gets one line for a person."""

    def __init__(
        self,
        preparation: Preparation,
        output: PreparedOutput,
        steps: Steps,
        post: Callable[[Mail], None],
        warn: Callable[[str], None],
    ) -> None:
        self._preparation = preparation
        self._output = output
        self._steps = steps
        self._post = post
        self._warn = warn
        self._cleaning: asyncio.Task[None] | None = None
        self._retaining: asyncio.Task[None] | None = None
        self._is_retention_due = False
        self._pinned: tuple[str, ...] = ()

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
            await self._clean_up(prepared)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._post(Cleaned(prepared.number, error))

    async def _clean_up(self, prepared: PreparedAttempt) -> None:
        report = await prepared.cleaner.sweep([prepared.chosen.directory] if prepared.chosen.directory else [])
        for problem in report.problems:
            self._warn(f"cannot clean up after older attempts: {problem}")
        sinks = self._preparation.sinks_in(prepared)
        await self._abort_void({ctx.uid: (sink, ctx) for sink, ctx in sinks})
        for sink, ctx in sinks:
            with naming(ctx.uid, "clean()"):
                await sink.clean(ctx)

    async def _abort_void(self, sinks: Mapping[str, tuple[Sink, ConnectorContext]]) -> None:
        """What cannot be aborted is said, and tried again by the next attempt: it is invisible either way."""
        for one in self._output.void():
            sink, ctx = sinks[one.uid]
            try:
                with naming(one.uid, "abort()"):
                    await sink.abort(one.committable, ctx)
            except (FlowPointError, OSError) as error:
                self._warn(f"what was prepared for checkpoint {one.checkpoint}, which never counted, is left: {error}")
            else:
                self._output.aborted(one)

    def retain(self, prepared: PreparedAttempt, take_abandoned: Callable[[], list[str]], *, is_read: bool) -> None:
        """A checkpoint has completed: remove the oldest ones, and files of failed ones.

        `is_read`: all state that the attempt was restored with has been read. Until then its files may be damaged without
        anybody knowing, and newer checkpoints are built on them: those from before it stay.
        """
        self._is_retention_due = True
        self._pinned = () if is_read else prepared.chosen.older
        if self._retaining is None or self._retaining.done():
            step = self._retain(prepared, take_abandoned)
            self._retaining = self._steps.start_on_storage(step, "remove old checkpoints")

    async def _retain(self, prepared: PreparedAttempt, take_abandoned: Callable[[], list[str]]) -> None:
        # Once more when a checkpoint completes meanwhile.
        while self._is_retention_due:
            self._is_retention_due = False
            report = await prepared.cleaner.run(self._pinned, take_abandoned())
            for problem in report.problems:
                self._warn(f"cannot remove old checkpoints: {problem}")
