"""The stream graph: what a job's author wrote, operator by operator, before anything is decided about it.

`api` appends operators as the author calls methods; `plan.validate` judges the graph and `plan.compile` turns it into
a `JobPlan`. `key_by` and `union` make no operator: a keyed operator carries its `KeySelector`, a union is an operator
with several inputs.

Invariants: `operators[i].index == i`; an operator's inputs have smaller indexes, so the order of creation is
topological and the graph has no cycles.

Not here: judgement (a graph may hold nonsense until it is validated), parallelism defaults, generated uids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowpoint.model.plan import OperatorKind


@dataclass(frozen=True, slots=True, eq=False)
class KeySelector:
    """The function of one `key_by`, and where in the job file it stands."""

    function: Callable[[Any], Any]
    place: str

    @property
    def name(self) -> str:
        """How messages call it, for example "key_by(user_of) at jobs.py:12"."""
        return f"key_by({function_name(self.function)}) at {self.place}"


@dataclass(frozen=True, slots=True, eq=False)
class GraphOperator:
    """One operator as its author wrote it. None means: not said.

    `function` is the callable, KeyedProcessFunction, Source or Sink; None for count, and for a sum of the records
    themselves. `inputs` are indexes of operators. `place` is "file:line" of the call that made it.
    """

    index: int
    kind: OperatorKind
    function: Any
    inputs: tuple[int, ...]
    place: str
    key: KeySelector | None = None
    uid: str | None = None
    name: str | None = None
    parallelism: int | None = None

    @property
    def label(self) -> str:
        """How messages call it, for example "map 'upper' at jobs.py:12"."""
        given = self.uid or self.name
        return f"{self.kind} {given!r} at {self.place}" if given else f"{self.kind} at {self.place}"

    @property
    def display_name(self) -> str:
        """The given name, or one made of the kind and the function's name."""
        if self.name is not None:
            return self.name
        return str(self.kind) if self.function is None else f"{self.kind}({function_name(self.function)})"


class StreamGraph:
    """The operators and key selectors of one job, in the order of their creation."""

    def __init__(self, job: str, types: Sequence[type] = ()) -> None:
        self.job = job
        self.types = tuple(types)
        self.operators: list[GraphOperator] = []
        self.keys: list[KeySelector] = []

    def add(
        self,
        kind: OperatorKind,
        function: Any,
        inputs: tuple[int, ...] = (),
        *,
        place: str,
        key: KeySelector | None = None,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> int:
        """Append an operator and return its index."""
        index = len(self.operators)
        self.operators.append(GraphOperator(index, kind, function, inputs, place, key, uid, name, parallelism))
        return index

    def add_key(self, function: Callable[[Any], Any], place: str) -> KeySelector:
        """Remember a `key_by`; the keyed operators after it carry what this returns."""
        key = KeySelector(function, place)
        self.keys.append(key)
        return key


def function_name(function: object) -> str:
    """A short name of a function or object, without addresses: the same in every process.

    Example:
        >>> function_name(str.split), function_name(partial(int, base=2)), function_name([])
        ('split', 'int', 'list')
    """
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__
