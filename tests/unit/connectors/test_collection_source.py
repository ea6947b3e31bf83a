"""CollectionSource gives each value of a list once, wherever it is cut and however often it is opened again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.connectors import CollectionSource
from flowpoint.errors import BadRecordError, IncompatibleStateError, LostInputError, PlanError
from flowpoint.runtime.contracts import END
from tests.unit.connectors.conftest import World


@pytest.mark.parametrize("count", [0, 1, 5, 16, 17, 1000])
async def test_the_splits_in_order_give_the_list_in_order(
    memory: World, read_all: Callable[..., Any], count: int
) -> None:
    source = CollectionSource(str(i) for i in range(count))
    splits = source.splits()

    read = [value for s in splits for value in await read_all(await source.open(s, None, memory.context()), 7)]

    assert read == [str(i) for i in range(count)]
    assert len(splits) == min(16, max(1, count))


async def test_a_reader_goes_on_at_the_position_of_another(memory: World, read_all: Callable[..., Any]) -> None:
    source = CollectionSource(range(100))
    split = source.splits()[3]
    reader = await source.open(split, None, memory.context())
    first = await reader.read(2)
    position = json.loads(json.dumps(reader.position()))

    rest = await read_all(await source.open(split, position, memory.context()))

    assert first is not END
    assert first + rest == await read_all(await source.open(split, None, memory.context()))


async def test_when_the_list_in_the_job_file_became_shorter_then_it_is_lost_input(
    memory: World, read_all: Callable[..., Any]
) -> None:
    split = CollectionSource(range(160)).splits()[15]
    shorter = CollectionSource(range(155))

    with pytest.raises(LostInputError, match=r"index 152 of range \[150, 160\).*only 155 values"):
        await shorter.open(split, 152, memory.context())

    allowed = await shorter.open(split, 152, memory.context(skip_lost_input=True))
    assert await read_all(allowed) == [152, 153, 154]


def test_a_set_is_refused_because_its_order_differs_between_processes() -> None:
    with pytest.raises(PlanError, match="sorted"):
        CollectionSource({"a", "b"})


@pytest.mark.parametrize("position", [-1, 9, 21])
async def test_an_index_outside_of_a_range_is_refused(memory: World, position: int) -> None:
    source = CollectionSource(range(160))

    with pytest.raises(IncompatibleStateError, match="split '1' .* between 10 and 20"):
        await source.open(source.splits()[1], position, memory.context())


async def test_a_record_that_is_changed_downstream_is_read_again_as_it_was(
    memory: World, read_all: Callable[..., Any]
) -> None:
    source = CollectionSource([{"n": [1]}])
    (split,) = source.splits()
    (record,) = await read_all(await source.open(split, None, memory.context()))

    record["n"].append(2)

    assert await read_all(await source.open(split, None, memory.context())) == [{"n": [1]}]


async def test_a_value_that_is_nested_too_deeply_is_named_by_its_index(memory: World) -> None:
    deep: list[Any] = []
    for _ in range(1200):
        deep = [deep]
    source = CollectionSource([1] * 30 + [deep] + [2])
    (split,) = [split for split in source.splits() if split.data["first"] <= 30 < split.data["end"]]
    reader = await source.open(split, 30, memory.context(uid="given"))

    with pytest.raises(
        BadRecordError, match=r"source 'given' cannot give the value at index 30 of its list: .*flatten"
    ):
        await reader.read(10)
