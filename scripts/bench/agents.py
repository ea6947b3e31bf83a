"""Savers for LangGraph side by side, each figure with its target. Prints a table, and a line of JSON for each figure.

    python -m scripts.bench.agents [supersteps] [puts] [sizes] [reads] [races] [kills] [--seconds 0.05] [--rounds 40]

All of it takes less than four minutes where nothing else runs; exits with 1, and names the rows, when targets are missed.
Savers that are compared take turns in one process, a slice of `--seconds` each, and the figure is the median of the
ratios of neighbouring slices, so that what else the machine does hits all alike, and a burst of it only few of the many
slices. BENCH_DIR is the folder to write in, which should be on a real disk.
Where synced steps and puts are compared, both databases have logs that are worn in, as after some thousand checkpoints; steps
are also compared with new ones, for the record.
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
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from scripts.agents import torture

MESSAGE = "x" * 200
START_STATE = {"messages": [MESSAGE] * 10}
CHECKPOINTS = 10_000
STEPS = 1000
WORN_IN = 8000
RACE_ROUNDS, RACERS, KILLS = 200, 8, 200


@dataclass(frozen=True)
class Row:
    """A figure of ours, what it is compared with, and whether it is good enough."""

    what: str
    ours: float
    other: str
    theirs: float
    ratio: float
    target: str
    passed: bool | None


@dataclass(frozen=True)
class Options:
    """seconds: of a slice. rounds: slices of each saver."""

    seconds: float
    rounds: int


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
    builder.add_conditional_edges("n", lambda state: END if state["step"] >= STEPS else "n")
    return builder.compile(checkpointer=saver)


def message(chance: random.Random) -> str:
    """200 characters that do not compress well."""
    return base64.b64encode(chance.randbytes(150)).decode()


def config(thread: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread or str(uuid.uuid4()), "checkpoint_ns": ""}, "recursion_limit": 5000}


@contextmanager
def savers(folder: Path) -> Iterator[dict[str, Any]]:
    with (
        SqliteSaver.from_conn_string(str(folder / "sqlite.db")) as sqlite,
        RocksSaver(folder / "rocks") as rocks,
        FolderSaver(folder / "folder") as shared,
    ):
        sqlite.setup()
        yield {"InMemorySaver": InMemorySaver(), "SqliteSaver": sqlite, "RocksSaver": rocks, "FolderSaver": shared}


# ---------------------------------------------------------------------- in turns

Rates = dict[str, list[float]]


def in_turns(does: dict[str, Callable[[], object]], times: int, options: Options) -> Rates:
    """How often each does a thing in a second, `times` at once, for every round.

    Two take turns as A B B A A B: the system favours what comes after one that waited for the disk.
    """
    rates: Rates = {name: [] for name in does}
    for do in does.values():
        do()
    for at in range(options.rounds):
        names = list(does)
        for name in names[at % len(names) :] + names[: at % len(names)]:
            done, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < options.seconds:
                does[name]()
                done += times
            rates[name].append(done / spent)
    return rates


async def in_turns_async(does: dict[str, Callable[[], Awaitable[object]]], times: int, options: Options) -> Rates:
    """As `in_turns`, on one loop."""
    rates: Rates = {name: [] for name in does}
    for do in does.values():
        await do()
    for at in range(options.rounds):
        names = list(does)
        for name in names[at % len(names) :] + names[: at % len(names)]:
            done, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < options.seconds:
                await does[name]()
                done += times
            rates[name].append(done / spent)
    return rates


def compared(what: str, rates: Rates, ours: str, other: str, target: float | None) -> Row:
    """Ours against another's: the median of the ratios of each round."""
    ratio = median(one / theirs for one, theirs in zip(rates[ours], rates[other], strict=True))
    passed = None if target is None else ratio >= target
    goal = "-" if target is None else f">= {target:g}x"
    return Row(what, median(rates[ours]), other, median(rates[other]), ratio, goal, passed)


def bounded(what: str, figure: float, limit: float) -> Row:
    return Row(what, figure, "-", limit, figure / limit, f"<= {limit:g}", figure <= limit)


# ---------------------------------------------------------------------- the figures


def run(graph: Any, durability: Any) -> None:
    graph.invoke(START_STATE, config(), durability=durability)


async def arun(graph: Any, durability: Any) -> None:
    await graph.ainvoke(START_STATE, config(), durability=durability)


def supersteps(folder: Path, options: Options) -> Iterator[Row]:
    with savers(folder) as every:

        def row(durability: str, ours: str, other: str, target: float | None, which: str = "") -> Row:
            does = {name: partial(run, chain(every[name], is_async=False), durability) for name in (ours, other)}
            what = f"supersteps/s, invoke, {durability}{which}"
            return compared(what, in_turns(does, 10, options), ours, other, target)

        yield row("sync", "RocksSaver", "SqliteSaver", None, ", new logs")
        worn_in(every)
        yield row("sync", "RocksSaver", "SqliteSaver", 1.2)
        yield row("sync", "FolderSaver", "SqliteSaver", None, ", FolderSaver")
        yield row("async", "RocksSaver", "SqliteSaver", 1.25)
        yield row("async", "RocksSaver", "InMemorySaver", 0.7)
    (folder / "async").mkdir()
    yield from asyncio.run(async_supersteps(folder / "async", options))


async def async_supersteps(folder: Path, options: Options) -> list[Row]:
    """Each row has stores of its own: what those of another have left to write would slow it down."""
    rows = []
    for number, (durability, other, target) in enumerate(
        (("sync", "AsyncSqliteSaver", 1.2), ("async", "AsyncSqliteSaver", 1.25), ("async", "InMemorySaver", 0.7))
    ):
        where = folder / str(number)
        where.mkdir()
        async with (
            AsyncSqliteSaver.from_conn_string(str(where / "sqlite.db")) as sqlite,
            RocksSaver(where / "rocks") as rocks,
        ):
            await sqlite.setup()
            every = {"InMemorySaver": InMemorySaver(), "AsyncSqliteSaver": sqlite, "RocksSaver": rocks}
            does = {
                name: partial(arun, chain(every[name], is_async=True), durability) for name in (other, "RocksSaver")
            }
            rates = await in_turns_async(does, 10, options)
        rows.append(compared(f"supersteps/s, ainvoke, {durability}", rates, "RocksSaver", other, target))
    return rows


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
        if self.count == CHECKPOINTS // 2:
            self.middle = self.config


def puts(folder: Path, options: Options) -> Iterator[Row]:
    """Each in turn against SQLite alone: what one of them has left to write would slow down the syncs of all."""
    for what, name, durability, target in (
        ("with fsync", "RocksSaver", "sync", 1.0),
        ("without fsync", "RocksSaver", "async", 3.0),
        ("FolderSaver", "FolderSaver", "sync", None),
    ):
        where = folder / what
        where.mkdir()
        with savers(where) as every:
            worn_in(every)
            does = {
                "SqliteSaver": Puts(every["SqliteSaver"], None).put,
                name: Puts(every[name], durability).put,
            }
            rates = in_turns(does, 1, options)
        yield compared(f"raw puts of 2 kB/s, {what}", rates, name, "SqliteSaver", target)


def worn_in(every: dict[str, Any]) -> None:
    """Bring the logs of both databases to the state that they stay in: written over, no longer growing."""
    every["SqliteSaver"].conn.execute("PRAGMA synchronous=OFF")
    for name, durability in (("SqliteSaver", None), ("RocksSaver", "async")):
        history = Puts(every[name], durability)
        for _ in range(WORN_IN):
            history.put()
    every["SqliteSaver"].conn.execute("PRAGMA synchronous=FULL")


def sizes(folder: Path, _options: Options) -> Iterator[Row]:
    for window, shape, target in (
        (True, "100 messages, sliding", 1 / 5),
        (False, "100 to 1100 messages, growing", 1 / 20),
    ):
        where = folder / str(window)
        where.mkdir()
        found = {}
        with savers(where) as every:
            for name in ("SqliteSaver", "RocksSaver"):
                chance = random.Random(7)
                graph = repeated(every[name], window, chance)
                given = {"messages": [message(chance) for _ in range(100)], "step": 0}
                graph.invoke(given, config("c"), durability="sync")
                found[name] = database_size(where, every[name])
        ours, theirs = found["RocksSaver"], found["SqliteSaver"]
        goal = f"<= {target:g}x"
        yield Row(f"MB of tables, {shape}", ours, "SqliteSaver", theirs, ours / theirs, goal, ours / theirs <= target)


def database_size(folder: Path, saver: Any) -> float:
    """MB."""
    if isinstance(saver, SqliteSaver):
        saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return (folder / "sqlite.db").stat().st_size / 1e6
    saver.core.kv.compact()
    return sum(file.stat().st_size for file in (folder / "rocks").glob("*.sst")) / 1e6


def milliseconds(do: Callable[[], object], options: Options) -> float:
    """How long a thing takes that waits for nothing: the median of many single times."""
    took = []
    ends = time.perf_counter() + options.seconds * options.rounds
    while (began := time.perf_counter()) < ends:
        do()
        took.append(time.perf_counter() - began)
    return 1000 * median(took)


def page_of(saver: Any, thread: Any, before: Any) -> None:
    assert len(list(saver.list(thread, before=before, limit=20))) == 20


def reads(folder: Path, options: Options) -> Iterator[Row]:
    with RocksSaver(folder / "rocks") as saver:
        history = Puts(saver, "async")
        for _ in range(CHECKPOINTS):
            history.put()
        latest = {"configurable": {"thread_id": history.config["configurable"]["thread_id"], "checkpoint_ns": ""}}
        head = milliseconds(partial(saver.get_tuple, latest), options)
        page = milliseconds(partial(page_of, saver, latest, None), options)
        deep = milliseconds(partial(page_of, saver, latest, history.middle), options)
    yield bounded(f"ms for the head of {CHECKPOINTS} checkpoints", head, 0.2)
    yield bounded("ms for a page of 20", page, 2)
    yield bounded("ms for a page of 20 in the middle", deep, 2)


def races(_folder: Path, _options: Options) -> Iterator[Row]:
    fine = torture.races(RACE_ROUNDS, RACERS)
    yield Row(f"rounds of {RACERS} processes with one winner", RACE_ROUNDS, "-", RACE_ROUNDS, float(fine), "all", fine)


def kills(_folder: Path, _options: Options) -> Iterator[Row]:
    for kind in ("rocks", "folder"):
        fine = torture.kills(kind, KILLS // 2)
        yield Row(f"kills that lost nothing, {kind}", KILLS // 2, "-", KILLS // 2, float(fine), "all", fine)


BENCHES: dict[str, Callable[[Path, Options], Iterator[Row]]] = {
    "supersteps": supersteps,
    "puts": puts,
    "sizes": sizes,
    "reads": reads,
    "races": races,
    "kills": kills,
}


def shown(row: Row) -> str:
    verdict = {True: "pass", False: "MISSED", None: ""}[row.passed]
    other = f"{row.other} {row.theirs:.6g}" if row.other != "-" else ""
    return f"{row.what:48} {row.ours:>10.6g}  {other:24} {row.ratio:>7.3f}  {row.target:>9}  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*BENCHES, []], default=[])
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    options = Options(given.seconds, given.rounds)
    rows: list[Row] = []
    for name in given.what or BENCHES:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")))
            for row in BENCHES[name](Path(folder), options):
                rows.append(row)
                print(json.dumps(asdict(row) | {"load": os.getloadavg()[0]}), flush=True)
    print(f"\n{'what':48} {'ours':>10}  {'other':24} {'ratio':>7}  {'target':>9}")
    print("\n".join(map(shown, rows)))
    missed = [f"{row.what}: {row.ratio:.3f} of {row.other}, wanted {row.target}" for row in rows if row.passed is False]
    sys.exit("\n".join(["", "missed:", *missed]) if missed else 0)


if __name__ == "__main__":
    main()
