"""Deployments of an agent over one folder: what `test_schema.py` shows with dicts holds on the real stores."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.channels import DeltaChannel
from langgraph.types import Command, interrupt

from flowpoint.agents.migrations import Add, Convert, Drop, Rename, RenameNode
from flowpoint.agents.schema import Schema
from flowpoint.agents.types import types_of
from flowpoint.errors import BadRecordError, SchemaError, SealError, UnknownTypeError
from tests.unit.agents.stores import SAVERS, open_saver
from tests.unit.agents.test_schema import T, append, asks, graph_of, nothing, parallel, values, versions_of_order


class Store:
    """A folder, opened by one deployment after another."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.notes: list[str] = []
        self._open = ExitStack()

    def deploy(
        self, builder: Any, version: int | None = 1, migrations: Any = None, keys: Any = None, **compiling: Any
    ) -> Any:
        self._open.close()
        schema = None if version is None else Schema.of(builder, version=version, migrations=migrations)
        self.notes.clear()
        options = {"types": types_of(builder), "schema": schema, "keys": keys}
        saver = open_saver(self.kind, self.folder, on_event=lambda e: self.notes.append(e.text), **options)
        return builder.compile(checkpointer=self._open.enter_context(saver), **compiling)

    def close(self) -> None:
        self._open.close()


@pytest.fixture(params=SAVERS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = Store(request.param, tmp_path)
    yield store
    store.close()


@pytest.mark.parametrize("version", [None, 1], ids=["no schema", "a schema"])
def test_a_new_field_is_absent_in_an_old_thread_until_it_is_written(store: Store, version: int | None) -> None:
    store.deploy(graph_of({"a": str}, ("n", lambda s: {"a": s["a"] + "!"})), version).invoke({"a": "v"}, T)
    new = store.deploy(graph_of({"a": str, "b": int}, ("n", lambda s: {"b": 5})), version)
    assert values(new) == {"a": "v!"}
    assert new.invoke({}, T) == {"a": "v!", "b": 5}


def test_a_field_survives_a_roll_back(store: Store) -> None:
    new = {"a": str, "b": int}
    store.deploy(graph_of(new, ("n", nothing))).invoke({"a": "v", "b": 7}, T)
    assert store.deploy(graph_of({"a": str}, ("n", nothing))).invoke({"a": "w"}, T) == {"a": "w"}
    assert len([note for note in store.notes if "'b' is not in the code" in note]) == 1
    assert values(store.deploy(graph_of(new, ("n", nothing)))) == {"a": "w", "b": 7}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_migrated_values_stay_migrated_and_the_past_stays_as_it_was(store: Store, durability: Any) -> None:
    old = graph_of({"a": str, "note": str}, ("n", nothing))
    store.deploy(old).invoke({"a": "3", "note": "x"}, T, durability=durability)
    steps = {1: [Rename("a", "total")], 2: [Drop("note"), Add("b", default=[0]), Convert("total", int)]}
    app = store.deploy(graph_of({"total": int, "b": list}, ("n", lambda s: {})), 3, steps)
    assert app.invoke({"total": 4}, T, durability=durability) == {"total": 4, "b": [0]}
    assert values(app) == {"total": 4, "b": [0]}
    assert app.invoke({}, T, durability=durability) is not None or values(app) == {"total": 4, "b": [0]}
    assert values(app) == {"total": 4, "b": [0]}
    assert store.notes.count("brought from version 1 of the schema to 3") == 1
    plain = store.deploy(old, None)
    oldest_end = [state.values for state in plain.get_state_history(T) if "note" in state.values][-1]
    assert oldest_end == {"a": "3", "note": "x"}


def test_a_changed_type_is_an_error_before_any_node_runs(store: Store) -> None:
    ran: list[Any] = []
    store.deploy(graph_of({"x": str}, ("n", nothing))).invoke({"x": "v"}, T)
    app = store.deploy(graph_of({"x": Annotated[int, operator.add]}, ("n", ran.append)))
    with pytest.raises(SchemaError, match="channel 'x' does not fit the code"):
        app.invoke({"x": 1}, T)
    assert not ran


def test_a_pending_interrupt_and_a_finished_sibling_move_to_the_new_names(store: Store) -> None:
    ran: list[str] = []
    store.deploy(parallel(asks, ("done", "ask"), ran, join=True)).invoke({"l": []}, T)
    steps = {1: [RenameNode("done", "finished"), RenameNode("ask", "review")]}
    app = store.deploy(parallel(asks, ("finished", "review"), ran, join=True), 2, steps)
    (shown,) = app.get_state(T).interrupts
    app.invoke(Command(resume={shown.id: "yes"}), T)
    assert app.invoke(Command(resume="indeed"), T) == {"l": ["done", "yes", "indeed", "end"]}
    assert ran == ["done"]


def test_a_pending_node_that_is_gone_is_refused_and_history_can_be_read(store: Store) -> None:
    store.deploy(graph_of({"a": str}, ("n1", append("1")), ("n2", append("2"))), interrupt_before=["n2"]).invoke(
        {"a": ""}, T
    )
    app = store.deploy(graph_of({"a": str}, ("n1", append("1")), ("n3", append("2"))))
    with pytest.raises(SchemaError, match="node 'n2' is pending"):
        app.invoke(None, T)
    assert len(list(app.get_state_history(T))) == 3


def test_a_field_that_is_removed_with_its_class_is_carried_along_unread(store: Store) -> None:
    order = versions_of_order(id=(int, ...))
    store.deploy(graph_of({"a": str, "order": order}, ("n", nothing))).invoke({"a": "v", "order": order(id=1)}, T)
    assert store.deploy(graph_of({"a": str}, ("n", append("!")))).invoke({}, T) == {"a": "v!"}
    with pytest.raises(UnknownTypeError, match="channel 'order' of thread 't'"):
        values(store.deploy(graph_of({"a": str}, ("n", nothing)), None))
    assert values(store.deploy(graph_of({"a": str, "order": order}, ("n", nothing)))) == {
        "a": "v!",
        "order": order(id=1),
    }


def test_a_class_with_a_new_required_field_is_filled_by_the_migration(store: Store) -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, ...))
    store.deploy(graph_of({"order": old}, ("n", nothing))).invoke({"order": old(id=1)}, T)
    steps = {1: [Convert("order", lambda stored: new(id=stored.id, price=9))]}
    assert values(store.deploy(graph_of({"order": new}, ("n", nothing)), 2, steps)) == {"order": new(id=1, price=9)}


@pytest.mark.parametrize("version", [1, 2], ids=["same version", "next version"])
def test_history_can_be_read_though_a_class_is_gone_that_was_an_input_once(store: Store, version: int) -> None:
    order = versions_of_order(id=(int, ...))
    store.deploy(graph_of({"a": str, "order": order}, ("n", nothing))).invoke({"a": "v", "order": order(id=1)}, T)
    without = store.deploy(graph_of({"a": str}, ("n", append("!"))), version)

    history = list(without.get_state_history(T))

    assert [one.values.get("a") for one in history] == ["v", "v", None]
    assert sum("Order under 'order'" in note for note in store.notes) == 1
    assert without.invoke(None, history[-1].config) == {"a": "v!"}


def with_a_sub_graph_that_is_given_more_than_it_takes(order: Any) -> Any:
    inner = graph_of({"n": int}, ("look", lambda state: {"n": state["n"] + 1}))
    return graph_of({"n": int, "order": order}, ("sub", inner.compile(checkpointer=True)))


def test_a_class_that_changed_in_the_graph_above_keeps_nobody_from_the_history_of_a_sub_graph(store: Store) -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, ...))
    store.deploy(with_a_sub_graph_that_is_given_more_than_it_takes(old)).invoke({"n": 1, "order": old(id=1)}, T)
    steps = {1: [Convert("order", lambda stored: new(id=stored.id, price=9))]}

    app = store.deploy(with_a_sub_graph_that_is_given_more_than_it_takes(new), 2, steps)

    found = list(app.checkpointer.list({"configurable": {"thread_id": "t", "checkpoint_ns": "sub"}}))
    assert [one.checkpoint["channel_values"].get("n") for one in found] == [2, 1, None]
    assert found[-1].checkpoint["channel_values"]["__start__"] == {"n": 1}
    assert app.invoke({"n": 5}, T) == {"n": 6, "order": new(id=1, price=9)}


def test_what_waits_as_input_and_cannot_be_read_is_refused_where_the_graph_takes_it(store: Store) -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, ...))
    store.deploy(graph_of({"order": old}, ("n", nothing))).invoke({"order": old(id=1)}, T)
    for version in (1, 2):
        app = store.deploy(graph_of({"order": new}, ("n", nothing)), version)
        with pytest.raises((SchemaError, BadRecordError), match="'price'"):
            list(app.get_state_history(T))


def test_a_thread_of_a_newer_version_is_refused(store: Store) -> None:
    builder = graph_of({"a": str}, ("n", nothing))
    store.deploy(builder, 3).invoke({"a": "v"}, T)
    with pytest.raises(SchemaError, match="written by version 3"):
        store.deploy(builder, 2).invoke({"a": "w"}, T)


def test_keys_are_rotated_and_a_store_without_them_is_not_read(store: Store) -> None:
    builder = graph_of({"a": str, "big": list}, ("n", lambda s: {"a": interrupt("?")}))
    old, new = {"old": bytes(32)}, {"new": bytes(range(32))}
    store.deploy(builder, keys=old).invoke({"a": "secret", "big": ["secret"] * 5000}, T)
    app = store.deploy(builder, keys={**new, **old})
    assert app.invoke(Command(resume="b"), T)["a"] == "b"
    for keys in (None, new):
        with pytest.raises(SealError):
            list(store.deploy(builder, keys=keys).get_state_history(T))
    store.close()
    assert not any(b"secret" in file.read_bytes() for file in store.folder.rglob("*") if file.is_file())


def gathered(items: list[Any], updates: list[list[Any]]) -> list[Any]:
    return [*items, *(item for update in updates for item in update)]


def test_a_delta_channel_is_renamed_and_converted_back_to_its_beginning(store: Store) -> None:
    old = graph_of({"items": Annotated[list[str], DeltaChannel(gathered)]}, ("n", lambda s: {"items": ["x"]}))
    app = store.deploy(old)
    for number in range(3):
        app.invoke({"items": [f"i{number}"]}, T)
    new = graph_of({"sizes": Annotated[list[int], DeltaChannel(gathered)]}, ("n", lambda s: {"sizes": [7]}))
    steps = {1: [Rename("items", "sizes"), Convert("sizes", lambda items: [len(item) for item in items])]}
    app = store.deploy(new, 2, steps)
    assert values(app) == {"sizes": [2, 1, 2, 1, 2, 1]}
    app.invoke({"sizes": [9]}, T)
    assert values(app) == {"sizes": [2, 1, 2, 1, 2, 1, 9, 7]}
