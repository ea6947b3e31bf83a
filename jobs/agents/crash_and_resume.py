"""Five steps, and the process dies in the middle of the third; the next call goes on there.

    python jobs/agents/crash_and_resume.py memory     # ends with 137, like a process that was killed
    python jobs/agents/crash_and_resume.py memory     # goes on with step3

Shows: durability="sync", resuming with invoke(None), and what a crash means for the outside world: step3 calls twice,
and the receiver that remembers idempotency keys books once.
"""

import operator
import os
import sys
from pathlib import Path
from typing import Annotated, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from flowpoint.agents import RocksSaver, idempotency_key


class State(TypedDict):
    x: int
    trail: Annotated[list[str], operator.add]


def build(outside: Path) -> StateGraph:
    def step(name: str):
        def run(state: State, config: RunnableConfig):
            with (outside / "runs.log").open("a") as log:
                log.write(f"{name}\n")
            if name == "step3":
                book(outside, idempotency_key(config))
            return {"x": state["x"] + 1, "trail": [name]}

        return run

    builder = StateGraph(State)
    names = [f"step{number}" for number in range(1, 6)]
    for name in names:
        builder.add_node(name, step(name))
    for start, end in zip([START, *names], names, strict=False):
        builder.add_edge(start, end)
    return builder


def book(outside: Path, key: str) -> None:
    """The outside world: sees every call, and does not book a known key again. After booking, the process dies."""
    with (outside / "calls.log").open("a") as log:
        log.write(f"{key}\n")
    booking = outside / f"booking-{key}"
    if not booking.exists():
        booking.touch()
        os._exit(137)


def main(folder: str) -> None:
    outside = Path(folder).with_suffix(".outside")
    outside.mkdir(exist_ok=True)
    config = {"configurable": {"thread_id": "demo", "request_id": "request-1"}}
    with RocksSaver(folder) as saver:
        graph = build(outside).compile(checkpointer=saver)
        before = graph.get_state(config)
        print("found:", before.values, "next:", before.next)
        result = graph.invoke(None if before.next else {"x": 0, "trail": []}, config, durability="sync")
        print("done:", result)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
