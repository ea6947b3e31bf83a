"""A source subtask loses and doubles nothing, whatever races: reads, triggers, flushes, halts; barriers never wait."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from flowpoint.errors import BadRecordError, LostInputError, TransientError, UserCodeError
from flowpoint.model import messages
from flowpoint.model.elements import END_OF_INPUT, Barrier
from flowpoint.runtime import source_subtask
from flowpoint.runtime.contracts import END
from flowpoint.runtime.parts import KeyedPart
from tests.unit.runtime.fakes import FakeOutlet, plain
from tests.unit.runtime.harness import EndlessReader, FakeBackend, ListReader, no_savepoint, run, running, source

ORDERS = [None, *range(20)]


def records_before(records, checkpoint):
    """How many records a channel carries before a barrier."""
    items = records[: [getattr(item, "checkpoint", None) for item in records].index(checkpoint)]
    return [item for item in items if not isinstance(item, Barrier)]


def test_it_reads_to_the_end_in_order_says_so_once_and_closes_its_reader():
    reader = ListReader(list(range(5000)))

    async def main():
        async with running(source(reader)) as it:
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert it.records == [*range(5000), END_OF_INPUT]
    assert it.reported(messages.Ended) == [messages.Ended(3, [1, 0])]
    assert reader.closed == 1


def test_without_splits_it_ends_at_once():
    async def main():
        async with running(source({})) as it:
            await asyncio.sleep(0.1)
            return it.records

    assert run(main()) == [END_OF_INPUT]


# ---------------------------------------------------------------- races


@pytest.mark.parametrize("order", ORDERS[:5])
def test_ac02_a_read_that_is_overtaken_by_triggers_drops_no_item(order):
    queue: asyncio.Queue[int]

    class QueueReader(ListReader):
        async def read(self, n):
            item = await queue.get()
            self.at += 1
            return [item]

    async def produce():
        for item in range(6):
            queue.put_nowait(item)
            await asyncio.sleep(item)

    async def main():
        nonlocal queue
        queue = asyncio.Queue()
        async with running(source(QueueReader([]))) as it:
            producer = asyncio.create_task(produce())
            for checkpoint in range(1, 8):
                await asyncio.sleep(3)
                it.trigger(checkpoint)
            await producer
            await asyncio.sleep(1)
            return it

    it = run(main(), order)

    assert [record for record in it.records if not isinstance(record, Barrier)] == [0, 1, 2, 3, 4, 5]
    for checkpoint in range(1, 8):
        # Items come at 0, 0, 1, 3, 6, 10 s; what came in the very moment of a trigger is on either side of it.
        assert it.positions(checkpoint)["s"] in (len(records_before(it.records, checkpoint)), None)


@pytest.mark.parametrize("order", [None, 1, 2])
def test_ac02_at_scale_outputs_are_inputs_in_order_and_every_position_fits_its_barrier(order):
    total = 100_000

    async def main():
        reader = ListReader(list(range(total)), per_read=50, delay=0.001)
        async with running(source(reader, batch_size=70)) as it:
            checkpoint = 0
            while not it.subtask.is_ended:
                checkpoint += 1
                it.trigger(checkpoint)
                await asyncio.sleep(0.0137)
            return it, checkpoint

    it, checkpoints = run(main(), order)

    assert [record for record in it.records if isinstance(record, int)] == list(range(total))
    assert checkpoints > 100
    for checkpoint in range(1, checkpoints):
        assert (it.positions(checkpoint)["s"] or 0) == len(records_before(it.records, checkpoint))


@pytest.mark.parametrize("order", ORDERS)
def test_a_read_that_ends_in_the_same_step_as_a_trigger_is_either_before_the_barrier_or_not_in_the_position(order):
    async def main():
        gate = asyncio.Event()

        class Gated(EndlessReader):
            async def read(self, n):
                await gate.wait()
                gate.clear()
                return await super().read(1)

        async with running(source(Gated(list(range(10))))) as it:
            await asyncio.sleep(0.1)
            for checkpoint in range(1, 11):
                gate.set()
                it.trigger(checkpoint)
                await asyncio.sleep(0.0001 * checkpoint)
            await asyncio.sleep(1)
            return it

    it = run(main(), order)

    for checkpoint in range(1, 11):
        assert (it.positions(checkpoint)["s"] or 0) == len(records_before(it.records, checkpoint))


def test_a_barrier_does_not_wait_for_a_read_that_waits():
    async def main():
        async with running(source(ListReader([1], delay=100))) as it:
            await asyncio.sleep(1)
            it.trigger(1)
            await asyncio.sleep(0.01)
            return it.records, it.positions(1)

    assert run(main()) == ([Barrier(1)], {"s": None})


def test_a_barrier_does_not_wait_for_a_split_that_opens_slowly():
    async def main():
        async with running(source(ListReader([1]), open_delay=100, positions={"s": 7})) as it:
            await asyncio.sleep(1)
            it.trigger(1)
            await asyncio.sleep(0.01)
            return it.records, it.positions(1)

    assert run(main()) == ([Barrier(1)], {"s": 7})


@pytest.mark.parametrize("after", [0.0, 0.5])
def test_a_barrier_does_not_wait_for_credit_nor_split_what_a_read_returned(after):
    class Generous(ListReader):
        async def read(self, n):
            return await super().read(1_000)

    async def main():
        outlet = FakeOutlet()
        it = source(Generous(list(range(5000)), delay=0.01), outlets=[outlet], batch_size=10)
        async with running(it):
            await asyncio.sleep(0.005)
            outlet.writable = False
            await asyncio.sleep(after)
            it.trigger(1)
            await asyncio.sleep(0.02)
            return it, len(records_before(it.records, 1))

    it, before = run(main())

    assert before in (0, 1000)
    assert (it.positions(1)["s"] or 0) == before


def test_nothing_more_is_read_without_credit():
    reader = ListReader(list(range(10_000)))

    async def main():
        outlet = FakeOutlet(writable=False)
        async with running(source(reader, outlets=[outlet])) as it:
            await asyncio.sleep(1)
            blocked_reads = reader.reads
            outlet.writable = True
            await asyncio.sleep(1)
            return blocked_reads, it.records

    assert run(main()) == (0, [*range(10_000), END_OF_INPUT])


# ---------------------------------------------------------------- stop and resume


@pytest.mark.parametrize("order", ORDERS[:6])
def test_a_stop_that_fails_loses_and_doubles_nothing(order):
    async def main():
        async with running(source(ListReader(list(range(1000)), per_read=7, delay=0.01))) as it:
            await asyncio.sleep(0.5)
            it.trigger(1, halt=True)
            await asyncio.sleep(1)
            halted = list(it.records)
            it.subtask.resume()
            await asyncio.sleep(10)
            return halted, it

    halted, it = run(main(), order)

    assert halted[-1] == Barrier(1, halt=True)
    assert it.positions(1)["s"] == len(halted) - 1
    assert [record for record in it.records if isinstance(record, int)] == list(range(1000))


def test_a_barrier_while_halted_does_not_cover_a_read_that_ended_meanwhile():
    async def main():
        async with running(source(ListReader(list(range(1000)), per_read=7, delay=0.01))) as it:
            await asyncio.sleep(0.5)
            it.trigger(1, halt=True)
            await asyncio.sleep(1)
            it.trigger(2)
            await asyncio.sleep(0.1)
            emitted = len(records_before(it.records, 2))
            it.subtask.resume()
            await asyncio.sleep(10)
            it.trigger(3)
            await asyncio.sleep(0.1)
            return it, emitted

    it, emitted = run(main())

    assert it.positions(1)["s"] == it.positions(2)["s"] == emitted > 0
    assert it.positions(3)["s"] == 1000


def test_a_stop_that_is_aborted_before_its_barrier_halts_nothing():
    async def main():
        async with running(source(EndlessReader(list(range(10)), per_read=1, delay=0.01))) as it:
            await asyncio.sleep(0.015)
            it.trigger(1, halt=True)
            it.subtask.abort(1)
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == list(range(10))


def test_when_halted_the_end_of_input_waits_for_the_resume():
    async def main():
        async with running(source(ListReader([1], delay=0.01))) as it:
            await asyncio.sleep(0.015)
            it.trigger(1, halt=True)
            await asyncio.sleep(1)
            halted = list(it.records)
            it.subtask.resume()
            await asyncio.sleep(1)
            return halted, it.records

    assert run(main()) == ([1, Barrier(1, halt=True)], [1, Barrier(1, halt=True), END_OF_INPUT])


# ---------------------------------------------------------------- end and emptiness


def test_a_finished_source_goes_on_passing_barriers_and_remembers_that_it_has_ended():
    async def main():
        async with running(source(ListReader([1, 2]))) as it:
            await asyncio.sleep(1)
            it.trigger(1, final=True)
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert it.records == [1, 2, END_OF_INPUT, Barrier(1, final=True)]
    assert it.acked(1)["source"]["splits"] == [{"id": "s", "data": {}, "position": 2, "ended": True}]


def test_restored_at_the_end_it_ends_again_without_opening_anything():
    async def main():
        it = source(ListReader([1, 2]), positions={"s": 2}, ended={"s"})
        async with running(it):
            await asyncio.sleep(1)
            return it.records, it.subtask._part.source.opened

    assert run(main()) == ([END_OF_INPUT], [])


def test_an_idle_source_asks_now_and_then_and_passes_barriers_at_once():
    reader = EndlessReader([])

    async def main():
        async with running(source(reader)) as it:
            await asyncio.sleep(1)
            it.trigger(1)
            await asyncio.sleep(0.001)
            return it.records, reader.reads

    records, reads = run(main())

    assert records == [Barrier(1)]
    assert 50 < reads <= 101


def test_what_comes_after_a_lull_is_read_soon():
    reader = EndlessReader([])

    async def main():
        async with running(source(reader)) as it:
            await asyncio.sleep(1)
            reader.values = [1]
            await asyncio.sleep(0.03)
            return it.records

    assert run(main()) == [1]


# ---------------------------------------------------------------- many splits


def test_splits_are_opened_one_after_the_other_as_they_end():
    readers = {str(i): ListReader([i] * 3, per_read=2) for i in range(4)}

    async def main():
        it = source(readers)
        async with running(it):
            await asyncio.sleep(1)
            return it

    it = run(main())

    assert [name for name, _ in it.subtask._part.source.opened] == ["0", "1", "2", "3"]
    assert it.records == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, END_OF_INPUT]


def test_splits_not_opened_yet_stand_in_a_snapshot_where_they_were():
    async def main():
        readers = {"a": ListReader([1], delay=1), "b": ListReader([2])}
        async with running(source(readers, positions={"b": 5})) as it:
            await asyncio.sleep(0.1)
            it.trigger(1)
            await asyncio.sleep(0.1)
            return it.positions(1), it.subtask._part.source.opened

    assert run(main()) == ({"a": None, "b": 5}, [("a", None)])


def test_an_idle_split_does_not_keep_the_others_from_being_read():
    readers = {"idle": EndlessReader([]), "a": ListReader([1, 1]), "b": EndlessReader([2, 2])}

    async def main():
        async with running(source(readers)) as it:
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == [1, 1, 2, 2]


def test_open_splits_take_turns():
    readers = {name: EndlessReader([name] * 4, per_read=2) for name in "ab"}

    async def main():
        it = source(readers)
        it.subtask._open.extend(it.subtask._unopened)
        it.subtask._unopened.clear()
        async with running(it):
            await asyncio.sleep(1)
            return it.records

    assert run(main()) == ["a", "a", "b", "b", "a", "a", "b", "b"]


def test_more_idle_splits_than_may_be_open_all_get_their_turn(monkeypatch):
    monkeypatch.setattr(source_subtask, "OPEN_READERS_MAX", 2)
    readers = {str(i): EndlessReader([]) for i in range(5)}

    async def main():
        it = source(readers, positions={"4": 1})
        open_at_once = 0
        async with running(it):
            for round_ in range(1, 11):
                await asyncio.sleep(0.1)
                for name, reader in readers.items():
                    reader.values.append(f"{name}.{round_}")
                splits = it.subtask._part.splits
                open_at_once = max(open_at_once, sum(split.reader is not None for split in splits))
            await asyncio.sleep(1)
            it.trigger(1)
            await asyncio.sleep(0.1)
            return it, open_at_once

    it, open_at_once = run(main())

    received = [record for record in it.records if isinstance(record, str)]
    assert sorted(received) == sorted(f"{n}.{r}" for n in range(5) for r in range(1, 11))
    assert it.positions(1) == {str(i): 10 for i in range(5)}
    assert open_at_once <= 2


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("position", [(1, 2), {1: 2}, {1, 2}, float("nan"), b"x"])
def test_a_position_that_json_does_not_carry_names_source_and_split(position):
    class Odd(EndlessReader):
        def position(self):
            return position

    async def main():
        async with running(source(Odd([1]))) as it:
            await asyncio.sleep(0.1)
            it.trigger(1)
            return await it.failure()

    error = run(main())

    assert type(error) is BadRecordError
    assert "the position of split 's' of source 'source'" in str(error)


def test_a_position_that_the_reader_goes_on_changing_is_kept_as_it_was():
    class Shared(EndlessReader):
        def __init__(self, values):
            super().__init__(values, per_read=1, delay=0.01)
            self.where = {"at": 0}

        async def read(self, n):
            values = await super().read(n)
            self.where["at"] = self.at
            return values

        def position(self):
            return self.where

    async def main():
        disk = asyncio.Event()

        async def write_slowly(uid, frozen):
            await disk.wait()
            return []

        keyed_part = KeyedPart("k", FakeBackend(), (0, 127), write_slowly, no_savepoint)
        async with running(source(Shared(list(range(100))), parts=[keyed_part])) as it:
            for checkpoint in (1, 2):
                await asyncio.sleep(0.055)
                it.trigger(checkpoint)
            await asyncio.sleep(0.5)
            disk.set()
            await asyncio.sleep(0.1)
            return it

    it = run(main())

    for checkpoint in (1, 2):
        assert it.positions(checkpoint)["s"] == {"at": len(records_before(it.records, checkpoint))}


# ---------------------------------------------------------------- readers that misbehave


class Raising(ListReader):
    def __init__(self, error):
        super().__init__([])
        self.error = error

    async def read(self, n):
        raise self.error


@pytest.mark.parametrize(
    ("reader", "kind", "words"),
    [
        (Raising(ValueError("bad line")), UserCodeError, ["'source'", "read() of split 's'", "ValueError: bad line"]),
        (Raising(ConnectionResetError("gone")), TransientError, ["'source'", "ConnectionResetError: gone"]),
        (Raising(LostInputError("offset 10 is gone")), LostInputError, ["offset 10 is gone"]),
        (Raising(asyncio.CancelledError()), UserCodeError, ["'source'", "cancelled itself"]),
        (ValueError("no such topic"), UserCodeError, ["'source'", "open() of split 's'", "no such topic"]),
        (OSError("refused"), TransientError, ["'source'", "open() of split 's'", "refused"]),
    ],
)
def test_a_reader_that_raises_fails_the_subtask_and_is_named(reader, kind, words):
    async def main():
        async with running(source(reader)) as it:
            return await it.failure()

    error = run(main())

    assert type(error) is kind
    assert error.operator == "source"
    assert [word for word in words if word not in str(error)] == []


@pytest.mark.parametrize("odd", [None, (1, 2), "text", 5, iter([1])])
def test_a_read_that_returns_no_list_says_what_belongs_there(odd):
    class Odd(ListReader):
        async def read(self, n):
            return odd

    async def main():
        async with running(source(Odd([]))) as it:
            return await it.failure()

    error = run(main())

    assert type(error) is UserCodeError
    assert error.operator == "source"
    assert f" {type(odd).__name__}, where a list or END belongs" in str(error)


def test_an_error_in_the_chain_behind_it_fails_the_subtask():
    async def main():
        it = source(ListReader([1, 0]), operators=[plain("map", lambda value: 1 / value, "m")])
        async with running(it):
            return await it.failure()

    error = run(main())

    assert type(error) is UserCodeError
    assert error.operator == "m"


def test_when_it_is_stopped_the_read_under_way_is_cancelled_and_every_reader_closed_whatever_they_do():
    class Stubborn(EndlessReader):
        async def close(self):
            await super().close()
            raise OSError("cannot close")

    async def main():
        readers = {"a": Stubborn([1]), "b": EndlessReader([], delay=100)}
        async with AsyncExitStack() as stack:
            it = await stack.enter_async_context(running(source(readers)))
            await asyncio.sleep(1)
            reading = it.subtask._reading
        return it, readers, reading

    it, readers, reading = run(main())

    assert [reader.closed for reader in readers.values()] == [1, 1]
    assert reading.cancelled()
    assert it.task.cancelled()
    assert any("OSError while closing: cannot close" in line for line in it.logs)


def test_the_end_mark_is_not_a_record():
    assert repr(END) == "END"
