"""What persons ask a running job for, and the answers they get.

A wish goes into the mailbox, or to the checkpoints at once; whoever asked waits for a future. It is answered when the
wish has come true, when it could not, or when the job ends: nobody is left waiting.

Not here: carrying a wish out (`protocol.job`, `checkpoints`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from flowpoint.coordinator.checkpoint_record import CheckpointRecord
from flowpoint.coordinator.checkpoints import Checkpoints
from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.mail import Mail
from flowpoint.errors import CheckpointFailed, FlowPointError
from flowpoint.model.plan import JobPlan
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.job import JobLife
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.schedule import TriggerKind

T = TypeVar("T")


class Requests:
    """The wishes for one job. `replan` raises UsageError when the job cannot have it; None: no rescale."""

    def __init__(
        self,
        life: JobLife,
        checkpoints: Checkpoints,
        post: Callable[[Mail], None],
        *,
        savepoints: str,
        replan: Callable[[int], JobToRun] | None,
        reserve: Callable[[int], None],
    ) -> None:
        """`savepoints`: the folder for those of which nobody says where to. `reserve`: the job may soon have so many
        workers."""
        self._life = life
        self._checkpoints = checkpoints
        self._post = post
        self._savepoints = savepoints
        self._replan = replan
        self._reserve = reserve
        self._stops: list[asyncio.Future[CheckpointRecord]] = []
        self._rescale: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------ asking

    def stop(self, exit_code: int, savepoints: str = "", *, drain: bool = False) -> asyncio.Future[CheckpointRecord]:
        """Ask for a graceful stop. The future gets the last checkpoint, or CheckpointFailed when the job goes on.

        `savepoints`: the folder in which to make a savepoint that hands the job's output on; the record names it.
        `drain`: end time first, so that all timers fire.
        """
        future: asyncio.Future[CheckpointRecord] = asyncio.get_running_loop().create_future()
        if self._life.is_over:
            future.set_exception(CheckpointFailed("the job has ended already"))
            return future
        self._stops.append(future)
        self._post(ev.StopRequested(exit_code, savepoints, drain))
        return future

    def cancel(self, exit_code: int) -> None:
        """Ask for an end without a last checkpoint."""
        self._post(ev.CancelRequested(exit_code))

    async def checkpoint(self) -> CheckpointRecord:
        """Take a checkpoint now and wait for its end. Raises CheckpointFailed."""
        self._require_running("take a checkpoint")
        record = await self._checkpoints.request(TriggerKind.CHECKPOINT, asyncio.get_running_loop().time())
        if record.state != "completed":
            raise CheckpointFailed(f"checkpoint {record.id} failed: {record.reason}")
        return record

    async def savepoint(self, savepoints: str = "") -> CheckpointRecord:
        """Make a savepoint in this folder now and wait for its end. Raises CheckpointFailed; the job goes on."""
        self._require_running("make a savepoint")
        now, folder = asyncio.get_running_loop().time(), savepoints or self._savepoints
        record = await self._checkpoints.request(TriggerKind.SAVEPOINT, now, folder)
        if record.state != "completed":
            raise CheckpointFailed(f"savepoint {record.id} failed: {record.reason}")
        return record

    async def rescale(self, parallelism: int, running: JobPlan) -> bool:
        """Go on with another parallelism; returns when records flow again. False: it has that one, nothing was done.

        Args:
            running: the plan that the job has now.

        Raises:
            UsageError: the job cannot have it.
            CheckpointFailed: the job goes on as before.
        """
        if self._replan is None:
            raise CheckpointFailed("cannot rescale the job: this one has no way to get another parallelism")
        self._require_running("rescale the job")
        if self._rescale is not None:
            raise CheckpointFailed("cannot rescale the job: it is being rescaled already; try again later")
        planned = self._replan(parallelism)
        if planned.plan.fingerprint == running.fingerprint:
            return False
        self._rescale = done = asyncio.get_running_loop().create_future()
        self._reserve(planned.workers)
        # The checkpoint that halts the sources then has little to write, and the new workers are there when it is done.
        try:
            await self._checkpoints.request(TriggerKind.CHECKPOINT, asyncio.get_running_loop().time())
        except CheckpointFailed:
            # Then there is more to write behind the halt, or the job is not running any more, which it will say.
            pass
        finally:
            self._post(ev.RescaleRequested(parallelism))
        await done
        return True

    def _require_running(self, wish: str) -> None:
        if self._life.state is not JobState.RUNNING:
            raise CheckpointFailed(f"cannot {wish} while the job is {self._life.state}; try again later")

    # ------------------------------------------------------------------ answering

    def settle_stops(self, answer: CheckpointRecord | FlowPointError) -> None:
        """Answer everybody who asked for a stop."""
        waiters, self._stops = self._stops, []
        for waiter in waiters:
            _settle(waiter, answer)

    def settle_rescale(self, error: FlowPointError | None) -> None:
        """Answer whoever asked for a rescale."""
        waiter, self._rescale = self._rescale, None
        if waiter is not None:
            _settle(waiter, error)

    def drop_checkpoints(self, reason: str) -> None:
        """Answer everybody whose checkpoint has not been triggered: it will not be."""
        for future in self._checkpoints.drop_requests():
            _settle(future, CheckpointFailed(f"no checkpoint was taken: {reason}"))


def _settle(waiter: asyncio.Future[T], answer: T | FlowPointError) -> None:
    """Nobody need be waiting any more: an error that nobody fetches is no error of ours."""
    if waiter.done():
        return
    if isinstance(answer, FlowPointError):
        waiter.set_exception(answer)
        waiter.exception()
    else:
        waiter.set_result(answer)
