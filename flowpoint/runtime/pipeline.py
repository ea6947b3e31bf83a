"""The operators of one subtask, put together: stages that run over a batch one after another.

A stage is a generated loop or a keyed process function. `run(values, first)` takes a batch through the stages from
`first` on, so that what a timer emits enters the chain behind the operator that set it. The last stage may deal records
out into hash buffers itself; then `run` returns None.

Everything here is synchronous: whatever a stage raises comes from user code or from a bug, never from a cancellation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.chain import FLAT_MAPS_MAX, HashEmit, Loop, LoopOperator
from flowpoint.runtime.failures import USER_RAISED
from flowpoint.runtime.operators.keyed_process import KeyedProcess


class Pipeline:
    """All stages between the input and the sink or outputs of a subtask."""

    def __init__(self, operators: Sequence[LoopOperator | KeyedProcess], emit: HashEmit | None) -> None:
        self._stages: list[Loop | KeyedProcess] = []
        self.processes: list[tuple[int, KeyedProcess]] = []
        """Each process function, with the number of the stage behind it."""
        for stage in _stages(operators, emit):
            self._stages.append(stage)
            if isinstance(stage, KeyedProcess):
                self.processes.append((len(self._stages), stage))
        self._runs = [stage.process_batch if isinstance(stage, KeyedProcess) else stage.run for stage in self._stages]

    def run(self, values: list[Any], first: int = 0) -> list[Any] | None:
        """Take a batch through the stages from `first` on. Raises FlowPointError naming operator and record."""
        current: list[Any] | None = values
        for position in range(first, len(self._runs)):
            if not current:
                return current
            try:
                current = self._runs[position](current)
            except USER_RAISED as error:
                stage = self._stages[position]
                located = stage.locate(error) if isinstance(stage, Loop) else None
                if located is None:
                    raise
                raise located from error
        return current

    def fire_due(self, now_ms: int, limit: int) -> Iterator[list[Any] | None]:
        """Fire processing-time timers that are due, at most `limit` of each process function."""
        for following, process in self.processes:
            emitted = process.fire_due(now_ms, limit)
            if emitted:
                yield self.run(emitted, following)

    def fire_last(self, limit: int) -> Iterator[list[Any] | None]:
        """At the end of input: fire all pending timers, `limit` at a time, one process function after the other."""
        for following, process in self.processes:
            for emitted in process.fire_last(limit):
                if emitted:
                    yield self.run(emitted, following)

    def next_timer_ms(self) -> int | None:
        """When the earliest processing-time timer is due, epoch ms."""
        return min((at for _, process in self.processes if (at := process.next_timer_ms()) is not None), default=None)

    @property
    def timers_dropped(self) -> int:
        """How many timers were set at the end of input, too late to fire."""
        return sum(process.timers_dropped for _, process in self.processes)

    def close(self) -> None:
        """Let go of generated code."""
        for stage in self._stages:
            if isinstance(stage, Loop):
                stage.close()


def _stages(operators: Sequence[LoopOperator | KeyedProcess], emit: HashEmit | None) -> Iterator[Loop | KeyedProcess]:
    """Runs of loop operators become loops, none with more flat_maps than one may have."""
    pending: list[LoopOperator] = []
    flat_maps = 0
    for operator in operators:
        is_full = flat_maps == FLAT_MAPS_MAX
        if pending and (is_full or isinstance(operator, KeyedProcess)):
            yield Loop(pending)
            pending, flat_maps = [], 0
        if isinstance(operator, KeyedProcess):
            yield operator
        else:
            pending.append(operator)
            flat_maps += operator.kind is OperatorKind.FLAT_MAP
    if pending or emit is not None:
        yield Loop(pending, emit)
