"""One attempt in one worker: build its subtasks, run them, take the coordinator's orders, tear everything down.

An attempt is built once and released once. What fails inside is reported once per subtask, as data; the coordinator
decides what happens next. Nothing of an attempt outlives `run`, also when it is cancelled while it is being built.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from flowpoint.errors import FINAL_ERRORS, BadRecordError, FlowPointError, TransientError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.plan import JobPlan
from flowpoint.model.texts import MESSAGE_CHARACTERS_MAX, TRACE_CHARACTERS_MAX, cut
from flowpoint.runtime.assembly import Assembly
from flowpoint.runtime.closing import finish
from flowpoint.runtime.failures import ENDS_A_TASK, engine_class, say, users_trace
from flowpoint.runtime.rounds import Rounds
from flowpoint.runtime.source_subtask import SourceSubtask
from flowpoint.runtime.subtask import Subtask
from flowpoint.runtime.surroundings import Surroundings


class Attempt:
    """The part of attempt `deploy.attempt` that runs here."""

    def __init__(self, deploy: messages.Deploy, around: Surroundings) -> None:
        self.number = deploy.attempt
        self._deploy = deploy
        self._around = around
        self._subtasks: list[Subtask] = []
        self._rounds: Rounds | None = None
        self._started = asyncio.Event()
        plan = JobPlan.from_data(deploy.plan)
        self._uids = {task.index: task.operators for task in plan.tasks}

    async def run(self) -> None:
        """Build, wait for `Start`, run until cancelled. Failures are reported, never raised."""
        try:
            await self._build_and_run()
        finally:
            # To its end: an attempt that has failed may be released while it closes.
            await finish(self._close())

    async def _close(self) -> None:
        # Those that never ran; the others have closed themselves.
        for subtask in self._subtasks:
            await subtask.close()
        await self._around.exchange.close()
        self._around.storage.close()

    async def _build_and_run(self) -> None:
        try:
            self._subtasks = await Assembly(self._deploy, self._around).build()
            commits = [subtask.id for subtask in self._subtasks if subtask.commits]
            self._rounds = Rounds((subtask.id for subtask in self._subtasks), commits)
            self._around.admit()
            await self._around.exchange.connect()
        except ENDS_A_TASK:
            raise
        except BaseException as error:  # noqa: BLE001  reported: the coordinator decides
            self._report_failure(None, error)
            return
        if told := self._around.local.told():
            self._around.log(f"attempt {self.number}, worker {self._around.worker}: {told}")
        self._around.report(messages.Deployed(self.number, self._around.worker))
        await self._started.wait()
        async with asyncio.TaskGroup() as group:
            for subtask in self._subtasks:
                group.create_task(self._guard(subtask), name=f"subtask {subtask.id}")

    async def _guard(self, subtask: Subtask) -> None:
        """Run one subtask; the others go on until the coordinator releases the attempt."""
        try:
            await subtask.run()
        except ENDS_A_TASK:
            raise
        except BaseException as error:  # noqa: BLE001  reported: the coordinator decides
            self._report_failure(subtask, error)

    def _report_failure(self, subtask: Subtask | None, error: BaseException) -> None:
        where = list(subtask.id) if subtask is not None else []
        # Who took the record in, unless the error knows better.
        operator = self._uids[subtask.id.task][0] if subtask is not None else ""
        self._around.report(describe_failure(error, self.number, self._around.worker, where, operator))

    # ------------------------------------------------------------------ the coordinator's orders

    def start(self) -> None:
        """Let records flow."""
        self._started.set()

    def trigger(self, message: messages.Trigger) -> None:
        """Emit a barrier at every source of this worker; whoever cannot take part yet says so without waiting for it."""
        for subtask in self._subtasks:
            if subtask.is_restoring:
                subtask.decline_restoring(message.checkpoint)
            if isinstance(subtask, SourceSubtask):
                subtask.trigger(message)

    def abort(self, checkpoint: int) -> None:
        """A checkpoint was given up."""
        for subtask in self._subtasks:
            subtask.abort(checkpoint)

    def complete(self, checkpoint: int) -> None:
        """A checkpoint is in the commit log."""
        for subtask in self._subtasks:
            subtask.complete(checkpoint)

    def resume(self) -> None:
        """A stop did not come about."""
        for subtask in self._subtasks:
            if isinstance(subtask, SourceSubtask):
                subtask.resume()

    def ends_round(self, message: messages.Message) -> bool:
        """Take note of what a subtask says; whether all of them here have said the same of a checkpoint by now."""
        if self._rounds is None or not isinstance(message, messages.Ack | messages.Committed):
            return False
        return self._rounds.ends_with(message)

    def counters(self, now: float) -> dict[str, dict[str, Any]]:
        """The numbers of every subtask, under the uid of each operator it runs: "uid#index". See `messages.Stats`.

        `now`: by the loop's clock.
        """
        shown: dict[str, dict[str, Any]] = {}
        for subtask in self._subtasks:
            numbers = subtask.statistics()
            for uid in self._uids[subtask.id.task]:
                shown[f"{uid}#{subtask.id.index}"] = {
                    "task": subtask.id.task,
                    "records_in": numbers.records_in,
                    "records_out": numbers.records_out,
                    "busy": numbers.busy.read(now),
                    "at_work": numbers.busy.under_way(now),
                    "blocked": numbers.blocked.read(now),
                    "watermark": numbers.watermark,
                    "metrics": dict(numbers.connector.get(uid, {})),
                }
        return shown


def first_cause(error: BaseException) -> BaseException:
    """The first real error inside (nested) exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(
    error: BaseException, attempt: int, worker: int, subtask: list[int], operator: str = ""
) -> messages.Failure:
    """An exception as data. `operator` is where it came up, for an error that names none itself.

    The trace of what the job's author must mend, or what came up in a source or sink of theirs, shows the author's
    frames only.
    """
    cause = first_cause(error)
    if isinstance(cause, UserCodeError | BadRecordError) or type(cause) is TransientError:
        trace = users_trace(cause.__cause__ or cause)
    else:
        trace = "".join(traceback.format_exception(cause))
    return messages.Failure(
        attempt=attempt,
        worker=worker,
        subtask=subtask,
        operator=getattr(cause, "operator", "") or operator,
        kind=engine_class(cause).__name__ if isinstance(cause, FlowPointError) else type(cause).__name__,
        message=_message(cause),
        trace=cut(trace, TRACE_CHARACTERS_MAX),
        retry=not isinstance(cause, FINAL_ERRORS),
    )


def _message(cause: BaseException) -> str:
    """An error of ours is a sentence already, in which what it quotes has been cut."""
    if isinstance(cause, FlowPointError):
        return say(cause, MESSAGE_CHARACTERS_MAX)
    return f"{type(cause).__name__}: {say(cause)}"
