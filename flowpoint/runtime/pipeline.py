"""The operators of one subtask, put together: stages that run over a batch one after another.

A stage is a generated loop, a process function, or one that assigns timestamps. `run(batch, first)` takes a batch
through the stages from `first` on, so that what a timer emits enters the chain behind the operator that set it. The last
stage may deal records out into hash buffers itself; then `run` returns None.

Event time runs through the stages as well (`advance`): at each process function the timers that are due fire, and what
they emit has passed all stages behind it before event time advances there. A stage that assigns timestamps makes its own
watermark, which goes on behind it (`assigned`), and stops the one that comes.

Everything here is synchronous: whatever a stage raises comes from user code or from a bug, never from a cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from flowpoint.model.elements import WATERMARK_MAX, WATERMARK_MIN, Batch
from flowpoint.model.plan import OperatorKind
from flowpoint.runtime.chain import FLAT_MAPS_MAX, HashEmit, Loop, LoopOperator
from flowpoint.runtime.failures import USER_RAISED
from flowpoint.runtime.operators.process import Process
from flowpoint.runtime.operators.timestamps import TimestampAssigner

Operator: TypeAlias = LoopOperator | Process | TimestampAssigner
Stage: TypeAlias = Loop | Process | TimestampAssigner


class Pipeline:
    """All stages between the input and the sink or outputs of a subtask.

    Args:
        before_dealing: told, before each batch that the last stage deals out itself, whether it has timestamps.
        entries: operators before which a stage must begin, so that a batch can enter there (`entry`).
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        emit: HashEmit | None,
        before_dealing: Callable[[bool], None] = lambda _: None,
        entries: Collection[str] = (),
    ) -> None:
        self._stages: list[Stage] = []
        self._entries: dict[str, int] = {}
        for stage, first in _stages(operators, emit, entries):
            self._entries[first] = len(self._stages)
            self._stages.append(stage)
        self._applies = [stage.apply for stage in self._stages]
        self._dealing = len(self._stages) - 1 if emit is not None else -1
        self._before_dealing = before_dealing
        behind = list(enumerate(self._stages, start=1))
        self.processes = [(number, stage) for number, stage in behind if isinstance(stage, Process)]
        """Each process function, with the number of the stage behind it."""
        self.assigners = [(number, stage) for number, stage in behind if isinstance(stage, TimestampAssigner)]
        """Each operator that assigns timestamps, with the number of the stage behind it."""
        self.watermark_in, self.watermark = self._saved_watermarks()

    def _saved_watermarks(self) -> tuple[int, int]:
        """Where event time stands in front of the first stage and behind the last one, after a restore (rule 15)."""
        first, current, is_own = WATERMARK_MIN, WATERMARK_MIN, False
        for stage in self._stages:
            if isinstance(stage, TimestampAssigner):
                current, is_own = stage.watermark, True
            elif isinstance(stage, Process):
                current = max(current, stage.watermark)
            if not is_own:
                first = current
        return first, current

    def entry(self, uid: str) -> int:
        """The stage that begins with an operator; behind the last one for what is no stage, such as a sink."""
        return self._entries.get(uid, len(self._stages))

    def run(self, batch: Batch, first: int = 0) -> Batch | None:
        """Take a batch through the stages from `first` on. Raises FlowPointError naming operator and record."""
        current: Batch | None = batch
        for position in range(first, len(self._applies)):
            if not current:
                return current
            if position == self._dealing:
                self._before_dealing(current.timestamps is not None)
            try:
                current = self._applies[position](current)
            except USER_RAISED as error:
                stage = self._stages[position]
                located = stage.locate(error) if isinstance(stage, Loop) else None
                if located is None:
                    raise
                raise located from error
        return current

    def run_port(self, batch: Batch, port: int) -> Batch | None:
        """The same for an input of the first stage, a process function that may have two."""
        if port == 0:
            return self.run(batch)
        process = self._stages[0]
        assert isinstance(process, Process), process
        return self.run(process.apply(batch, port), 1) if batch else None

    # ------------------------------------------------------------------ event time

    def advance(self, watermark: int, limit: int, first: int = 0) -> Iterator[Batch | None]:
        """Event time has come to `watermark` before stage `first`: fire timers, at most `limit` in one step.

        What is yielded is to be sent on before `self.watermark` is.
        """
        for position in range(first, len(self._stages)):
            stage = self._stages[position]
            if isinstance(stage, Process):
                for emitted in stage.advance(watermark, limit):
                    yield self.run(emitted, position + 1)
            elif isinstance(stage, TimestampAssigner):
                if watermark != WATERMARK_MAX:
                    return
                stage.end()
        self.watermark = max(self.watermark, watermark)

    def assigned(self, limit: int) -> Iterator[Batch | None]:
        """Take the watermarks that have been made by the stages themselves through those behind them."""
        for following, assigner in self.assigners:
            watermark = assigner.take_news()
            if watermark is not None:
                yield from self.advance(watermark, limit, following)

    # ------------------------------------------------------------------ processing time

    def fire_due(self, now_ms: int, limit: int) -> Iterator[Batch | None]:
        """Fire processing-time timers that are due, at most `limit` of each process function."""
        for following, process in self.processes:
            yield self.run(process.fire_due(now_ms, limit), following)

    def fire_last(self, limit: int) -> Iterator[Batch | None]:
        """At the end of input: fire all pending timers, `limit` at a time, one process function after the other."""
        yield from self.advance(WATERMARK_MAX, limit)
        for following, process in self.processes:
            for emitted in process.fire_last(limit):
                yield self.run(emitted, following)
        # Those that were set meanwhile: the end of event time has come already.
        yield from self.advance(WATERMARK_MAX, limit)
        for _, process in self.processes:
            process.drop_timers()

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


def _stages(
    operators: Sequence[Operator], emit: HashEmit | None, entries: Collection[str]
) -> Iterator[tuple[Stage, str]]:
    """Runs of loop operators become loops, none with more flat_maps than one may have; with their first operators."""
    pending: list[LoopOperator] = []
    flat_maps = 0
    for operator in operators:
        is_full = flat_maps == FLAT_MAPS_MAX
        if pending and (is_full or operator.uid in entries or not isinstance(operator, LoopOperator)):
            yield Loop(pending), pending[0].uid
            pending, flat_maps = [], 0
        if isinstance(operator, LoopOperator):
            pending.append(operator)
            flat_maps += operator.kind is OperatorKind.FLAT_MAP
        else:
            yield operator, operator.uid
    if pending or emit is not None:
        yield Loop(pending, emit), pending[0].uid if pending else ""
