"""The job plan: what the coordinator deploys and what every worker must agree on. Plain frozen data.

An operator is what the user wrote and has a uid. A task is a chain of operators run as one loop. A subtask is one
parallel instance of a task. Edges connect tasks. User functions are *not* in the plan: each process takes them from
the job file it executed itself (`runtime.contracts.OperatorDef`), and the fingerprint proves that both mean the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class OperatorKind(StrEnum):
    """What an operator does."""

    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    REDUCE = "reduce"
    AGGREGATE = "aggregate"
    PROCESS = "process"
    PLAIN_PROCESS = "plain_process"
    CO_PROCESS = "co_process"
    PLAIN_CO_PROCESS = "plain_co_process"
    ASSIGN_TIMESTAMPS = "assign_timestamps"
    SINK = "sink"

    @property
    def method(self) -> str:
        """What an author has called to make one, for messages."""
        return "process" if self in PROCESS_KINDS else self.value


KEYED_KINDS = frozenset(
    {
        OperatorKind.COUNT,
        OperatorKind.SUM,
        OperatorKind.MIN,
        OperatorKind.MAX,
        OperatorKind.REDUCE,
        OperatorKind.AGGREGATE,
        OperatorKind.PROCESS,
        OperatorKind.CO_PROCESS,
    }
)
"""They keep state per key."""

CO_KINDS = frozenset({OperatorKind.CO_PROCESS, OperatorKind.PLAIN_CO_PROCESS})
"""They have two inputs, and may keep broadcast state when one of them is a broadcast stream."""

PROCESS_KINDS = CO_KINDS | {OperatorKind.PROCESS, OperatorKind.PLAIN_PROCESS}
"""They see watermarks and may emit side outputs."""


class Partition(StrEnum):
    """How an edge deals records out to the subtasks of its target."""

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"


class SubtaskId(NamedTuple):
    """One parallel instance of a task: (index of the task in the plan, index of the instance)."""

    task: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator.

    key_name: how messages call the `key_by` before a keyed operator ("" otherwise). second_key_name: the same of the
    second input of an operator that has two.
    """

    uid: str
    name: str
    kind: OperatorKind
    parallelism: int
    uid_is_generated: bool = False
    key_name: str = ""
    second_key_name: str = ""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A chain of operators, first to last, by uid."""

    index: int
    operators: tuple[str, ...]
    parallelism: int


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """Records of task `source` go to task `target`. For HASH the key is that of the target's first operator.

    port: which input of the target it feeds, 0 or 1 (an operator with two inputs has a key for each).
    tag: of the side output that it carries; "" is the main output.
    timed: whether its records have timestamps, so that watermarks come with them.
    """

    index: int
    source: int
    target: int
    partition: Partition
    port: int = 0
    tag: str = ""
    timed: bool = False


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The whole job. `tasks[i].index == i`, `edges[i].index == i`; tasks are in topological order, sources first."""

    job: str
    max_parallelism: int
    operators: tuple[OperatorSpec, ...]
    tasks: tuple[TaskSpec, ...]
    edges: tuple[EdgeSpec, ...]
    fingerprint: str
    _by_uid: dict[str, OperatorSpec] = field(init=False, repr=False, compare=False, hash=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_uid.update((spec.uid, spec) for spec in self.operators)

    def operator(self, uid: str) -> OperatorSpec:
        """The operator with this uid; KeyError when there is none."""
        return self._by_uid[uid]

    def task_of(self, uid: str) -> TaskSpec:
        """The task in whose chain the operator is."""
        return next(task for task in self.tasks if uid in task.operators)

    def subtasks(self) -> list[SubtaskId]:
        """All subtasks, task by task."""
        return [SubtaskId(task.index, i) for task in self.tasks for i in range(task.parallelism)]

    def called(self, subtask: SubtaskId) -> str:
        """A subtask as a person knows it: the uids of its chain and its index, "counts+out#1"."""
        return f"{'+'.join(self.tasks[subtask.task].operators)}#{subtask.index}"

    def inputs(self, task: int) -> list[EdgeSpec]:
        """The edges into a task, by edge index."""
        return [edge for edge in self.edges if edge.target == task]

    def outputs(self, task: int) -> list[EdgeSpec]:
        """The edges out of a task, by edge index."""
        return [edge for edge in self.edges if edge.source == task]

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data, for messages and manifests."""
        data = asdict(self)
        del data["_by_uid"]
        return data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> JobPlan:
        """The reverse of `to_data`; also takes tuples that came back as lists."""
        return cls(
            job=data["job"],
            max_parallelism=data["max_parallelism"],
            operators=tuple(OperatorSpec(**{**o, "kind": OperatorKind(o["kind"])}) for o in data["operators"]),
            tasks=tuple(TaskSpec(t["index"], tuple(t["operators"]), t["parallelism"]) for t in data["tasks"]),
            edges=tuple(EdgeSpec(**{**e, "partition": Partition(e["partition"])}) for e in data["edges"]),
            fingerprint=data["fingerprint"],
        )
