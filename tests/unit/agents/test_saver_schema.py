"""A deployment changes the state of stored threads: what comes back, what is refused, what is carried along."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from flowpoint.agents.conflicts import Event
from flowpoint.agents.migrations import Add, Convert, Drop, Rename, RenameNode
from flowpoint.agents.schema import Schema
from flowpoint.errors import SchemaError
from tests.unit.agents.stores import SAVERS, open_saver

CONFIG: Any = {"configurable": {"thread_id": "t"}}
each_saver = pytest.mark.parametrize("kind", SAVERS)


def deployed(state: Any, *nodes: str, **writes: Any) -> StateGraph:
    """A graph of nodes in a row; the first writes these values."""
    builder = StateGraph(state)
    for name, before in zip(nodes, [START, *nodes], strict=False):
        builder.add_node(name, lambda state, name=name: writes if name == nodes[0] else {"a": name})
        builder.add_edge(before, name)
    return builder


class A(TypedDict, total=False):
    a: str


class AB(A, total=False):
    b: int


class A2(TypedDict, total=False):
    a2: str


class Note(A, total=False):
    note: str


@each_saver
def test_a_channel_that_older_code_does_not_know_outlives_its_runs(kind: str, tmp_path: Path) -> None:
    events: list[Event] = []
    new, old = deployed(AB, "n", a="v", b=7), deployed(A, "n", a="w")
    with open_saver(kind, tmp_path) as saver:
        new.compile(checkpointer=saver).invoke({}, CONFIG)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1), on_event=events.append) as saver:
        for _ in range(2):
            old.compile(checkpointer=saver).invoke({}, CONFIG)
    with open_saver(kind, tmp_path) as saver:
        assert new.compile(checkpointer=saver).get_state(CONFIG).values == {"a": "w", "b": 7}
    assert [event.text for event in events if "'b'" in event.text] == [
        "channel 'b' is not in the code; it is carried along as it is (a migration may Rename or Drop it)"
    ]


@each_saver
def test_a_renamed_channel_keeps_its_value_with_a_migration_and_is_carried_along_without(
    kind: str, tmp_path: Path
) -> None:
    old, new = deployed(A, "n", a="v"), deployed(A2, "n", a2="w")
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver).invoke({}, CONFIG)
    with open_saver(kind, tmp_path) as saver:
        assert new.compile(checkpointer=saver).get_state(CONFIG).values == {}

    schema = Schema.of(new, version=2, migrations={1: [Rename("a", "a2")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver)
        assert graph.get_state(CONFIG).values == {"a2": "v"}
        assert graph.invoke({}, CONFIG) == {"a2": "w"}
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"] == {"a2": "w"}

    with (
        open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver,
        pytest.raises(SchemaError, match="newer code"),
    ):
        saver.get_tuple(CONFIG)


@each_saver
def test_a_changed_type_is_an_error_before_any_node_runs_or_converted(kind: str, tmp_path: Path) -> None:
    class Number(TypedDict):
        a: Annotated[int, operator.add]

    old, new = deployed(A, "n", a="5"), deployed(Number, "n", a=1)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver).invoke({}, CONFIG)
    with open_saver(kind, tmp_path, schema=Schema.of(new, version=1)) as saver, pytest.raises(SchemaError, match="'a'"):
        new.compile(checkpointer=saver).invoke({}, CONFIG)
    schema = Schema.of(new, version=2, migrations={1: [Convert("a", int)]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        assert new.compile(checkpointer=saver).invoke({}, CONFIG) == {"a": 6}


@each_saver
def test_a_removed_key_does_not_hold_a_run_up_for_ever(kind: str, tmp_path: Path) -> None:
    old, new = deployed(Note, "first", "last", a="1", note="n"), deployed(A, "first", "last", a="1")
    with open_saver(kind, tmp_path) as saver:
        old.compile(checkpointer=saver, interrupt_before=["last"]).invoke({}, CONFIG)
    schema = Schema.of(new, version=2, migrations={1: [Drop("note")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver, interrupt_before=["last"])
        graph.invoke(None, CONFIG)
        assert graph.get_state(CONFIG).next == ()
        assert graph.get_state(CONFIG).values == {"a": "last"}


@each_saver
def test_a_pending_node_that_is_gone_is_refused_by_name_or_renamed(kind: str, tmp_path: Path) -> None:
    old, new = deployed(A, "n1", "n2", a="1"), deployed(A, "n1", "n2new", a="1")
    with open_saver(kind, tmp_path) as saver:
        old.compile(checkpointer=saver, interrupt_before=["n2"]).invoke({}, CONFIG)
    with (
        open_saver(kind, tmp_path, schema=Schema.of(new, version=1)) as saver,
        pytest.raises(SchemaError, match="'n2'"),
    ):
        new.compile(checkpointer=saver).invoke(None, CONFIG)
    schema = Schema.of(new, version=2, migrations={1: [RenameNode("n2", "n2new")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver)
        assert graph.get_state(CONFIG).next == ("n2new",)
        assert graph.invoke(None, CONFIG) == {"a": "n2new"}
        assert [one.next for one in graph.get_state_history(CONFIG)][:2] == [(), ("n2new",)]


@each_saver
def test_what_new_code_writes_for_an_old_checkpoint_is_not_migrated(kind: str, tmp_path: Path) -> None:
    def halved(value: int) -> int:
        return value // 2

    class Number(TypedDict, total=False):
        a: int

    old = deployed(Number, "n1", "n2", a=8)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver, interrupt_before=["n2"]).invoke({}, CONFIG)
        at = saver.get_tuple(CONFIG)
        saver.put_writes(at.config, [("a", 100)], "old task")
    schema = Schema.of(old, version=2, migrations={1: [Convert("a", halved), Add("b", default=0)][:1]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        saver.put_writes(at.config, [("a", 100)], "new task")
        found = saver.get_tuple(CONFIG)
        assert found.checkpoint["channel_values"]["a"] == 4
        assert sorted(found.pending_writes) == [("new task", "a", 100), ("old task", "a", 50)]
