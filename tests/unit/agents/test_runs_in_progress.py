"""A run that tells when it ends has its thread until then: nobody goes on from the middle of it."""

from __future__ import annotations

import asyncio
import operator
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from flowpoint.agents.conflicts import Event
from flowpoint.agents.folder_holders import FolderHolders
from flowpoint.agents.holders import Holders, LocalHolders
from flowpoint.agents.retry import ainvoke_with_retry, invoke_with_retry
from flowpoint.agents.running import Runs
from flowpoint.agents.saver import CoreSaver
from flowpoint.errors import ConcurrentRunError, UsageError
from tests.unit.agents.stores import THREAD, each_saver, open_saver

SECONDS = 30
Node = Callable[[Any], Any]


class Chat(TypedDict):
    log: Annotated[list[str], operator.add]


def graph_of(saver: CoreSaver, *nodes: Node) -> Any:
    builder = StateGraph(Chat)
    names = [f"n{number}" for number in range(len(nodes))]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node)
    for before, after in zip([START, *names], names, strict=False):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def nothing(state: Chat) -> Any:
    return {}


def log(graph: Any) -> list[str]:
    found: list[str] = graph.get_state(THREAD).values["log"]
    return found


class Slow:
    """A node that is in progress from `begun` until `go`, the first time it runs."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.ran: list[list[str]] = []

    def __call__(self, state: Chat) -> Any:
        self.ran.append(list(state["log"]))
        self.begun.set()
        assert self.go.wait(SECONDS)
        return {}

    def on_event(self, event: Event) -> None:
        self.go.set()


@contextmanager
def in_progress(graph: Any, slow: Slow, invoke: Callable[..., Any] = invoke_with_retry) -> Iterator[Any]:
    """A run with the input A, whose node is running; what it comes to."""
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(invoke, graph, {"log": ["A"]}, THREAD, durability="sync")
        try:
            assert slow.begun.wait(SECONDS)
            yield run
        finally:
            slow.go.set()


def plainly(graph: Any, input: Any, config: Any, **options: Any) -> Any:
    return graph.invoke(input, config, **options)


@each_saver
@pytest.mark.parametrize("awaited", [False, True])
def test_who_comes_while_a_run_is_in_progress_runs_after_it_and_no_input_is_there_twice(
    kind: str, awaited: bool, tmp_path: Path
) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise", on_event=slow.on_event) as saver:
        graph = graph_of(saver, slow)
        with in_progress(graph, slow) as first:
            if awaited:
                asyncio.run(ainvoke_with_retry(graph, {"log": ["B"]}, THREAD, durability="sync"))
            else:
                invoke_with_retry(graph, {"log": ["B"]}, THREAD, durability="sync")

        assert first.result() == {"log": ["A"]}
        assert log(graph) == ["A", "B"]
        assert slow.ran == [["A"], ["A", "B"]]


@each_saver
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_plain_run_loses_to_one_in_progress_and_with_sync_before_any_of_its_nodes_runs(
    kind: str, durability: Any, tmp_path: Path
) -> None:
    slow, ran = Slow(), []
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        other = graph_of(saver, lambda state: ran.append(state) or {})
        with in_progress(graph_of(saver, slow), slow) as first:
            with pytest.raises(ConcurrentRunError, match=f"in progress in process {os.getpid()} has the thread"):
                other.invoke({"log": ["B"]}, THREAD, durability=durability)
            with pytest.raises(ConcurrentRunError, match="has the thread"):
                other.update_state(THREAD, {"log": ["edited"]}, as_node="n0")

        assert first.result() == {"log": ["A"]}
        assert log(other) == ["A"]
        assert ran == [] or durability != "sync"
        other.invoke({"log": ["B"]}, THREAD)
        assert log(other) == ["A", "B"]


@each_saver
def test_a_saver_that_branches_leaves_the_head_to_the_run_in_progress(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise") as saver, open_saver(kind, tmp_path) as branching:
        other = graph_of(branching, nothing)
        with in_progress(graph_of(saver, slow), slow) as first:
            other.invoke({"log": ["B"]}, THREAD)

        assert first.result() == {"log": ["A"]}
        assert log(other) == ["A"]
        assert ["A", "B"] in [state.values.get("log") for state in other.get_state_history(THREAD)]
        assert branching.counts == {"conflict": 1}


@each_saver
def test_a_plain_run_that_was_taken_over_is_told_not_to_give_its_input_again(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        other = graph_of(saver, nothing)
        with in_progress(graph_of(saver, slow), slow, plainly) as first:
            other.invoke({"log": ["B"]}, THREAD)

        with pytest.raises(ConcurrentRunError, match="in the history: do not give it again"):
            first.result()
        assert log(other) == ["A", "B"]


@each_saver
def test_a_run_that_was_taken_over_nevertheless_is_not_repeated(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise") as saver, open_saver(kind, tmp_path) as unaware:
        unaware.core.runs = Runs(LocalHolders())
        other = graph_of(unaware, nothing)
        with in_progress(graph_of(saver, slow), slow) as first:
            other.invoke({"log": ["B"]}, THREAD)

        with pytest.raises(ConcurrentRunError, match="in the history: do not give it again"):
            first.result()
        assert log(other) == ["A", "B"]
        assert slow.ran == [["A"]]


@each_saver
def test_a_run_whose_thread_goes_back_to_before_it_is_repeated(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise") as saver, open_saver(kind, tmp_path) as unaware:
        unaware.core.runs = Runs(LocalHolders())
        other = graph_of(unaware, nothing)
        other.invoke({"log": ["base"]}, THREAD)
        base = other.get_state(THREAD).config
        with in_progress(graph_of(saver, slow), slow) as first:
            other.update_state(base, {"log": ["edited"]}, as_node="n0")

        assert first.result() == {"log": ["base", "edited", "A"]}


class Notes(TypedDict):
    log: Annotated[list[str], operator.add]
    notes: Annotated[list[str], operator.add]


@each_saver
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_sub_graph_with_a_memory_of_its_own_keeps_nothing_of_a_run_that_lost(
    kind: str, durability: Any, tmp_path: Path
) -> None:
    inner = StateGraph(Notes).add_node("note", lambda state: {"notes": [state["log"][-1]]})
    notes = inner.add_edge(START, "note").compile(checkpointer=True)
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        other, intruders = graph_of(saver, nothing), iter(["edited"])

        def node(state: Chat) -> Any:
            if durability == "exit":
                for text in intruders:
                    other.update_state(THREAD, {"log": [text]}, as_node="n0")
            return {}

        graph = graph_of(saver, node, lambda state: notes.invoke({"log": state["log"][-1:]}) and {})
        invoke_with_retry(graph, {"log": ["A"]}, THREAD, durability=durability)

        assert log(graph) == [*(["edited"] if durability == "exit" else []), "A"]
        kept = next(iter(saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": "n1"}})))
        assert kept.checkpoint["channel_values"]["notes"] == ["A"]


@each_saver
def test_a_run_that_has_lost_takes_its_thread_no_more_though_that_is_free_while_its_nodes_still_run(
    kind: str, tmp_path: Path
) -> None:
    inner = StateGraph(Notes).add_node("note", lambda state: {"notes": [state["log"][-1]]})
    notes = inner.add_edge(START, "note").compile(checkpointer=True)
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise", on_event=slow.on_event) as saver:
        with in_progress(graph_of(saver, lambda state: slow(state) or fails(state)), slow) as first:

            def note(state: Chat) -> Any:
                assert isinstance(first.exception(SECONDS), ZeroDivisionError)
                return notes.invoke({"log": state["log"][-1:]}) and {}

            graph = graph_of(saver, note)
            invoke_with_retry(graph, {"log": ["B"]}, THREAD, durability="async")

        assert log(graph) == ["A", "B"]
        kept = next(iter(saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": "n0"}})))
        assert kept.checkpoint["channel_values"]["notes"] == ["B"]


class Stop(BaseException):
    """As of a user who interrupts a program."""


def fails(state: Chat) -> Any:
    raise ZeroDivisionError


def stops(state: Chat) -> Any:
    raise Stop


def asks(state: Chat) -> Any:
    return {"log": [interrupt("?")]}


@each_saver
@pytest.mark.parametrize("node", [nothing, fails, stops, asks])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_thread_is_free_however_the_run_that_had_it_ends(
    kind: str, node: Node, awaited: bool, tmp_path: Path
) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        graph = graph_of(saver, node)
        try:
            if awaited:
                asyncio.run(ainvoke_with_retry(graph, {"log": ["A"]}, THREAD, durability="sync"))
            else:
                invoke_with_retry(graph, {"log": ["A"]}, THREAD, durability="sync")
        except (ZeroDivisionError, Stop):
            assert node in (fails, stops)

        other = graph_of(saver, nothing)
        assert other.invoke({"log": ["B"]}, THREAD) == {"log": ["A", "B"]}


@each_saver
def test_a_thread_is_free_when_the_run_that_had_it_was_cancelled(kind: str, tmp_path: Path) -> None:
    async def cancelled() -> None:
        begun = asyncio.Event()

        async def waits(state: Chat) -> Any:
            begun.set()
            await asyncio.Event().wait()

        run = asyncio.create_task(ainvoke_with_retry(graph_of(saver, waits), {"log": ["A"]}, THREAD, durability="sync"))
        await asyncio.wait_for(begun.wait(), SECONDS)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        asyncio.run(cancelled())
        assert graph_of(saver, nothing).invoke({"log": ["B"]}, THREAD) == {"log": ["A", "B"]}


@each_saver
def test_who_waits_for_a_run_can_be_cancelled(kind: str, tmp_path: Path) -> None:
    async def cancelled() -> None:
        refused.clear()
        run = asyncio.create_task(ainvoke_with_retry(graph, {"log": ["B"]}, THREAD, durability="sync"))
        assert await asyncio.to_thread(refused.wait, SECONDS)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    slow, refused = Slow(), threading.Event()
    with open_saver(kind, tmp_path, on_conflict="raise", on_event=lambda event: refused.set()) as saver:
        graph = graph_of(saver, slow)
        with in_progress(graph, slow) as first:
            asyncio.run(cancelled())

        assert first.result() == {"log": ["A"]}
        assert log(graph) == ["A"]


@each_saver
def test_of_two_answers_at_once_one_is_given_and_the_other_not_kept_for_the_next_question(
    kind: str, tmp_path: Path
) -> None:
    slow = Slow()

    def ask(state: Chat) -> Any:
        answer = interrupt("pay?")
        slow(state)
        return {"log": [f"pay: {answer}"]}

    def ask_more(state: Chat) -> Any:
        return {"log": [f"ship: {interrupt('ship?')}"]}

    with open_saver(kind, tmp_path, on_conflict="raise") as saver, ThreadPoolExecutor(1) as pool:
        graph = graph_of(saver, ask, ask_more)
        graph.invoke({"log": []}, THREAD)
        first = pool.submit(invoke_with_retry, graph, Command(resume="no"), THREAD, durability="sync")
        assert slow.begun.wait(SECONDS)
        with pytest.raises(ConcurrentRunError, match="in progress"):
            invoke_with_retry(graph, Command(resume="yes"), THREAD, durability="sync")
        slow.go.set()
        first.result()

        assert len(slow.ran) == 1
        assert log(graph) == ["pay: no"]
        assert graph.get_state(THREAD).next == ("n1",)


@each_saver
def test_two_runs_that_go_on_without_input_run_each_node_once(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise", on_event=slow.on_event) as saver:
        graph = graph_of(saver, nothing, slow)
        interrupted = StateGraph(Chat).add_node("n0", nothing).add_node("n1", slow)
        interrupted.add_edge(START, "n0").add_edge("n0", "n1")
        interrupted.compile(checkpointer=saver, interrupt_before=["n1"]).invoke({"log": ["A"]}, THREAD)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(invoke_with_retry, graph, None, THREAD, durability="sync")
            assert slow.begun.wait(SECONDS)
            assert invoke_with_retry(graph, None, THREAD, durability="sync") == {"log": ["A"]}
            assert first.result() == {"log": ["A"]}

        assert slow.ran == [["A"]]


@each_saver
def test_a_conflict_inside_of_a_node_is_not_taken_for_the_loss_of_its_run(kind: str, tmp_path: Path) -> None:
    ran: list[str] = []
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        other = graph_of(saver, nothing)

        def intrudes(state: Chat) -> Any:
            ran.append("node")
            return other.invoke({"log": ["B"]}, THREAD, durability="sync")

        with pytest.raises(ConcurrentRunError, match="has the thread"):
            invoke_with_retry(graph_of(saver, intrudes), {"log": ["A"]}, THREAD, durability="sync")
        assert ran == ["node"]
        assert log(other) == ["A"]


@each_saver
def test_a_conflict_of_another_thread_is_not_taken_for_the_loss_of_a_run(kind: str, tmp_path: Path) -> None:
    ran: list[str] = []

    def conflicts(state: Chat) -> Any:
        ran.append("node")
        raise ConcurrentRunError("of another thread")

    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        with pytest.raises(ConcurrentRunError, match="of another thread"):
            invoke_with_retry(graph_of(saver, conflicts), {"log": ["A"]}, THREAD, durability="exit")
        assert ran == ["node"]


@each_saver
def test_a_run_does_not_wait_for_the_run_that_it_is_a_part_of(kind: str, tmp_path: Path) -> None:
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        other = graph_of(saver, nothing)
        graph = graph_of(saver, lambda state: invoke_with_retry(other, {"log": ["B"]}, THREAD))

        with pytest.raises(ConcurrentRunError, match="it would wait for itself"):
            invoke_with_retry(graph, {"log": ["A"]}, THREAD, durability="sync")
        assert log(other) == ["A"]


@each_saver
def test_a_thread_that_is_deleted_meanwhile_is_begun_anew(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with open_saver(kind, tmp_path, on_conflict="raise") as saver:
        graph = graph_of(saver, slow)
        with in_progress(graph, slow) as first:
            saver.delete_thread("t")

        assert first.result() == {"log": ["A"]}
        assert slow.ran == [["A"], ["A"]]


@each_saver
def test_the_thread_may_be_bound_to_the_graph(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with (
        open_saver(kind, tmp_path, on_conflict="raise", on_event=slow.on_event) as saver,
        ThreadPoolExecutor(1) as pool,
    ):
        graph = graph_of(saver, nothing, slow)
        graph_of(saver, nothing, fails).invoke({"log": ["A"]}, THREAD, interrupt_before=["n1"])
        first = pool.submit(invoke_with_retry, graph.with_config(THREAD), None, None)
        assert slow.begun.wait(SECONDS)
        assert invoke_with_retry(graph.with_config(THREAD), Command(update={"log": ["B"]}), None) == {"log": ["A", "B"]}
        assert first.result() == {"log": ["A"]}


def test_what_has_no_saver_that_tells_of_conflicts_is_refused() -> None:
    for graph in (graph_of(None, nothing), nothing):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="on_conflict='raise'"):
            invoke_with_retry(graph, {"log": []}, THREAD)


def test_a_run_ends_well_though_its_mark_was_removed(tmp_path: Path) -> None:
    with open_saver("folder", tmp_path, on_conflict="raise") as saver:

        def removes(state: Chat) -> Any:
            shutil.rmtree(tmp_path / "folder" / ".runs")
            return {}

        assert invoke_with_retry(graph_of(saver, removes), {"log": ["A"]}, THREAD, durability="sync") == {"log": ["A"]}
        assert graph_of(saver, nothing).invoke({"log": ["B"]}, THREAD) == {"log": ["A", "B"]}


HOLDER = """
import operator, sys, time
from typing import Annotated, TypedDict
from langgraph.graph import START, StateGraph
from flowpoint.agents import FolderSaver, invoke_with_retry

class Chat(TypedDict):
    log: Annotated[list[str], operator.add]

def slow(state):
    print("begun", flush=True)
    sys.stdin.readline()
    return {}

with FolderSaver(sys.argv[1], on_conflict="raise") as saver:
    graph = StateGraph(Chat).add_node("n0", slow).add_edge(START, "n0").compile(checkpointer=saver)
    invoke_with_retry(graph, {"log": ["A"]}, {"configurable": {"thread_id": "t"}}, durability="sync")
"""


@contextmanager
def process_in_progress(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "folder")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def test_a_run_of_another_process_has_its_thread_too(tmp_path: Path) -> None:
    with process_in_progress(tmp_path) as process:

        def let_go(event: Event) -> None:
            assert process.stdin is not None
            process.stdin.write("\n" * (process.poll() is None))
            process.stdin.flush()

        with open_saver("folder", tmp_path, on_conflict="raise", on_event=let_go) as saver:
            graph = graph_of(saver, nothing)
            assert invoke_with_retry(graph, {"log": ["B"]}, THREAD, durability="sync") == {"log": ["A", "B"]}
        assert process.wait(SECONDS) == 0


def test_a_run_whose_process_was_killed_does_not_block_its_thread(tmp_path: Path) -> None:
    with process_in_progress(tmp_path) as process, open_saver("folder", tmp_path, on_conflict="raise") as saver:
        graph = graph_of(saver, nothing)
        with pytest.raises(ConcurrentRunError, match=f"in process {process.pid} has the thread"):
            graph.invoke({"log": ["B"]}, THREAD)

        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)

        assert graph.invoke({"log": ["C"]}, THREAD) == {"log": ["A", "C"]}
        assert list((tmp_path / "folder" / ".runs").iterdir()) == []


@pytest.fixture(params=["local", "folder"])
def holders(request: pytest.FixtureRequest, tmp_path: Path) -> Holders:
    return LocalHolders() if request.param == "local" else FolderHolders(str(tmp_path))


def test_a_thread_is_had_by_one_run_until_it_is_left(holders: Holders) -> None:
    assert holders.holder("t") is None
    leave = holders.take("t", "7.a")
    assert leave is not None
    assert (holders.holder("t"), holders.holder("u")) == ("7.a", None)
    assert holders.take("t", "7.b") is None

    leave()

    assert holders.holder("t") is None
    again = holders.take("t", "7.b")
    assert again is not None
    assert holders.holder("t") == "7.b"


def test_looking_who_has_a_thread_is_in_nobodys_way(holders: Holders) -> None:
    looking = threading.Event()

    def look() -> None:
        while not looking.is_set():
            holders.holder("t")

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for number in range(200):
            leave = holders.take("t", f"7.{number}")
            assert leave is not None
            leave()
    finally:
        looking.set()
        for looker in lookers:
            looker.join()


def test_of_many_who_take_a_thread_one_at_a_time_has_it(holders: Holders) -> None:
    def take(which: int) -> list[str | None]:
        seen: list[str | None] = []
        while len(seen) < 20:
            leave = holders.take("t", f"7.{which}")
            if leave is not None:
                seen.append(holders.holder("t"))
                leave()
        return seen

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(take, range(4))) == [[f"7.{which}"] * 20 for which in range(4)]
    assert holders.holder("t") is None


def test_a_run_that_has_ended_takes_no_thread_whatever_of_it_is_still_under_way(holders: Holders) -> None:
    with Runs(holders).begun() as run:
        pass

    assert run.other("t") is None
    assert holders.holder("t") is None
