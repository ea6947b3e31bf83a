"""Graphs by chance do on our savers what they do on LangGraph's own in memory, also when their process ends meanwhile."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.unit.agents.graph_histories import Session, graph_of
from tests.unit.agents.stores import each_saver, open_saver


@pytest.fixture(autouse=True)
def no_warnings_of_langgraph(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@each_saver
@pytest.mark.parametrize("seed", range(8))
def test_a_graph_by_chance_does_the_same_as_with_the_saver_in_memory(seed: int, kind: str, tmp_path: Path) -> None:
    run_graph(seed, kind, tmp_path)


def run_graph(seed: int, kind: str, folder: Path) -> None:
    """Do the same with both, step by step."""
    chance = random.Random(seed)
    on_conflict, memory = chance.choice(("branch", "raise")), InMemorySaver()
    ours = Session(graph_of(seed), lambda: open_saver(kind, folder, on_conflict=on_conflict))
    oracle = Session(graph_of(seed), lambda: memory)
    for number in range(chance.randint(4, 10)):
        step = chance.getrandbits(32)
        if chance.random() < 0.3:
            ours.reopen()
        if chance.random() < 0.25:
            given = {"trail": [f"in{number}"], "route": number}
            at_put = chance.randint(1, 6)
            assert ours.run_cut_off(given, at_put) == oracle.run_cut_off(given, at_put)
        else:
            assert ours.act(random.Random(step), number) == oracle.act(random.Random(step), number)
        assert ours.shows() == oracle.shows()
    assert ours.conflicts == 0
    ours.close()
