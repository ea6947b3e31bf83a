"""The channels of the subtasks of one worker: what each reads from, and where its records go.

Channels are declared with the exchange before any link of a peer is let in. A hash edge is dealt out by the key of its
receiver; where it is the only edge of a subtask, the pipeline's last loop does that itself.

Not here: the operators between inputs and outputs (`assembly`), and what a channel is (`transport`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec
from flowpoint.model.plan import EdgeSpec, JobPlan, OperatorSpec, Partition, SubtaskId
from flowpoint.model.settings import Settings
from flowpoint.runtime.chain import HashEmit
from flowpoint.runtime.channel_state import KeyGroups
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.outputs import EdgeOutput, Outputs, Routes
from flowpoint.runtime.own_copy import own_copy
from flowpoint.runtime.processing_subtask import Channel
from flowpoint.transport.exchange import Exchange


class Wiring:
    """Makes inputs and outputs. `worker_of`: where every subtask of the plan runs."""

    def __init__(
        self,
        plan: JobPlan,
        settings: Settings,
        worker_of: Mapping[SubtaskId, int],
        functions: Mapping[str, OperatorDef],
        exchange: Exchange,
        codec: Codec,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._worker_of = worker_of
        self._functions = functions
        self._exchange = exchange
        self._codec = codec

    def gate(self, subtask: SubtaskId, wake: Callable[[], None]) -> tuple[InputGate, list[Channel]]:
        """What a subtask reads from, and what is known of each channel."""
        inboxes, channels = [], []
        for edge in self._plan.inputs(subtask.task):
            for source in self._sources_of(edge, subtask.index):
                worker = self._worker_of[SubtaskId(edge.source, source)]
                inboxes.append(self._exchange.inbox(edge.index, source, subtask.index, worker))
                channels.append(self._channel(edge))
        return InputGate(inboxes, wake), channels

    def outputs(self, subtask: SubtaskId, wake: Callable[[], None]) -> tuple[Outputs, HashEmit | None]:
        """The outputs, and what the pipeline's last loop needs to deal records out itself (one hash edge only)."""
        edges = self._plan.outputs(subtask.task)
        sender = self._plan.tasks[subtask.task].operators[-1]
        outputs: list[EdgeOutput] = []
        fused: HashEmit | None = None
        for edge in edges:
            outlets = [
                self._exchange.outlet(
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

    def _sources_of(self, edge: EdgeSpec, target: int) -> list[int]:
        if edge.partition is Partition.FORWARD:
            return [target]
        return list(range(self._plan.tasks[edge.source].parallelism))

    def _targets_of(self, edge: EdgeSpec, source: int) -> list[int]:
        if edge.partition is Partition.FORWARD:
            return [source]
        return list(range(self._plan.tasks[edge.target].parallelism))

    def _channel(self, edge: EdgeSpec) -> Channel:
        """What is known of a channel. Records of forward and broadcast edges cannot be dealt out anew."""
        may_be_overtaken = edge.partition in (Partition.HASH, Partition.REBALANCE)
        if edge.partition is not Partition.HASH or not self._settings.checkpoint.may_overtake:
            return Channel(edge.port, edge.timed, may_be_overtaken)
        spec, key, _ = self._receiver_key(edge)
        groups = KeyGroups(spec.uid, own_copy(key), GroupCache(self._plan.max_parallelism))
        return Channel(edge.port, edge.timed, may_be_overtaken, groups)

    def _hash_emit(self, edge: EdgeSpec) -> HashEmit:
        target = self._plan.tasks[edge.target]
        spec, key, key_name = self._receiver_key(edge)
        routes = Routes(target.parallelism, self._plan.max_parallelism)
        buffers: list[list[Any]] = [[] for _ in range(target.parallelism)]
        return HashEmit(spec.uid, own_copy(key), key_name, routes.targets, routes.miss, buffers)

    def _receiver_key(self, edge: EdgeSpec) -> tuple[OperatorSpec, Callable[[Any], Any], str]:
        """The operator behind a hash edge, the key that it takes these records by, and how messages call that."""
        spec = self._plan.operator(self._plan.tasks[edge.target].operators[0])
        definition = self._functions[spec.uid]
        key, key_name = definition.key, spec.key_name
        if edge.port:
            key, key_name = definition.second_key, spec.second_key_name
        assert key is not None, f"operator {spec.uid} is behind a hash edge and has no key"
        return spec, key, key_name
