"""A payment that waits for a person, for as long as it takes: every command is a process of its own.

    python jobs/agents/approval.py memory start 5
    python jobs/agents/approval.py memory show
    python jobs/agents/approval.py memory answer yes

Shows: interrupt and Command(resume=...) across restarts. The node `review` runs again when the answer is there.
"""

import operator
import sys
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from flowpoint.agents import RocksSaver


class State(TypedDict):
    amount: int
    log: Annotated[list[str], operator.add]


def draft(state: State):
    return {"log": ["draft"]}


def review(state: State):
    answer = interrupt({"pay": state["amount"]})
    return {"log": [f"review:{answer}"]}


def pay(state: State):
    return {"log": ["pay" if state["log"][-1] == "review:yes" else "cancel"]}


def build() -> StateGraph:
    builder = StateGraph(State).add_node(draft).add_node(review).add_node(pay)
    return builder.add_edge(START, "draft").add_edge("draft", "review").add_edge("review", "pay")


def main(folder: str, command: str, value: str = "") -> None:
    config = {"configurable": {"thread_id": "demo"}}
    with RocksSaver(folder) as saver:
        graph = build().compile(checkpointer=saver)
        match command:
            case "start":
                graph.invoke({"amount": int(value), "log": []}, config)
            case "answer" if graph.get_state(config).next:
                graph.invoke(Command(resume=value), config)
        state = graph.get_state(config)
        if not state.values:
            print("nothing was started yet")
            return
        print("log:", state.values["log"], "next:", state.next, "asks:", [asked.value for asked in state.interrupts])


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
