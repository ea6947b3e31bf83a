"""Deploys one attempt after another, and knows the one that was deployed last.

    prepare (a step) -> `Prepared` -> deployed -> ended, committed -> released

Once an attempt is released, what is told of it comes too late (`live` is None).

Not here: what an attempt starts from (`prepare`), whether there is to be one (`protocol.job`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.local_recovery import LocalUse
from flowpoint.coordinator.mail import Mail, Prepared
from flowpoint.coordinator.prepare import JobIsDone, Preparation, PreparedAttempt
from flowpoint.coordinator.steps import Steps
from flowpoint.errors import FlowPointError
from flowpoint.model import messages
from flowpoint.model.plan import JobPlan, OperatorKind, SubtaskId


@dataclass(slots=True)
class DeployedAttempt:
    """An attempt that workers have been given. `plan` is its own: the job has another one while a rescale is under way."""

    prepared: PreparedAttempt
    plan: JobPlan
    is_released: bool = False
    _not_ended: set[SubtaskId] = field(init=False)
    _sinks: frozenset[SubtaskId] = field(init=False)
    _committed: dict[SubtaskId, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._not_ended = set(self.plan.subtasks())
        sinks = {self.plan.task_of(spec.uid).index for spec in self.plan.operators if spec.kind is OperatorKind.SINK}
        self._sinks = frozenset(subtask for subtask in self._not_ended if subtask.task in sinks)

    @property
    def number(self) -> int:
        """The attempt's number."""
        return self.prepared.number

    def ended(self, subtask: SubtaskId) -> bool:
        """A subtask has seen the end of its input. True: it was the last one."""
        self._not_ended.discard(subtask)
        return not self._not_ended

    def committed(self, subtask: SubtaskId, checkpoint: int) -> int | None:
        """A subtask's sinks have committed up to a checkpoint. Returns up to which one all have; None: not all yet."""
        self._committed[subtask] = checkpoint
        if not self._sinks <= self._committed.keys():
            return None
        return min(self._committed[sink] for sink in self._sinks)

    def not_committed(self, checkpoint: int) -> list[str]:
        """The sinks, as "uid#index", that have not confirmed this checkpoint."""
        behind = sorted(sink for sink in self._sinks if self._committed.get(sink, 0) < checkpoint)
        return [f"{self.plan.tasks[sink.task].operators[-1]}#{sink.index}" for sink in behind]

    def subtasks_of(self, worker: int) -> list[str]:
        """What a worker runs, as "uid#index"."""
        placed = sorted(s for s, w in self.prepared.assignment.items() if w == worker)
        return [f"{uid}#{s.index}" for s in placed for uid in self.plan.tasks[s.task].operators]


class Deployment:
    """The attempts of one coordinator."""

    def __init__(self, preparation: Preparation, steps: Steps, post: Callable[[Mail], None]) -> None:
        self._preparation = preparation
        self._steps = steps
        self._post = post
        self._preparing: asyncio.Task[None] | None = None
        self._last: DeployedAttempt | None = None

    @property
    def last(self) -> DeployedAttempt | None:
        """The attempt that was deployed last; None before the first."""
        return self._last

    @property
    def live(self) -> DeployedAttempt | None:
        """The attempt that was deployed last, unless it has been released."""
        return None if self._last is None or self._last.is_released else self._last

    @property
    def number(self) -> int:
        """The number of the attempt that was deployed last, 0 before the first."""
        return self._last.number if self._last is not None else 0

    def prepare(
        self, replacement: int, busy: Sequence[asyncio.Task[None]], wait_log_still: Callable[[], Awaitable[None]]
    ) -> None:
        """Prepare the next attempt. One preparation at a time.

        Args:
            replacement: which try it is for.
            busy: cleaning up that has to end before.
            wait_log_still: waits until nobody appends to the commit log.
        """
        earlier = [*busy, *([self._preparing] if self._preparing is not None else [])]

        async def prepare() -> None:
            if earlier:
                await asyncio.wait(earlier)
            await wait_log_still()
            result: PreparedAttempt | JobIsDone | Exception
            try:
                result = await self._preparation.prepare()
            except (FlowPointError, OSError) as error:
                result = error
            self._post(Prepared(replacement, result))

        self._preparing = self._steps.start_on_storage(prepare(), "prepare attempt")

    async def wait_prepared(self) -> None:
        """Wait until nothing is being prepared."""
        if self._preparing is not None:
            await asyncio.wait([self._preparing])

    def deploy(self, job: JobToRun, prepared: PreparedAttempt, addresses: Mapping[int, str]) -> messages.Deploy:
        """A prepared attempt is the live one from now on. Returns what workers have to be told."""
        self._last = DeployedAttempt(prepared, job.plan)
        assignment: dict[str, list[list[int]]] = {}
        for subtask, worker in sorted(prepared.assignment.items()):
            assignment.setdefault(str(worker), []).append(list(subtask))
        return messages.Deploy(
            attempt=prepared.number,
            job=job.plan.job,
            lineage=prepared.lineage,
            plan=job.plan.to_data(),
            settings=job.settings.to_data(),
            source=dict(job.source),
            assignment=assignment,
            peers={str(worker): address for worker, address in addresses.items()},
            restore=prepared.restore,
            restored_checkpoint=prepared.restored_checkpoint,
            storage=job.place.address,
            work_dir=job.work_dir,
            full=prepared.first_is_full,
            uses_local=prepared.local is not LocalUse.NONE,
        )

    def release(self) -> None:
        """The attempt is over."""
        if self._last is not None:
            self._last.is_released = True
