"""`protocol.membership`: every cell of the slot's table, identity of processes, silence."""

import itertools

import pytest

from flowpoint.errors import InternalError
from flowpoint.protocol.membership import JOIN_TIMEOUT, WORKER_TRANSITIONS, Membership, WorkerEvent, WorkerState

PID = 4711


def members_in(state):
    """A membership of one worker whose process is in this state, heard at time 0."""
    members = Membership(1, timeout=10.0)
    path = {
        WorkerState.ABSENT: [],
        WorkerState.SPAWNED: ["spawned"],
        WorkerState.JOINED: ["spawned", "joined"],
        WorkerState.DEPLOYING: ["spawned", "joined", "deploy"],
        WorkerState.DEPLOYED: ["spawned", "joined", "deploy", "deployed"],
        WorkerState.RELEASING: ["spawned", "joined", "deploy", "release"],
        WorkerState.LOST: ["spawned", "lost"],
    }[state]
    for event in path:
        happen(members, WorkerEvent(event))
    assert members.state(0) is state
    return members


def happen(members, event):
    """Tell of an event. False: it was passed over."""
    match event:
        case WorkerEvent.SPAWNED:
            members.spawned(0, PID, now=0.0)
        case WorkerEvent.JOINED:
            return members.joined(0, PID, "ab12", now=0.0)
        case WorkerEvent.RELEASE:
            return members.release_all() == [0]
        case WorkerEvent.LOST:
            return members.lost(0, PID)
        case _:
            getattr(members, event)(0)
    return True


# What may be told although the table has no such event, because nobody can know better: it is passed over.
PASSED_OVER = {
    *((state, WorkerEvent.JOINED) for state in WorkerState),  # a stray hello is refused
    *((state, WorkerEvent.RELEASE) for state in WorkerState),  # to all workers, also those that have nothing
    (WorkerState.ABSENT, WorkerEvent.LOST),  # the death of an older process
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(WorkerState, WorkerEvent)))
def test_when_an_event_comes_in_a_state_then_the_table_says_what_follows(state, event):
    members = members_in(state)
    target = WORKER_TRANSITIONS.get((state, event))

    if target is not None:
        happen(members, event)
        assert members.state(0) is target
    elif (state, event) in PASSED_OVER:
        assert not happen(members, event)
        assert members.state(0) is state
    else:
        with pytest.raises(InternalError, match=rf"worker 0 is {state}, which has no event {event}"):
            happen(members, event)


def test_when_every_worker_has_joined_then_the_job_is_ready_and_not_before():
    members = Membership(2, timeout=10.0)
    for worker in (0, 1):
        assert not members.is_ready
        members.spawned(worker, 100 + worker, now=0.0)
        assert not members.is_ready
        members.joined(worker, 100 + worker, f"i{worker}", now=0.0)

    assert members.is_ready


def test_when_one_of_two_is_lost_then_the_job_is_neither_ready_nor_deployed_until_it_is_replaced():
    members = Membership(2, timeout=10.0)
    for worker in (0, 1):
        members.spawned(worker, 100 + worker, now=0.0)
        members.joined(worker, 100 + worker, f"i{worker}", now=0.0)
        members.deploy(worker)
        members.deployed(worker)
    assert members.is_deployed

    members.lost(1, 101)
    assert not members.is_deployed
    assert members.release_all() == [0]
    members.released(0)
    assert not members.is_ready

    members.reaped(1)
    members.spawned(1, 202, now=1.0)
    members.joined(1, 202, "i2", now=1.0)
    assert members.is_ready


def test_when_a_failure_comes_while_deploying_then_those_that_were_sent_nothing_are_not_released():
    members = Membership(2, timeout=10.0)
    for worker in (0, 1):
        members.spawned(worker, 100 + worker, now=0.0)
        members.joined(worker, 100 + worker, f"i{worker}", now=0.0)
    members.deploy(0)

    assert members.release_all() == [0]
    assert members.workers(WorkerState.JOINED) == [1]


def test_when_a_process_says_hello_that_was_not_started_for_the_slot_then_it_is_refused():
    members = members_in(WorkerState.SPAWNED)

    assert not members.joined(0, 9999, "zombie", now=1.0)
    assert members.state(0) is WorkerState.SPAWNED


@pytest.mark.parametrize("worker", [-1, 1])
def test_when_a_process_says_hello_for_a_slot_that_is_not_there_then_it_is_refused(worker):
    members = members_in(WorkerState.SPAWNED)

    assert not members.joined(worker, PID, "ab12", now=1.0)
    assert not members.beat(worker, "ab12", now=1.0)


def test_when_two_ways_tell_of_one_death_then_it_is_news_once():
    members = members_in(WorkerState.DEPLOYED)

    assert members.lost(0, PID)
    assert not members.lost(0, PID)


def test_when_the_death_of_an_older_process_is_told_late_then_the_new_one_lives():
    members = members_in(WorkerState.LOST)
    members.reaped(0)
    members.spawned(0, 5000, now=1.0)

    assert not members.lost(0, PID)
    assert members.state(0) is WorkerState.SPAWNED


def test_when_a_worker_is_silent_for_the_timeout_then_it_is_expired():
    members = members_in(WorkerState.DEPLOYED)

    assert members.expired(9.9) == []
    assert members.expired(10.0) == [0]


def test_when_heartbeats_come_then_the_worker_lives():
    members = members_in(WorkerState.DEPLOYED)

    assert members.beat(0, "ab12", now=9.0)

    assert members.expired(18.9) == []
    assert members.expired(19.0) == [0]


def test_when_heartbeats_come_out_of_order_then_the_newest_counts():
    members = members_in(WorkerState.DEPLOYED)
    members.beat(0, "ab12", now=9.0)

    members.beat(0, "ab12", now=5.0)

    assert members.expired(18.9) == []


@pytest.mark.parametrize("incarnation", ["older", ""])
def test_when_heartbeats_of_another_incarnation_come_then_they_do_not_count(incarnation):
    members = members_in(WorkerState.DEPLOYED)

    assert not members.beat(0, incarnation, now=9.0)
    assert members.expired(10.0) == [0]


def test_when_a_lost_worker_still_sends_heartbeats_then_they_do_not_count():
    members = members_in(WorkerState.DEPLOYED)
    members.lost(0, PID)

    assert not members.beat(0, "ab12", now=1.0)
    assert members.incarnation(0) == ""


def test_when_the_coordinator_stood_still_then_nobody_is_expired_for_it():
    members = members_in(WorkerState.DEPLOYED)
    members.beat(0, "ab12", now=2.0)

    # Something planned for 3.0 happens at 3603.0: an hour of sleep, in which no heartbeat could be read.
    members.excuse(3603.0, lag=3600.0)
    assert members.expired(3603.0) == []
    assert members.expired(3611.9) == []
    assert members.expired(3612.0) == [0]


def test_when_the_lag_is_longer_than_the_silence_then_the_worker_is_not_heard_in_the_future():
    members = members_in(WorkerState.DEPLOYED)

    members.excuse(5.0, lag=1000.0)

    assert members.expired(15.0) == [0]


def test_when_a_new_process_does_not_say_hello_then_it_has_longer_than_a_heartbeat():
    members = members_in(WorkerState.SPAWNED)

    assert members.expired(JOIN_TIMEOUT - 0.1) == []
    assert members.expired(JOIN_TIMEOUT) == [0]


@pytest.mark.parametrize("state", [WorkerState.ABSENT, WorkerState.LOST])
def test_when_a_slot_has_no_living_process_then_its_silence_means_nothing(state):
    assert members_in(state).expired(1e9) == []


def test_when_a_slot_is_asked_for_its_pid_then_it_is_that_of_its_process():
    members = members_in(WorkerState.LOST)
    assert members.pid(0) == PID

    members.reaped(0)
    assert members.pid(0) == 0
