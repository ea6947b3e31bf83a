"""An agent whose state changes from deployment to deployment, and the threads that live through it.

    python jobs/agents/schema_change.py memory v1      # {"name"}
    python jobs/agents/schema_change.py memory v2      # a field added: {"name", "visits"}
    python jobs/agents/schema_change.py memory v1      # rolled back: `visits` is carried along
    python jobs/agents/schema_change.py memory v2      # and there again
    python jobs/agents/schema_change.py memory v3      # renamed and removed: {"full_name"}
    python jobs/agents/schema_change.py memory v1      # refused: the thread is newer than this code

Shows: a field with no need of a migration (v2), Schema.of with Rename, RenameNode and Drop (v3), and a node that is
pending under its old name.
"""

import logging
import sys
from typing import TypedDict

from langgraph.graph import START, StateGraph

from flowpoint.agents import Drop, Rename, RenameNode, RocksSaver, Schema
from flowpoint.errors import FlowPointError


def builder_of(fields: dict[str, type], greet, last: str) -> StateGraph:
    builder = StateGraph(TypedDict("State", fields))
    builder.add_node("greet", greet).add_node(last, lambda state: {})
    return builder.add_edge(START, "greet").add_edge("greet", last)


def version_1():
    builder = builder_of({"name": str}, lambda state: {}, "finish")
    return builder, Schema.of(builder, version=1), "finish"


def version_2():
    builder = builder_of({"name": str, "visits": int}, lambda state: {"visits": state.get("visits", 0) + 1}, "finish")
    return builder, Schema.of(builder, version=1), "finish"


def version_3():
    builder = builder_of({"full_name": str}, lambda state: {}, "close")
    steps = {1: [Rename("name", "full_name"), RenameNode("finish", "close"), Drop("visits")]}
    return builder, Schema.of(builder, version=2, migrations=steps), "close"


VERSIONS = {"v1": version_1, "v2": version_2, "v3": version_3}


def main(folder: str, version: str) -> None:
    builder, schema, last = VERSIONS[version]()
    config = {"configurable": {"thread_id": "demo"}}
    with RocksSaver(folder, schema=schema) as saver:
        # Each deployment finishes what the one before has left pending, begins anew, and stops before the last node.
        graph = builder.compile(checkpointer=saver, interrupt_before=[last])
        pending = graph.get_state(config)
        if pending.next:
            graph.invoke(None, config)
            print("finished:", pending.next)
        graph.invoke({} if pending.values else {"name": "Ada"}, config)
        print("now:", graph.get_state(config).values)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[2] not in VERSIONS:
        sys.exit(__doc__)
    logging.basicConfig(format="log: %(message)s", stream=sys.stdout)
    try:
        main(*sys.argv[1:])
    except FlowPointError as error:
        sys.exit(f"error: {error}")
