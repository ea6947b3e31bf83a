"""The end of a job: its last entry in the commit log, its last processes, and the outcome.

    `append` (a step) -> `Appended` -> `exit`, `end_workers` (a step) -> `WorkersGone`

Storage or a sink may hang. Nothing of a job that was cancelled or has failed is worth waiting for: what hangs then is
given up after `SHUT_DOWN_SECONDS`, and is found by the next run as after a kill. Removing what is of no use any more has
`SWEEP_SECONDS` in any case.

Not here: whether and how a job ends (`protocol.job`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from flowpoint import errors
from flowpoint.coordinator.checkpoint_record import CheckpointRecord
from flowpoint.coordinator.crew import SHUT_DOWN_SECONDS, Crew
from flowpoint.coordinator.deployment import Deployment
from flowpoint.coordinator.housekeeping import Housekeeping
from flowpoint.coordinator.mail import Appended, Mail, WorkersGone
from flowpoint.coordinator.publishing import Publishing
from flowpoint.coordinator.steps import Steps
from flowpoint.errors import FlowPointError
from flowpoint.model import messages
from flowpoint.model.commits import CommitKind
from flowpoint.protocol.job_table import JobState
from flowpoint.snapshot.commit_log import CommitLog

CANCEL_SECONDS = 0.5
SWEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. `failure` is the last error as data, when it failed by one."""

    state: JobState
    exit_code: int
    reason: str
    failure: messages.Failure | None = None


class Ending:
    """Ends one job."""

    def __init__(
        self,
        log: CommitLog,
        crew: Crew,
        deployment: Deployment,
        publishing: Publishing,
        housekeeping: Housekeeping,
        steps: Steps,
        post: Callable[[Mail], None],
        warn: Callable[[str], None],
    ) -> None:
        self._log = log
        self._crew = crew
        self._deployment = deployment
        self._publishing = publishing
        self._housekeeping = housekeeping
        self._steps = steps
        self._post = post
        self._warn = warn
        self._stopped_with: CheckpointRecord | None = None
        self.outcome: Outcome | None = None
        """None until `exit`."""

    # ------------------------------------------------------------------ the last entry

    def stopped_with(self, record: CheckpointRecord) -> None:
        """The checkpoint of the stop is in the log."""
        self._stopped_with = record

    def goes_on(self) -> None:
        """The job does not end with that checkpoint: its attempt has failed."""
        self._stopped_with = None
        self._publishing.withdraw_handover()

    def append(self, kind: str) -> None:
        """Record the end; the savepoint of the stop, if any, exists just before."""
        self._steps.start_on_storage(self._append(kind), f"append {kind}")

    async def _append(self, kind: str) -> None:
        attempt = self._deployment.number
        error: Exception | None = None
        if kind == CommitKind.FINISHED:
            # What dead attempts have left: after this entry there is no attempt that would remove it.
            await self._housekeeping.wait_idle()
        try:
            handover = await self._publishing.publish_handover()
            if handover and self._stopped_with is not None:
                self._stopped_with.savepoint_bytes = handover["bytes"]
            await self._log.append(kind, attempt, extra=handover)
        except (FlowPointError, OSError) as problem:
            error = problem
        self._post(Appended(attempt, error))

    # ------------------------------------------------------------------ the outcome

    def exit(self, state: JobState, exit_code: int, reason: str, last_failure: messages.Failure | None) -> None:
        """The job's life is over."""
        failure = last_failure if state is JobState.FAILED else None
        if failure is not None:
            # What is wrong with the job file itself may show only now, when its source looks for its files.
            exit_code = getattr(getattr(errors, failure.kind, None), "exit_code", exit_code)
        self.outcome = Outcome(state, exit_code, reason, failure)

    def last_record(self, last_completed: CheckpointRecord | None) -> CheckpointRecord | None:
        """The checkpoint that the job ended with, as a stop wants it; None when it failed or was cancelled."""
        match self.outcome:
            case Outcome(JobState.STOPPED):
                # After a drain the job may have ended in another attempt than that of its last checkpoint.
                return self._stopped_with or last_completed
            case Outcome(JobState.FINISHED):
                return last_completed
        return None

    # ------------------------------------------------------------------ the last processes

    def end_workers(self, state: JobState) -> None:
        """End all processes, then everything that is under way, of a job that ends in this state."""
        self._steps.start(self._end_workers(state), "end workers")

    async def _end_workers(self, state: JobState) -> None:
        is_cancelled = state is JobState.CANCELLED
        # Whoever cancels does not want to wait for a function that never returns.
        await self._crew.end(CANCEL_SECONDS if is_cancelled else SHUT_DOWN_SECONDS)
        hangs = await self._cut_short(state) if state in (JobState.CANCELLED, JobState.FAILED) else False
        await self._deployment.wait_prepared()
        await self._publishing.wait_idle()
        if not is_cancelled and not hangs:
            await self._sweep()
        self._post(WorkersGone())

    async def _cut_short(self, state: JobState) -> bool:
        """Give up what hangs. Returns whether anything did."""
        hanging = await self._steps.cut_short(SHUT_DOWN_SECONDS)
        for name in hanging:
            self._warn(f"{state}, and given up, as this had not ended after {SHUT_DOWN_SECONDS:g} s: {name}")
        if hanging:
            self._publishing.give_up()
        return bool(hanging)

    async def _sweep(self) -> None:
        """Nobody writes any more: what checkpoints that never came about have left goes with the job."""
        last = self._deployment.last
        if last is None:
            return
        try:
            async with asyncio.timeout(SWEEP_SECONDS):
                await last.prepared.cleaner.sweep(is_over=True)
        except TimeoutError:
            self._warn(f"what failed checkpoints have left was not removed within {SWEEP_SECONDS:g} s: storage hangs")
