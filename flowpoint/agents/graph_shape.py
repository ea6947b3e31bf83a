"""What the code of an agent expects of its stored state: channels and their types, nodes and what triggers them.

Taken from the uncompiled StateGraph, and from the compiled graphs among its nodes, each under its path (`sub|inner`).

Invariant: reads the builder, changes nothing.
Not here: comparing with what is stored (`schema.py`), whether a value fits a type (`fits.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from langgraph.channels import AnyValue, BinaryOperatorAggregate, DeltaChannel, EphemeralValue, LastValue

__all__ = ["BRANCH", "JOIN", "GraphShape", "is_internal", "join_parts", "shapes_of"]

BRANCH: Final = "branch:to:"
JOIN: Final = "join:"

# What these store is a value of their type; other channels store more (a pair, a set of names) or nothing.
_KEPT: Final = (AnyValue, EphemeralValue, LastValue)
_TYPED: Final = (*_KEPT, BinaryOperatorAggregate, DeltaChannel)


def is_internal(channel: str) -> bool:
    """Whether a channel is the framework's own, not a key of the state."""
    return channel.startswith((BRANCH, JOIN, "__"))


def join_parts(channel: str) -> tuple[list[str], str] | None:
    """The nodes that a joining edge waits for, and the one it leads to; None if the channel is none."""
    if not channel.startswith(JOIN):
        return None
    starts, _, end = channel[len(JOIN) :].rpartition(":")
    return starts.split("+"), end


@dataclass(frozen=True, slots=True)
class GraphShape:
    """One graph.

    types: the annotations of those channels that hold what their annotation says.
    kept: those of them that hold what was written last, as it was written.
    is_lax: the state is a pydantic model, which converts values when a node reads them.
    triggers: for each node, the channels that trigger it, in the framework's order.
    handlers: for nodes that have one, the node that handles their errors.
    readers: the nodes whose input is the state itself, not a schema of their own.
    """

    channels: frozenset[str]
    types: dict[str, Any]
    kept: frozenset[str]
    is_lax: bool
    nodes: frozenset[str]
    triggers: dict[str, tuple[str, ...]]
    handlers: dict[str, str]
    readers: frozenset[str]


def shapes_of(builder: Any) -> dict[str, GraphShape]:
    """The shape of a StateGraph under "", and those of its sub-graphs under their paths."""
    return dict(_shapes(getattr(builder, "builder", builder), ""))


def _shapes(builder: Any, path: str) -> Iterator[tuple[str, GraphShape]]:
    yield path, _shape(builder)
    for name, spec in builder.nodes.items():
        below = getattr(spec.runnable, "builder", None)
        if below is not None:
            yield from _shapes(below, f"{path}|{name}" if path else name)


def _shape(builder: Any) -> GraphShape:
    triggers = {name: [f"{BRANCH}{name}"] for name in builder.nodes}
    for starts, end in builder.waiting_edges:
        if end in triggers:
            triggers[end].append(f"{JOIN}{'+'.join(starts)}:{end}")
    return GraphShape(
        channels=frozenset(builder.channels),
        types={name: channel.ValueType for name, channel in builder.channels.items() if isinstance(channel, _TYPED)},
        kept=frozenset(name for name, channel in builder.channels.items() if isinstance(channel, _KEPT)),
        is_lax=hasattr(builder.state_schema, "__pydantic_core_schema__"),
        nodes=frozenset(builder.nodes),
        triggers={name: tuple(sorted(channels)) for name, channels in triggers.items()},
        handlers={name: spec.error_handler_node for name, spec in builder.nodes.items() if spec.error_handler_node},
        readers=frozenset(name for name, spec in builder.nodes.items() if spec.input_schema is builder.state_schema),
    )
