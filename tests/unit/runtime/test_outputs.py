"""Records are dealt out to the right channels, wait in buffers no longer than allowed, and never pass a barrier."""

from __future__ import annotations

import asyncio
import linecache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.codec.placement import group_of
from flowpoint.errors import BadRecordError, UserCodeError
from flowpoint.model.elements import END_OF_INPUT, Barrier
from flowpoint.model.key_groups import owner_of
from flowpoint.model.plan import Partition
from flowpoint.runtime.chain import HashEmit, Loop
from flowpoint.runtime.outputs import TARGET_KEY_MAX, TARGETS_MAX, EdgeOutput, Outputs, Routes
from tests.unit.runtime.fakes import CODEC, FakeOutlet, plain

TIMEOUT = 0.001


def edge(partition="forward", outlets=1, batch_size=4, key=lambda value: value, **more):
    """An edge and its outlets (a number of new ones, or a list)."""
    outlets = [FakeOutlet() for _ in range(outlets)] if isinstance(outlets, int) else outlets
    partition = Partition(partition)
    emit = None
    if partition is Partition.HASH:
        routes = Routes(len(outlets), 128)
        emit = HashEmit("next", key, "key_by(next)", routes.targets, routes.miss, [[] for _ in outlets])
    return EdgeOutput("sender", partition, outlets, batch_size, CODEC.copy, emit, **more), outlets


class Woken:
    """Counts calls."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


def outputs(*edges, timeout=TIMEOUT, wake=None):
    return Outputs(edges, timeout, wake or Woken())


async def pass_time(seconds=TIMEOUT * 20):
    await asyncio.sleep(seconds)


# ---------------------------------------------------------------- where records go


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.none())), width=st.integers(1, 5)
)
async def test_a_hash_edge_puts_every_key_to_its_owner_in_order(values, width):
    out, outlets = edge("hash", width)
    sender = outputs(out)

    sender.add(values)
    sender.send_event(END_OF_INPUT)

    for index, outlet in enumerate(outlets):
        mine = [value for value in values if owner_of(group_of(value, 128), width, 128) == index]
        assert outlet.records == [*mine, END_OF_INPUT]
    sender.close()


async def test_equal_keys_of_several_types_go_to_one_channel():
    out, outlets = edge("hash", 4)
    sender = outputs(out)

    sender.add([1, 1.0, True, 1])
    sender.send_event(END_OF_INPUT)

    assert sorted(len(outlet.records) for outlet in outlets) == [1, 1, 1, 5]
    sender.close()


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), max_size=8), width=st.integers(1, 4))
async def test_rebalance_is_even_to_one_record_and_keeps_order_per_channel(sizes, width):
    out, outlets = edge("rebalance", width)
    sender = outputs(out)
    numbers = iter(range(1000))

    for size in sizes:
        sender.add([next(numbers) for _ in range(size)])
    sender.send_event(END_OF_INPUT)

    received = [outlet.records[:-1] for outlet in outlets]
    assert sorted(number for records in received for number in records) == list(range(sum(sizes)))
    assert all(records == sorted(records) for records in received)
    assert max(map(len, received)) - min(map(len, received)) <= 1
    sender.close()


async def test_broadcast_gives_every_channel_everything():
    out, outlets = edge("broadcast", 3)
    sender = outputs(out)

    sender.add([1, 2, 3])
    sender.send_event(END_OF_INPUT)

    assert [outlet.records for outlet in outlets] == [[1, 2, 3, END_OF_INPUT]] * 3
    sender.close()


async def test_several_edges_each_get_everything():
    first, (a,) = edge()
    second, (b,) = edge()
    sender = outputs(first, second)

    sender.add([1, 2])
    sender.send_event(END_OF_INPUT)

    assert a.records == b.records == [1, 2, END_OF_INPUT]
    sender.close()


@pytest.mark.parametrize("kind", ["broadcast", "two edges"])
async def test_who_changes_a_record_changes_it_for_nobody_else(kind):
    if kind == "broadcast":
        out, outlets = edge("broadcast", 2)
        sender = outputs(out)
    else:
        (first, a), (second, b) = edge(), edge()
        outlets = a + b
        sender = outputs(first, second)

    sender.add([{"n": [1]}, ("t", [1])])
    sender.send_event(END_OF_INPUT)
    record, pair, _ = outlets[0].records
    record["n"].append(2)
    pair[1].append(2)

    assert outlets[1].records[:2] == [{"n": [1]}, ("t", [1])]
    sender.close()


async def test_records_that_cannot_change_are_not_copied():
    out, outlets = edge("broadcast", 2)
    text = str(10**20)
    sender = outputs(out)

    sender.add([text])
    sender.send_event(END_OF_INPUT)

    assert outlets[1].records[0] is text
    sender.close()


def test_the_cache_of_targets_is_bounded_in_keys_and_in_their_length():
    routes = Routes(2, 128)
    routes.targets.update((n, 0) for n in range(TARGETS_MAX))
    same = routes.targets

    routes.miss("x")
    routes.miss("y" * (TARGET_KEY_MAX + 1))

    assert routes.targets is same
    assert list(same) == ["x"]


# ---------------------------------------------------------------- when they go


async def test_a_full_batch_goes_at_once():
    out, (outlet,) = edge(batch_size=3)
    sender = outputs(out, timeout=1000)

    sender.add([1, 2])
    assert outlet.sent == []
    sender.add([3])

    assert outlet.sent == [[1, 2, 3]]
    sender.close()


async def test_a_smaller_batch_goes_after_the_buffer_timeout():
    out, (outlet,) = edge()
    sender = outputs(out)

    sender.add([1])
    assert outlet.sent == []
    await pass_time()

    assert outlet.sent == [[1]]
    sender.close()


async def test_a_buffered_record_goes_before_the_barrier_and_the_next_one_after_it():
    out, outlets = edge("rebalance", 2)
    sender = outputs(out, timeout=1000)

    sender.add([1, 2, 3])
    sender.send_event(Barrier(1))
    sender.add([4])
    sender.send_event(END_OF_INPUT)

    assert outlets[0].records == [1, 3, Barrier(1), END_OF_INPUT]
    assert outlets[1].records == [2, Barrier(1), 4, END_OF_INPUT]
    sender.close()


async def test_the_timer_leaves_what_has_no_credit_and_sends_it_when_there_is_credit_without_polling():
    slow, fast = FakeOutlet(writable=False), FakeOutlet()
    out, _ = edge("rebalance", [slow, fast])
    woken = Woken()
    sender = outputs(out, wake=woken)

    sender.add([1, 2])
    await pass_time()
    assert (slow.sent, fast.sent) == ([], [[2]])
    assert slow.asked == 1

    slow.writable = True
    assert slow.sent == []
    await asyncio.sleep(0)
    assert slow.sent == [[1]]
    assert woken.times == 1
    sender.close()


async def test_no_credit_loses_and_reorders_nothing():
    outlets = [FakeOutlet(writable=False) for _ in range(2)]
    out, _ = edge("rebalance", outlets, batch_size=2)
    sender = outputs(out)

    for number in range(10):
        sender.add([number])
        outlets[number % 2].writable = not outlets[number % 2].writable
        await asyncio.sleep(0)
    for outlet in outlets:
        outlet.writable = True
    await pass_time()

    assert [outlet.records for outlet in outlets] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    sender.close()


async def test_events_need_no_credit_and_take_what_is_buffered_along():
    outlet = FakeOutlet(writable=False)
    out, _ = edge(outlets=[outlet])
    sender = outputs(out)

    sender.add([1])
    sender.send_event(Barrier(1))

    assert not sender.writable
    assert outlet.records == [1, Barrier(1)]
    sender.close()


async def test_nothing_is_sent_after_close():
    outlet = FakeOutlet()
    blocked = FakeOutlet(writable=False)
    sender = outputs(edge(outlets=[outlet])[0], edge(outlets=[blocked])[0])
    sender.add([1])
    await pass_time()
    sender.add([2])

    sender.close()
    blocked.writable = True
    await pass_time()

    assert outlet.records == [1]
    assert blocked.records == []


async def test_records_count_once_however_many_channels_they_go_to():
    sender = outputs(edge("broadcast", 3)[0], edge()[0])

    sender.add([1, 2])

    assert sender.records_out == 2
    sender.close()


async def test_records_that_the_chain_deals_out_itself_count_too():
    routes = Routes(2, 128)
    emit = HashEmit("next", str, "", routes.targets, routes.miss, [[], []])
    outlets = [FakeOutlet(), FakeOutlet()]
    out = EdgeOutput("sender", Partition.HASH, outlets, 4, CODEC.copy, emit, is_dealt=True)
    sender = outputs(out)

    sender.add(Loop([plain("map", str)], emit).run([1, 2, 3]))
    buffered = sender.records_out
    sender.send_event(END_OF_INPUT)

    assert buffered == sender.records_out == 3
    assert sorted(record for outlet in outlets for record in outlet.records[:-1]) == ["1", "2", "3"]
    sender.close()


# ---------------------------------------------------------------- what goes wrong


def refuse(values):
    raise BadRecordError("cannot serialise a value of type Socket")


async def test_a_record_that_cannot_be_sent_names_the_operator_that_made_it():
    sender = outputs(edge(outlets=[FakeOutlet(accept=refuse)], batch_size=1)[0])

    with pytest.raises(BadRecordError, match="'sender' cannot send its records on: cannot serialise") as caught:
        sender.add([object()])

    assert caught.value.operator == "sender"
    sender.close()


async def test_a_failure_inside_the_timer_wakes_the_subtask_and_is_raised_there():
    woken = Woken()
    sender = outputs(edge(outlets=[FakeOutlet(accept=refuse)])[0], wake=woken)

    sender.add([object()])
    sender.check()
    await pass_time()

    assert woken.times == 1
    with pytest.raises(BadRecordError, match="'sender' cannot send"):
        sender.check()
    sender.close()


async def test_a_record_that_cannot_be_copied_for_a_second_channel_names_the_operator():
    sender = outputs(edge("broadcast", 2)[0])

    with pytest.raises(BadRecordError, match="'sender' cannot send its records on"):
        sender.add([object()])
    sender.close()


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (lambda v: 1 / v, UserCodeError, "key_by\\(next\\) failed on record 0: ZeroDivisionError"),
        (lambda v: [v], BadRecordError, "operator 'next': .* on record 0: the key \\[0\\] is not hashable"),
        (lambda v: float("nan"), BadRecordError, "operator 'next': .* on record 0: cannot use NaN"),
    ],
)
async def test_a_bad_key_is_explained_as_in_a_chain(key, kind, words):
    sender = outputs(edge("hash", 2, key=key)[0])

    with pytest.raises(kind, match=words) as caught:
        sender.add([0])

    assert caught.value.operator == "next"
    sender.close()


async def test_close_lets_go_of_generated_code():
    before = set(linecache.cache)
    sender = outputs(edge("hash", 2)[0])
    assert set(linecache.cache) != before

    sender.close()

    assert set(linecache.cache) == before
