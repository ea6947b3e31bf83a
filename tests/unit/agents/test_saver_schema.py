"""A deployment changes the state of stored threads: what comes back, what is refused, what is carried along."""

from __future__ import annotations

import operator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from flowpoint.agents.conflicts import Event
from flowpoint.agents.migrations import Add, Convert, Drop, Rename, RenameNode
from flowpoint.agents.schema import Schema
from flowpoint.errors import BadRecordError, SchemaError, UnknownTypeError
from tests.unit.agents.stores import THREAD, each_saver, open_saver


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
        new.compile(checkpointer=saver).invoke({}, THREAD)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1), on_event=events.append) as saver:
        for _ in range(2):
            old.compile(checkpointer=saver).invoke({}, THREAD)
    with open_saver(kind, tmp_path) as saver:
        assert new.compile(checkpointer=saver).get_state(THREAD).values == {"a": "w", "b": 7}
    assert [event.text for event in events if "'b'" in event.text] == [
        "channel 'b' is not in the code; it is carried along as it is (a migration may Rename or Drop it)"
    ]


@each_saver
def test_a_renamed_channel_keeps_its_value_with_a_migration_and_is_carried_along_without(
    kind: str, tmp_path: Path
) -> None:
    old, new = deployed(A, "n", a="v"), deployed(A2, "n", a2="w")
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver).invoke({}, THREAD)
    with open_saver(kind, tmp_path) as saver:
        assert new.compile(checkpointer=saver).get_state(THREAD).values == {}

    schema = Schema.of(new, version=2, migrations={1: [Rename("a", "a2")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver)
        assert graph.get_state(THREAD).values == {"a2": "v"}
        assert graph.invoke({}, THREAD) == {"a2": "w"}
        assert saver.get_tuple(THREAD).checkpoint["channel_values"] == {"a2": "w"}

    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        with pytest.raises(SchemaError, match="newer code"):
            saver.get_tuple(THREAD)
        with pytest.raises(SchemaError, match="newer code"):
            list(old.compile(checkpointer=saver).get_state_history(THREAD))
    with open_saver(kind, tmp_path) as saver:
        assert list(saver.list(THREAD)), "without a schema it is shown as it is stored"


@each_saver
def test_a_changed_type_is_an_error_before_any_node_runs_or_converted(kind: str, tmp_path: Path) -> None:
    class Number(TypedDict):
        a: Annotated[int, operator.add]

    old, new = deployed(A, "n", a="5"), deployed(Number, "n", a=1)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver).invoke({}, THREAD)
    with open_saver(kind, tmp_path, schema=Schema.of(new, version=1)) as saver, pytest.raises(SchemaError, match="'a'"):
        new.compile(checkpointer=saver).invoke({}, THREAD)
    schema = Schema.of(new, version=2, migrations={1: [Convert("a", int)]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        assert new.compile(checkpointer=saver).invoke({}, THREAD) == {"a": 6}


@each_saver
def test_a_removed_key_does_not_hold_a_run_up_for_ever(kind: str, tmp_path: Path) -> None:
    old, new = deployed(Note, "first", "last", a="1", note="n"), deployed(A, "first", "last", a="1")
    with open_saver(kind, tmp_path) as saver:
        old.compile(checkpointer=saver, interrupt_before=["last"]).invoke({}, THREAD)
    schema = Schema.of(new, version=2, migrations={1: [Drop("note")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver, interrupt_before=["last"])
        graph.invoke(None, THREAD)
        assert graph.get_state(THREAD).next == ()
        assert graph.get_state(THREAD).values == {"a": "last"}


@each_saver
def test_a_pending_node_that_is_gone_is_refused_by_name_or_renamed(kind: str, tmp_path: Path) -> None:
    old, new = deployed(A, "n1", "n2", a="1"), deployed(A, "n1", "n2new", a="1")
    with open_saver(kind, tmp_path) as saver:
        old.compile(checkpointer=saver, interrupt_before=["n2"]).invoke({}, THREAD)
    with (
        open_saver(kind, tmp_path, schema=Schema.of(new, version=1)) as saver,
        pytest.raises(SchemaError, match="'n2'"),
    ):
        new.compile(checkpointer=saver).invoke(None, THREAD)
    schema = Schema.of(new, version=2, migrations={1: [RenameNode("n2", "n2new")]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        graph = new.compile(checkpointer=saver)
        assert graph.get_state(THREAD).next == ("n2new",)
        assert graph.invoke(None, THREAD) == {"a": "n2new"}
        assert [one.next for one in graph.get_state_history(THREAD)][:2] == [(), ("n2new",)]


@each_saver
def test_what_new_code_writes_for_an_old_checkpoint_is_not_migrated(kind: str, tmp_path: Path) -> None:
    def halved(value: int) -> int:
        return value // 2

    class Number(TypedDict, total=False):
        a: int

    old = deployed(Number, "n1", "n2", a=8)
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=1)) as saver:
        old.compile(checkpointer=saver, interrupt_before=["n2"]).invoke({}, THREAD)
        at = saver.get_tuple(THREAD)
        saver.put_writes(at.config, [("a", 100)], "old task")
    schema = Schema.of(old, version=2, migrations={1: [Convert("a", halved), Add("b", default=0)][:1]})
    with open_saver(kind, tmp_path, schema=schema) as saver:
        saver.put_writes(at.config, [("a", 100)], "new task")
        found = saver.get_tuple(THREAD)
        assert found.checkpoint["channel_values"]["a"] == 4
        assert sorted(found.pending_writes) == [("new task", "a", 100), ("old task", "a", 50)]


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log about what was refused, and a clean sheet."""
    lines = [record.getMessage() for record in caplog.records if ": refused: " in record.getMessage()]
    caplog.clear()
    return lines


class Colour(Enum):
    RED = 1


class Undeclared:
    """Of no kind that can be saved."""


@each_saver
def test_what_is_refused_is_a_line_of_the_log_with_thread_and_checkpoint(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told(id: str, about: str) -> bool:
        (line,) = set(refusals(caplog))
        return line.startswith(f"thread 't', namespace '', checkpoint {id}: refused: ") and about in line

    old, new = deployed(A, "n1", "n2"), deployed(A, "n1")
    with open_saver(kind, tmp_path, schema=Schema.of(old, version=2)) as saver:
        old.compile(checkpointer=saver, interrupt_before=["n2"]).invoke({"a": "v"}, THREAD)
        head = saver.get_tuple(THREAD)
        assert refusals(caplog) == []
        with pytest.raises(BadRecordError):
            saver.put_writes(head.config, [("a", Undeclared())], "task")
        assert told(head.checkpoint["id"], "channel 'a'")
        with pytest.raises(BadRecordError):
            saver.put(head.config, {**head.checkpoint, "id": "next", "channel_values": {"a": 1j}}, head.metadata, {})
        assert told("next", "channel 'a'")
    for version, about in ((1, "version 2 of the schema"), (2, "node 'n2' is pending")):
        with (
            open_saver(kind, tmp_path, schema=Schema.of(new, version=version)) as saver,
            pytest.raises(SchemaError),
        ):
            new.compile(checkpointer=saver).invoke(None, THREAD)
        assert told(head.checkpoint["id"], about)


@each_saver
def test_a_class_that_is_not_declared_is_a_line_of_the_log_when_it_is_read(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_saver(kind, tmp_path, types=[Colour]) as saver:
        deployed(A, "n", a=Colour.RED).compile(checkpointer=saver).invoke({"a": "v"}, THREAD)
        id_ = saver.get_tuple(THREAD).checkpoint["id"]
    with open_saver(kind, tmp_path) as saver, pytest.raises(UnknownTypeError):
        saver.get_tuple(THREAD)
    (line,) = refusals(caplog)
    assert line.startswith(f"thread 't', namespace '', checkpoint {id_}: refused: ") and "Colour" in line


@each_saver
def test_a_class_that_is_not_declared_is_no_damage_that_a_list_of_all_threads_goes_on_behind(
    kind: str, tmp_path: Path
) -> None:
    with open_saver(kind, tmp_path, types=[Colour]) as saver:
        deployed(A, "n", a=Colour.RED).compile(checkpointer=saver).invoke({"a": "v"}, THREAD)
    with open_saver(kind, tmp_path) as saver, pytest.raises(UnknownTypeError, match="types"):
        list(saver.list(None))
