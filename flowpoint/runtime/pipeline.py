"""The operators of one subtask, put together: stages that run over a batch one after another.

A stage is a generated loop or a keyed process function. `run(values, first)` takes a batch through the stages from
`first` on, so that what a timer emits enters the chain behind the operator that set it. The last stage may deal records
out into hash buffers itself; then `run` returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.chain import HashEmit, Loop, LoopOperator
from flowpoint.runtime.operators.keyed_process import KeyedProcess


class Pipeline:
    """All stages between the input and the sink or outputs of a subtask."""

    def __init__(self, operators: Sequence[LoopOperator | KeyedProcess], emit: HashEmit | None) -> None:
        self._stages: list[Loop | KeyedProcess] = []
        self.processes: list[tuple[int, KeyedProcess]] = []
        pending: list[LoopOperator] = []
        for operator in operators:
            if isinstance(operator, KeyedProcess):
                self._close_loop(pending)
                self._stages.append(operator)
                self.processes.append((len(self._stages), operator))
            else:
                pending.append(operator)
        self.deals_out = emit is not None
        if pending or emit is not None:
            self._stages.append(Loop(pending, emit))
        self._runs = [stage.process_batch if isinstance(stage, KeyedProcess) else stage.run for stage in self._stages]

    def _close_loop(self, pending: list[LoopOperator]) -> None:
        if pending:
            self._stages.append(Loop(pending))
            pending.clear()

    def run(self, values: list[Any], first: int = 0) -> list[Any] | None:
        """Take a batch through the stages from `first` on. Raises FlowPointError naming operator and record."""
        current: list[Any] | None = values
        for position, run in enumerate(self._runs[first:], first):
            if not current:
                return current
            try:
                current = run(current)
            except Exception as error:
                stage = self._stages[position]
                located = stage.locate(error) if isinstance(stage, Loop) else None
                if located is None:
                    raise
                raise located from error
        return current

    def fire_due(self, now_ms: int | None) -> list[list[Any] | None]:
        """Fire due processing-time timers of every process function (None: all of them, at the end of input)."""
        results: list[list[Any] | None] = []
        for following, process in self.processes:
            emitted = process.fire_all() if now_ms is None else process.fire_due(now_ms)
            if emitted:
                results.append(self.run(emitted, following))
        return results

    def next_timer_ms(self) -> int | None:
        """When the earliest processing-time timer is due, epoch ms."""
        due = [at for _, process in self.processes if (at := process.timers.next_due("processing")) is not None]
        return min(due, default=None)

    def close(self) -> None:
        """Let go of generated code."""
        for stage in self._stages:
            if isinstance(stage, Loop):
                stage.close()


KEYED_LOOP_KINDS = frozenset({OperatorKind.COUNT, OperatorKind.SUM, OperatorKind.REDUCE})
