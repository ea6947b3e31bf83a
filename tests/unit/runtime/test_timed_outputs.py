"""Timestamps go along with their records, and a watermark comes behind every record that was there before it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.model.elements import Barrier, Idleness, Watermark
from flowpoint.model.plan import Partition
from flowpoint.runtime.chain import HashEmit, Loop
from flowpoint.runtime.outputs import EdgeOutput, Outputs, Routes
from tests.unit.runtime.fakes import CODEC, FakeOutlet, plain

TIMEOUT = 0.001


def edge(partition="forward", width=1, batch_size=4, timed=True, **more):
    """An edge and its outlets."""
    outlets = [FakeOutlet() for _ in range(width)]
    emit = None
    if partition == "hash":
        routes = Routes(width, 128)
        emit = HashEmit("next", lambda value: value, "", routes.targets, routes.miss, [[] for _ in outlets])
    made = EdgeOutput("sender", Partition(partition), outlets, batch_size, CODEC.copy, emit, timed=timed, **more)
    return made, outlets, emit


def outputs(*edges):
    return Outputs(edges, TIMEOUT, lambda: None)


@pytest.mark.parametrize(("partition", "width"), [("forward", 1), ("hash", 3), ("rebalance", 3), ("broadcast", 2)])
async def test_every_record_keeps_its_timestamp_however_records_are_dealt_out(partition, width):
    out, outlets, _ = edge(partition, width)
    sender = outputs(out)

    sender.add(list(range(10)), [n * 7 for n in range(10)])
    sender.send_event(Barrier(1))

    seen = [pair for outlet in outlets for pair in outlet.timed if pair != Barrier(1)]
    assert sorted(seen) == sorted([(n, n * 7) for n in range(10)] * (width if partition == "broadcast" else 1))
    sender.close()


async def test_what_the_chain_deals_out_itself_keeps_its_timestamps_too():
    out, outlets, emit = edge("hash", 2, is_dealt=True)
    sender, loop = outputs(out), Loop([plain("map", lambda n: n + 1)], None)
    dealing = Loop([], emit)

    sender.expect(True)
    values, stamps = loop.run_timed([1, 2, 3], [10, 20, 30])
    sender.add(dealing.run_timed(values, stamps))
    sender.advance(30)
    sender.send_event(Barrier(1))

    assert sorted(pair for outlet in outlets for pair in outlet.timed if isinstance(pair, tuple)) == [
        (2, 10),
        (3, 20),
        (4, 30),
    ]
    assert [outlet.timed[-2:] for outlet in outlets] == [[Watermark(30), Barrier(1)]] * 2
    sender.close()


async def test_records_with_timestamps_and_without_never_share_a_batch():
    out, (outlet,), _ = edge(batch_size=100)
    sender = outputs(out)

    sender.add([1, 2])
    sender.add([3], [30])
    sender.add([4])
    sender.send_event(Barrier(1))

    assert outlet.sent == [[1, 2], [3], [4], Barrier(1)]
    assert outlet.stamps == [None, [30], None]
    sender.close()


async def test_a_watermark_cuts_no_batch_short_and_follows_the_records_before_it():
    out, (outlet,), _ = edge(batch_size=4)
    sender = outputs(out)

    sender.add([1, 2], [10, 20])
    sender.advance(19)
    assert outlet.sent == []
    sender.add([3], [30])
    sender.advance(29)
    sender.add([4], [40])

    assert outlet.sent == [[1, 2, 3, 4], Watermark(29)]
    sender.close()


async def test_a_watermark_with_nothing_before_it_goes_at_once_and_one_behind_records_when_they_have_waited_enough():
    out, (first, second), _ = edge("rebalance", 2)
    sender = outputs(out)

    sender.add([1], [10])
    sender.advance(9)
    at_once = list(second.sent)
    await asyncio.sleep(TIMEOUT * 20)

    assert at_once == [Watermark(9)]
    assert first.sent == [[1], Watermark(9)]
    sender.close()


async def test_without_credit_a_watermark_waits_with_its_records():
    out, (outlet,), _ = edge()
    sender = outputs(out)
    outlet.writable = False

    sender.add([1], [10])
    sender.advance(9)
    await asyncio.sleep(TIMEOUT * 20)
    assert outlet.sent == []
    outlet.writable = True
    await asyncio.sleep(TIMEOUT * 20)

    assert outlet.sent == [[1], Watermark(9)]
    sender.close()


async def test_a_stream_without_timestamps_carries_no_watermarks():
    timed, (first,), _ = edge()
    plain_edge, (second,), _ = edge(timed=False)
    sender = outputs(timed, plain_edge)

    sender.advance(5)
    sender.send_idleness(True)

    assert (first.sent, second.sent) == ([Watermark(5), Idleness(True)], [])
    sender.close()


async def test_idleness_comes_behind_records_and_watermark():
    out, (outlet,), _ = edge()
    sender = outputs(out)

    sender.add([1], [10])
    sender.advance(9)
    sender.send_idleness(True)

    assert outlet.sent == [[1], Watermark(9), Idleness(True)]
    sender.close()


async def test_a_side_output_goes_to_its_own_edges_only():
    main, (first,), _ = edge(batch_size=1)
    side, (second,), _ = edge(batch_size=1, tag="late")
    also, (third,), _ = edge(batch_size=1, tag="late")
    sender = outputs(main, side, also)
    record = [1]

    sender.add(["main"], [5])
    sender.add_side("late", [record], None)

    assert (first.timed, second.timed, third.timed) == ([("main", 5)], [([1], None)], [([1], None)])
    assert second.sent[0][0] is not third.sent[0][0]
    assert sender.records_out == 2
    sender.close()


STEPS = st.lists(
    st.one_of(st.tuples(st.just("add"), st.integers(1, 5)), st.sampled_from(["advance", "timeout", "barrier"])),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, partition=st.sampled_from(["hash", "rebalance", "broadcast"]), width=st.integers(1, 3))
async def test_no_record_comes_behind_a_watermark_that_came_after_it(steps, partition, width):
    """Records are numbered in order and timestamps are their numbers; each watermark is the newest number."""
    out, outlets, _ = edge(partition, width, batch_size=3)
    sender = outputs(out)
    newest = 0
    for step in steps:
        match step:
            case ("add", count):
                numbers = list(range(newest + 1, newest + count + 1))
                newest += count
                sender.add(numbers, list(numbers))
            case "advance":
                sender.advance(newest)
            case "timeout":
                await asyncio.sleep(TIMEOUT * 3)
            case "barrier":
                sender.send_event(Barrier(1))
    sender.advance(newest)
    sender.send_event(Barrier(2))

    for outlet in outlets:
        watermark = -1
        for item in outlet.timed:
            if isinstance(item, Watermark):
                assert item.timestamp >= watermark
                watermark = item.timestamp
            elif isinstance(item, tuple):
                assert item[1] > watermark
        assert watermark == newest
    sender.close()
