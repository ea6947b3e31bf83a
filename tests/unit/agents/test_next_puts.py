"""A put that continues the head takes a shorter way than others; what it writes is what the longer way writes."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from flowpoint.agents import opening
from flowpoint.agents.appending import World
from flowpoint.agents.kv import Entry
from flowpoint.agents.stored_index import StoredIndex
from flowpoint.errors import BadRecordError, ConcurrentRunError
from tests.unit.agents import stores
from tests.unit.agents.stores import config, open_saver, put

NAMESPACES = ("", "", "inner|1")
STEPS = 60


@pytest.fixture(autouse=True)
def the_same_clock_and_nonces(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted() -> World:
        times, nonces = itertools.count(1), itertools.count(1)
        return World(lambda: next(times), lambda: b"%d" % next(nonces))

    monkeypatch.setattr(opening, "system_world", counted)
    monkeypatch.setattr(stores, "empty_checkpoint", lambda: {**empty_checkpoint(), "ts": "then"})


def entries_of(folder: Path, seed: int, on_conflict: str) -> list[Entry]:
    """All that a store holds after a history by chance: steps, forks, the same put twice, old ids, deleted threads."""
    chance = random.Random(seed)
    made: list[Any] = []
    values: dict[str, Any] = {}
    with open_saver("rocks", folder, on_conflict=on_conflict) as saver:
        for number in range(STEPS):
            ns = chance.choice(NAMESPACES)
            place = config(chance.choice("tu"), ns)
            head = saver.get_tuple(place)
            at = place if head is None else head.config
            id_ = f"{number:04d}"
            match chance.randrange(12):
                case 0 if made:
                    at = chance.choice(made)
                case 1 if head is not None:
                    id_ = head.checkpoint["id"]
                case 2:
                    id_ = f"{chance.randrange(number + 1):04d}-old"
                case 3:
                    at = place
                case 4 if chance.random() < 0.3:
                    saver.delete_thread(place["configurable"]["thread_id"])
            values = {**values, chance.choice("abc"): ["x" * chance.choice((10, 100_000)), number], "branch:to:n": None}
            try:
                made.append(put(saver, at, values, id=id_, versions=dict.fromkeys(values, number)))
            except (ConcurrentRunError, BadRecordError):
                continue
            if chance.random() < 0.5:
                saver.put_writes(made[-1], [("a", number)], f"task-{number}")
        return list(saver.core.kv.scan(""))


@pytest.mark.parametrize("on_conflict", ["branch", "raise"])
@pytest.mark.parametrize("seed", range(10))
def test_both_ways_write_the_same_entries(
    seed: int, on_conflict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = entries_of(tmp_path / "short", seed, on_conflict)
    monkeypatch.setattr(StoredIndex, "continued", lambda *_args: None)

    assert entries_of(tmp_path / "long", seed, on_conflict) == written


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of checkpoints that took the shorter way."""
    taken: list[str] = []
    append = StoredIndex.append

    def noting(self: StoredIndex, header: Any, *args: Any) -> None:
        taken.append(header.id)
        append(self, header, *args)

    monkeypatch.setattr(StoredIndex, "append", noting)
    return taken


def test_the_steps_of_a_run_take_the_shorter_way_and_others_do_not(tmp_path: Path, short_ways: list[str]) -> None:
    with open_saver("rocks", tmp_path) as saver:
        at = config()
        for id_ in ("1", "2", "3"):
            at = put(saver, at, id=id_)
        assert short_ways == ["2", "3"]

        put(saver, config(id="2"), id="4")  # from the middle
        put(saver, config(id="3"), id="0")  # an id that may be there already
        with saver.core.runs.begun() as run:
            run.other("t")
            put(saver, config(id="0"), id="5")  # another run has the thread
        assert short_ways == ["2", "3"]
