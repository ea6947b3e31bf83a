"""A snapshot is opened without its job: what is in it, one key at a time or as a stream."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowpoint import snapshot
from flowpoint.codec.placement import group_of
from flowpoint.codec.raw import RawEnum, RawObject
from flowpoint.errors import NotFoundError, SnapshotError, StorageError
from flowpoint.model.manifest import SubtaskState
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.state.backend import Backend
from tests.unit.snapshot.made import DAYS, LIST, MAP, MAX, UID, VALUE, WORDS, Maker, checkpoint, fill


def test_a_checkpoint_says_what_it_is_and_what_is_in_it(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)

    opened = snapshot.open(path)

    assert (opened.kind, opened.job, opened.id, opened.parent) == ("checkpoint", "words", 7, 6)
    assert (opened.created, opened.max_parallelism, opened.path) == (1_700_000_000_000, MAX, str(path))
    assert list(opened.operators) == ["lines", UID, "out"]
    states = opened.operator(UID).states
    assert {name: (state.kind, state.count()) for name, state in states.items()} == {
        "count": ("value", 300),
        "recent": ("list", 300),
        "days": ("map", len(DAYS)),
    }
    assert sum(state.bytes for state in states.values()) < opened.bytes == opened.operator(UID).bytes
    assert [(s.id, s.position, s.ended) for s in opened.operator("lines").splits] == [
        ("/in/0.txt@0", 5, False),
        ("/in/1.txt@0", 9, True),
        ("/in/2.txt@0", None, False),
    ]
    assert opened.operator("out").committables == [{"checkpoint": 7, "data": {"hidden": ".part"}}]


@pytest.mark.parametrize("name", ["{}", "{}/", "{}/manifest.json", "file://{}"])
def test_a_snapshot_may_be_named_by_its_folder_or_its_manifest(tmp_path: Path, name: str) -> None:
    path = checkpoint(tmp_path)

    assert snapshot.open(name.format(path)).operator(UID).state("count").get("word-3") == 3


def test_a_savepoint_is_opened_wherever_it_was_moved(tmp_path: Path) -> None:
    maker = Maker(tmp_path / "here", kind="savepoint")
    maker.write({UID: maker.states(fill)}).rename(tmp_path / "there")

    assert snapshot.open(tmp_path / "there").operator(UID).state("count").get("word-3") == 3


def test_keys_are_read_one_by_one(tmp_path: Path) -> None:
    operator = snapshot.open(checkpoint(tmp_path)).operator(UID)

    assert operator.state("count").get("word-299") == 299
    assert operator.state("recent").get("word-1") == ["word-1", "x"]
    assert operator.state("days").get("user-2") == {day: n for (user, day), n in DAYS.items() if user == "user-2"}
    assert operator.state("count").get("word-300") is None
    assert operator.state("count").get(3, "none") == "none"
    assert operator.state("days").get("nobody") is None


def test_states_are_read_as_a_stream(tmp_path: Path) -> None:
    operator = snapshot.open(checkpoint(tmp_path)).operator(UID)

    assert dict(operator.state("count").items()) == WORDS
    assert sorted(operator.state("count").keys()) == sorted(WORDS)
    assert dict(operator.state("days").entries()) == DAYS
    assert {(user, day): n for user, days in operator.state("days").items() for day, n in days.items()} == DAYS


def test_reading_a_key_touches_only_the_blocks_of_its_key_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def many(backend: Backend) -> None:
        for n in range(20_000):
            backend.table(VALUE).put(f"word-{n}", "x" * 100)

    state = snapshot.open(checkpoint(tmp_path, many)).operator(UID).state("count")
    real_get = FolderStorage.get
    read: list[int] = []

    async def counting_get(self: FolderStorage, name: str, offset: int = 0, size: int = -1) -> bytes:
        data = await real_get(self, name, offset, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(FolderStorage, "get", counting_get)
    assert state.get("word-77") == "x" * 100

    group = group_of("word-77", MAX)
    covering = [ref for part in state.parts for f in part.files for ref in f.refs if ref.first <= group <= ref.last]
    assert len(read) <= len(covering) <= 2
    assert sum(read) < state.bytes / 4


@pytest.mark.parametrize("seed", range(5))
def test_however_state_came_about_it_is_read_as_it_was(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    values: dict[str, int] = {}
    days: dict[tuple[str, int], int] = {}

    def some(backend: Backend) -> None:
        for _ in range(random_.randrange(1, 200)):
            key, day, value = f"k{random_.randrange(80)}", random_.randrange(5), random_.randrange(1000)
            if random_.random() < 0.3:
                backend.table(VALUE).delete(key)
                backend.map_table(MAP).delete(key, day)
                values.pop(key, None)
                days.pop((key, day), None)
            else:
                backend.table(VALUE).put(key, value)
                backend.map_table(MAP).put(key, day, value)
                values[key] = days[key, day] = value

    maker = Maker(tmp_path, parallelism=1)
    path = maker.write({UID: maker.states(*[some] * random_.randrange(1, 14))})
    operator = snapshot.open(path).operator(UID)

    assert dict(operator.state("count").items()) == values
    assert dict(operator.state("days").entries()) == days
    assert operator.state("count").count() == len(values)
    for key in (f"k{n}" for n in range(80)):
        assert operator.state("count").get(key) == values.get(key)
        inside = {day: value for (other, day), value in days.items() if other == key}
        assert operator.state("days").get(key, {}) == inside


def test_entries_outside_the_key_groups_that_a_subtask_owned_are_not_there(tmp_path: Path) -> None:
    maker = Maker(tmp_path, parallelism=1)
    path = maker.write({UID: maker.states(fill)})

    def halve(subtask: SubtaskState) -> SubtaskState:
        return replace(subtask, groups=(0, 63))

    maker.rewrite(
        path,
        lambda m: replace(
            m, operators={u: replace(o, subtasks=tuple(map(halve, o.subtasks))) for u, o in m.operators.items()}
        ),
    )
    state = snapshot.open(path).operator(UID).state("count")

    owned = {word: n for word, n in WORDS.items() if group_of(word, MAX) < 64}
    assert dict(state.items()) == owned
    assert state.count() == len(owned) < state.stored_entries
    assert state.get(next(word for word in WORDS if word not in owned)) is None


# ---------------------------------------------------------------------- classes


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 3


class Pair(NamedTuple):
    left: str
    right: int


@dataclass
class Item:
    name: str
    color: Color


def put_items(backend: Backend) -> None:
    for n in range(3):
        backend.table(VALUE).put(f"i{n}", Item(f"n{n}", Color.RED))
    backend.table(LIST).put(Color.RED, [1])
    backend.table(LIST).put(Level.LOW, [2])
    backend.table(LIST).put(Pair("a", 1), [3])


def open_items(tmp_path: Path, **options: Any) -> Any:
    maker = Maker(tmp_path, parallelism=1, types=[Item, Color, Level, Pair])
    return snapshot.open(maker.write({UID: maker.states(put_items)}), **options).operator(UID)


def test_values_of_classes_are_shown_as_data_and_nothing_is_imported(tmp_path: Path) -> None:
    before = set(sys.modules)
    operator = open_items(tmp_path)

    item = operator.state("count").get("i1")

    assert item == RawObject("Item", ("name", "color"), ("n1", RawEnum("Color", "RED")))
    assert repr(item) == "Item(name='n1', color=Color.RED)"
    assert set(sys.modules) - before <= {"flowpoint.snapshot.opened"}


def test_given_classes_are_rebuilt(tmp_path: Path) -> None:
    assert open_items(tmp_path, types=[Item]).state("count").get("i1") == Item("n1", Color.RED)


@pytest.mark.parametrize(
    ("key", "value"), [(Color.RED, [1]), (Level.LOW, [2]), (("a", 1), [3]), (RawEnum("Color", "RED"), [1])]
)
def test_keys_of_classes_are_found(tmp_path: Path, key: Any, value: Any) -> None:
    assert open_items(tmp_path).state("recent").get(key) == value


# ---------------------------------------------------------------------- what is not there


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda s: s.operator("conts"), "no operator 'conts'; did you mean 'counts'?"),
        (lambda s: s.operator("zzzzz"), "no operator 'zzzzz'; there are 'lines', 'counts', 'out'"),
        (lambda s: s.operator(UID).state("cuont"), "operator 'counts' has no state 'cuont'; did you mean 'count'?"),
        (lambda s: s.operator("out").state("x"), "operator 'out' has no state 'x'; it has none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_right_one(
    tmp_path: Path, ask: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        ask(snapshot.open(checkpoint(tmp_path)))
    assert said in str(caught.value)


def test_where_no_snapshot_is_the_message_says_what_is_there(tmp_path: Path) -> None:
    checkpoint(tmp_path / "job")
    (tmp_path / "empty").mkdir()

    with pytest.raises(NotFoundError, match="name one of the snapshots in this folder: chk-7-a1"):
        snapshot.open(tmp_path / "job")
    with pytest.raises(NotFoundError, match=r"the folder has no manifest\.json"):
        snapshot.open(tmp_path / "empty")
    with pytest.raises(NotFoundError, match="no such folder"):
        snapshot.open(tmp_path / "nowhere")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = checkpoint(tmp_path)
    for file in (tmp_path / "shared").iterdir():
        file.unlink()

    with pytest.raises(SnapshotError, match=r"the state file shared/counts-0-a1-1\.base is missing"):
        snapshot.open(path).operator(UID).state("count")


def test_a_pipe_in_place_of_a_manifest_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")

    with pytest.raises(StorageError, match="not a regular file"):
        snapshot.open(tmp_path)


def test_the_documented_example_runs(tmp_path: Path) -> None:
    counts = snapshot.open(checkpoint(tmp_path)).operator("counts").state("count")

    assert counts.get("word-7") == 7
    assert sum(count for _, count in counts.items()) == sum(WORDS.values())


async def test_a_snapshot_can_be_read_where_a_loop_is_running(tmp_path: Path) -> None:
    assert snapshot.open(checkpoint(tmp_path)).operator(UID).state("count").get("word-7") == 7
