"""Builds the subtasks of one attempt in one worker: operators, state, channels, snapshot parts.

The order matters: channels first (peers may already send), then state, then what sinks had prepared is committed
(rule 7), then writers and functions are opened. Records flow only after `Start`.

Invariant: when building fails or is cancelled, everything that it had opened is closed again.
"""

from __future__ import annotations

import asyncio
import copy
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowpoint.codec.keys import GroupCache
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.errors import FlowPointError, IncompatibleStateError
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.elements import WATERMARK_MIN
from flowpoint.model.key_groups import group_range
from flowpoint.model.manifest import NO_GROUPS, StateFile, SubtaskState
from flowpoint.model.plan import (
    CO_KINDS,
    KEYED_KINDS,
    PROCESS_KINDS,
    EdgeSpec,
    JobPlan,
    OperatorKind,
    OperatorSpec,
    Partition,
    SubtaskId,
)
from flowpoint.model.settings import Settings
from flowpoint.runtime.chain import HashEmit, LoopOperator
from flowpoint.runtime.channel_state import KeyGroups, Recording, RestoredBatch
from flowpoint.runtime.contracts import ConnectorContext, HostClock, OperatorDef, Split
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.runtime.operators.timestamps import TimestampAssigner
from flowpoint.runtime.outputs import EdgeOutput, Outputs, Routes
from flowpoint.runtime.parts import (
    KeyedPart,
    Part,
    SaveFiles,
    SinkPart,
    WatermarkPart,
    WriteSavepoint,
    WriteState,
    finish,
)
from flowpoint.runtime.pipeline import Operator, Pipeline
from flowpoint.runtime.processing_subtask import Channel, ProcessingSubtask, Unaligned
from flowpoint.runtime.source_subtask import SourcePart, SourceSubtask, SplitState
from flowpoint.runtime.subtask import Counters, Report, Subtask, SubtaskParts, WriteChannels, close_quietly
from flowpoint.snapshot import names
from flowpoint.snapshot.channel_files import CHANNEL, read_channels, write_channels
from flowpoint.snapshot.reader import load
from flowpoint.snapshot.storage import FolderStorage, Storage
from flowpoint.snapshot.writer import BASE, DELTA, save_file, write_state
from flowpoint.state.backend import Backend, Frozen
from flowpoint.state.broadcast import BroadcastAccess, bind_broadcast
from flowpoint.state.kinds import KeyCell, bind
from flowpoint.state.open import open_backend
from flowpoint.state.spec import StateSpec
from flowpoint.state.timers import TimerService
from flowpoint.transport.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What assembling needs besides the `Deploy` message. `admit` lets links of other workers in, once all channels
    are declared."""

    host: Host
    worker: int
    storage: Storage
    exchange: Exchange
    admit: Callable[[], None]
    functions: Mapping[str, OperatorDef]
    report: Report
    log: Callable[[str], None]


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
        self._sequence = 0
        checkpoint = self._settings.checkpoint
        is_unaligned = checkpoint.may_overtake
        self._unaligned = Unaligned(checkpoint.aligned_timeout, self._codec) if is_unaligned else None

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
        gate, channels = self._gate(subtask, wakeup.set)
        operators = _Operators(Counters())
        try:
            for uid in self._plan.tasks[subtask.task].operators:
                await self._add_operator(uid, subtask, operators)
            outputs, emit = self._outputs(subtask, wakeup.set)
            restored = await self._records_under_way(subtask)
            entries = {one.uid for one in restored}
            pipeline = Pipeline(operators.stages, emit, outputs.expect, entries)
        except BaseException:
            await finish(operators.close(f"subtask {subtask}", self._around.log))
            raise
        built = SubtaskParts(
            id=subtask,
            attempt=self._deploy.attempt,
            pipeline=pipeline,
            outputs=outputs,
            parts=operators.parts,
            wakeup=wakeup,
            report=self._around.report,
            clock_ms=self._around.host.wall_ms,
            log=self._around.log,
            slice_max=max(self._settings.batch_size, 1),
            restored=restored,
            write_channels=self._channel_writer(subtask) if self._unaligned is not None else None,
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
                sink = SinkPart(uid, definition.function, context, self._file_saver(subtask))
                operators.parts.append(sink)
                await self._open_sink(sink, subtask.index)
            elif spec.kind is OperatorKind.ASSIGN_TIMESTAMPS:
                assignment = replace(definition.function, function=_own_copy(definition.function.function))
                operators.add_timed(TimestampAssigner(uid, assignment, self._saved_watermark(uid, subtask.index)))
            elif spec.kind in PROCESS_KINDS:
                process = await self._process(spec, definition, subtask, operators)
                operators.add_timed(process)
                process.open(subtask.index, spec.parallelism)
            elif spec.kind in KEYED_KINDS:
                part = self._keyed(spec, subtask)
                operators.parts.append(part)
                await self._restore(part, subtask.index)
                operators.stages.append(self._accumulating(spec, definition, part.backend))
                self._refuse_unclaimed(uid, part.backend)
            else:
                operators.stages.append(LoopOperator(uid, spec.kind, _own_copy(definition.function)))
        except FlowPointError as error:
            error.operator = error.operator or uid
            raise

    # ------------------------------------------------------------------ channels

    def _gate(self, subtask: SubtaskId, wake: Callable[[], None]) -> tuple[InputGate, list[Channel]]:
        inboxes, channels = [], []
        for edge in self._plan.inputs(subtask.task):
            for source in self._sources_of(edge, subtask.index):
                worker = self._worker_of[SubtaskId(edge.source, source)]
                inboxes.append(self._around.exchange.inbox(edge.index, source, subtask.index, worker))
                channels.append(self._channel(edge))
        return InputGate(inboxes, wake), channels

    def _channel(self, edge: EdgeSpec) -> Channel:
        """What is known of a channel. Records of forward and broadcast edges cannot be dealt out anew."""
        may_be_overtaken = edge.partition in (Partition.HASH, Partition.REBALANCE)
        if edge.partition is not Partition.HASH or self._unaligned is None:
            return Channel(edge.port, edge.timed, may_be_overtaken)
        spec, key, _ = self._receiver_key(edge)
        groups = KeyGroups(spec.uid, _own_copy(key), GroupCache(self._plan.max_parallelism))
        return Channel(edge.port, edge.timed, may_be_overtaken, groups)

    def _receiver_key(self, edge: EdgeSpec) -> tuple[OperatorSpec, Callable[[Any], Any], str]:
        """The operator behind a hash edge, the key that it takes these records by, and how messages call that."""
        spec = self._plan.operator(self._plan.tasks[edge.target].operators[0])
        definition = self._around.functions[spec.uid]
        key, key_name = definition.key, spec.key_name
        if edge.port:
            key, key_name = definition.second_key, spec.second_key_name
        assert key is not None, f"operator {spec.uid} is behind a hash edge and has no key"
        return spec, key, key_name

    def _channel_writer(self, subtask: SubtaskId) -> WriteChannels:
        """How a subtask makes channel state durable: keyed records in one file, those that may go anywhere in another."""
        spec = self._plan.operator(self._plan.tasks[subtask.task].operators[0])
        owned = group_range(subtask.index, spec.parallelism, self._plan.max_parallelism)

        async def write(recording: Recording) -> tuple[str, SubtaskState]:
            recorded = recording.batches()
            files: list[StateFile] = []
            for groups, batches in (
                (owned, [batch for batch in recorded if batch.groups is not None]),
                (NO_GROUPS, [batch for batch in recorded if batch.groups is None]),
            ):
                if batches:
                    self._sequence += 1
                    name = names.state_file(spec.uid, subtask.index, self._deploy.attempt, self._sequence, CHANNEL)
                    files.append(await write_channels(self._around.storage, batches, name, groups))
            return spec.uid, SubtaskState(channels=tuple(files))

        return write

    async def _records_under_way(self, subtask: SubtaskId) -> list[RestoredBatch]:
        """The records that the restored checkpoint overtook on their way here, first operators last: older ones first."""
        found: list[RestoredBatch] = []
        for uid in reversed(self._plan.tasks[subtask.task].operators):
            groups = group_range(subtask.index, self._plan.operator(uid).parallelism, self._plan.max_parallelism)
            files = [file for state in self._restored(uid, subtask.index) for file in state.channels]
            for file, data in await load(self._around.storage, files):
                found += [
                    RestoredBatch(uid, port, batch) for port, batch in read_channels(file, data, self._codec, groups)
                ]
        return found

    def _sources_of(self, edge: EdgeSpec, target: int) -> list[int]:
        if edge.partition is Partition.FORWARD:
            return [target]
        return list(range(self._plan.tasks[edge.source].parallelism))

    def _targets_of(self, edge: EdgeSpec, source: int) -> list[int]:
        if edge.partition is Partition.FORWARD:
            return [source]
        return list(range(self._plan.tasks[edge.target].parallelism))

    def _outputs(self, subtask: SubtaskId, wake: Callable[[], None]) -> tuple[Outputs, HashEmit | None]:
        """The outputs, and what the pipeline's last loop needs to deal records out itself (one hash edge only)."""
        edges = self._plan.outputs(subtask.task)
        sender = self._plan.tasks[subtask.task].operators[-1]
        outputs: list[EdgeOutput] = []
        fused: HashEmit | None = None
        for edge in edges:
            outlets = [
                self._around.exchange.outlet(
                    edge.index, subtask.index, target, self._worker_of[SubtaskId(edge.target, target)]
                )
                for target in self._targets_of(edge, subtask.index)
            ]
            # With one target there is nothing to deal out; its own keyed operator looks at the keys.
            emit = self._hash_emit(edge) if edge.partition is Partition.HASH and len(outlets) > 1 else None
            if emit is not None and len(edges) == 1 and not edge.tag:
                fused = emit
            outputs.append(
                EdgeOutput(
                    sender,
                    edge.partition,
                    outlets,
                    self._settings.batch_size,
                    self._codec.copy,
                    emit,
                    is_dealt=fused is not None,
                    tag=edge.tag,
                    timed=edge.timed,
                )
            )
        return Outputs(outputs, self._settings.buffer_timeout, wake), fused

    def _hash_emit(self, edge: EdgeSpec) -> HashEmit:
        target = self._plan.tasks[edge.target]
        spec, key, key_name = self._receiver_key(edge)
        routes = Routes(target.parallelism, self._plan.max_parallelism)
        buffers: list[list[Any]] = [[] for _ in range(target.parallelism)]
        return HashEmit(spec.uid, _own_copy(key), key_name, routes.targets, routes.miss, buffers)

    # ------------------------------------------------------------------ operators

    def _restored(self, uid: str, index: int) -> list[SubtaskState]:
        states = self._deploy.restore.get(uid)
        return [SubtaskState.from_data(data) for data in states[index]] if states else []

    def _saved_watermark(self, uid: str, index: int) -> int:
        saved = [state.watermark for state in self._restored(uid, index) if state.watermark is not None]
        return min(saved, default=WATERMARK_MIN)

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
        splits = [
            SplitState(Split(data["id"], data["data"]), data["position"], data["ended"])
            for state in self._restored(spec.uid, subtask.index)
            for data in state.splits
        ]
        return SourcePart(spec.uid, definition.function, self._context(spec, subtask.index, counters), splits)

    async def _open_sink(self, part: SinkPart, index: int) -> None:
        for state in self._restored(part.uid, index):
            part.uncommitted.extend(state.committables)
        part.uncommitted.sort(key=lambda committable: int(committable["checkpoint"]))
        # Rule 7: whatever the restored checkpoint holds becomes visible before anything new is written.
        await part.commit(self._deploy.restored_checkpoint)
        await part.open()

    def _keyed(self, spec: OperatorSpec, subtask: SubtaskId) -> KeyedPart:
        groups = group_range(subtask.index, spec.parallelism, self._plan.max_parallelism)
        work_dir = (
            f"{self._deploy.work_dir}/a{self._deploy.attempt}-w{self._around.worker}/{subtask.task}-{subtask.index}"
        )
        return KeyedPart(
            uid=spec.uid,
            backend=open_backend(self._settings.state, self._codec, self._plan.max_parallelism, work_dir, spec.uid),
            groups=groups,
            write_state=self._writer_for(subtask, groups),
            write_savepoint=self._savepoint_writer(subtask, groups),
            incremental=self._settings.checkpoint.incremental,
        )

    async def _restore(self, part: KeyedPart, index: int) -> None:
        """Take over the state of the old subtasks, a few milliseconds at a time."""
        states = [state for state in self._restored(part.uid, index) if state.files]
        for state in states:
            first, last = max(part.groups[0], state.groups[0]), min(part.groups[1], state.groups[1])
            if first <= last:
                for _ in part.backend.restoring(await load(self._around.storage, state.files), (first, last)):
                    await asyncio.sleep(0)
        if len(states) == 1 and states[0].groups == part.groups:
            part.files = states[0].files
            part.must_be_full = self._deploy.full
        else:
            part.must_be_full = bool(states)

    async def _broadcast(self, spec: OperatorSpec, subtask: SubtaskId) -> KeyedPart:
        """The broadcast state of an operator: in memory, and whole in every subtask."""
        all_groups = (0, self._plan.max_parallelism - 1)
        part = KeyedPart(
            uid=spec.uid,
            backend=open_backend(
                replace(self._settings.state, backend="heap"), self._codec, self._plan.max_parallelism, "", spec.uid
            ),
            groups=all_groups,
            write_state=self._writer_for(subtask, all_groups),
            write_savepoint=self._savepoint_writer(subtask, all_groups),
            incremental=self._settings.checkpoint.incremental,
            is_broadcast=True,
        )
        for state in self._restored(spec.uid, subtask.index):
            if state.broadcast:
                for _ in part.backend.restoring(await load(self._around.storage, state.broadcast), all_groups):
                    await asyncio.sleep(0)
                part.files = state.broadcast
                part.must_be_full = self._deploy.full
        return part

    def _refuse_unclaimed(self, uid: str, backend: Backend) -> None:
        """Restored state that the function no longer declares is never dropped in silence."""
        unclaimed = backend.unclaimed()
        if unclaimed and not self._deploy.source.get("allow_non_restored"):
            unclaimed_names = ", ".join(map(repr, unclaimed))
            raise IncompatibleStateError(
                f"cannot restore operator '{uid}': the checkpoint holds state {unclaimed_names}, which the job "
                "no longer declares; declare it again, or pass --allow-non-restored to leave it behind"
            )

    def _writer_for(self, subtask: SubtaskId, groups: tuple[int, int]) -> WriteState:
        async def write(uid: str, frozen: Frozen) -> list[StateFile]:
            is_told = False

            def on_full(problem: str) -> None:
                nonlocal is_told
                if not is_told:
                    is_told = True
                    text = f"operator '{uid}' waits for room to write its state: {problem}"
                    self._around.report(messages.Warn(self._deploy.attempt, self._around.worker, text))

            self._sequence += 1
            kind = BASE if frozen.full else DELTA
            name = names.state_file(uid, subtask.index, self._deploy.attempt, self._sequence, kind)
            return await write_state(self._around.storage, frozen, name, groups=groups, on_full=on_full)

        return write

    def _savepoint_writer(self, subtask: SubtaskId, groups: tuple[int, int]) -> WriteSavepoint:
        async def write(uid: str, frozen: Frozen, folder: str) -> list[StateFile]:
            name = names.savepoint_state(uid, subtask.index, self._deploy.lineage, self._deploy.attempt)
            return await write_state(self._storage_at(folder), frozen, name, groups=groups)

        return write

    def _file_saver(self, subtask: SubtaskId) -> SaveFiles:
        async def save(uid: str, files: list[str], folder: str) -> list[StateFile]:
            stem = names.savepoint_output(uid, subtask.index, self._deploy.lineage, self._deploy.attempt)
            saved = []
            for path in files:
                self._sequence += 1
                saved.append(await save_file(self._storage_at(folder), path, f"{stem}.{self._sequence}"))
            return saved

        return save

    def _storage_at(self, folder: str) -> Storage:
        return FolderStorage(self._around.host.disk, self._around.host.new_id, folder)

    def _accumulating(self, spec: OperatorSpec, definition: OperatorDef, backend: Backend) -> LoopOperator:
        """A count, sum, ... whose accumulators lie in `backend`."""
        assert definition.key is not None, spec
        return LoopOperator(
            uid=spec.uid,
            kind=spec.kind,
            function=_own_copy(definition.function),
            key=_own_copy(definition.key),
            key_name=spec.key_name,
            table=backend.table(StateSpec(spec.kind.value, "value")),
            check=GroupCache(self._plan.max_parallelism).miss,
            copy=self._codec.copy,
        )

    async def _process(
        self, spec: OperatorSpec, definition: OperatorDef, subtask: SubtaskId, operators: _Operators
    ) -> Process:
        """A process function with its state restored and bound."""
        function = _own_copy(definition.function)
        keyed, access = None, None
        if spec.kind in KEYED_KINDS:
            part = self._keyed(spec, subtask)
            operators.parts.append(part)
            await self._restore(part, subtask.index)
            cell = KeyCell()
            bind(function, part.backend, cell)
            timers = TimerService(part.backend, cell)
            keyed = KeyedParts(cell, timers, GroupCache(self._plan.max_parallelism))
            self._refuse_unclaimed(spec.uid, part.backend)
        if spec.kind in CO_KINDS:
            part = await self._broadcast(spec, subtask)
            access = BroadcastAccess()
            bind_broadcast(function, part.backend, access)
            self._refuse_unclaimed(spec.uid, part.backend)
            if part.backend.schemas():
                operators.parts.append(part)
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
            watermark=self._saved_watermark(spec.uid, subtask.index),
        )

    def _ports(self, spec: OperatorSpec, definition: OperatorDef, task: int) -> tuple[Port, ...]:
        key = _own_copy(definition.key)
        if spec.kind not in CO_KINDS:
            return (Port("process", key, spec.key_name),)
        edges = self._plan.inputs(task)
        broadcast = {edge.port for edge in edges if edge.partition is Partition.BROADCAST}
        return (
            Port("process1", key, spec.key_name, is_broadcast=0 in broadcast),
            Port("process2", _own_copy(definition.second_key), spec.second_key_name, is_broadcast=1 in broadcast),
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


def _own_copy(function: Any) -> Any:
    """One copy of a user's function object per subtask (rule 21); plain functions hold no state of their own."""
    if isinstance(function, types.FunctionType | types.BuiltinFunctionType | type) or function is None:
        return function
    if not isinstance(function, types.MethodType) and not hasattr(function, "__dict__"):
        return function
    try:
        return copy.deepcopy(function)
    except Exception:  # noqa: BLE001  an object that refuses a deep copy is shared in depth, never in its own attributes
        return copy.copy(function)


async def _close_all(subtasks: Iterable[Subtask]) -> None:
    for subtask in subtasks:
        await subtask.close()
