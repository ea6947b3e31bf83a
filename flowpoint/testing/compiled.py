"""A function compiled as the only operator of a job, so that a test meets what the compiler would say of it.

Not here: running it (`operator.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from flowpoint.model.path_names import is_path_name
from flowpoint.model.plan import OperatorKind, Partition
from flowpoint.plan.compile import compile_graph
from flowpoint.plan.graph import Link, StreamGraph
from flowpoint.runtime.contracts import OperatorDef
from flowpoint.runtime.operators.calls import Port

MAX_PARALLELISM: Final = 128

_PLACE: Final = "the test"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a function: the key of its records, if they have one, or that it is a broadcast stream."""

    key: Callable[[Any], Any] | None = None
    is_broadcast: bool = False


class _Ends:
    """Stands where a source and a sink would be, and has what the compiler looks for. Nobody calls it."""

    splits = open = begin = commit = abort = clean = can_take_back = True


def compiled(function: object, inputs: tuple[Input, ...], types: Iterable[type]) -> OperatorDef:
    """The function as the runtime gets it.

    Raises:
        PlanError: a job could not have it as an operator with these inputs.
    """
    graph = StreamGraph("test", tuple(types))
    sources = [graph.add(OperatorKind.SOURCE, _Ends(), place=_PLACE, uid=f"input{port}") for port in range(len(inputs))]
    links = [
        Link(source, Partition.BROADCAST if one.is_broadcast else None, port=port)
        for port, (source, one) in enumerate(zip(sources, inputs, strict=True))
    ]
    keys = [None if one.key is None else graph.add_key(one.key, _PLACE) for one in inputs]
    uid = type(function).__name__ if is_path_name(type(function).__name__) else "function"
    operator = graph.add(
        _kind(inputs), function, links, place=_PLACE, uid=uid, key=keys[0], second_key=keys[1] if keys[1:] else None
    )
    graph.add(OperatorKind.SINK, _Ends(), (operator,), place=_PLACE, uid="output")
    return compile_graph(graph, 1, MAX_PARALLELISM).operators[uid]


def _kind(inputs: tuple[Input, ...]) -> OperatorKind:
    is_keyed = any(one.key is not None for one in inputs)
    if len(inputs) == 1:
        return OperatorKind.PROCESS if is_keyed else OperatorKind.PLAIN_PROCESS
    return OperatorKind.CO_PROCESS if is_keyed else OperatorKind.PLAIN_CO_PROCESS


def ports(inputs: tuple[Input, ...]) -> tuple[Port, ...]:
    """The methods that take the records of each input."""
    names = ("process",) if len(inputs) == 1 else ("process1", "process2")
    return tuple(
        Port(name, one.key, "the key function", one.is_broadcast) for name, one in zip(names, inputs, strict=True)
    )
