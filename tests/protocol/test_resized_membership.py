"""`protocol.membership` when a rescale changes how many workers a job has."""

from flowpoint.protocol.membership import Membership, WorkerState


def joined(workers):
    members = Membership(workers, timeout=10.0)
    for worker in range(workers):
        join(members, worker)
    return members


def join(members, worker):
    members.spawned(worker, pid=100 + worker, now=0.0)
    members.joined(worker, pid=100 + worker, incarnation=f"i{worker}", now=0.0)


def test_when_a_job_gets_more_workers_then_it_is_ready_when_they_have_joined():
    members = joined(2)

    assert members.resize(4) == []
    assert not members.is_ready
    assert members.workers(WorkerState.ABSENT) == [2, 3]
    for worker in (2, 3):
        join(members, worker)
    assert members.is_ready


def test_when_a_job_gets_fewer_workers_then_it_is_ready_when_the_others_are_reaped():
    members = joined(3)

    assert members.resize(1) == [1, 2]
    assert members.is_superfluous(2)
    assert not members.is_ready
    members.reaped(1)
    assert not members.is_ready
    members.reaped(2)
    assert members.is_ready


def test_when_a_superfluous_worker_ends_then_its_loss_is_no_news():
    members = joined(2)
    members.resize(1)

    assert not members.lost(1, pid=101)
    members.reaped(1)
    assert not members.lost(1, pid=101)
    assert members.state(1) is WorkerState.ABSENT


def test_when_superfluous_workers_fall_silent_then_nobody_is_expired():
    members = joined(2)
    members.resize(1)
    members.beat(0, "i0", now=100.0)

    assert members.expired(now=100.0) == []


def test_when_a_job_shrinks_and_grows_again_then_the_slots_are_new():
    members = joined(3)
    members.resize(1)
    for worker in (2, 1):
        members.reaped(worker)

    members.resize(2)

    assert members.workers(WorkerState.ABSENT) == [1]
    assert not members.is_superfluous(1)


def test_when_workers_are_still_releasing_then_a_smaller_job_waits_for_those_that_stay():
    members = joined(2)
    for worker in (0, 1):
        members.deploy(worker)
        members.deployed(worker)
    members.release_all()

    members.resize(1)
    members.reaped(1)

    assert not members.is_ready
    members.released(0)
    assert members.is_ready


# ---------------------------------------------------------------------- reserves


def with_reserves():
    """Two deployed workers, and slots for two more."""
    members = joined(2)
    assert members.reserve(4) == [2, 3]
    for worker in (0, 1):
        members.deploy(worker)
        members.deployed(worker)
    return members


def test_when_reserves_are_missing_then_the_job_goes_on_without_them():
    members = with_reserves()

    assert members.is_deployed
    members.release_all()
    for worker in (0, 1):
        members.released(worker)
    assert members.is_ready
    assert [members.is_superfluous(worker) for worker in range(4)] == [False, False, True, True]


def test_when_a_job_grows_then_its_reserves_are_there():
    members = joined(1)
    members.reserve(2)
    members.spawned(1, pid=101, now=0.0)
    members.joined(1, pid=101, incarnation="i1", now=0.0)

    assert members.resize(2) == []

    assert members.is_ready
    assert not members.is_superfluous(1)


def test_when_a_job_does_not_grow_then_its_reserves_are_ended():
    members = with_reserves()
    members.spawned(3, pid=103, now=0.0)

    assert members.resize(2) == [3]

    members.reaped(3)
    assert members.state(3) is WorkerState.ABSENT
    assert members.is_deployed


def test_when_a_reserve_is_lost_then_its_slot_can_be_filled_again():
    members = with_reserves()
    members.spawned(3, pid=103, now=0.0)
    members.joined(3, pid=103, incarnation="i3", now=0.0)

    assert members.lost(3, pid=103)
    members.reaped(3)

    assert members.reserve(4) == [2, 3]
