"""SequenceSource gives each number once, and keeps its rate on average."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.connectors import SequenceSource
from flowpoint.errors import IncompatibleStateError, PlanError
from flowpoint.runtime.contracts import END
from tests.unit.connectors.conftest import World


class Subtask:
    """Reads its splits as the runtime does: opens another one only when those that are open have nothing to give."""

    def __init__(
        self,
        source: SequenceSource,
        world: World,
        parallelism: int = 1,
        index: int = 0,
        positions: list[int] | None = None,
    ) -> None:
        self._positions = positions
        self._source = source
        self._world = world
        self._context = world.context()
        self._unopened = deque(source.splits()[index::parallelism])
        self._open: deque[Any] = deque()
        self.numbers: list[int] = []
        self.batches = 0

    async def run_until(self, now: float) -> None:
        clock = self._world.clock
        while (self._open or self._unopened) and clock.now < now:
            if not self._open:
                await self._open_next()
            batch = await self._open[0].read(1000)
            if batch is END:
                self._open.popleft()
                continue
            self._open.rotate(-1)
            if batch:
                self.batches += 1
                self.numbers += batch
                clock.now += 0.0001  # what it takes to process them
            elif self._unopened:
                await self._open_next()
                self._open.rotate(1)

    async def _open_next(self) -> None:
        split = self._unopened.popleft()
        position = None if self._positions is None else self._positions[int(split.id)]
        self._open.append(await self._source.open(split, position, self._context))


@pytest.mark.parametrize("rate", [None, 1e9])
@pytest.mark.parametrize(("start", "end"), [(0, 0), (5, 6), (-10, 10), (0, 16), (3, 1000)])
async def test_all_splits_together_give_each_number_once(
    memory: World, rate: float | None, start: int, end: int
) -> None:
    subtask = Subtask(SequenceSource(start, end, rate), memory)

    await subtask.run_until(memory.clock.now + 10)

    assert sorted(subtask.numbers) == list(range(start, end))


async def test_without_a_rate_one_subtask_gives_the_numbers_in_order(memory: World) -> None:
    subtask = Subtask(SequenceSource(0, 5000), memory)

    await subtask.run_until(memory.clock.now + 1)

    assert subtask.numbers == list(range(5000))


@pytest.mark.parametrize("rate", [None, 1e9])
async def test_a_reader_goes_on_at_the_position_of_another(
    memory: World, read_all: Callable[..., Any], rate: float | None
) -> None:
    source = SequenceSource(0, 100, rate)
    split = source.splits()[5]
    reader = await source.open(split, None, memory.context())
    memory.clock.now += 1
    first = await reader.read(2) or await reader.read(2)
    position = json.loads(json.dumps(reader.position()))

    again = await source.open(split, position, memory.context())

    assert first is not END
    assert first == (await read_all(await source.open(split, None, memory.context())))[:2]
    assert await read_all(again) == await read_all(reader)


@pytest.mark.parametrize("rate", [0.5, 7, 100, 5000, 200_000])
@pytest.mark.parametrize("parallelism", [1, 3, 16])
async def test_the_rate_is_kept_over_all_subtasks(memory: World, rate: float, parallelism: int) -> None:
    source = SequenceSource(0, 10**9, rate)
    begin = memory.clock.now
    seconds = max(2.0, 4 / rate)
    total = 0

    for subtask in range(parallelism):
        memory.clock.now = begin
        reading = Subtask(source, memory, parallelism, subtask)
        await reading.run_until(begin + seconds)
        total += len(reading.numbers)

    assert total == pytest.approx(seconds * rate, abs=rate * 0.1 + 2)


@pytest.mark.parametrize("rate", [7, 1000, 200_000])
@pytest.mark.parametrize("parallelism", [1, 3, 16])
async def test_with_a_rate_each_subtask_gives_its_numbers_in_their_order(
    memory: World, rate: float, parallelism: int
) -> None:
    subtask = Subtask(SequenceSource(0, 10**9, rate), memory, parallelism)

    await subtask.run_until(memory.clock.now + 2)

    ours = [number for number in range(subtask.numbers[-1] + 1) if number % 16 % parallelism == 0]
    assert subtask.numbers == ours


async def test_with_a_rate_a_subtask_goes_on_in_order_from_splits_that_are_not_in_step(memory: World) -> None:
    positions = [(7 * split) % 30 for split in range(16)]
    subtask = Subtask(SequenceSource(0, 2000, 1000), memory, positions=positions)

    await subtask.run_until(memory.clock.now + 3)

    assert subtask.numbers == [number for number in range(2000) if number // 16 >= positions[number % 16]]


async def test_what_a_closed_reader_had_left_is_given_by_no_other(memory: World) -> None:
    source, context = SequenceSource(0, 1000, 1e6), memory.context()
    readers = [await source.open(split, None, context) for split in source.splits()[:2]]
    for reader in readers:
        await reader.read(10)
    memory.clock.now += 1

    await readers[1].close()

    assert await readers[0].read(1000) == list(range(0, 1000, 16))
    assert readers[1].position() == 0


async def test_after_a_pause_of_the_consumer_the_rate_is_made_up_for(memory: World) -> None:
    begin = memory.clock.now
    subtask = Subtask(SequenceSource(0, 10**9, 1000), memory)
    await subtask.run_until(begin + 1)
    memory.clock.now += 4

    await subtask.run_until(begin + 6)

    assert len(subtask.numbers) == pytest.approx(6000, abs=150)


async def test_at_a_high_rate_all_splits_are_read_and_in_batches(memory: World) -> None:
    subtask = Subtask(SequenceSource(0, 10**9, 100_000), memory)

    await subtask.run_until(memory.clock.now + 1)

    assert {number % 16 for number in subtask.numbers} == set(range(16))
    assert len(subtask.numbers) / subtask.batches > 20


async def test_after_a_restore_the_rate_begins_anew_and_nothing_is_made_up_for(memory: World) -> None:
    source = SequenceSource(0, 10**9, 1000)
    reader = await source.open(source.splits()[0], 500, memory.context())
    memory.clock.now += 1.6

    batch = await reader.read(10_000) or await reader.read(10_000)

    assert isinstance(batch, list)
    assert len(batch) == pytest.approx(100, abs=1)
    assert batch[0] == 500 * 16


async def test_when_nothing_is_due_then_a_read_waits_only_a_moment(memory: World) -> None:
    source = SequenceSource(0, 100, rate=0.001)
    reader = await source.open(source.splits()[7], None, memory.context())
    assert await reader.read(10) == []  # there may be other readers
    before = memory.clock.now

    assert await reader.read(10) == []
    assert 0 < memory.clock.now - before < 0.1


@pytest.mark.parametrize(
    ("start", "end", "rate"), [(1, 0, None), (0, 1, 0), (0, 1, -5), (0, 1, float("nan")), (0, 1, float("inf"))]
)
def test_nonsense_is_refused(start: int, end: int, rate: float | None) -> None:
    with pytest.raises(PlanError):
        SequenceSource(start, end, rate)


@pytest.mark.parametrize("position", [-5, 8, 2.5, True, "3"])
async def test_a_position_that_a_split_cannot_have_is_refused(memory: World, position: Any) -> None:
    source = SequenceSource(0, 16 * 7)

    with pytest.raises(IncompatibleStateError, match=f"'out' cannot read split '3' .*{position!r}.* between 0 and 7"):
        await source.open(source.splits()[3], position, memory.context())
