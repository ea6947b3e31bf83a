"""Builds the subtasks of one attempt in one worker: their operators, between the inputs and outputs of `wiring` and
upon the state of `state_assembly`.

The order matters: channels first (peers may already send), then state, then what sinks had prepared is committed
(rule 7), then writers and functions are opened. Records flow only after `Start`.

Invariant: when building fails or is cancelled, everything that it had opened is closed again.

Not here: channels (`wiring`), stores and what is restored into them (`state_assembly`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import FlowPointError
from flowpoint.model import messages
from flowpoint.model.plan import (
    CO_KINDS,
    KEYED_KINDS,
    PROCESS_KINDS,
    JobPlan,
    OperatorKind,
    OperatorSpec,
    Partition,
    SubtaskId,
)
from flowpoint.model.settings import Settings
from flowpoint.runtime.chain import LoopOperator
from flowpoint.runtime.closing import close_quietly, finish
from flowpoint.runtime.contracts import ConnectorContext, HostClock, OperatorDef
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.operators.timestamps import TimestampAssigner
from flowpoint.runtime.own_copy import own_copy
from flowpoint.runtime.parts import KeyedPart, Part, SinkPart, WatermarkPart
from flowpoint.runtime.pipeline import Operator, Pipeline
from flowpoint.runtime.processing_subtask import ProcessingSubtask, Unaligned
from flowpoint.runtime.source_subtask import SourcePart, SourceSubtask
from flowpoint.runtime.state_assembly import StateAssembly
from flowpoint.runtime.subtask import Subtask
from flowpoint.runtime.subtask_parts import Counters, SubtaskParts
from flowpoint.runtime.surroundings import Surroundings
from flowpoint.runtime.wiring import Wiring
from flowpoint.state.broadcast import BroadcastAccess, bind_broadcast
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.timers import TimerService


class Assembly:
    """Builds the subtasks that `deploy` assigns to this worker."""

    def __init__(self, deploy: messages.Deploy, around: Surroundings) -> None:
        self._deploy = deploy
        self._around = around
        self._plan = JobPlan.from_data(deploy.plan)
        self._settings = Settings.from_data(deploy.settings)
        types_ = [t for definition in around.functions.values() for t in definition.types]
        self._codec = Codec(TypeRegistry(types_))
        self._worker_of = {
            SubtaskId(*pair): int(worker) for worker, pairs in deploy.assignment.items() for pair in pairs
        }
        self._wiring = Wiring(
            self._plan, self._settings, self._worker_of, around.functions, around.exchange, self._codec
        )
        self._state = StateAssembly(deploy, around, self._plan, self._settings, self._codec)
        checkpoint = self._settings.checkpoint
        self._unaligned = Unaligned(checkpoint.aligned_timeout, self._codec) if checkpoint.may_overtake else None

    async def build(self) -> list[Subtask]:
        """All subtasks of this worker, in the order of the plan."""
        mine = sorted(subtask for subtask, worker in self._worker_of.items() if worker == self._around.worker)
        built: list[Subtask] = []
        try:
            for subtask in mine:
                built.append(await self._build_subtask(subtask))  # noqa: PERF401  what is built must be closed
        except BaseException:
            await finish(_close_all(built))
            raise
        return built

    async def _build_subtask(self, subtask: SubtaskId) -> Subtask:
        wakeup = asyncio.Event()
        gate, channels = self._wiring.gate(subtask, wakeup.set)
        operators = _Operators(Counters())
        try:
            for uid in self._plan.tasks[subtask.task].operators:
                await self._add_operator(uid, subtask, operators)
            outputs, emit = self._wiring.outputs(subtask, wakeup.set)
            restored = await self._state.records_under_way(subtask)
            entries = {one.uid for one in restored}
            pipeline = Pipeline(operators.stages, emit, outputs.expect, entries)
        except BaseException:
            await finish(operators.close(f"subtask {self._plan.called(subtask)}", self._around.log))
            raise
        built = SubtaskParts(
            id=subtask,
            called=self._plan.called(subtask),
            attempt=self._deploy.attempt,
            pipeline=pipeline,
            outputs=outputs,
            parts=operators.parts,
            wakeup=wakeup,
            report=self._around.report,
            clock_ms=self._around.host.wall_ms,
            log=self._around.log,
            end_copy=self._around.host.end_copy,
            slice_max=max(self._settings.batch_size, 1),
            restored=restored,
            write_channels=self._state.channel_writer(subtask) if self._unaligned is not None else None,
            counters=operators.counters,
        )
        source = next((part for part in operators.parts if isinstance(part, SourcePart)), None)
        if source is not None:
            return SourceSubtask(built, source, self._settings.batch_size)
        exactly_once = self._settings.checkpoint.mode == "exactly_once"
        return ProcessingSubtask(built, gate, channels, exactly_once=exactly_once, unaligned=self._unaligned)

    async def _add_operator(self, uid: str, subtask: SubtaskId, operators: _Operators) -> None:
        """Make one operator. What is opened stands in `operators` at once, so that it can be closed."""
        spec, definition = self._plan.operator(uid), self._around.functions[uid]
        try:
            if spec.kind is OperatorKind.SOURCE:
                operators.parts.append(self._source(spec, definition, subtask, operators.counters))
            elif spec.kind is OperatorKind.SINK:
                context = self._context(spec, subtask.index, operators.counters)
                sink = SinkPart(uid, definition.function, context, self._state.files.savepoint_output(subtask))
                operators.parts.append(sink)
                await self._open_sink(sink, subtask.index)
            elif spec.kind is OperatorKind.ASSIGN_TIMESTAMPS:
                assignment = replace(definition.function, function=own_copy(definition.function.function))
                operators.add_timed(TimestampAssigner(uid, assignment, self._state.watermark(uid, subtask.index)))
            elif spec.kind in PROCESS_KINDS:
                process = await self._process(spec, definition, subtask, operators)
                operators.add_timed(process)
                process.open(subtask.index, spec.parallelism)
            elif spec.kind in KEYED_KINDS:
                part = await self._keyed(spec, subtask, operators)
                operators.stages.append(self._accumulating(spec, definition, part))
                self._state.refuse_unclaimed(part)
            else:
                operators.stages.append(LoopOperator(uid, spec.kind, own_copy(definition.function)))
        except FlowPointError as error:
            error.operator = error.operator or uid
            raise

    # ------------------------------------------------------------------ operators

    def _context(self, spec: OperatorSpec, index: int, counters: Counters) -> ConnectorContext:
        return ConnectorContext(
            uid=spec.uid,
            subtask=index,
            parallelism=spec.parallelism,
            job=self._deploy.job,
            lineage=self._deploy.lineage,
            attempt=self._deploy.attempt,
            disk=self._around.host.disk,
            clock=HostClock(self._around.host),
            restored_checkpoint=self._deploy.restored_checkpoint,
            skip_lost_input=bool(self._deploy.source.get("skip_lost_input")),
            metrics=counters.connector.setdefault(spec.uid, {}),
            log=self._around.log,
        )

    def _source(
        self, spec: OperatorSpec, definition: OperatorDef, subtask: SubtaskId, counters: Counters
    ) -> SourcePart:
        context = self._context(spec, subtask.index, counters)
        return SourcePart(spec.uid, definition.function, context, self._state.splits(spec.uid, subtask.index))

    async def _open_sink(self, part: SinkPart, index: int) -> None:
        part.uncommitted.extend(self._state.committables(part.uid, index))
        # Rule 7: whatever the restored checkpoint holds becomes visible before anything new is written.
        await part.commit(self._deploy.restored_checkpoint)
        await part.open()

    async def _keyed(self, spec: OperatorSpec, subtask: SubtaskId, operators: _Operators) -> KeyedPart:
        """The keyed state of an operator, restored. It stands in `operators` before that, so that it can be closed."""
        part = self._state.keyed(spec, subtask)
        operators.parts.append(part)
        await self._state.restore(part, subtask.index)
        return part

    def _accumulating(self, spec: OperatorSpec, definition: OperatorDef, part: KeyedPart) -> LoopOperator:
        """A count, sum, ... whose accumulators lie in `part`."""
        assert definition.key is not None, spec
        table = part.backend.table(self._state.accumulator(spec.uid))
        # All that is written since the last freeze is of records. A freeze replaces the dict.
        part.seen_keys = lambda: table.dirty
        return LoopOperator(
            uid=spec.uid,
            kind=spec.kind,
            function=own_copy(definition.function),
            key=own_copy(definition.key),
            key_name=spec.key_name,
            table=table,
            check=GroupCache(self._plan.max_parallelism).miss,
            copy=self._codec.copy,
        )

    async def _process(
        self, spec: OperatorSpec, definition: OperatorDef, subtask: SubtaskId, operators: _Operators
    ) -> Process:
        """A process function with its state restored and bound."""
        function = own_copy(definition.function)
        keyed, access, cell = None, None, KeyCell()
        if spec.kind in KEYED_KINDS:
            part = await self._keyed(spec, subtask, operators)
            bind(function, part.backend, cell)
            timers = TimerService(part.backend, cell)
            keyed = KeyedParts(cell, timers, GroupCache(self._plan.max_parallelism))
            # Of records only: what timers write is under stored keys.
            part.seen_keys = lambda: keyed.groups.groups
            self._state.refuse_unclaimed(part)
        if spec.kind in CO_KINDS:
            part = self._state.broadcast(spec, subtask)
            operators.parts.append(part)
            await self._state.restore_broadcast(part, subtask.index)
            access = BroadcastAccess(cell.sharing)
            bind_broadcast(function, part.backend, access)
            self._state.refuse_unclaimed(part)
            if not part.backend.schemas():
                # It has nothing that a snapshot could hold.
                await operators.parts.pop().close()
        is_last = spec.uid == self._plan.tasks[subtask.task].operators[-1]
        return Process(
            spec.uid,
            function,
            self._ports(spec, definition, subtask.task),
            self._around.host.wall_ms,
            keyed=keyed,
            access=access,
            side_tags=[edge.tag for edge in self._plan.outputs(subtask.task) if edge.tag] if is_last else [],
            has_event_time=operators.has_event_time or any(edge.timed for edge in self._plan.inputs(subtask.task)),
            watermark=self._state.watermark(spec.uid, subtask.index),
            warn=self._warn_once,
        )

    def _warn_once(self, text: str) -> None:
        self._around.report(messages.Warn(self._deploy.attempt, self._around.worker, text, once=True))

    def _ports(self, spec: OperatorSpec, definition: OperatorDef, task: int) -> tuple[Port, ...]:
        key = own_copy(definition.key)
        if spec.kind not in CO_KINDS:
            return (Port("process", key, spec.key_name),)
        edges = self._plan.inputs(task)
        broadcast = {edge.port for edge in edges if edge.partition is Partition.BROADCAST}
        return (
            Port("process1", key, spec.key_name, is_broadcast=0 in broadcast),
            Port("process2", own_copy(definition.second_key), spec.second_key_name, is_broadcast=1 in broadcast),
        )


@dataclass(slots=True)
class _Operators:
    """The operators of one subtask while it is built."""

    counters: Counters
    stages: list[Operator] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def has_event_time(self) -> bool:
        """Whether the records behind the stages so far get timestamps here."""
        return any(isinstance(stage, TimestampAssigner) for stage in self.stages)

    def add_timed(self, stage: Process | TimestampAssigner) -> None:
        """Add a stage that knows where event time stands."""
        self.stages.append(stage)
        self.parts.append(WatermarkPart(stage))

    async def close(self, where: str, log: Callable[[str], None]) -> None:
        """Building has failed: let go of what is open."""
        processes = [stage.close for stage in self.stages if isinstance(stage, Process)]
        for closing in [*processes, *(part.close for part in self.parts)]:
            await close_quietly(closing, where, log)


async def _close_all(subtasks: Iterable[Subtask]) -> None:
    for subtask in subtasks:
        await subtask.close()
