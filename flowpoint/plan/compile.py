"""Turns a stream graph into a job plan: parallelism, uids, chains, edges, fingerprint.

An operator joins the task of its upstream when it has exactly one input, the upstream has no other consumer (not even
of a side output), both have the same parallelism, and the records need not move: no key, rebalance or broadcast between
them, or a key and both run once. All other links become edges between tasks: HASH before a keyed operator, what the
author asked for, FORWARD at equal parallelism, REBALANCE otherwise.

Invariants:
- The plan depends on the graph and the two numbers only: every process that compiles the same job file gets the same
  fingerprint. Nothing in it comes from addresses, hashes or the order of sets.
- Tasks are in topological order, sources first; `tasks[i].index == i`, `edges[i].index == i`.
- Edges leave the last operator of a task and enter the first.

Not here: judging the graph (`plan.validate`), placing subtasks on workers (`coordinator`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, replace

from flowpoint.model.event_time import TimestampAssignment
from flowpoint.model.plan import (
    KEYED_KINDS,
    PROCESS_KINDS,
    EdgeSpec,
    JobPlan,
    OperatorKind,
    OperatorSpec,
    Partition,
    TaskSpec,
)
from flowpoint.plan.forgotten import forgotten_returns
from flowpoint.plan.graph import GraphOperator, Link, StreamGraph
from flowpoint.plan.record_types import record_types_of
from flowpoint.plan.validate import validate
from flowpoint.runtime.connector_forms import full_sink
from flowpoint.runtime.contracts import OperatorDef

STATEFUL_KINDS = KEYED_KINDS | PROCESS_KINDS | {OperatorKind.SOURCE, OperatorKind.SINK, OperatorKind.ASSIGN_TIMESTAMPS}

Chain = list[GraphOperator]


@dataclass(frozen=True, slots=True)
class CompiledJob:
    """A plan, the objects that belong to it in this process (by uid), and what its author should be told."""

    plan: JobPlan
    operators: dict[str, OperatorDef]
    warnings: tuple[str, ...]


def compile_graph(
    graph: StreamGraph, parallelism: int, max_parallelism: int, *, name: str | None = None
) -> CompiledJob:
    """Compile a job.

    Args:
        graph: What the author wrote.
        parallelism: For operators that say nothing.
        max_parallelism: The number of key groups.
        name: The job's name when it is not the graph's (`run --name`).

    Raises:
        PlanError: The graph is wrong; see `plan.validate`.
    """
    if name is not None:
        graph = _renamed(graph, name)
    validate(graph, parallelism, max_parallelism)
    uids = _assign_uids(graph)
    parallelisms = [operator.parallelism or parallelism for operator in graph.operators]
    chains = _chain(graph, parallelisms)
    timed = _timed(graph)
    plan = JobPlan(
        job=graph.job,
        max_parallelism=max_parallelism,
        operators=tuple(_spec(operator, uids, parallelisms) for operator in graph.operators),
        tasks=tuple(
            TaskSpec(index, tuple(uids[operator.index] for operator in chain), parallelisms[chain[0].index])
            for index, chain in enumerate(chains)
        ),
        edges=_edges(chains, parallelisms, timed),
        fingerprint="",
    )
    return CompiledJob(
        plan=replace(plan, fingerprint=_fingerprint(plan)),
        operators={uid: _definition(graph, operator, uid) for operator, uid in zip(graph.operators, uids, strict=True)},
        warnings=(*_warnings(graph, uids), *forgotten_returns(graph)),
    )


def _renamed(graph: StreamGraph, name: str) -> StreamGraph:
    renamed = StreamGraph(name, graph.types)
    renamed.operators = graph.operators
    renamed.keys = graph.keys
    return renamed


def _assign_uids(graph: StreamGraph) -> list[str]:
    """Given uids, and "map-3" for the third operator, if nobody took that; by operator index."""
    taken = {operator.uid.casefold() for operator in graph.operators if operator.uid is not None}
    uids = []
    for operator in graph.operators:
        uid = operator.uid
        if uid is None:
            uid = f"{operator.kind}-{operator.index + 1}"
            while uid in taken:
                uid += "-generated"
            taken.add(uid)
        uids.append(uid)
    return uids


def _chain(graph: StreamGraph, parallelisms: list[int]) -> list[Chain]:
    """The operators of each task. Ordered by first operator, which is topological: inputs have smaller indexes."""
    consumers = Counter(source for operator in graph.operators for source in operator.inputs)
    chain_of: list[Chain] = []
    for operator in graph.operators:
        if _joins_upstream(operator, consumers, parallelisms):
            chain = chain_of[operator.inputs[0]]
            chain.append(operator)
        else:
            chain = [operator]
        chain_of.append(chain)
    chains = [chain for operator, chain in zip(graph.operators, chain_of, strict=True) if chain[0] is operator]
    return sorted(chains, key=lambda chain: chain[0].kind is not OperatorKind.SOURCE)


def _joins_upstream(operator: GraphOperator, consumers: Counter[int], parallelisms: list[int]) -> bool:
    if len(operator.links) != 1:
        return False
    link = operator.links[0]
    here = parallelisms[operator.index]
    stays = link.partition is None and not link.tag and (operator.key is None or here == 1)
    return stays and here == parallelisms[link.source] and consumers[link.source] == 1


def _timed(graph: StreamGraph) -> list[bool]:
    """Whether the records that an operator emits have timestamps, by operator index."""
    timed: list[bool] = []
    for operator in graph.operators:
        timed.append(
            operator.kind is OperatorKind.ASSIGN_TIMESTAMPS or any(timed[source] for source in operator.inputs)
        )
    return timed


def _edges(chains: list[Chain], parallelisms: list[int], timed: list[bool]) -> tuple[EdgeSpec, ...]:
    task_of = {chain[-1].index: task for task, chain in enumerate(chains)}
    links = [(link, target, chain[0]) for target, chain in enumerate(chains) for link in chain[0].links]
    return tuple(
        EdgeSpec(
            index=index,
            source=task_of[link.source],
            target=target,
            partition=_partition(operator, link, parallelisms),
            port=link.port,
            tag=link.tag,
            timed=timed[link.source],
        )
        for index, (link, target, operator) in enumerate(links)
    )


def _partition(operator: GraphOperator, link: Link, parallelisms: list[int]) -> Partition:
    if operator.key_of(link.port) is not None:
        return Partition.HASH
    if link.partition is not None:
        return link.partition
    return Partition.FORWARD if parallelisms[operator.index] == parallelisms[link.source] else Partition.REBALANCE


def _spec(operator: GraphOperator, uids: list[str], parallelisms: list[int]) -> OperatorSpec:
    return OperatorSpec(
        uid=uids[operator.index],
        name=operator.display_name,
        kind=operator.kind,
        parallelism=parallelisms[operator.index],
        uid_is_generated=operator.uid is None,
        key_name=operator.key.name if operator.key is not None else "",
        second_key_name=operator.second_key.name if operator.second_key is not None else "",
    )


def _definition(graph: StreamGraph, operator: GraphOperator, uid: str) -> OperatorDef:
    key = operator.key.function if operator.key is not None else None
    second_key = operator.second_key.function if operator.second_key is not None else None
    function = operator.function
    asked = function.function if isinstance(function, TimestampAssignment) else function
    mentioned = record_types_of([asked, key, second_key])
    return OperatorDef(
        uid=uid,
        kind=operator.kind,
        function=full_sink(function) if operator.kind is OperatorKind.SINK else function,
        key=key,
        second_key=second_key,
        types=tuple(dict.fromkeys((*graph.types, *mentioned))),
    )


def _fingerprint(plan: JobPlan) -> str:
    data = plan.to_data()
    del data["fingerprint"]
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _warnings(graph: StreamGraph, uids: list[str]) -> tuple[str, ...]:
    """One sentence about all operators that should have a uid and have none."""
    bare = [operator for operator in graph.operators if operator.uid is None and operator.kind in STATEFUL_KINDS]
    if not bare:
        return ()
    called = ", ".join(f"{operator.label} ({uids[operator.index]!r})" for operator in bare)
    return (
        f"give these operators a uid=..., or their state is not found again once others are added or removed: {called}",
    )
