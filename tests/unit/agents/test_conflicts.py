"""Two runs of one thread: seen, and nothing lost."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from flowpoint.agents.conflicts import Event
from flowpoint.agents.retry import ainvoke_with_retry, invoke_with_retry
from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import ConcurrentRunError, UsageError
from tests.unit.agents.stores import THREAD, config, each_saver, ids, open_saver, put

MODES = [("invoke", "sync"), ("invoke", "async"), ("invoke", "exit"), ("ainvoke", "sync"), ("ainvoke", "async")]
MODES += [("ainvoke", "exit"), ("update", "")]


class Chat(TypedDict):
    messages: Annotated[list[str], operator.add]


def answering(saver: CoreSaver, before: Callable[[], object] = lambda: None) -> Any:
    ran: list[str] = []

    def answer(state: Chat) -> Chat:
        ran.append(state["messages"][-1])
        before()
        return {"messages": [f"re {state['messages'][-1]}"]}

    builder = StateGraph(Chat)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    graph.ran = ran
    return graph


def said(graph: Any) -> list[str]:
    messages: list[str] = graph.get_state(THREAD).values["messages"]
    return messages


def run(graph: Any, text: str, api: str, durability: Any) -> None:
    given: Any = {"messages": [text]}
    if api == "update":
        graph.update_state(THREAD, given, as_node="answer")
    elif api == "invoke":
        graph.invoke(given, THREAD, durability=durability)
    else:
        asyncio.run(graph.ainvoke(given, THREAD, durability=durability))


def race(saver: CoreSaver, graph: Any, api: str, durability: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run two requests that both read before either writes; how each ended."""
    both_read, reads = threading.Barrier(2), itertools.count()
    ends: list[str] = []
    get_tuple = type(saver).get_tuple

    def reading_together(self: CoreSaver, config: Any) -> Any:
        found = get_tuple(self, config)
        if next(reads) < 2:
            both_read.wait(30)
        return found

    def request(text: str) -> None:
        try:
            run(graph, text, api, durability)
            ends.append("done")
        except ConcurrentRunError:
            ends.append("lost")

    with monkeypatch.context() as patch:
        patch.setattr(type(saver), "get_tuple", reading_together)
        threads = [threading.Thread(target=request, args=(text,)) for text in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sorted(ends)


@each_saver
@pytest.mark.parametrize(("api", "durability"), MODES)
def test_with_raise_exactly_one_run_wins_and_nothing_of_the_other_is_there(
    kind: str, api: str, durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        graph = answering(saver)
        graph.invoke({"messages": ["base"]}, THREAD)

        assert race(saver, graph, api, durability, monkeypatch) == ["done", "lost"]

        winner = said(graph)[2]
        assert winner in ("one", "two")
        assert all(
            len({"one", "two"} & set(state.values.get("messages", []))) < 2 for state in graph.get_state_history(THREAD)
        )
        loser = "two" if winner == "one" else "one"
        assert not any(loser in state.values.get("messages", []) for state in graph.get_state_history(THREAD))
        if durability == "sync":
            assert loser not in graph.ran, "none of its nodes ran"


@each_saver
@pytest.mark.parametrize(("api", "durability"), MODES)
def test_with_branch_both_histories_are_kept_whole_and_the_conflict_is_told(
    kind: str, api: str, durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    with open_saver(kind, tmp_path, on_event=events.append) as saver:
        graph = answering(saver)
        graph.invoke({"messages": ["base"]}, THREAD)

        assert race(saver, graph, api, durability, monkeypatch) == ["done", "done"]

        states = [state.values.get("messages", []) for state in graph.get_state_history(THREAD)]
        for text in ("one", "two"):
            whole = ["base", "re base", text] + ([] if api == "update" else [f"re {text}"])
            assert whole in states
        assert saver.counts == {"conflict": 1}
        assert [(event.kind, event.thread) for event in events] == [("conflict", "t")]


@each_saver
def test_two_first_runs_of_a_new_thread_meet_too(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        graph = answering(saver)

        assert race(saver, graph, "invoke", "sync", monkeypatch) == ["done", "lost"]
        assert len(said(graph)) == 2


@each_saver
def test_a_run_that_lost_is_run_again_on_the_new_head(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        intruders = iter(["intruder"])

        def intrude() -> None:
            for text in intruders:
                other.invoke({"messages": [text]}, THREAD)

        other, graph = answering(saver), answering(saver, intrude)
        invoke_with_retry(graph, {"messages": ["mine"]}, THREAD, durability="exit")
        assert said(graph) == ["intruder", "re intruder", "mine", "re mine"]

        intruders = iter(["again"])
        asyncio.run(ainvoke_with_retry(graph, {"messages": ["more"]}, THREAD, durability="exit"))
        assert said(graph)[4:] == ["again", "re again", "more", "re more"]


def test_retrying_gives_up_after_so_many_attempts_and_wants_a_saver_that_raises(tmp_path: Path) -> None:
    with open_saver("rocks", tmp_path, on_conflict="raise") as saver:
        other = answering(saver)
        graph = answering(saver, lambda: other.invoke({"messages": ["intruder"]}, THREAD))
        with pytest.raises(ConcurrentRunError, match="another run has moved the head"):
            invoke_with_retry(graph, {"messages": ["mine"]}, THREAD, attempts=2, durability="exit")
        assert said(graph).count("intruder") == 2

    with open_saver("folder", tmp_path) as saver, pytest.raises(UsageError, match="on_conflict='raise'"):
        invoke_with_retry(answering(saver), {"messages": []}, THREAD)


@each_saver
@pytest.mark.parametrize("conflicts", ["branch", "raise"])
def test_a_late_put_of_a_deleted_thread_does_not_revive_it(kind: str, conflicts: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, on_conflict=conflicts) as saver:
        graph = answering(saver, lambda: saver.delete_thread("t") if deleting else None)
        deleting: list[bool] = []
        graph.invoke({"messages": ["base"]}, THREAD)

        deleting.append(True)
        with pytest.raises(ConcurrentRunError, match="was deleted while the run was going"):
            graph.invoke({"messages": ["late"]}, THREAD, durability="sync")

        assert list(saver.list(None)) == []
        assert saver.core.reader.threads() == []
        deleting.clear()
        graph.invoke({"messages": ["new"]}, THREAD)
        assert said(graph) == ["new", "re new"]


@each_saver
def test_a_late_put_of_a_cancelled_run_never_moves_the_head(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        graph = answering(saver)
        graph.invoke({"messages": ["base"]}, THREAD)
        cancelled = saver.get_tuple(THREAD)
        graph.invoke({"messages": ["newer"]}, THREAD)
        head = saver.get_tuple(THREAD).checkpoint["id"]

        checkpoint = {**cancelled.checkpoint, "id": "ffffffff-late"}
        saver.put(cancelled.config, checkpoint, {"source": "loop", "step": 9, "parents": {}}, {})

        assert saver.get_tuple(THREAD).checkpoint["id"] == head


def conflicting(saver: CoreSaver) -> Callable[[str], Any]:
    """A function that puts checkpoints which all claim to continue a head that has moved on."""
    stale = put(saver, config(), id="stale")
    read = saver.get_tuple(config())
    assert read is not None
    put(saver, stale, id="head")
    return lambda id: put(saver, read.config, id=id)


@each_saver
def test_what_listens_to_events_may_wait_for_others_that_use_the_thread(kind: str, tmp_path: Path) -> None:
    heard: list[bool] = []

    def listen(event: Event) -> None:
        other = threading.Thread(target=put, args=(saver, saver.get_tuple(config()).config), kwargs={"id": "meanwhile"})
        other.start()
        other.join(10)
        heard.append(other.is_alive())

    with open_saver(kind, tmp_path, on_event=listen) as saver:
        conflicting(saver)("late")

        assert heard == [False]
        assert ids(saver.list(config())) == ["meanwhile", "late", "head", "stale"]


@each_saver
@pytest.mark.parametrize("conflicts", ["branch", "raise"])
def test_what_listens_cannot_undo_a_put_nor_hide_why_it_was_refused(
    kind: str, conflicts: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def listen(event: Event) -> None:
        raise RuntimeError("deaf")

    with open_saver(kind, tmp_path, on_event=listen, on_conflict=conflicts) as saver:
        late = conflicting(saver)
        if conflicts == "raise":
            with pytest.raises(ConcurrentRunError, match="another run has moved the head"):
                late("late")
        else:
            late("late")

        assert ids(saver.list(config())) == (["late"] if conflicts == "branch" else []) + ["head", "stale"]
        assert "on_event failed for a conflict of thread 't'" in caplog.text


def test_a_conflict_is_told_once_however_often_others_take_the_number(tmp_path: Path) -> None:
    with open_saver("folder", tmp_path) as saver, open_saver("folder", tmp_path) as other:
        late = conflicting(saver)
        create, takers = saver.core.kv.create, iter(["one", "two", "three"])

        def taken(key: str, value: bytes, **options: Any) -> bool:
            for id_ in takers:
                put(other, other.get_tuple(config()).config, id=id_)
                break
            return create(key, value, **options)

        saver.core.kv.create = taken  # type: ignore[method-assign]
        late("late")

        assert saver.counts == {"conflict": 1}
        assert ids(saver.list(config())) == ["late", "three", "two", "one", "head", "stale"]
