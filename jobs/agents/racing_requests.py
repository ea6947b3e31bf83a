"""Two processes answer requests of one thread at once, and no request is lost.

    python jobs/agents/racing_requests.py memory

Shows: FolderSaver for several processes, on_conflict="raise", invoke_with_retry: exactly one run of two wins, the other
is told before its nodes run (durability="sync") and runs again on the new state.
"""

import logging
import multiprocessing
import operator
import sys
from collections import Counter
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

from flowpoint.agents import FolderSaver, invoke_with_retry

REQUESTS = 20
CONFIG = {"configurable": {"thread_id": "demo"}}


class State(TypedDict):
    request: str
    answered: Annotated[list[str], operator.add]


def build() -> StateGraph:
    builder = StateGraph(State).add_node("answer", lambda state: {"answered": [state["request"]]})
    return builder.add_edge(START, "answer")


def serve(folder: str, name: str, start, lost) -> None:
    # Each refusal is counted here, so nobody needs to read a line about it.
    logging.getLogger("flowpoint.agents").setLevel(logging.ERROR)

    def count(event) -> None:
        with lost.get_lock():
            lost.value += event.kind == "conflict"

    with FolderSaver(folder, on_conflict="raise", on_event=count) as saver:
        graph = build().compile(checkpointer=saver)
        start.wait()
        for number in range(REQUESTS):
            invoke_with_retry(graph, {"request": f"{name}{number}"}, CONFIG, attempts=100, durability="sync")


def main(folder: str) -> None:
    context = multiprocessing.get_context("spawn")
    start, lost = context.Barrier(2), context.Value("i", 0)
    servers = [context.Process(target=serve, args=(folder, name, start, lost)) for name in "ab"]
    for server in servers:
        server.start()
    for server in servers:
        server.join()
    with FolderSaver(folder) as saver:
        answered = Counter(build().compile(checkpointer=saver).get_state(CONFIG).values["answered"])
    wanted = Counter(f"{name}{number}" for name in "ab" for number in range(REQUESTS))
    print("requests:", 2 * REQUESTS, "runs that lost and ran again:", lost.value)
    print("every request is answered exactly once" if answered == wanted else f"WRONG: {answered}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
