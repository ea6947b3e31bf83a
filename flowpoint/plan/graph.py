"""The stream graph: what a job's author wrote, operator by operator, before anything is decided about it.

`api` appends operators as the author calls methods; `plan.validate` judges the graph and `plan.compile` turns it into
a `JobPlan`. `key_by`, `union`, `rebalance`, `broadcast` and `side_output` make no operator: a keyed operator carries
its `KeySelector`, and what feeds an operator are `Link`s, which say how records come and which of them.

Invariants: `operators[i].index == i`; an operator's inputs have smaller indexes, so the order of creation is
topological and the graph has no cycles.

Not here: judgement (a graph may hold nonsense until it is validated), parallelism defaults, generated uids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flowpoint.model.plan import OperatorKind, Partition


@dataclass(frozen=True, slots=True, eq=False)
class KeySelector:
    """The function of one `key_by`, and where in the job file it stands."""

    function: Callable[[Any], Any]
    place: str

    @property
    def name(self) -> str:
        """How messages call it, for example "key_by(user_of) at jobs.py:12"."""
        return f"key_by({function_name(self.function)}) at {self.place}"


@dataclass(frozen=True, slots=True)
class Link:
    """One stream that flows into an operator.

    source: index of the operator it comes from. partition: REBALANCE or BROADCAST where the author asked for it.
    tag: of the side output that it is ("": the main output). port: which input it feeds, of an operator that has two.
    """

    source: int
    partition: Partition | None = None
    tag: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GraphOperator:
    """One operator as its author wrote it. None means: not said.

    `function` is the callable, process function, Source or Sink; None for count, and for a sum, min or max of the
    records themselves. `place` is "file:line" of the call that made it. `second_key` is the key of a second input.
    """

    index: int
    kind: OperatorKind
    function: Any
    links: tuple[Link, ...]
    place: str
    key: KeySelector | None = None
    second_key: KeySelector | None = None
    uid: str | None = None
    name: str | None = None
    parallelism: int | None = None

    @property
    def inputs(self) -> tuple[int, ...]:
        """The indexes of the operators that feed it."""
        return tuple(link.source for link in self.links)

    def key_of(self, port: int) -> KeySelector | None:
        """The key of an input."""
        return self.second_key if port else self.key

    @property
    def label(self) -> str:
        """How messages call it, for example "map 'upper' at jobs.py:12"."""
        given = self.uid or self.name
        method = self.kind.method
        return f"{method} {given!r} at {self.place}" if given else f"{method} at {self.place}"

    @property
    def display_name(self) -> str:
        """The given name, or one made of the kind and the function's name."""
        if self.name is not None:
            return self.name
        method = self.kind.method
        return method if self.function is None else f"{method}({function_name(self.function)})"


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
        inputs: Iterable[int | Link] = (),
        *,
        place: str,
        key: KeySelector | None = None,
        second_key: KeySelector | None = None,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> int:
        """Append an operator and return its index. An input that is a bare index is a plain link."""
        index = len(self.operators)
        links = tuple(each if isinstance(each, Link) else Link(each) for each in inputs)
        self.operators.append(
            GraphOperator(index, kind, function, links, place, key, second_key, uid, name, parallelism)
        )
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
