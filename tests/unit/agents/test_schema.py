"""Threads of yesterday's code continue under today's, or say why they cannot."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

pytest.importorskip("langgraph")

from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from flowpoint.agents.migrations import Add, Convert, ConvertSend, Drop, Rename, RenameNode
from flowpoint.agents.schema import Schema
from flowpoint.agents.types import types_of
from flowpoint.errors import BadRecordError, ConfigError, SchemaError
from tests.unit.agents.schema_saver import Disk, SchemaSaver

T = {"configurable": {"thread_id": "t"}}


def graph_of(fields: dict[str, Any], *nodes: tuple[str, Any], edges: list[tuple[Any, str]] | None = None) -> StateGraph:
    """A graph over a TypedDict; its nodes in a row unless edges are given."""
    builder = StateGraph(TypedDict("State", fields))
    for name, function in nodes:
        builder.add_node(name, function)
    names = [name for name, _ in nodes]
    for start, end in edges if edges is not None else zip([START, *names], names, strict=False):
        builder.add_edge(start, end)
    return builder


def deploy(disk: Disk, builder: StateGraph, version: int = 1, migrations: Any = None, **compiling: Any) -> Any:
    schema = Schema.of(builder, version=version, migrations=migrations)
    saver = SchemaSaver(disk, schema, types_of(builder))
    app = builder.compile(checkpointer=saver, **compiling)
    app.saver = saver  # type: ignore[attr-defined]
    return app


def values(app: Any) -> Any:
    return app.get_state(T).values


def append(text: str) -> Any:
    return lambda state: {"a": state.get("a", "") + text}


def nothing(state: Any) -> dict[str, Any]:
    return {}


# ---------------------------------------------------------------------- channels


def test_a_new_field_needs_no_migration() -> None:
    disk = Disk()
    deploy(disk, graph_of({"a": str}, ("n", append("!")))).invoke({"a": "v"}, T)
    second = deploy(disk, graph_of({"a": str, "b": int}, ("n", lambda s: {"b": 5})))
    assert values(second) == {"a": "v!"}
    assert second.invoke({}, T) == {"a": "v!", "b": 5}


def test_a_field_survives_a_roll_back_to_code_that_does_not_have_it() -> None:
    disk = Disk()
    new = {"a": str, "b": int}
    deploy(disk, graph_of(new, ("n", nothing))).invoke({"a": "v", "b": 7}, T)
    old = deploy(disk, graph_of({"a": str}, ("n", nothing)))
    assert old.invoke({"a": "w"}, T) == {"a": "w"}
    assert values(deploy(disk, graph_of(new, ("n", nothing)))) == {"a": "w", "b": 7}
    lines = [line for line in old.saver.log if "'b'" in line]
    assert len(lines) == 1
    assert "carried along" in lines[0]


def test_a_renamed_field_without_a_migration_is_carried_along_and_named() -> None:
    disk = Disk()
    deploy(disk, graph_of({"a": str}, ("n", nothing))).invoke({"a": "v"}, T)
    renamed = deploy(disk, graph_of({"a2": str}, ("n", nothing)))
    assert values(renamed) == {} and any("channel 'a' is not in the code" in line for line in renamed.saver.log)
    assert values(deploy(disk, graph_of({"a": str}, ("n", nothing)))) == {"a": "v"}


def test_a_renamed_field_with_a_migration_keeps_its_value_for_good() -> None:
    disk = Disk()
    deploy(disk, graph_of({"a": str}, ("n", nothing))).invoke({"a": "v"}, T)
    renamed = deploy(disk, graph_of({"a2": str}, ("n", lambda s: {"a2": s["a2"] + "!"})), 2, {1: [Rename("a", "a2")]})
    assert values(renamed) == {"a2": "v"}
    assert renamed.invoke({}, T) == {"a2": "v!"} and values(renamed) == {"a2": "v!"}
    assert [state.values.get("a2") for state in renamed.get_state_history(T)][-2:] == ["v", None]
    assert any("brought from version 1 of the schema to 2" in line for line in renamed.saver.log)


def test_migrations_are_chained_over_several_versions() -> None:
    disk = Disk()
    deploy(disk, graph_of({"a": str, "note": str}, ("n", nothing))).invoke({"a": "3", "note": "x"}, T)
    chain = {1: [Rename("a", "total")], 2: [Drop("note"), Add("b", default=[0])], 3: [Convert("total", int)]}
    app = deploy(disk, graph_of({"total": int, "b": list}, ("n", lambda s: {"total": s["total"] + 1})), 4, chain)
    assert values(app) == {"total": 3, "b": [0]}
    assert app.invoke({}, T) == {"total": 4, "b": [0]} and values(app) == {"total": 4, "b": [0]}
    assert chain[2][1].default == [0]
    assert not any("note" in line for line in app.saver.log if "carried" in line)


def test_what_is_stored_of_the_past_does_not_change() -> None:
    disk = Disk()
    first = deploy(disk, graph_of({"total": str}, ("n", nothing)))
    first.invoke({"total": "3"}, T)
    before = {id: (row.version, dict(row.values)) for id, row in disk.rows["t", ""].items()}
    deploy(disk, graph_of({"total": int}, ("n", nothing)), 2, {1: [Convert("total", int)]}).invoke({}, T)
    after = {id: (row.version, row.values) for id, row in disk.rows["t", ""].items()}
    assert before.items() <= after.items() and len(after) > len(before)
    assert {version for version, _ in after.values()} == {1, 2}


def test_a_changed_type_is_an_error_before_any_node_runs() -> None:
    disk, ran = Disk(), []
    deploy(disk, graph_of({"x": str}, ("n", nothing))).invoke({"x": "v"}, T)
    changed = {"x": Annotated[int, operator.add]}
    app = deploy(disk, graph_of(changed, ("n", ran.append)))
    with pytest.raises(
        SchemaError, match=r"thread 't', checkpoint .*channel 'x' .*is a str \('v'\), not int.*Convert\('x'"
    ):
        app.invoke({"x": 1}, T)
    assert not ran
    fixed = deploy(disk, graph_of(changed, ("n", nothing)), 2, {1: [Convert("x", len)]})
    assert fixed.invoke({"x": 1}, T) == {"x": 2}


def test_a_changed_element_type_is_found_too() -> None:
    disk = Disk()
    deploy(disk, graph_of({"x": Annotated[list[str], operator.add]}, ("n", nothing))).invoke({"x": ["v"]}, T)
    with pytest.raises(SchemaError, match=r"an element is a str \('v'\), not int"):
        deploy(disk, graph_of({"x": Annotated[list[int], operator.add]}, ("n", nothing))).invoke({"x": [1]}, T)


class Order(pydantic.BaseModel):
    id: int


class State(pydantic.BaseModel):
    order: Order | None = None
    count: int = 0


def test_a_state_that_is_a_pydantic_model_may_hold_what_pydantic_converts() -> None:
    disk = Disk()
    builder = StateGraph(State).add_node("n", lambda s: {"order": {"id": "7"}, "count": "3"}).add_edge(START, "n")
    app = deploy(disk, builder)
    app.invoke({}, T)
    app.invoke({}, T)

    class Renamed(pydantic.BaseModel):
        order: int = 0

    other = StateGraph(Renamed).add_node("n", nothing).add_edge(START, "n")
    with pytest.raises(SchemaError, match="channel 'order' does not fit"):
        deploy(disk, other).invoke({}, T)


def versions_of_order(**fields: Any) -> type[pydantic.BaseModel]:
    return pydantic.create_model("Order", __module__="shop", **fields)


def test_a_class_with_a_new_required_field_is_an_error_or_filled_by_the_migration() -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, ...))
    disk = Disk()
    deploy(disk, graph_of({"order": old}, ("n", nothing))).invoke({"order": old(id=1)}, T)
    same_version = deploy(disk, graph_of({"order": new}, ("n", nothing)))
    with pytest.raises(BadRecordError, match=r"channel 'order' of thread 't'.*'price'"):
        values(same_version)
    forgotten = deploy(disk, graph_of({"order": new}, ("n", nothing)), 2)
    with pytest.raises(SchemaError, match=r"channel 'order' holds a stored .*Order.*no migration converts it.*'price'"):
        values(forgotten)
    steps = {1: [Convert("order", lambda stored: new(id=stored.id, price=9))]}
    assert values(deploy(disk, graph_of({"order": new}, ("n", nothing)), 2, steps)) == {"order": new(id=1, price=9)}


def test_a_field_that_is_removed_together_with_its_class_is_carried_along_unread() -> None:
    old = versions_of_order(id=(int, ...))
    disk = Disk()
    deploy(disk, graph_of({"a": str, "order": old}, ("n", nothing))).invoke({"a": "v", "order": old(id=1)}, T)
    for version in (1, 2):
        without = deploy(disk, graph_of({"a": str}, ("n", append("!"))), version)
        assert without.invoke({}, T)["a"].startswith("v!")
    again = deploy(disk, graph_of({"a": str, "order": old}, ("n", nothing)), 2)
    assert values(again) == {"a": "v!!", "order": old(id=1)}


def test_a_removed_field_under_an_interrupt_no_longer_stops_the_run_for_ever() -> None:
    def build(fields: dict[str, Any]) -> StateGraph:
        trail = Annotated[list, operator.add]
        first, last = (lambda s: {"trail": ["first"]}), (lambda s: {"trail": ["last"]})
        return graph_of({"trail": trail, **fields}, ("first", first), ("last", last))

    for version, steps in ((2, {1: [Drop("note")]}), (1, None)):
        disk = Disk()
        deploy(disk, build({"note": str}), interrupt_before=["last"]).invoke({"trail": [], "note": "x"}, T)
        app = deploy(disk, build({}), version, steps, interrupt_before=["last"])
        assert app.get_state(T).next == ("last",)
        assert app.invoke(None, T) == {"trail": ["first", "last"]} and app.get_state(T).next == ()


def test_input_that_no_node_has_taken_is_migrated_too() -> None:
    def build(fields: dict[str, Any], node: Any) -> StateGraph:
        return graph_of(fields, ("n", node))

    disk = Disk()
    first = deploy(disk, build({"a": str, "gone": int, "n": str}, nothing))
    first.invoke({"a": "v", "gone": 1, "n": "7"}, T)
    start = next(iter(disk.rows["t", ""]))
    for id in [id for id in disk.rows["t", ""] if id != start]:
        del disk.rows["t", ""][id]
    disk.writes.clear()
    steps = {1: [Rename("a", "a2"), Drop("gone"), Convert("n", int), Add("more", 3)]}
    app = deploy(disk, build({"a2": str, "n": int, "more": int}, lambda s: {"more": 4}), 2, steps)
    assert app.get_state(T).next == ("__start__",)
    assert app.invoke(None, T) == {"a2": "v", "n": 7, "more": 4}


def test_an_old_thread_gets_what_is_added_also_when_its_next_input_waits() -> None:
    disk = Disk()
    first = deploy(disk, graph_of({"a": str}, ("n", nothing)))
    first.invoke({"a": "v"}, T)
    first.invoke({"a": "w"}, T)
    newest_input = next(state for state in first.get_state_history(T) if state.next == ("__start__",))
    first.update_state(newest_input.config, None, as_node="__copy__")
    app = deploy(disk, graph_of({"a": str, "more": int}, ("n", nothing)), 2, {1: [Add("more", 3)]})
    assert app.get_state(T).next == ("__start__",)
    assert values(app)["more"] == 3
    assert app.invoke(None, T) == {"a": "w", "more": 3}


def test_a_rename_onto_a_channel_that_has_a_value_is_refused() -> None:
    disk = Disk()
    deploy(disk, graph_of({"a": str, "a2": str}, ("n", nothing))).invoke({"a": "1", "a2": "2"}, T)
    app = deploy(disk, graph_of({"a2": str}, ("n", nothing)), 2, {1: [Rename("a", "a2")]})
    with pytest.raises(SchemaError, match="cannot rename channel 'a' to 'a2': both have a value"):
        values(app)
    assert values(deploy(disk, graph_of({"a2": str}, ("n", nothing)), 2, {1: [Drop("a2"), Rename("a", "a2")]})) == {
        "a2": "1"
    }


def test_a_failing_conversion_names_thread_checkpoint_channel_and_value() -> None:
    disk = Disk()
    deploy(disk, graph_of({"x": str}, ("n", nothing))).invoke({"x": "no number"}, T)
    app = deploy(disk, graph_of({"x": int}, ("n", nothing)), 2, {1: [Convert("x", int)]})
    with pytest.raises(
        SchemaError, match=r"thread 't', checkpoint .*cannot convert channel 'x'.*ValueError.*'no number'"
    ):
        values(app)


# ---------------------------------------------------------------------- versions


def test_a_thread_of_a_newer_version_is_refused() -> None:
    disk = Disk()
    builder = graph_of({"a": str}, ("n", nothing))
    deploy(disk, builder, 3).invoke({"a": "v"}, T)
    with pytest.raises(
        SchemaError, match=r"written by version 3 of the schema, and this code has version 2; deploy the newer"
    ):
        deploy(disk, builder, 2).invoke({"a": "w"}, T)


def test_a_thread_that_was_written_without_a_schema_counts_as_the_first_version() -> None:
    def write(disk: Disk) -> None:
        builder = graph_of({"a": str}, ("n", nothing))
        builder.compile(checkpointer=SchemaSaver(disk, None)).invoke({"a": "v"}, T)

    write(first := Disk())
    assert values(deploy(first, graph_of({"a2": str}, ("n", nothing)), 2, {1: [Rename("a", "a2")]})) == {"a2": "v"}
    write(second := Disk())
    steps = {0: [Rename("a", "a1")], 1: [Rename("a1", "a2")]}
    assert values(deploy(second, graph_of({"a2": str}, ("n", nothing)), 2, steps)) == {"a2": "v"}


@pytest.mark.parametrize(
    ("version", "steps", "message"),
    [
        (0, {}, "versions begin with 1"),
        (2, {2: []}, r"migrations\[2\].*raise `version` to at least 3"),
        (2, {1: [Rename("a", "typo")]}, "no channel 'typo'"),
        (2, {1: [RenameNode("n", "typo")]}, "no node 'typo'"),
        (2, {1: [Add("typo", 1)]}, "no channel 'typo'"),
        (2, {1: [Convert("typo", int)]}, "no channel 'typo'"),
    ],
)
def test_migrations_that_lead_nowhere_are_refused_when_the_schema_is_made(
    version: int, steps: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Schema.of(graph_of({"a": str}, ("n", nothing)), version=version, migrations=steps)


def test_a_name_that_a_later_migration_leads_on_from_need_not_be_in_the_graph() -> None:
    steps = {
        1: [Rename("x", "y"), Add("z", 1)],
        2: [Rename("y", "a"), Drop("z"), RenameNode("m", "k")],
        3: [RenameNode("k", "n")],
    }
    Schema.of(graph_of({"a": str}, ("n", nothing)), version=4, migrations=steps)


# ---------------------------------------------------------------------- nodes


def rows_up_to_pending(disk: Disk, node: str, **state: Any) -> None:
    """Run with n1 and a second node, interrupted before it."""
    app = deploy(disk, graph_of({"a": str}, ("n1", append("1")), (node, append("2"))), interrupt_before=[node])
    app.invoke({"a": "", **state}, T)


def test_a_pending_node_that_is_gone_is_refused_by_name_and_history_can_still_be_read() -> None:
    disk = Disk()
    rows_up_to_pending(disk, "n2")
    app = deploy(disk, graph_of({"a": str}, ("n1", append("1")), ("n2new", append("2"))))
    with pytest.raises(SchemaError, match=r"thread 't'.*node 'n2' is pending \(branch:to:n2\).*RenameNode\('n2'"):
        app.invoke(None, T)
    assert len(list(app.get_state_history(T))) == 3
    assert any("node 'n2' is pending" in line for line in app.saver.log)


def test_a_pending_node_that_was_renamed_runs_under_its_new_name() -> None:
    disk = Disk()
    rows_up_to_pending(disk, "n2")
    renamed = graph_of({"a": str}, ("n1", append("1")), ("n2new", append("2")))
    app = deploy(disk, renamed, 2, {1: [RenameNode("n2", "n2new")]})
    assert app.get_state(T).next == ("n2new",)
    assert app.invoke(None, T) == {"a": "12"} and app.get_state(T).next == ()


def parallel(ask: Any, names: tuple[str, str], ran: list[str], join: bool = False) -> StateGraph:
    """Two nodes at once, one that finishes and one that asks; perhaps a third that waits for both."""
    done, asking = names

    def finish(state: Any) -> dict[str, Any]:
        ran.append(done)
        return {"l": [done]}

    builder = StateGraph(TypedDict("State", {"l": Annotated[list, operator.add]}))
    builder.add_node(done, finish).add_node(asking, ask).add_node("end", lambda s: {"l": ["end"]})
    builder.add_edge(START, done).add_edge(START, asking)
    if join:
        builder.add_edge([done, asking], "end")
    return builder


def asks(state: Any) -> dict[str, Any]:
    return {"l": [interrupt("sure?"), interrupt("really?")]}


@pytest.mark.parametrize("join", [False, True])
def test_an_interrupt_and_a_finished_sibling_move_to_the_new_names(join: bool) -> None:
    disk, ran = Disk(), []
    first = deploy(disk, parallel(asks, ("done", "ask"), ran, join))
    first.invoke({"l": []}, T)
    first.invoke(Command(resume="yes"), T)
    old_id = first.get_state(T).interrupts[0].id

    steps = {1: [RenameNode("done", "finished"), RenameNode("ask", "review")]}
    second = deploy(disk, parallel(asks, ("finished", "review"), ran, join), 2, steps)
    state = second.get_state(T)
    assert state.next == ("review",) and [task.name for task in state.tasks] == ["finished", "review"]
    (shown,) = state.interrupts
    assert shown.value == "really?" and shown.id != old_id
    result = second.invoke(Command(resume={shown.id: "indeed"}), T)
    assert result == {"l": ["done", "yes", "indeed", *(["end"] if join else [])]}
    assert ran == ["done"]
    assert second.get_state(T).next == ()


def test_what_the_new_code_writes_to_the_old_checkpoint_takes_the_place_of_what_was_moved_there() -> None:
    disk, ran = Disk(), []
    deploy(disk, parallel(asks, ("done", "ask"), ran)).invoke({"l": []}, T)
    second = deploy(disk, parallel(asks, ("done", "review"), ran), 2, {1: [RenameNode("ask", "review")]})
    (shown,) = second.get_state(T).interrupts
    second.invoke(Command(resume={shown.id: "yes"}), T)
    (shown,) = second.get_state(T).interrupts
    assert shown.value == "really?"
    third = deploy(
        disk,
        parallel(asks, ("done", "approve"), ran),
        3,
        {1: [RenameNode("ask", "review")], 2: [RenameNode("review", "approve")]},
    )
    (shown,) = third.get_state(T).interrupts
    assert third.invoke(Command(resume={shown.id: "indeed"}), T) == {"l": ["yes", "indeed", "done"]}
    assert ran == ["done"]


def test_what_the_new_code_writes_to_the_old_checkpoint_is_not_migrated_again() -> None:
    def build(kind: Any, done: Any, ran: list[str], fails: bool) -> StateGraph:
        def finish(state: Any) -> dict[str, Any]:
            ran.append("x")
            if fails:
                raise ValueError("not yet")
            return {"total": done}

        fields = {"total": Annotated[kind, operator.add], "answer": str}
        nodes = [("done", finish), ("ask", lambda s: {"answer": interrupt("?")})]
        return graph_of(fields, *nodes, edges=[(START, "done"), (START, "ask")])

    disk, ran = Disk(), []
    with pytest.raises(ValueError, match="not yet"):
        deploy(disk, build(str, "5", ran, fails=True)).invoke({"total": "1"}, T)
    steps = {1: [Convert("total", lambda text: 10 * int(text))]}
    second = deploy(disk, build(int, 5, ran, fails=False), 2, steps)
    second.invoke(None, T)
    assert second.invoke(Command(resume="y"), T) == {"total": 15, "answer": "y"}
    assert ran == ["x", "x"]


def test_an_edge_that_was_added_does_not_make_a_finished_sibling_run_again() -> None:
    disk, ran = Disk(), []
    deploy(disk, parallel(asks, ("done", "ask"), ran)).invoke({"l": []}, T)
    changed = parallel(asks, ("done", "ask"), ran).add_edge(["end", "ask"], "done")
    app = deploy(disk, changed, 2)
    app.invoke(Command(resume="yes"), T)
    app.invoke(Command(resume="indeed"), T)
    assert ran == ["done"]


def test_arrivals_at_a_join_are_remembered_under_the_new_name() -> None:
    def build(name: str, wait: Any) -> StateGraph:
        fields = {"l": Annotated[list, operator.add]}
        nodes = [
            (name, lambda s: {"l": ["quick"]}),
            ("slow", nothing),
            ("slower", wait),
            ("end", lambda s: {"l": ["end"]}),
        ]
        edges = [(START, name), (START, "slow"), ("slow", "slower"), ([name, "slower"], "end")]
        return graph_of(fields, *nodes, edges=edges)

    disk = Disk()
    deploy(disk, build("quick", nothing), interrupt_before=["slower"]).invoke({"l": []}, T)
    app = deploy(disk, build("swift", nothing), 2, {1: [RenameNode("quick", "swift")]})
    assert app.invoke(None, T) == {"l": ["quick", "end"]}


def test_pending_sends_go_to_the_new_name_and_finished_ones_are_not_repeated() -> None:
    ran: list[str] = []

    def build(worker: str) -> StateGraph:
        def work(state: Any) -> dict[str, Any]:
            ran.append(state["item"])
            return {"l": [state["item"] + (interrupt("go on?") if state["item"] == "b" else "")]}

        builder = StateGraph(TypedDict("State", {"l": Annotated[list, operator.add]}))
        builder.add_node("plan", nothing).add_node(worker, work).add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda s: [Send(worker, {"item": item}) for item in "abc"], [worker])
        return builder

    disk = Disk()
    deploy(disk, build("work")).invoke({"l": []}, T)
    assert sorted(ran) == ["a", "b", "c"]
    app = deploy(disk, build("labour"), 2, {1: [RenameNode("work", "labour")]})
    (shown,) = app.get_state(T).interrupts
    assert app.invoke(Command(resume={shown.id: "!"}), T) == {"l": ["a", "b!", "c"]}
    assert sorted(ran) == ["a", "b", "b", "c"]


def test_a_send_to_a_node_that_is_gone_is_refused_by_name() -> None:
    def build(worker: str) -> StateGraph:
        builder = StateGraph(TypedDict("State", {"l": Annotated[list, operator.add]}))
        builder.add_node("plan", nothing).add_node(worker, nothing).add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda s: [Send(worker, {})], [worker])
        return builder

    disk = Disk()
    deploy(disk, build("work"), interrupt_before=["work"]).invoke({"l": []}, T)
    with pytest.raises(SchemaError, match=r"node 'work' is pending \(a Send\)"):
        deploy(disk, build("labour")).invoke(None, T)


class Item(TypedDict):
    total: Any


@pytest.mark.parametrize("waits", ["before", "inside"])
def test_what_is_sent_to_a_node_that_reads_the_state_follows_the_keys_of_the_state(waits: str) -> None:
    def build(key: str, kind: Any, worker: str) -> StateGraph:
        State = TypedDict("State", {key: kind, "note": str, "l": Annotated[list, operator.add]})  # noqa: UP013

        def work(state: Any) -> dict[str, Any]:
            return {"l": [(state[key], "note" in state, interrupt("?") if waits == "inside" else None)]}

        builder = StateGraph(State)
        builder.add_node("plan", nothing).add_node(worker, work).add_edge(START, "plan")
        builder.add_conditional_edges("plan", lambda s: [Send(worker, {key: "7", "note": "n"})], [worker])
        return builder

    disk = Disk()
    stop = {"interrupt_before": ["work"]} if waits == "before" else {}
    deploy(disk, build("total", str, "work"), **stop).invoke({"l": []}, T)
    steps = [Rename("total", "sum"), RenameNode("work", "labour"), Convert("sum", int), Drop("note")]
    app = deploy(disk, build("sum", int, "labour"), 2, {1: steps})
    answer = Command(resume="y") if waits == "inside" else None
    assert app.invoke(answer, T)["l"] == [(7, False, "y" if waits == "inside" else None)]


def sending(worker: str, arg: Any) -> StateGraph:
    def work(item: Item) -> dict[str, Any]:
        return {"l": [item["total"]]}

    builder = StateGraph(TypedDict("State", {"total": int, "l": Annotated[list, operator.add]}))
    builder.add_node("plan", nothing).add_node(worker, work).add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda s: [Send(worker, arg)], [worker])
    return builder


@pytest.mark.parametrize("step", [Convert("total", int), Drop("total"), Rename("total", "l")])
def test_what_is_sent_to_a_node_with_an_input_of_its_own_is_refused_by_name_when_it_may_be_meant(step: Any) -> None:
    disk = Disk()
    deploy(disk, sending("work", {"total": "7"}), interrupt_before=["work"]).invoke({"l": []}, T)
    with pytest.raises(SchemaError, match=r"a Send to node 'work' is pending: its argument has a key 'total'"):
        deploy(disk, sending("work", {}), 2, {1: [step]}).invoke(None, T)


def test_what_is_sent_to_a_node_is_converted_as_the_migration_says() -> None:
    disk = Disk()
    deploy(disk, sending("work", {"total": "7", "other": 1}), interrupt_before=["work"]).invoke({"l": []}, T)
    by_hand = ConvertSend("labour", lambda item: {"total": item["total"] * 2})
    steps = {1: [Convert("total", int)], 2: [RenameNode("work", "labour")], 3: [by_hand]}
    app = deploy(disk, sending("labour", {}), 4, steps)
    assert app.invoke(None, T)["l"] == ["77"]

    broken = {**steps, 3: [ConvertSend("labour", lambda item: item["gone"])]}
    with pytest.raises(SchemaError, match="the function of the migration failed with KeyError"):
        deploy(disk, sending("labour", {}), 5, broken).saver.schema.upgrade(
            deploy(disk, sending("work", {})).saver.stored("t", "", list(disk.rows["t", ""])[1])
        )
    with pytest.raises(ConfigError, match="no node 'nowhere'"):
        Schema.of(sending("work", {}), version=2, migrations={1: [ConvertSend("nowhere", int)]})


def test_pending_writes_are_renamed_and_converted_with_their_channels() -> None:
    def build(key: str, kind: Any, ran: list[str], done: Any) -> StateGraph:
        fields = {key: Annotated[kind, operator.add], "answer": str}

        def finish(state: Any) -> dict[str, Any]:
            ran.append("x")
            return {key: done}

        nodes = [("done", finish), ("ask", lambda s: {"answer": interrupt("?")})]
        return graph_of(fields, *nodes, edges=[(START, "done"), (START, "ask")])

    disk, ran = Disk(), []
    deploy(disk, build("total", str, ran, "5")).invoke({"total": "1"}, T)
    app = deploy(disk, build("sum", int, ran, 5), 2, {1: [Rename("total", "sum"), Convert("sum", int)]})
    assert app.invoke(Command(resume="y"), T) == {"sum": 6, "answer": "y"}
    assert ran == ["x"]
    dropped = deploy(
        disk, graph_of({"answer": str}, ("done", nothing)), 3, {1: [Rename("total", "sum")], 2: [Drop("sum")]}
    )
    assert values(dropped) == {"answer": "y"}


def test_an_error_handler_and_its_failed_node_are_followed() -> None:
    ran: list[str] = []

    def build(node: str) -> StateGraph:
        def fail(state: Any) -> None:
            ran.append("fail")
            raise ValueError("no")

        def handle(state: Any) -> dict[str, Any]:
            ran.append("handle")
            return {"l": [interrupt("mend?")]}

        builder = StateGraph(TypedDict("State", {"l": Annotated[list, operator.add]}))
        builder.add_node(node, fail, error_handler=handle).add_edge(START, node)
        return builder

    disk = Disk()
    deploy(disk, build("risky")).invoke({"l": []}, T)
    assert ran == ["fail", "handle"]
    app = deploy(disk, build("bold"), 2, {1: [RenameNode("risky", "bold")]})
    result = app.invoke(Command(resume="yes"), T)
    assert result["l"] == ["yes"] and ran.count("fail") == 1


# ---------------------------------------------------------------------- sub-graphs


def with_sub_graph(key: str, inner: Any, name: str = "sub", inner_name: str = "inner") -> StateGraph:
    below = graph_of({key: str, "x": str}, (inner_name, inner))
    return graph_of({"x": str}, (name, below.compile()))


def test_the_state_of_a_sub_graph_is_migrated_with_its_own_steps() -> None:
    disk = Disk()
    first = with_sub_graph("a", lambda s: {"x": interrupt("?") + s.get("a", "")})
    deploy(disk, first).invoke({"x": "v"}, T)
    steps = {
        1: [Rename("a", "a2", graph="sub"), RenameNode("inner", "within", graph="sub"), Add("a2", "!", graph="sub")]
    }
    app = deploy(disk, with_sub_graph("a2", lambda s: {"x": interrupt("?") + s["a2"]}, inner_name="within"), 2, steps)
    assert app.get_state(T, subgraphs=True).tasks[0].state.next == ("within",)
    assert app.invoke(Command(resume="yes"), T) == {"x": "yes!"}


def test_renaming_a_sub_graph_that_is_pending_is_refused_instead_of_starting_it_again() -> None:
    disk = Disk()
    deploy(disk, with_sub_graph("a", lambda s: {"x": interrupt("?")})).invoke({"x": "v"}, T)
    app = deploy(disk, with_sub_graph("a", nothing, name="part"), 2, {1: [RenameNode("sub", "part")]})
    with pytest.raises(SchemaError, match="cannot rename node 'sub': it is a sub-graph and pending"):
        app.invoke(Command(resume="y"), T)


def test_renaming_a_node_is_refused_when_a_call_inside_of_it_has_finished() -> None:
    @task
    def pay() -> str:
        return "paid"

    def asks_after_a_call(state: Any) -> dict[str, Any]:
        return {"x": pay().result() + interrupt("?")}

    disk = Disk()
    deploy(disk, graph_of({"x": str}, ("n", asks_after_a_call))).invoke({"x": "v"}, T)
    app = deploy(disk, graph_of({"x": str}, ("m", asks_after_a_call)), 2, {1: [RenameNode("n", "m")]})
    with pytest.raises(SchemaError, match="cannot rename node 'n': it is pending and the call .* has finished"):
        app.invoke(Command(resume="y"), T)
    old = deploy(disk, graph_of({"x": str}, ("n", asks_after_a_call)))
    assert old.invoke(Command(resume="y"), T) == {"x": "paidy"}


def test_an_interrupt_inside_a_graph_that_a_renamed_node_calls_is_refused() -> None:
    def build(name: str) -> StateGraph:
        below = graph_of({"x": str}, ("inner", lambda s: {"x": interrupt("?")})).compile()
        return graph_of({"x": str}, (name, lambda s: below.invoke(s)))  # noqa: PLW0108  a bound method has other parameters

    disk = Disk()
    deploy(disk, build("call")).invoke({"x": "v"}, T)
    app = deploy(disk, build("phone"), 2, {1: [RenameNode("call", "phone")]})
    with pytest.raises(SchemaError, match="cannot follow the interrupt .* node 'call': it is inside a sub-graph"):
        app.invoke(Command(resume="y"), T)


# ---------------------------------------------------------------------- dry run


def test_a_dry_run_tells_what_would_be_migrated_and_what_refused() -> None:
    disk = Disk()
    app = deploy(disk, graph_of({"x": str}, ("n", nothing)))
    for thread, value in (("good", "1"), ("bad", "one")):
        app.invoke({"x": value}, {"configurable": {"thread_id": thread}})
    schema = Schema.of(graph_of({"x": int}, ("n", nothing)), version=2, migrations={1: [Convert("x", int)]})
    heads = [
        SchemaSaver(disk, schema).stored(thread, ns, list(rows)[-1])
        for (thread, ns), rows in disk.rows.items()
    ]  # fmt: skip
    report = schema.check(heads)
    assert (report.threads, report.migrated, len(report.refused)) == (2, 1, 1)
    assert "thread 'bad'" in report.refused[0] and "thread 'good'" in report.notes[0]
    assert [head.version for head in heads] == [1, 1] and heads[0].channels == {"x": "1"}
