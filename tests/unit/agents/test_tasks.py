"""Our copy of LangGraph's private ids of tasks and interrupts says the same as LangGraph itself."""

from __future__ import annotations

import binascii
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langchain_core.runnables import RunnableConfig
from langgraph._internal import _constants
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.pregel._algo import _uuid5_str, _xxhash_str, task_path_str
from langgraph.types import Send, _interrupt_id, interrupt

from flowpoint.agents import graph_shape, migrations, tasks
from flowpoint.agents.graph_shape import shapes_of
from flowpoint.agents.tasks import CallPath, HandlerPath, NodePath, SendPath, TaskHash, interrupt_id, parse_path

T: RunnableConfig = {"configurable": {"thread_id": "t"}}
ID = "1f1ecb2b-a938-67e0-8000-685d77cf7234"


class State(TypedDict):
    x: str


def test_the_names_that_the_framework_keeps_to_itself() -> None:
    assert (tasks._PULL, tasks._PUSH) == (_constants.PULL, _constants.PUSH)
    assert tasks.NULL_TASK_ID == _constants.NULL_TASK_ID
    assert (migrations._ERROR_SOURCE, migrations._BUMPS) == (_constants.ERROR_SOURCE_NODE, _constants.SNAPSHOT_BUMPS)
    assert (migrations._START, migrations._OVERWRITE) == (START, _constants.OVERWRITE)
    builder = StateGraph(State).add_node("a", lambda s: {}).add_node("b", lambda s: {}).add_node("c", lambda s: {})
    app = builder.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "c").compile()
    ours = {channel for channels in shapes_of(builder)[""].triggers.values() for channel in channels}
    assert ours <= set(app.channels)
    assert {name: sorted(app.nodes[name].triggers) for name in "abc"} == {
        name: list(channels) for name, channels in shapes_of(builder)[""].triggers.items()
    }
    assert graph_shape.is_internal("branch:to:a") and not graph_shape.is_internal("x")


@pytest.mark.parametrize("ns", ["", "sub:1f|inner:2e"])
@pytest.mark.parametrize("layout", [1, 4])
def test_the_hash(ns: str, layout: int) -> None:
    hash_of = _xxhash_str if layout > 1 else _uuid5_str
    head = binascii.unhexlify(ID.replace("-", ""))
    whole = f"{ns}|n" if ns else "n"
    ours = TaskHash(ID, ns, 7, layout)
    assert ours.of_node("n", ("join:a+b:n", "branch:to:n")) == hash_of(
        head, whole, "7", "n", _constants.PULL, "branch:to:n", "join:a+b:n"
    )
    assert ours.of_send("n", 3) == hash_of(head, whole, "7", "n", _constants.PUSH, "3")
    assert ours.of_handler("n", "f") == hash_of(head, whole, "7", "n", _constants.PUSH, "node_error_handler", "f")


@pytest.mark.parametrize("answered", [0, 1, 12])
def test_the_id_of_an_interrupt(answered: int) -> None:
    assert interrupt_id("n:1f", answered) == _interrupt_id("n:1f", answered)


@pytest.mark.parametrize(
    ("path", "meaning"),
    [
        ((_constants.PULL, "a, b"), NodePath("a, b")),
        ((_constants.PULL, "a", "node_error_handler", False), HandlerPath("a")),
        ((_constants.PUSH, 12, False), SendPath(12)),
        ((_constants.PUSH, (_constants.PULL, "a"), 3, True), CallPath("~__pregel_pull, a")),
        ((), None),
    ],
)
def test_paths(path: Any, meaning: Any) -> None:
    text = task_path_str(path)
    assert parse_path(text) == meaning
    if not isinstance(meaning, CallPath | None):
        assert str(meaning) == text


def test_the_ids_of_tasks_in_a_run() -> None:
    seen: dict[Any, tuple[str, str]] = {}

    def look(state: State, config: RunnableConfig) -> dict[str, Any]:
        about, place = config["metadata"], config["configurable"]
        above = str(about["langgraph_checkpoint_ns"]).rpartition("|")[0]
        hashes = TaskHash(place["checkpoint_map"][above], above, about["langgraph_step"])
        node, path = about["langgraph_node"], about["langgraph_path"]
        triggers = tuple(about["langgraph_triggers"])
        ours = hashes.of_node(node, triggers) if path[0] == _constants.PULL else hashes.of_send(node, path[1])
        seen[above.partition(":")[0], path] = (ours, place["__pregel_task_id"])
        return {}

    inner = StateGraph(State).add_node("inner", look).add_edge(START, "inner").compile()
    builder = StateGraph(State).add_node("a", look).add_node("b", inner).add_node("c", look).add_node("s", look)
    builder.add_edge(START, "a").add_edge(START, "b").add_edge(["a", "b"], "c")
    builder.add_conditional_edges("c", lambda s: [Send("s", s), Send("s", s)], ["s"])
    builder.compile(checkpointer=InMemorySaver()).invoke({"x": ""}, T)
    assert len(seen) == 5
    assert all(ours == theirs for ours, theirs in seen.values())


def test_the_id_of_an_interrupt_in_a_run() -> None:
    builder = StateGraph(State).add_node("n", lambda s: interrupt("?")).add_edge(START, "n")
    app = builder.compile(checkpointer=InMemorySaver())
    app.invoke({"x": ""}, T)
    state = app.get_state(T)
    assert state.interrupts[0].id == interrupt_id(f"n:{state.tasks[0].id}", 0)


def test_the_path_of_a_call_in_a_run() -> None:
    saver = InMemorySaver()

    @task
    def call() -> str:
        return "done"

    @entrypoint(checkpointer=saver)
    def app(x: str) -> str:
        call().result()
        return str(interrupt("?"))

    app.invoke("", T)
    paths = {row[3] for rows in saver.writes.values() for row in rows.values()}
    assert any(isinstance(parse_path(path), CallPath) for path in paths)
