"""Hard on savers: processes that race for one thread, and a process that is killed while it puts.

    python -m scripts.agents.torture races [--rounds 200] [--processes 8]
    python -m scripts.agents.torture kills [--kills 200] [--saver rocks|folder]

Races: in every round all processes run a graph on one thread of a FolderSaver with on_conflict="raise", from the same
head. Exactly one may win each round, every win is in the head's history, none is torn.
Kills: a child puts checkpoints with fsync and tells each acknowledged one through a pipe; it is killed at a random
moment, and the store is opened and compared. Prints one line of JSON; exits with 1 when anything was lost.
"""

from __future__ import annotations

import argparse
import json
import logging
import operator
import os
import random
import signal
import struct
import sys
import tempfile
import time
from multiprocessing import get_context
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph

from flowpoint.agents.folder import FolderSaver
from flowpoint.agents.rocks import RocksSaver
from flowpoint.errors import ConcurrentRunError

CONFIG: Any = {"configurable": {"thread_id": "shared"}}


class Wins(TypedDict):
    wins: Annotated[list[str], operator.add]


def graph_on(saver: Any) -> Any:
    builder = StateGraph(Wins)
    builder.add_node("win", lambda state: {"wins": [f"done {state['wins'][-1]}"]})
    builder.add_edge(START, "win")
    return builder.compile(checkpointer=saver)


def racer(path: str, number: int, rounds: int, together: Any, results: Any) -> None:
    logging.disable(logging.WARNING)  # seven conflicts a round are what is asked for
    with FolderSaver(path, on_conflict="raise") as saver:
        graph = graph_on(saver)
        get_tuple = FolderSaver.get_tuple

        def reading_together(self: Any, config: Any) -> Any:
            found = get_tuple(self, config)
            together.wait()
            return found

        FolderSaver.get_tuple = reading_together  # type: ignore[method-assign]
        for at in range(rounds):
            try:
                graph.invoke({"wins": [f"{at} by {number}"]}, CONFIG, durability="sync")
                results.put((at, number))
            except ConcurrentRunError:
                pass
            together.wait()


def races(rounds: int, processes: int) -> bool:
    context = get_context("spawn")
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as path:
        together, results = context.Barrier(processes), context.SimpleQueue()
        with FolderSaver(path) as saver:
            graph_on(saver).invoke({"wins": ["base"]}, CONFIG)
        began = time.perf_counter()
        racers = [context.Process(target=racer, args=(path, i, rounds, together, results)) for i in range(processes)]
        for one in racers:
            one.start()
        won = [results.get() for _ in range(rounds)]
        for one in racers:
            one.join()
        extra = 0
        while not results.empty():
            results.get()
            extra += 1
        with FolderSaver(path) as saver:
            wins = saver.get_tuple(CONFIG).checkpoint["channel_values"]["wins"]
        expected = ["base", "done base"]
        for at, number in sorted(won):
            expected += [f"{at} by {number}", f"done {at} by {number}"]
        fine = wins == expected and not extra and len({at for at, _ in won}) == rounds
        spent = round(time.perf_counter() - began, 1)
        print(
            json.dumps(
                {
                    "what": "races",
                    "rounds": rounds,
                    "processes": processes,
                    "seconds": spent,
                    "extra": extra,
                    "fine": fine,
                }
            )
        )
        return fine


def putter(kind: str, path: str, started: int, pipe: int) -> None:
    saver = RocksSaver(path) if kind == "rocks" else FolderSaver(path)
    head = saver.get_tuple(CONFIG)
    at: Any = CONFIG if head is None else head.config
    step = started
    while True:
        step += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"step": step, "messages": [f"{i}" * 40 for i in range(step % 60 + 60)]}
        checkpoint["channel_versions"] = {"step": step, "messages": step}
        at = saver.put({"configurable": {"checkpoint_ns": "", **at["configurable"]}}, checkpoint, {"step": step}, {})
        saver.put_writes(at, [("next", step)], f"task {step}")
        os.write(pipe, struct.pack("<q", step))


def kills(kind: str, count: int) -> bool:
    chance = random.Random(4)
    acknowledged, lost = 0, 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as path:
        for _ in range(count):
            reading, writing = os.pipe()
            os.set_inheritable(writing, True)
            child = os.fork()
            if child == 0:
                os.close(reading)
                try:
                    putter(kind, path, acknowledged, writing)
                finally:
                    os._exit(1)
            os.close(writing)
            first = os.read(reading, 8)
            time.sleep(chance.random() * 0.3)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            told = first + b"".join(iter(lambda r=reading: os.read(r, 65536), b""))
            os.close(reading)
            last = struct.unpack("<q", told[len(told) // 8 * 8 - 8 :][:8])[0]
            with RocksSaver(path) if kind == "rocks" else FolderSaver(path) as saver:
                there = {one.metadata["step"] for one in saver.list(CONFIG)}
                head = saver.get_tuple(CONFIG)
                lost += len(set(range(1, last + 1)) - there)
                lost += head.checkpoint["channel_values"]["step"] != max(there)
                acknowledged = max(there)
                if len(there) > 2000:
                    saver.delete_thread("shared")
                    acknowledged = 0
        print(json.dumps({"what": "kills", "saver": kind, "kills": count, "lost": lost, "fine": not lost}))
    return not lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["races", "kills"])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--saver", choices=["rocks", "folder"], default="rocks")
    given = parser.parse_args()
    fine = races(given.rounds, given.processes) if given.what == "races" else kills(given.saver, given.kills)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
