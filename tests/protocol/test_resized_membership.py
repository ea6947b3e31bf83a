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
