"""What a graph does with our savers is what it does with LangGraph's own, where that is right."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.unit.agents.stores import THREAD, each_saver, open_saver


class State(TypedDict, total=False):
    trail: Annotated[list[str], operator.add]
    route: str
    amount: int


def step(name: str) -> Callable[[State], State]:
    def node(state: State) -> State:
        return {"trail": [name]}

    return node


def told(graph: Any, config: Any = THREAD, *, subgraphs: bool = False) -> list[Any]:
    """The whole history of a thread, with ids replaced by their places in it."""
    history = list(graph.get_state_history(config))
    places = {one.config["configurable"]["checkpoint_id"]: at for at, one in enumerate(reversed(history))}
    lines = []
    for one in history:
        parent = one.parent_config and places[one.parent_config["configurable"]["checkpoint_id"]]
        tasks = [(task.name, task.error, task.result, [i.value for i in task.interrupts]) for task in one.tasks]
        metadata = {key: value for key, value in (one.metadata or {}).items() if key in ("source", "step")}
        lines.append(
            (places[one.config["configurable"]["checkpoint_id"]], parent, one.values, one.next, metadata, tasks)
        )
    return lines


def branching(saver: Any) -> Any:
    builder = StateGraph(State)
    for name in ("a", "b", "c", "c_alt"):
        builder.add_node(name, step(name))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_conditional_edges("b", lambda state: "c_alt" if state["route"] == "alt" else "c")
    return builder.compile(checkpointer=saver)


def at_next(graph: Any, *names: str) -> Any:
    return next(one for one in graph.get_state_history(THREAD) if one.next == names).config


def time_travel(saver: Any) -> Any:
    graph = branching(saver)
    graph.invoke({"route": "main", "trail": []}, THREAD)
    before = told(graph)
    fork = graph.update_state(at_next(graph, "c"), {"route": "alt"}, as_node="b")
    assert set(fork["configurable"]) == {"thread_id", "checkpoint_ns", "checkpoint_id"}
    forked = graph.get_state(THREAD)
    graph.invoke(None, fork)
    after = told(graph)
    again = graph.invoke(None, at_next(graph, "b"))
    assert after[2:] == before, "the old history is untouched"
    return before, forked.values, forked.next, forked.metadata["source"], after, again, told(graph)


def copied_checkpoint(saver: Any) -> Any:
    graph = branching(saver)
    graph.invoke({"route": "main", "trail": []}, THREAD)
    copy = graph.update_state(at_next(graph, "c"), None, as_node="__copy__")
    return graph.invoke(None, copy), told(graph), graph.get_state(THREAD).values


def a_human_in_the_loop(saver: Any) -> Any:
    def review(state: State) -> State:
        first = interrupt("how much?")
        second = interrupt("sure?")
        return {"amount": first, "trail": [second]}

    builder = StateGraph(State)
    builder.add_node("review", review)
    builder.add_node("pay", step("pay"))
    builder.add_edge(START, "review")
    builder.add_edge("review", "pay")
    graph = builder.compile(checkpointer=saver)
    results: list[Any] = [graph.invoke({"trail": ["asked"]}, THREAD)["__interrupt__"][0].value]
    results.append(told(graph))
    results.append(graph.invoke(Command(resume=7), THREAD)["__interrupt__"][0].value)
    results.append(told(graph))
    results.append(graph.invoke(Command(resume="yes"), THREAD))
    return [*results, told(graph)]


def a_sibling_that_fails(saver: Any) -> Any:
    runs: list[str] = []

    def bad(state: State) -> State:
        runs.append("bad")
        if runs.count("bad") == 1:
            # The framework does not wait for the sibling's writes, so that it has to be waited for here.
            while not any(write[2] == ["good"] for one in saver.list(THREAD) for write in one.pending_writes):
                threading.Event().wait(0.001)
            raise RuntimeError("broken")
        return {"trail": ["bad"]}

    def good(state: State) -> State:
        runs.append("good")
        return {"trail": ["good"]}

    builder = StateGraph(State)
    builder.add_node("bad", bad)
    builder.add_node("good", good)
    builder.add_edge(START, "bad")
    builder.add_edge(START, "good")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(RuntimeError):
        graph.invoke({"trail": []}, THREAD)
    failed = graph.get_state(THREAD)
    result = graph.invoke(None, THREAD)
    return sorted(runs), failed.next, result, len(told(graph))


def sends(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("work", lambda state: {"trail": [f"w{state['amount']}"]})
    builder.add_conditional_edges(START, lambda state: [Send("work", {"amount": i}) for i in range(12)])
    graph = builder.compile(checkpointer=saver)
    return graph.invoke({"trail": ["in"]}, THREAD), told(graph)


def nested(saver: Any, own: bool | None) -> Any:
    """A sub-graph that counts its calls, with a memory of its own or without."""
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"trail": [f"inner:{interrupt('go on?')}:{len(state['trail'])}"]})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("before", step("before"))
    outer.add_node("sub", inner.compile(checkpointer=own))
    outer.add_node("after", step("after"))
    for one, other in ((START, "before"), ("before", "sub"), ("sub", "after"), ("after", END)):
        outer.add_edge(one, other)
    return outer.compile(checkpointer=saver)


def sub_graphs(own: bool | None) -> Callable[[Any], Any]:
    def scenario(saver: Any) -> Any:
        graph = nested(saver, own)
        results = [graph.invoke({"trail": []}, THREAD)["__interrupt__"][0].value]
        results.append(graph.invoke(Command(resume="yes"), THREAD))
        first_run = told(graph)
        # Once more on the same thread, then back to before the sub-graph of the first run.
        graph.invoke({"trail": ["second"]}, THREAD)
        results.append(graph.invoke(Command(resume="again"), THREAD))
        before_sub = list(graph.get_state_history(THREAD))[-2].config
        results.append(graph.invoke(None, before_sub).get("__interrupt__", [None])[0])
        results.append(graph.invoke(Command(resume="replayed"), THREAD))
        spaces = {one.config["configurable"]["checkpoint_ns"].partition(":")[0] for one in saver.list(THREAD)}
        return [getattr(one, "value", one) for one in results], first_run, told(graph), spaces

    return scenario


SCENARIOS = {
    "time travel": time_travel,
    "a copied checkpoint": copied_checkpoint,
    "two questions in one node": a_human_in_the_loop,
    "a sibling that fails": a_sibling_that_fails,
    "many sends": sends,
    "a sub-graph": sub_graphs(None),
    "a sub-graph with a memory of its own": sub_graphs(True),
}


@pytest.mark.parametrize("conflicts", ["branch", "raise"])
@each_saver
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_graph_does_the_same_as_with_the_saver_in_memory(
    name: str, kind: str, conflicts: str, tmp_path: Path
) -> None:
    expected = SCENARIOS[name](InMemorySaver())

    with open_saver(kind, tmp_path, on_conflict=conflicts) as saver:
        assert SCENARIOS[name](saver) == expected
        assert saver.counts.get("conflict", 0) == 0


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@each_saver
def test_every_durability_ends_in_the_same_state(kind: str, durability: Any, tmp_path: Path) -> None:
    def run(saver: Any, api: str) -> Any:
        graph = branching(saver)
        given: Any = {"route": "main", "trail": []}
        if api == "sync":
            return graph.invoke(given, THREAD, durability=durability), told(graph)
        return asyncio.run(graph.ainvoke(given, THREAD, durability=durability)), told(graph)

    for api in ("sync", "async"):
        with open_saver(kind, tmp_path / api) as saver:
            assert run(saver, api) == run(InMemorySaver(), api)
