"""Timers fire in order, once, for their key, and survive a restore."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flowpoint.codec.keys import canonical
from flowpoint.codec.values import Codec
from flowpoint.errors import UserCodeError
from flowpoint.model.manifest import StateFile
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.timers import EVENT, PROCESSING, TimerService


class Timers:
    """A service, its backend, and a way to speak for a key."""

    def __init__(self, backend: HeapBackend | None = None) -> None:
        self.backend = backend or HeapBackend(Codec(), 16)
        self.cell = KeyCell()
        self.service = TimerService(self.backend, self.cell)

    def of(self, key: Any) -> TimerService:
        self.cell.key = key
        return self.service

    def after_a_restore(self) -> Timers:
        frozen = self.backend.freeze(full=True)
        data = b"".join(frozen.chunks()) if frozen.entries else b""
        restored = HeapBackend(Codec(), 16)
        if data:
            restored.restore([(StateFile("f", "base", len(data), "", groups=(0, 15)), data)], (0, 15))
        return Timers(restored)

    def due(self, now: int | None, domain: str = PROCESSING) -> list[tuple[Any, int]]:
        return list(self.service.pop_due(domain, now))


def test_due_timers_come_by_time_and_then_by_key_whatever_the_order_they_were_set_in() -> None:
    timers = [(f"k{n % 5}", n % 7) for n in range(35)]
    expected = sorted(timers, key=lambda timer: (timer[1], canonical(timer[0])))

    for seed in range(5):
        shuffled = random.Random(seed).sample(timers, len(timers))
        some = Timers()
        for key, timestamp in shuffled:
            some.of(key).processing(timestamp)

        assert some.due(6) == expected


def test_timers_that_are_not_due_stay() -> None:
    some = Timers()
    for timestamp in (30, 10, 20):
        some.of("a").processing(timestamp)

    assert some.due(9) == []
    assert some.service.next_due(PROCESSING) == 10
    assert some.due(20) == [("a", 10), ("a", 20)]
    assert some.service.next_due(PROCESSING) == 30
    assert some.due(None) == [("a", 30)]
    assert some.service.next_due(PROCESSING) is None


def test_a_timer_set_twice_fires_once() -> None:
    some = Timers()
    some.of("a").processing(5)
    some.of("a").processing(5)
    some.of(1).processing(6)
    some.of(True).processing(6)

    assert some.due(9) == [("a", 5), (1, 6)]
    some.of("a").processing(5)
    assert some.due(9) == [("a", 5)]


def test_event_and_processing_time_do_not_mix() -> None:
    some = Timers()
    some.of("a").event(5)
    some.of("a").processing(7)

    assert some.due(9, EVENT) == [("a", 5)]
    assert some.service.next_due(EVENT) is None
    assert some.due(9) == [("a", 7)]


def test_a_deleted_timer_does_not_fire_and_may_be_set_again() -> None:
    some = Timers()
    some.of("a").processing(5)
    some.of("b").processing(5)

    some.of("a").delete_processing(5)
    some.of("nobody").delete_processing(5)
    assert some.service.next_due(PROCESSING) == 5
    assert some.due(5) == [("b", 5)]

    some.of("a").processing(5)
    some.of("a").delete_processing(5)
    some.of("a").processing(5)
    assert some.due(5) == [("a", 5)]


def test_pending_timers_survive_a_restore_and_fired_or_deleted_ones_do_not_come_back() -> None:
    some = Timers()
    for key in ("a", "b", ("c", 1)):
        for timestamp in (5, 10):
            some.of(key).processing(timestamp)
    some.of("a").event(7)
    some.due(5)
    some.of("b").delete_processing(10)

    again = some.after_a_restore()

    assert len(again.service) == 3
    assert again.due(10) == [(("c", 1), 10), ("a", 10)]
    assert again.due(7, EVENT) == [("a", 7)]
    assert len(again.after_a_restore().service) == 0


def test_a_timer_set_while_others_fire_comes_out_when_it_is_due() -> None:
    some = Timers()
    some.of("a").processing(1)
    fired = []

    for key, timestamp in some.service.pop_due(PROCESSING, 3):
        fired.append(timestamp)
        some.of(key).processing(timestamp + 1)

    assert fired == [1, 2, 3]
    assert some.service.next_due(PROCESSING) == 4


def test_deleting_many_timers_leaves_no_garbage() -> None:
    some = Timers()
    for n in range(10_000):
        some.of("a").event(n)
        some.of("a").delete_event(n)

    assert len(some.service._domains[EVENT].heap) < 2000
    assert some.due(None, EVENT) == []


@pytest.mark.parametrize("timestamp", [1.5, "1", None, True])
def test_a_timestamp_is_an_int(timestamp: Any) -> None:
    with pytest.raises(UserCodeError, match="timestamp is an int, epoch milliseconds"):
        Timers().of("a").event(timestamp)


def test_timers_need_a_key() -> None:
    with pytest.raises(UserCodeError, match="outside a keyed call"):
        Timers().service.event(5)
