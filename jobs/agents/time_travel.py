"""Go back to a step, change something, and take the other branch; both histories stay.

    python jobs/agents/time_travel.py memory

Shows: get_state_history, update_state(as_node=), and that the old tip is still there, as it was.
"""

import operator
import sys
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph

from flowpoint.agents import RocksSaver


class State(TypedDict):
    route: str
    trail: Annotated[list[str], operator.add]


def build() -> StateGraph:
    builder = StateGraph(State)
    for name in ("a", "b", "c", "c_alt"):
        builder.add_node(name, lambda state, name=name: {"trail": [name]})
    builder.add_edge(START, "a").add_edge("a", "b")
    builder.add_conditional_edges("b", lambda state: "c_alt" if state["route"] == "alt" else "c", ["c", "c_alt"])
    return builder


def main(folder: str) -> None:
    config = {"configurable": {"thread_id": "demo"}}
    with RocksSaver(folder) as saver:
        graph = build().compile(checkpointer=saver)
        print("first:", graph.invoke({"route": "main", "trail": []}, config))
        old_tip = graph.get_state(config).config

        after_b = next(state for state in graph.get_state_history(config) if state.next == ("c",))
        fork = graph.update_state(after_b.config, {"route": "alt"}, as_node="b")
        print("forked before:", graph.get_state(fork).next)
        print("second:", graph.invoke(None, fork))

        print("old tip:", graph.get_state(old_tip).values)
        print("head:", graph.get_state(config).values)
        print("checkpoints:", len(list(graph.get_state_history(config))))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
