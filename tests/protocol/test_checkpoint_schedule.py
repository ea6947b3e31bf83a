"""`protocol.schedule`: when a checkpoint may be triggered."""

import pytest

from flowpoint.model.settings import CheckpointSettings
from flowpoint.protocol.schedule import (
    ASKED_PAUSE_SECONDS,
    LAST_PAUSE_SECONDS,
    CheckpointScheduler,
    Permission,
    TriggerKind,
)

BY_HAND = (TriggerKind.CHECKPOINT, TriggerKind.SAVEPOINT)
AT_THE_END = (TriggerKind.STOP, TriggerKind.FINAL)


def started(now=100.0, **settings):
    scheduler = CheckpointScheduler(CheckpointSettings(**{"interval": 10.0, **settings}))
    scheduler.start(now)
    return scheduler


def may(scheduler, now, pending, kind):
    return scheduler.may_trigger(now, pending, kind) is Permission.RUN


def test_when_a_job_has_started_then_the_first_checkpoint_is_due_after_an_interval():
    scheduler = started()

    assert scheduler.next_due(100.0) == 110.0
    assert not may(scheduler, 109.9, 0, TriggerKind.PERIODIC)
    assert may(scheduler, 110.0, 0, TriggerKind.PERIODIC)


def test_when_a_checkpoint_is_triggered_then_the_next_is_an_interval_later():
    scheduler = started()
    scheduler.triggered(110.0)
    scheduler.completed(112.0)

    assert scheduler.next_due(112.0) == 120.0


def test_when_a_checkpoint_takes_longer_than_the_interval_then_the_missed_ticks_do_not_pile_up():
    scheduler = started()
    scheduler.triggered(110.0)
    assert not may(scheduler, 145.0, 1, TriggerKind.PERIODIC)

    scheduler.completed(145.0)
    assert scheduler.next_due(145.0) == 145.0
    scheduler.triggered(145.0)
    assert scheduler.next_due(145.0) == 155.0


@pytest.mark.parametrize("end", ["completed", "failed"])
def test_when_there_is_a_min_pause_then_it_is_counted_from_the_end_of_the_last(end):
    scheduler = started(min_pause=7.0)
    scheduler.triggered(110.0)
    getattr(scheduler, end)(118.0)

    assert scheduler.next_due(118.0) == 125.0


def test_when_a_savepoint_ends_then_the_min_pause_holds_but_the_interval_is_not_put_off():
    scheduler = started(min_pause=3.0)
    scheduler.triggered(106.0, TriggerKind.SAVEPOINT)
    scheduler.completed(109.0)

    assert scheduler.next_due(109.0) == 112.0


def test_when_a_checkpoint_is_taken_by_hand_then_the_interval_starts_anew():
    scheduler = started()
    scheduler.triggered(105.0, TriggerKind.CHECKPOINT)

    assert scheduler.next_due(105.0) == 115.0


def test_when_a_new_attempt_starts_then_the_old_ones_times_are_forgotten():
    scheduler = started(min_pause=60.0)
    scheduler.triggered(110.0)
    scheduler.failed(111.0)

    scheduler.start(112.0)

    assert scheduler.next_due(112.0) == 122.0


def test_when_the_interval_is_zero_then_nothing_is_periodic_but_requests_are_served():
    scheduler = started(interval=0.0)

    assert scheduler.next_due(1e9) is None
    assert not may(scheduler, 1e9, 0, TriggerKind.PERIODIC)
    assert all(may(scheduler, 100.0, 0, kind) for kind in BY_HAND + AT_THE_END)


def test_when_the_job_has_not_started_then_nothing_is_due():
    assert CheckpointScheduler(CheckpointSettings()).next_due(1e9) is None


@pytest.mark.parametrize("kind", BY_HAND)
def test_when_a_person_asks_then_neither_interval_nor_min_pause_is_waited_for(kind):
    scheduler = started(min_pause=60.0)
    scheduler.completed(100.5)

    assert may(scheduler, 101.0, 0, kind)


@pytest.mark.parametrize("kind", [TriggerKind.PERIODIC, *BY_HAND])
def test_when_all_slots_are_taken_then_a_checkpoint_waits(kind):
    scheduler = started(max_concurrent=2)

    assert may(scheduler, 110.0, 1, kind)
    assert not may(scheduler, 110.0, 2, kind)


@pytest.mark.parametrize("kind", [TriggerKind.PERIODIC, *BY_HAND])
def test_when_there_is_a_min_pause_then_there_is_one_slot(kind):
    scheduler = started(max_concurrent=3, min_pause=1.0)

    assert not may(scheduler, 110.0, 1, kind)


@pytest.mark.parametrize("kind", AT_THE_END)
def test_when_the_job_is_about_to_end_then_the_last_checkpoint_waits_for_all_others(kind):
    scheduler = started(max_concurrent=3)

    assert not may(scheduler, 110.0, 1, kind)
    assert may(scheduler, 100.0, 0, kind)


def test_when_suspended_then_nothing_periodic_gets_in_before_the_last_checkpoint():
    scheduler = started()

    scheduler.suspend()
    assert scheduler.next_due(200.0) is None
    assert not may(scheduler, 200.0, 0, TriggerKind.PERIODIC)
    assert may(scheduler, 200.0, 0, TriggerKind.STOP)

    scheduler.resume()
    assert scheduler.next_due(200.0) == 200.0


@pytest.mark.parametrize("kind", AT_THE_END)
def test_when_the_last_checkpoint_failed_then_it_is_not_tried_again_at_once(kind):
    scheduler = started()

    scheduler.failed(100.0, kind)

    assert not may(scheduler, 100.0, 0, kind)
    assert may(scheduler, scheduler.not_before(kind), 0, kind)
    assert scheduler.not_before(kind) == pytest.approx(100.0 + LAST_PAUSE_SECONDS)


def test_when_an_ordinary_checkpoint_failed_then_a_stop_does_not_wait_for_it():
    scheduler = started()

    scheduler.failed(100.0, TriggerKind.PERIODIC)

    assert may(scheduler, 100.0, 0, TriggerKind.STOP)


@pytest.mark.parametrize("kind", BY_HAND)
def test_when_a_person_asked_too_early_then_it_is_tried_again_after_a_pause_and_a_stop_does_not_wait_for_that(kind):
    scheduler = started()

    scheduler.failed(100.0, kind, too_early=True)

    assert not may(scheduler, 100.0, 0, kind)
    assert may(scheduler, 100.0, 0, TriggerKind.STOP)
    assert scheduler.not_before(kind) == pytest.approx(100.0 + ASKED_PAUSE_SECONDS)
    assert may(scheduler, scheduler.not_before(kind), 0, kind)


@pytest.mark.parametrize("too_early", [False, True])
def test_when_another_checkpoint_failed_then_a_person_does_not_wait_for_it(too_early):
    scheduler = started()

    scheduler.failed(100.0, TriggerKind.PERIODIC, too_early=too_early)

    assert may(scheduler, 100.0, 0, TriggerKind.SAVEPOINT)
