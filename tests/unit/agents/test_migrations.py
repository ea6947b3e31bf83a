"""Each step moves everything a checkpoint has of a channel or node, whatever form it has there."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.serde.types import TASKS, _DeltaSnapshot
from langgraph.types import Overwrite, Send

from flowpoint.agents.migrations import Add, Convert, Drop, Rename, RenameNode
from flowpoint.agents.stored import PendingWrite, Stored


def stored(**parts: Any) -> Stored:
    """A checkpoint in which everything mentions channel `a` and node `n`."""
    fields: dict[str, Any] = {
        "version": 1,
        "thread": "t",
        "checkpoint_id": "c",
        "checkpoint_ns": "",
        "channels": {"a": 1, "branch:to:n": None, "join:m+n:end": {"n"}, TASKS: [Send("n", 1), Send("m", 2)]},
        "channel_versions": {"a": 1, "branch:to:n": 2, "join:m+n:end": 2, "join:n+m:n": 1},
        "versions_seen": {
            "n": {"a": 1, "branch:to:n": 1},
            "__interrupt__": {"a": 1},
            "__snapshot_bumps__": {"n": {"a": [2, 1]}},
        },
        "metadata": {"step": 1, "counters_since_delta_snapshot": {"a": (1, 2)}},
        "pending_writes": [
            PendingWrite("1", "", "a", 5),
            PendingWrite("1", "", "branch:to:n", None),
            PendingWrite("1", "", "join:m+n:end", "n"),
            PendingWrite("1", "", TASKS, Send("n", 3)),
            PendingWrite("1", "", "__error_source_node__", "n"),
        ],
        "updated_channels": ["a", "branch:to:n"],
    }
    return Stored(**{**fields, **parts})


def mentions(value: Any, name: str) -> bool:
    """Whether a name stands anywhere: as a key, a value, a part of a channel, the node of a Send."""
    if isinstance(value, dict):
        return any(mentions(part, name) for item in value.items() for part in item)
    if isinstance(value, (list, tuple, set)):
        return any(mentions(part, name) for part in value)
    if isinstance(value, Send):
        return value.node == name
    return isinstance(value, str) and name in value.replace("+", ":").split(":")


def everything(checkpoint: Stored) -> list[Any]:
    return [getattr(checkpoint, name) for name in Stored.__slots__]


def test_rename_leaves_no_trace_of_the_old_name() -> None:
    checkpoint = stored()
    Rename("a", "b").apply(checkpoint)
    assert not mentions(everything(checkpoint), "a")
    assert checkpoint.channels["b"] == 1 and checkpoint.channel_versions["b"] == 1
    assert checkpoint.versions_seen["__snapshot_bumps__"] == {"n": {"b": [2, 1]}}
    assert checkpoint.metadata["counters_since_delta_snapshot"] == {"b": (1, 2)}
    assert checkpoint.pending_writes[0] == PendingWrite("1", "", "b", 5) and checkpoint.updated_channels == [
        "b",
        "branch:to:n",
    ]


def test_drop_leaves_no_trace() -> None:
    checkpoint = stored()
    Drop("a").apply(checkpoint)
    assert not mentions(everything(checkpoint), "a") and len(checkpoint.pending_writes) == 4


def test_rename_node_leaves_no_trace_of_the_old_name() -> None:
    checkpoint = stored()
    RenameNode("n", "k").apply(checkpoint)
    assert not mentions(everything(checkpoint), "n")
    assert checkpoint.channels == {
        "a": 1,
        "branch:to:k": None,
        "join:m+k:end": {"k"},
        TASKS: [Send("k", 1), Send("m", 2)],
    }
    assert set(checkpoint.channel_versions) == {"a", "branch:to:k", "join:m+k:end", "join:k+m:k"}
    assert [write.value for write in checkpoint.pending_writes] == [5, None, "k", Send("k", 3), "k"]


def test_a_deferred_join_is_a_set_and_a_flag() -> None:
    checkpoint = stored(channels={"join:m+n:end": ({"n", "m"}, False)})
    RenameNode("n", "k").apply(checkpoint)
    assert checkpoint.channels == {"join:m+k:end": ({"k", "m"}, False)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, "1"), (_DeltaSnapshot(1), _DeltaSnapshot("1")), (Overwrite(1), Overwrite("1")),
        ({"__overwrite__": 1}, {"__overwrite__": "1"}),
    ],
    ids=repr,
)  # fmt: skip
def test_convert_looks_inside_what_the_framework_wraps_around_a_value(before: Any, after: Any) -> None:
    checkpoint = stored(channels={"a": before}, pending_writes=[PendingWrite("1", "", "a", before)])
    Convert("a", str).apply(checkpoint)
    assert checkpoint.channels["a"] == after and checkpoint.pending_writes[0].value == after


def test_convert_may_treat_what_nodes_write_differently() -> None:
    checkpoint = stored(channels={"a": [1], "__start__": {"a": 2}}, pending_writes=[PendingWrite("1", "", "a", 3)])
    Convert("a", lambda values: [str(value) for value in values], update=str).apply(checkpoint)
    assert checkpoint.channels == {"a": ["1"], "__start__": {"a": "2"}} and checkpoint.pending_writes[0].value == "3"


def test_add_keeps_a_value_that_is_there_and_shares_no_default() -> None:
    step = Add("a", 9)
    checkpoint = stored()
    step.apply(checkpoint)
    assert checkpoint.channels["a"] == 1
    step = Add("new", [])
    step.apply(checkpoint)
    checkpoint.channels["new"].append(1)
    assert step.default == [] and checkpoint.channel_versions["new"] == 2


@pytest.mark.parametrize("step", [Rename("x", "y"), RenameNode("x", "y"), Drop("x"), Convert("x", str)], ids=repr)
def test_a_step_about_something_else_changes_nothing(step: Any) -> None:
    checkpoint = stored()
    step.apply(checkpoint)
    assert everything(checkpoint) == everything(stored())
