"""An idempotency key is the same when a step is repeated after a crash, and another for every other step."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from flowpoint.agents.effects import idempotency_key
from flowpoint.errors import UsageError


class State(TypedDict):
    l: Annotated[list[str], operator.add]  # noqa: E741


KEYS: list[str] = []


def effect(state: State, config: RunnableConfig) -> dict[str, Any]:
    KEYS.append(idempotency_key(config))
    return {"l": ["x"]}


@pytest.fixture(autouse=True)
def no_keys() -> None:
    KEYS.clear()


def run(thread: str = "t", request: Any = "r") -> Any:
    return {"configurable": {"thread_id": thread, "request_id": request}}


def loop_of(node: Any, times: int) -> StateGraph:
    builder = StateGraph(State).add_node("n", node).add_edge(START, "n")
    return builder.add_conditional_edges("n", lambda s: "n" if len(s["l"]) % times else END)


def test_threads_requests_steps_and_names_have_keys_of_their_own() -> None:
    app = loop_of(effect, 3).compile(checkpointer=InMemorySaver())
    app.invoke({"l": []}, run())
    app.invoke({"l": []}, run(request="r2"))
    app.invoke({"l": []}, run("u"))
    assert len(set(KEYS)) == len(KEYS) == 9
    config: Any = {
        "configurable": {"thread_id": "t", "request_id": 1},
        "metadata": {"langgraph_step": 1, "langgraph_path": ("__pregel_pull", "n"), "langgraph_checkpoint_ns": "n:1"},
    }
    several = [idempotency_key(config), idempotency_key(config, "mail"), idempotency_key(config, "mail", 2)]
    assert len(set(several)) == 3 and several[0] == idempotency_key(config)


def test_a_step_that_is_repeated_after_a_failure_has_the_same_key() -> None:
    failures = [ValueError("first time")]

    def node(state: State, config: RunnableConfig) -> dict[str, Any]:
        effect(state, config)
        if failures:
            raise failures.pop()
        return {"l": ["x"]}

    app = loop_of(node, 1).compile(checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="first time"):
        app.invoke({"l": []}, run())
    app.invoke(None, run())
    assert len(KEYS) == 2 and len(set(KEYS)) == 1


def test_parallel_sends_have_keys_of_their_own() -> None:
    builder = StateGraph(State).add_node("plan", lambda s: {}).add_node("work", effect).add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda s: [Send("work", {"l": []}) for _ in range(5)], ["work"])
    builder.compile(checkpointer=InMemorySaver()).invoke({"l": []}, run())
    assert len(set(KEYS)) == len(KEYS) == 5


def test_visits_of_a_sub_graph_are_told_apart_by_the_steps_above() -> None:
    inner = StateGraph(State).add_node("inner", effect).add_edge(START, "inner").compile()
    outer = StateGraph(State).add_node("mid", StateGraph(State).add_node("n", inner).add_edge(START, "n").compile())
    outer.add_edge(START, "mid").add_conditional_edges("mid", lambda s: "mid" if len(s["l"]) < 20 else END)
    app = outer.compile(checkpointer=InMemorySaver())
    app.invoke({"l": []}, run())
    assert len(KEYS) > 3 and len(set(KEYS)) == len(KEYS)


def test_a_sub_graph_under_several_sends_has_a_key_for_each() -> None:
    inner = StateGraph(State).add_node("inner", effect).add_edge(START, "inner").compile()
    builder = StateGraph(State).add_node("plan", lambda s: {}).add_node("sub", inner).add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda s: [Send("sub", {"l": []}) for _ in range(5)], ["sub"])
    app = builder.compile(checkpointer=InMemorySaver())
    app.invoke({"l": []}, run())
    assert len(KEYS) == 5 and len(set(KEYS)) == 5


def test_a_sub_graph_that_is_visited_again_after_a_failure_has_the_same_keys() -> None:
    failures = [ValueError("first time")]

    def fail_once(state: State) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {}

    inner = StateGraph(State).add_node("inner", effect).add_node("fail", fail_once)
    inner.add_edge(START, "inner").add_edge("inner", "fail")
    compiled = inner.compile(checkpointer=False)
    builder = (
        StateGraph(State)
        .add_node("a", lambda s: {})
        .add_node("sub", compiled)
        .add_edge(START, "a")
        .add_edge("a", "sub")
    )
    app = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="first time"):
        app.invoke({"l": []}, run())
    app.invoke(None, run())
    assert len(KEYS) == 2 and len(set(KEYS)) == 1


def test_calls_inside_an_entrypoint_have_keys_of_their_own() -> None:
    @task
    def call(number: int, config: RunnableConfig) -> str:
        KEYS.append(idempotency_key(config))
        return "x"

    @entrypoint(checkpointer=InMemorySaver())
    def app(times: int) -> int:
        return len([call(number).result() for number in range(times)])

    assert app.invoke(3, run()) == 3
    assert len(set(KEYS)) == 3


@pytest.mark.parametrize("request_id", [None, "", 1.5])
def test_a_run_without_a_request_id_is_an_error(request_id: Any) -> None:
    app = loop_of(effect, 1).compile(checkpointer=InMemorySaver())
    with pytest.raises(UsageError, match=r"configurable\['request_id'\] is .*give every run"):
        app.invoke({"l": []}, run(request=request_id))


def test_a_config_that_is_not_a_nodes_is_an_error() -> None:
    with pytest.raises(UsageError, match="not the config of a node"):
        idempotency_key(run())


def test_a_rewound_run_repeats_the_keys_of_its_steps() -> None:
    inner = StateGraph(State).add_node("inner", effect).add_edge(START, "inner").compile()
    builder = StateGraph(State).add_node("a", effect).add_node("sub", inner)
    builder.add_edge(START, "a").add_edge("a", "sub")
    app = builder.compile(checkpointer=InMemorySaver())
    app.invoke({"l": []}, run())
    before = list(KEYS)
    KEYS.clear()
    saved = app.checkpointer
    copy = builder.compile(checkpointer=InMemorySaver())
    copy.checkpointer.storage, copy.checkpointer.blobs = saved.storage, saved.blobs  # type: ignore[union-attr]
    # A crash before the checkpoints of the first step were safe: the run goes on from the input, with other ids.
    for ns in saved.storage["t"].values():  # type: ignore[union-attr]
        for id in [id for id in ns if int(id.split("-")[3], 16) & 0x3FFF != 0x3FFF]:
            del ns[id]
    copy.invoke(None, run())
    assert before == KEYS
    assert len(KEYS) == 2
