"""Savers for LangGraph side by side: supersteps, raw puts, sizes and reads. Prints a line of JSON for each figure.

    python -m scripts.bench.agents [supersteps] [puts] [sizes] [reads] [--seconds 2] [--rounds 3]

SqliteSaver and InMemorySaver run in the same process, in turns with ours, so that a busy machine hits all alike.
Graphs: ten nodes that append a message of 200 bytes each; and one that is repeated 1000 times over a list of messages.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import operator
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver

MESSAGE = "x" * 200
START_STATE = {"messages": [MESSAGE] * 10}


class Chat(TypedDict):
    messages: Annotated[list[str], operator.add]


def last_hundred(old: list[str], new: list[str]) -> list[str]:
    return (old + new)[-100:]


class Sliding(TypedDict):
    messages: Annotated[list[str], last_hundred]
    step: int


class Growing(TypedDict):
    messages: Annotated[list[str], operator.add]
    step: int


def chain(saver: Any, *, is_async: bool) -> Any:
    def node(_state: Chat) -> Chat:
        return {"messages": [MESSAGE]}

    async def waiting_node(_state: Chat) -> Chat:
        return {"messages": [MESSAGE]}

    builder = StateGraph(Chat)
    names = [f"n{i}" for i in range(10)]
    for name in names:
        builder.add_node(name, waiting_node if is_async else node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(one, other)
    return builder.compile(checkpointer=saver)


def repeated(saver: Any, window: bool, chance: random.Random) -> Any:
    builder = StateGraph(Sliding if window else Growing)
    builder.add_node("n", lambda state: {"messages": [message(chance)], "step": state["step"] + 1})
    builder.add_edge(START, "n")
    builder.add_conditional_edges("n", lambda state: END if state["step"] >= 1000 else "n")
    return builder.compile(checkpointer=saver)


def message(chance: random.Random) -> str:
    """200 characters that do not compress well."""
    return base64.b64encode(chance.randbytes(150)).decode()


def config(thread: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread or str(uuid.uuid4()), "checkpoint_ns": ""}, "recursion_limit": 5000}


def tell(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


@contextmanager
def savers(folder: Path) -> Iterator[dict[str, Any]]:
    with (
        SqliteSaver.from_conn_string(str(folder / "sqlite.db")) as sqlite,
        RocksSaver(folder / "rocks") as rocks,
        FolderSaver(folder / "folder") as shared,
    ):
        sqlite.setup()
        yield {"InMemorySaver": InMemorySaver(), "SqliteSaver": sqlite, "RocksSaver": rocks, "FolderSaver": shared}


def per_second(seconds: float, do: Callable[[], object], times: int = 1) -> float:
    do()
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        do()
        done += times
    return done / spent


def run(graph: Any, durability: Any) -> None:
    graph.invoke(START_STATE, config(), durability=durability)


def write(saver: Any, at: Any) -> None:
    saver.put_writes(at, [("messages", [MESSAGE])], str(uuid.uuid4()))


def page_of(saver: Any, thread: Any, before: Any) -> None:
    assert len(list(saver.list(thread, before=before, limit=20))) == 20


def supersteps(folder: Path, seconds: float, turn: int) -> None:
    with savers(folder) as all_savers:
        for durability in ("sync", "async", "exit"):
            for name, saver in all_savers.items():
                graph = chain(saver, is_async=False)
                rate = per_second(seconds, partial(run, graph, durability), 10)
                tell(
                    what="supersteps/s", api="invoke", durability=durability, saver=name, turn=turn, figure=round(rate)
                )
    (folder / "async").mkdir()
    asyncio.run(async_supersteps(folder / "async", seconds, turn))


async def async_supersteps(folder: Path, seconds: float, turn: int) -> None:
    async with (
        AsyncSqliteSaver.from_conn_string(str(folder / "sqlite.db")) as sqlite,
        RocksSaver(folder / "r") as rocks,
    ):
        await sqlite.setup()
        every = {"InMemorySaver": InMemorySaver(), "AsyncSqliteSaver": sqlite, "RocksSaver": rocks}
        for durability in ("sync", "async", "exit"):
            for name, saver in every.items():
                graph = chain(saver, is_async=True)
                await graph.ainvoke(START_STATE, config(), durability=durability)
                done, began = 0, time.perf_counter()
                while (spent := time.perf_counter() - began) < seconds:
                    await graph.ainvoke(START_STATE, config(), durability=durability)
                    done += 10
                tell(
                    what="supersteps/s",
                    api="ainvoke",
                    durability=durability,
                    saver=name,
                    turn=turn,
                    figure=round(done / spent),
                )


class Puts:
    """Puts a growing history of 2 kB checkpoints into one thread."""

    def __init__(self, saver: Any, durability: str | None) -> None:
        self.saver, self.count, self.config = saver, 0, config()
        self.durability = durability
        self.middle: Any = None
        self.messages = [MESSAGE] * 10

    def put(self) -> None:
        checkpoint = empty_checkpoint()
        version = f"{self.count + 1:032}.0"
        checkpoint["channel_values"] = {"messages": self.messages}
        checkpoint["channel_versions"] = {"messages": version}
        checkpoint["versions_seen"] = {"n0": {"messages": version}}
        if self.durability:
            self.config["configurable"]["__pregel_durability"] = self.durability
        metadata: Any = {"source": "loop", "step": self.count, "parents": {}}
        self.config = self.saver.put(self.config, checkpoint, metadata, {"messages": version})
        self.count += 1
        if self.count == 500:
            self.middle = self.config


def puts(folder: Path, seconds: float, turn: int) -> None:
    with savers(folder) as all_savers:
        for name, saver in all_savers.items():
            for durability in ("sync", "async") if name in ("RocksSaver", "FolderSaver") else ("sync",):
                rate = per_second(seconds, Puts(saver, durability).put)
                tell(what="raw puts of 2 kB/s", durability=durability, saver=name, turn=turn, figure=round(rate))
            at = Puts(saver, None)
            at.put()
            rate = per_second(seconds, partial(write, saver, at.config))
            tell(what="put_writes/s", saver=name, turn=turn, figure=round(rate))
        sqlite = all_savers["SqliteSaver"]
        sqlite.conn.execute("PRAGMA synchronous=OFF")
        rate = per_second(seconds, Puts(sqlite, None).put)
        tell(what="raw puts of 2 kB/s", durability="none", saver="SqliteSaver", turn=turn, figure=round(rate))


def sizes(folder: Path, _seconds: float, turn: int) -> None:
    for window, shape in ((True, "100 messages, sliding"), (False, "100 to 1100 messages, growing")):
        where = folder / str(window)
        where.mkdir()
        with savers(where) as all_savers:
            for name in ("SqliteSaver", "RocksSaver"):
                saver, chance = all_savers[name], random.Random(7)
                graph = repeated(saver, window, chance)
                given = {"messages": [message(chance) for _ in range(100)], "step": 0}
                began = time.perf_counter()
                graph.invoke(given, config("c"), durability="sync")
                spent = time.perf_counter() - began
                size = database_size(where, saver)
                tell(what="MB of tables", shape=shape, saver=name, turn=turn, figure=size, steps_s=round(1000 / spent))


def database_size(folder: Path, saver: Any) -> float:
    if isinstance(saver, SqliteSaver):
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return round((folder / "sqlite.db").stat().st_size / 1e6, 2)
    saver.core.kv.compact()
    return round(sum(file.stat().st_size for file in (folder / "rocks").glob("*.sst")) / 1e6, 2)


def reads(folder: Path, seconds: float, turn: int) -> None:
    with savers(folder) as all_savers:
        for name, saver in all_savers.items():
            history = Puts(saver, "async")
            for _ in range(10_000 if name != "FolderSaver" else 1000):
                history.put()
            latest = {"configurable": {"thread_id": history.config["configurable"]["thread_id"], "checkpoint_ns": ""}}
            head = 1000 / per_second(seconds / 2, partial(saver.get_tuple, latest))
            page = 1000 / per_second(seconds / 2, partial(page_of, saver, latest, None))
            middle = history.middle
            deep = 1000 / per_second(seconds / 2, partial(page_of, saver, latest, middle))
            tell(
                what=f"reads of {history.count} checkpoints, ms",
                saver=name,
                turn=turn,
                head=round(head, 3),
                page=round(page, 3),
                before=round(deep, 3),
            )


BENCHES: dict[str, Callable[[Path, float, int], None]] = {
    "supersteps": supersteps,
    "puts": puts,
    "sizes": sizes,
    "reads": reads,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=[*BENCHES, []], default=[])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for turn in range(options.rounds):
        for name in options.what or BENCHES:
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder:
                BENCHES[name](Path(folder), options.seconds, turn)


if __name__ == "__main__":
    main()
