"""What goes and what stays: nothing that a thread needs is ever removed."""

from __future__ import annotations

import operator
import threading
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from flowpoint.agents.appending import World
from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import ConcurrentRunError, UsageError
from tests.unit.agents.stores import THREAD, config, each_saver, ids, open_saver, put


class Clock:
    """A clock that a test turns."""

    def __init__(self, saver: CoreSaver) -> None:
        self.now, world = 1_000_000_000_000, saver.core.world
        saver.core.world = World(lambda: self.now, world.new_nonce)

    def turn(self, **by: float) -> None:
        self.now += timedelta(**by) // timedelta(milliseconds=1)


def chain(saver: CoreSaver, *names: str, ns: str = "", **metadata: Any) -> Any:
    at = config(ns=ns)
    for name in names:
        at = put(saver, at, {"a": name * 5000}, id=name, **metadata)
    return at


def entries(saver: CoreSaver, below: str) -> int:
    return sum(1 for _ in saver.core.kv.keys(f"t/t/{below}/"))


@each_saver
def test_pruning_keeps_heads_their_writes_and_their_values_and_nothing_else(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        for name in ("a", "b"):
            saver.put_writes(config(id=name), [("old", "x" * 70_000)], "task")
        at = chain(saver, "a", "b", "c")
        saver.put_writes(at, [("new", "y" * 70_000)], "task")
        chain(saver, "d", "e", ns="sub")

        saver.prune(["t", "no such thread"])

        assert ids(saver.list(THREAD)) == ["e", "c"]
        head = saver.get_tuple(config())
        assert head.checkpoint["channel_values"] == {"a": "c" * 5000}
        assert head.pending_writes == [("task", "new", "y" * 70_000)]
        assert head.parent_config["configurable"]["checkpoint_id"] == "b"
        assert entries(saver, "w") == 1
        assert entries(saver, "b") == {"rocks": 3, "folder": 1}[kind]
        assert ids(saver.list(THREAD)) == ids(reopened(saver, kind, tmp_path).list(THREAD))


def reopened(saver: CoreSaver, kind: str, tmp_path: Path) -> CoreSaver:
    saver.close()
    return open_saver(kind, tmp_path)


@each_saver
def test_a_pending_question_survives_pruning(kind: str, tmp_path: Path) -> None:
    class State(TypedDict):
        log: Annotated[list[str], operator.add]

    builder = StateGraph(State)
    builder.add_node("draft", lambda state: {"log": ["draft"]})
    builder.add_node("review", lambda state: {"log": [f"review:{interrupt('ok?')}"]})
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "review")
    with open_saver(kind, tmp_path) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"log": []}, THREAD)

        saver.prune(["t"])
        saver.expire(keep_last=1, ttl=timedelta(0))

        assert graph.get_state(THREAD).next == ("review",)
        assert graph.invoke(Command(resume="yes"), THREAD) == {"log": ["draft", "review:yes"]}


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def asking(saver: CoreSaver, *, in_a_sub_graph: bool) -> Any:
    """A graph that asks before it ends."""
    builder = StateGraph(Log)
    builder.add_node("review", lambda state: {"log": [f"review:{interrupt('ok?')}"]})
    builder.add_edge(START, "review")
    if in_a_sub_graph:
        outer = StateGraph(Log)
        outer.add_node("sub", builder.compile())
        builder = outer.add_edge(START, "sub")
    return builder.compile(checkpointer=saver)


@each_saver
@pytest.mark.parametrize("in_a_sub_graph", [False, True], ids=["in the graph", "in a sub-graph"])
def test_a_thread_that_is_too_old_waits_for_its_answer_and_not_for_one_that_came(
    in_a_sub_graph: bool, kind: str, tmp_path: Path
) -> None:
    with open_saver(kind, tmp_path) as saver:
        clock = Clock(saver)
        graph = asking(saver, in_a_sub_graph=in_a_sub_graph)
        graph.invoke({"log": []}, THREAD)
        clock.turn(days=2)
        saver.expire(ttl=timedelta(days=1))
        assert graph.invoke(Command(resume="yes"), THREAD)["log"] == ["review:yes"]

        saver.expire(keep_last=1)
        assert len(list(graph.get_state_history(THREAD))) == 1, "what was answered needs no longer be kept"
        graph.invoke({"log": []}, THREAD)
        graph.invoke(Command(resume="yes"), THREAD)
        clock.turn(days=2)
        saver.expire(ttl=timedelta(days=1))
        assert saver.core.reader.threads() == []


@each_saver
def test_a_question_that_waits_in_a_branch_stays_with_what_it_needs(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        graph = asking(saver, in_a_sub_graph=False)
        graph.invoke({"log": ["first"]}, THREAD)
        asked = graph.get_state(THREAD).config
        begun = list(graph.get_state_history(THREAD))[-1].config
        graph.update_state(begun, {"log": ["instead"]}, as_node="review")

        saver.expire(keep_last=1, ttl=timedelta(0))

        assert graph.invoke(Command(resume="yes"), asked)["log"] == ["first", "review:yes"]


@each_saver
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_ancestors_that_a_delta_channel_needs_stay(kind: str, durability: Any, tmp_path: Path) -> None:
    class State(TypedDict):
        log: Annotated[list[str], DeltaChannel(lambda old, writes: [*old, *(one for write in writes for one in write)])]

    builder = StateGraph(State)
    for name in ("p0", "p1", "p2", "p3"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(START, name)
    builder.add_node("end", lambda state: {"log": ["end"]})
    builder.add_edge(["p0", "p1", "p2", "p3"], "end")
    with open_saver(kind, tmp_path) as saver:
        graph = builder.compile(checkpointer=saver)
        live = [graph.invoke({"log": [word]}, THREAD, durability=durability)["log"] for word in ("in", "again")][-1]
        assert live == ["in", "p0", "p1", "p2", "p3", "end", "again", "p0", "p1", "p2", "p3", "end"]
        assert graph.get_state(THREAD).values["log"] == live

        saver.prune(["t"])
        saver.expire(keep_last=1)

        assert graph.get_state(THREAD).values["log"] == live
        assert graph.invoke({"log": ["more"]}, THREAD)["log"][:-5] == [*live, "more"]


@each_saver
def test_expiring_keeps_the_last_of_each_line_and_what_is_young(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        clock = Clock(saver)
        at = chain(saver, "a", "b", "c")
        clock.turn(days=2)
        put(saver, at, id="d")
        put(saver, config(id="b"), id="fork")

        assert saver.expire(["t"], ttl=timedelta(days=1)) == 3
        assert ids(saver.list(THREAD)) == ["fork", "d"]
        clock.turn(days=2)
        assert saver.expire(ttl=timedelta(days=1)) == 2
        assert saver.core.reader.threads() == []

        with pytest.raises(UsageError, match="say which stay"):
            saver.expire()
        with pytest.raises(UsageError, match="at least 1"):
            saver.expire(keep_last=0)


@each_saver
def test_deleting_a_run_moves_the_head_back_and_its_late_writes_are_refused(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path) as saver:
        first = chain(saver, "a", run_id="one")
        mine = put(saver, first, id="b", run_id="two")
        mine = put(saver, mine, id="c", run_id="two")

        saver.delete_for_runs(["two", "no such run"])

        assert saver.get_tuple(config()).checkpoint["id"] == "a"
        with pytest.raises(ConcurrentRunError, match="was deleted"):
            put(saver, mine, id="d", run_id="two")
        put(saver, first, id="e")
        assert ids(saver.list(THREAD)) == ["e", "a"]


@each_saver
def test_a_copy_has_history_heads_writes_and_branches_and_lives_on_alone(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, keys={"k": bytes(32)}) as saver:
        at = chain(saver, "a", "b")
        put(saver, config(id="a"), {"a": ["m" * 2000] * 50}, id="branch")
        saver.put_writes(at, [("w", "y" * 70_000)], "task")

        saver.copy_thread("t", "copy")
        saver.delete_thread("t")

        assert ids(saver.list(config("copy"))) == ["branch", "b", "a"]
        head = saver.get_tuple(config("copy"))
        assert (head.checkpoint["id"], head.pending_writes) == ("b", [("task", "w", "y" * 70_000)])
        branch = saver.get_tuple(config("copy", id="branch"))
        assert branch.checkpoint["channel_values"] == {"a": ["m" * 2000] * 50}
        with pytest.raises(UsageError, match="has checkpoints"):
            saver.copy_thread("copy", "copy")


@each_saver
def test_a_sweep_waits_for_a_copy_of_which_nothing_counts_yet(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_saver(kind, tmp_path) as saver, open_saver(kind, tmp_path) as other:
        chain(saver, "a", "b", "c")
        saver.put_writes(config(id="a"), [("w", "x" * 70_000)], "task")
        sweeper = threading.Thread(target=other.sweep, args=[timedelta(0)])
        append, copied = saver.core.log.append, []

        def appending(*given: Any, **options: Any) -> Any:
            copied.append(append(*given, **options))
            if len(copied) == 2:
                sweeper.start()
                sweeper.join(0.2)  # which it does not end in, unless it sweeps what is being copied
            return copied[-1]

        monkeypatch.setattr(saver.core.log, "append", appending)
        saver.copy_thread("t", "copy")
        sweeper.join()

        assert ids(other.list(config("copy"))) == ["c", "b", "a"]
        first = other.get_tuple(config("copy", id="a"))
        assert first.checkpoint["channel_values"] == {"a": "a" * 5000}
        assert first.pending_writes == [("task", "w", "x" * 70_000)]


@each_saver
def test_orphans_are_swept_when_they_are_old_and_named_in_the_log(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_saver(kind, tmp_path) as saver:
        clock = Clock(saver)
        chain(saver, "a")
        saver.put_writes(config(id="a"), [("x", 1)], "task")
        saver.put_writes(config(id="never"), [("x", "z" * 70_000)], "task")
        saver.put_writes(config("other", id="never"), [("x", 1)], "task")
        clock.turn(hours=23)
        assert saver.sweep() == 0
        assert "removed" not in caplog.text

        clock.turn(hours=2)
        assert saver.sweep() == 3  # two writes and a value
        assert saver.sweep() == 0
        told = [record.getMessage() for record in caplog.records if "removed" in record.getMessage()]
        assert [line.partition(": ")[0] for line in sorted(told)] == [
            f"thread {thread!r}, namespace '', checkpoint never" for thread in ("other", "t")
        ]
        assert saver.get_tuple(config()).pending_writes == [("task", "x", 1)]


def test_another_process_that_follows_the_log_sees_a_cut(tmp_path: Path) -> None:
    with FolderSaver(tmp_path) as one, FolderSaver(tmp_path) as other:
        at = chain(one, "a", "b", "c")
        assert ids(other.list(THREAD)) == ["c", "b", "a"]
        one.prune(["t"])
        assert ids(other.list(THREAD)) == ["c"]
        put(other, at, id="d")
        one.delete_thread("t")
        assert ids(other.list(THREAD)) == []
        put(other, config(), id="e")
        assert ids(one.list(THREAD)) == ["e"]


@each_saver
def test_sweeping_does_not_forget_what_was_deleted_nor_where_the_head_is(kind: str, tmp_path: Path) -> None:
    saver = open_saver(kind, tmp_path)
    first = put(saver, config(), id="first")
    put(saver, first, id="second")
    branch = put(saver, {**first, "configurable": {**first["configurable"]}}, id="branch")
    travelled = put(saver, saver.get_tuple(branch).config, id="travelled", run_id="gone")
    assert saver.get_tuple(config()).checkpoint["id"] == "travelled"
    saver.delete_for_runs(["gone"])
    put(saver, config(ns="other"), id="later")

    for _ in range(2):
        saver.sweep(timedelta(0))
        saver = reopened(saver, kind, tmp_path)

        assert saver.get_tuple(config()).checkpoint["id"] == "branch"
        with pytest.raises(ConcurrentRunError, match="was deleted"):
            put(saver, travelled, id="late")
    saver.close()
