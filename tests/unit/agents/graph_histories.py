"""Small graphs made by chance, and what is done with them: on a saver of ours as on LangGraph's own in memory.

A graph has steps in a row, branches, loops, nodes side by side, `Send`, `Command`, questions, nodes that fail once, and
sub-graphs with a memory of their own or without. It is run, answered, gone on with, updated, and gone back in, with every
durability; the saver of ours is closed and opened in between, and a run of it is cut off at one of its puts, and resumed.

Not here: what a saver does when it is called by itself (`history_machine`).
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.unit.agents.stores import THREAD
from tests.unit.agents.test_saver_oracle import told

_TRAIL_MAX: Final = 14
KINDS: Final = ("step", "step", "ask", "fail", "command", "sub", "slide")


def _slide(old: list[int], new: list[int]) -> list[int]:
    return (old + new)[-150:]


class State(TypedDict, total=False):
    trail: Annotated[list[str], operator.add]
    route: Annotated[int, operator.add]
    window: Annotated[list[int], _slide]


class Broken(Exception):
    """A node fails."""


class CutOff(Exception):
    """The process ends in the middle of a run."""


Compiled = Callable[[Any, set[str]], Any]


def graph_of(seed: int) -> Compiled:
    """What compiles the graph of a seed on a saver. Nodes that fail do so once, and note it."""
    chance = random.Random(seed)
    count = chance.randint(2, 5)
    kinds = [chance.choice(KINDS) for _ in range(count)]
    ways = [chance.choice(("next", "next", "branch", "both", "send", "loop")) for _ in range(count)]
    memories = [chance.choice((None, True)) for _ in range(count)]

    def compiled(saver: Any, failed: set[str]) -> Any:
        builder = StateGraph(State)
        names = [f"n{number}" for number in range(count)]
        for number, name in enumerate(names):
            after = names[number + 1] if number + 1 < count else END
            later = names[number + 2] if number + 2 < count else END
            builder.add_node(name, _node(kinds[number], name, after, failed, memories[number]))
            if kinds[number] != "command":
                _lead_on(builder, ways[number], name, after, later, names)
        builder.add_node("work", lambda state: {"trail": [f"w{state['route']}"]})
        builder.add_edge(START, names[0])
        return builder.compile(checkpointer=saver)

    return compiled


def _node(kind: str, name: str, after: str, failed: set[str], memory: bool | None) -> Any:
    def step(state: State) -> State:
        return {"trail": [name], "route": len(state["trail"])}

    def ask(state: State) -> State:
        return {"trail": [f"{name}:{interrupt(name)}:{len(state['trail'])}"]}

    def fail(state: State) -> State:
        if name not in failed:
            failed.add(name)
            raise Broken(name)
        return {"trail": [name]}

    def command(state: State) -> Command[Any]:
        return Command(goto=after, update={"trail": [name], "route": 1})

    def slide(state: State) -> State:
        return {"trail": [name], "window": list(range(len(state["trail"]) * 40))}

    if kind == "sub":
        inner = StateGraph(State)
        inner.add_node("in", lambda state: {"trail": [f"{name}.in"]})
        inner.add_node("ask", lambda state: {"trail": [f"{name}.{interrupt('inner')}"]})
        inner.add_edge(START, "in")
        inner.add_edge("in", "ask")
        return inner.compile(checkpointer=memory)
    return {"step": step, "ask": ask, "fail": fail, "command": command, "slide": slide}[kind]


def _lead_on(builder: Any, way: str, name: str, after: str, later: str, names: list[str]) -> None:
    def branch(state: State) -> str:
        return after if state["route"] % 2 else later

    def loop(state: State) -> str:
        return names[0] if len(state["trail"]) < _TRAIL_MAX and state["route"] % 3 == 0 else after

    def send(state: State) -> list[Send]:
        return [Send("work", {"route": number}) for number in range(state["route"] % 4 + 1)]

    if way == "branch":
        builder.add_conditional_edges(name, branch, [after, later])
    elif way == "loop":
        builder.add_conditional_edges(name, loop, [names[0], after])
    elif way == "send":
        builder.add_conditional_edges(name, send, ["work"])
        builder.add_edge(name, after)
    else:
        builder.add_edge(name, after)
        if way == "both" and later != after:
            builder.add_edge(name, later)


class Session:
    """A thread of a graph, and what is done with it."""

    def __init__(self, compiled: Compiled, opened: Callable[[], Any]) -> None:
        self._compiled = compiled
        self._opened = opened
        self._failed: set[str] = set()
        self._saver = opened()
        self._graph = compiled(self._saver, self._failed)

    def reopen(self) -> None:
        """As by the next process."""
        self.close()
        self._saver = self._opened()
        self._graph = self._compiled(self._saver, self._failed)

    @property
    def conflicts(self) -> int:
        """How many there were since it was opened."""
        return self._saver.counts.get("conflict", 0)

    def close(self) -> None:
        """Let go of the store."""
        if hasattr(self._saver, "close"):
            self._saver.close()

    def act(self, chance: random.Random, number: int) -> Any:
        """Do something; what came of it."""
        durability: Any = chance.choice(("sync", "async", "exit"))
        history = list(self._graph.get_state_history(THREAD))
        waits = bool(history and history[0].interrupts)
        match chance.randrange(8):
            case 0 | 1 if history:
                values = {"trail": [f"u{number}"], "route": chance.randrange(3)}
                at = chance.choice([THREAD, history[chance.randrange(len(history))].config])
                as_node = chance.choice([name for name in self._graph.nodes if name[0] == "n"])
                return self._tried(lambda: self._update(at, values, as_node))
            case 2 if history:
                at = history[chance.randrange(len(history))].config
                return self.run(None, at, durability)
            case 3 if history:
                return self.run(None, THREAD, durability)
            case _ if waits:
                return self.run(Command(resume=f"a{number}"), THREAD, durability)
        return self.run({"trail": [f"in{number}"], "route": number}, THREAD, durability)

    def _update(self, at: Any, values: Any, as_node: str) -> Any:
        self._graph.update_state(at, values, as_node=as_node)

    def run(self, given: Any, at: Any, durability: Any) -> Any:
        """Run it, and go on as long as a node fails."""
        for _ in range(6):
            done = self._invoked(given, at, durability)
            if done != "Broken":
                return done
            if durability != "exit":
                given, at = None, THREAD
        return done

    def _invoked(self, given: Any, at: Any, durability: Any) -> Any:
        return self._tried(lambda: self._graph.invoke(given, {**at, "recursion_limit": 40}, durability=durability))

    def _tried(self, action: Callable[[], Any]) -> Any:
        try:
            done = action()
        except (Broken, GraphRecursionError) as error:
            return type(error).__name__
        except Exception as error:  # LangGraph's own, of what cannot be done
            if type(error).__module__.startswith("flowpoint"):
                raise
            return type(error).__name__
        if isinstance(done, dict) and "__interrupt__" in done:
            done = {**done, "__interrupt__": sorted(one.value for one in done["__interrupt__"])}
        return done

    def shows(self) -> Any:
        """The history of the thread, and how many checkpoints its sub-graphs have."""
        spaces = Counter(
            one.config["configurable"]["checkpoint_ns"].partition(":")[0] for one in self._saver.list(THREAD)
        )
        return told(self._graph), spaces

    def run_cut_off(self, given: Any, at_put: int) -> Any:
        """Run with new input; the process ends at one of the puts, and the next one goes on."""
        before = self._graph.get_state(THREAD).config["configurable"].get("checkpoint_id")
        with self._cut_off(at_put):
            done = self._invoked(given, THREAD, "sync")
        if done == "CutOff":
            self.reopen()
        elif done != "Broken":
            return done
        head = self._saver.get_tuple(THREAD)
        has_begun = head is not None and head.checkpoint["id"] != before
        return self.run(None if has_begun else given, THREAD, "sync")

    @contextmanager
    def _cut_off(self, at_put: int) -> Iterator[None]:
        """From one of the puts on nothing comes to the store any more."""
        saver = self._saver
        put, put_writes, puts = saver.put, saver.put_writes, iter(range(1, 10_000))
        is_off = False

        def until_then(call: Callable[..., Any], *args: Any) -> Any:
            if is_off:
                raise CutOff
            return call(*args)

        def counted(*args: Any) -> Any:
            nonlocal is_off
            is_off = is_off or next(puts) == at_put
            return until_then(put, *args)

        saver.put, saver.put_writes = counted, partial(until_then, put_writes)
        try:
            yield
        finally:
            del saver.put, saver.put_writes
