"""`protocol.checkpoint`: collecting acknowledgements, failing, and counting failures."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from flowpoint.errors import InternalError
from flowpoint.model.manifest import OperatorState, SubtaskState
from flowpoint.model.plan import JobPlan, OperatorKind, OperatorSpec, SubtaskId, TaskSpec
from flowpoint.protocol.checkpoint import (
    AckOutcome,
    CheckpointFailure,
    FailureCounter,
    PendingCheckpoint,
    collect_operators,
)

A, B = SubtaskId(0, 0), SubtaskId(0, 1)
COUNTING = ("declined", "expired", "write_failed", "finalize_failed")


def pending(subtasks=(A, B), **more):
    return PendingCheckpoint(7, 3, "checkpoint", subtasks, triggered_at=100.0, deadline=700.0, **more)


def test_when_everybody_has_acknowledged_then_it_completes_with_all_data_in_plan_order():
    checkpoint = pending()

    assert checkpoint.ack(3, B, "b") is AckOutcome.ACCEPTED
    assert checkpoint.acks_missing == {A}
    assert checkpoint.ack(3, A, "a") is AckOutcome.ACCEPTED

    assert checkpoint.is_complete
    assert list(checkpoint.complete().items()) == [(A, "a"), (B, "b")]


def test_ac06_when_one_of_two_has_not_acknowledged_then_it_cannot_complete():
    checkpoint = pending()
    checkpoint.ack(3, A, "a")

    assert not checkpoint.is_complete
    with pytest.raises(InternalError, match=r"missing \['0#1'\]"):
        checkpoint.complete()


def test_ac07_when_an_ack_comes_after_failover_began_then_it_is_late():
    checkpoint = pending()
    checkpoint.ack(3, A, "a")

    checkpoint.fail(CheckpointFailure.ABORTED_BY_FAILOVER)

    assert checkpoint.ack(3, B, "b") is AckOutcome.LATE
    assert not checkpoint.is_complete
    with pytest.raises(InternalError, match="aborted_by_failover"):
        checkpoint.complete()


@pytest.mark.parametrize("attempt", [2, 4])
def test_ac07_when_an_ack_is_of_another_attempt_then_it_never_counts(attempt):
    checkpoint = pending([A])

    assert checkpoint.ack(attempt, A, "a") is AckOutcome.LATE
    assert checkpoint.decline(attempt, A, "no") is AckOutcome.LATE
    assert checkpoint.acks_missing == {A}
    assert checkpoint.failure is None


def test_ac07_when_a_worker_acknowledges_for_another_then_it_does_not_count():
    checkpoint = pending(owners={A: 0, B: 1})

    assert checkpoint.ack(3, B, "b", worker=0) is AckOutcome.UNKNOWN
    assert checkpoint.decline(3, B, "no", worker=0) is AckOutcome.UNKNOWN
    assert checkpoint.acks_missing == {A, B}
    assert checkpoint.ack(3, B, "b", worker=1) is AckOutcome.ACCEPTED


def test_when_a_subtask_acknowledges_twice_then_the_first_data_stays():
    checkpoint = pending([A])
    checkpoint.ack(3, A, "first")

    assert checkpoint.ack(3, A, "second") is AckOutcome.DUPLICATE
    assert checkpoint.complete() == {A: "first"}


def test_when_a_stranger_acknowledges_then_it_is_unknown():
    assert pending([A]).ack(3, B, "b") is AckOutcome.UNKNOWN


def test_when_a_subtask_declines_then_the_checkpoint_has_failed_and_says_who_and_why():
    checkpoint = pending()

    assert checkpoint.decline(3, B, "disk full") is AckOutcome.ACCEPTED
    assert checkpoint.failure is CheckpointFailure.DECLINED
    assert checkpoint.failure_detail == "0#1: disk full"
    assert checkpoint.is_closed


def test_when_it_has_failed_then_the_first_failure_stays():
    checkpoint = pending()
    checkpoint.fail(CheckpointFailure.EXPIRED, "first")

    checkpoint.fail(CheckpointFailure.SUBSUMED, "second")

    assert (checkpoint.failure, checkpoint.failure_detail) == (CheckpointFailure.EXPIRED, "first")


def test_when_it_has_completed_then_it_cannot_complete_again():
    checkpoint = pending([A])
    checkpoint.ack(3, A, "a")
    checkpoint.complete()

    with pytest.raises(InternalError, match="closed=True"):
        checkpoint.complete()
    assert checkpoint.ack(3, A, "a") is AckOutcome.LATE


def test_when_its_time_is_over_then_it_is_expired_only_while_somebody_is_missing():
    checkpoint = pending([A])
    assert not checkpoint.is_expired(699.9)
    assert checkpoint.is_expired(700.0)

    checkpoint.ack(3, A, "a")
    assert not checkpoint.is_expired(700.0)


def test_when_it_has_failed_then_it_does_not_expire_as_well():
    checkpoint = pending()
    checkpoint.fail(CheckpointFailure.DECLINED)

    assert not checkpoint.is_expired(700.0)


def test_when_nobody_takes_part_then_it_is_a_bug():
    with pytest.raises(AssertionError, match="without subtasks"):
        pending([])


class CollectingAcks(RuleBasedStateMachine):
    """Any mix of acknowledgements of two attempts, from two workers, for three subtasks, against a set of pairs."""

    subtasks = (A, B, SubtaskId(1, 0))
    owners = {A: 0, B: 1, SubtaskId(1, 0): 0}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.checkpoint = pending(self.subtasks, owners=self.owners)
        self.expected = {}
        self.is_closed = False

    @rule(
        attempt=st.sampled_from([3, 3, 3, 2]),
        subtask=st.sampled_from([*subtasks, SubtaskId(9, 9)]),
        worker=st.sampled_from([0, 1]),
        data=st.integers(),
    )
    def ack(self, attempt, subtask, worker, data):
        outcome = self.checkpoint.ack(attempt, subtask, data, worker)
        is_right = attempt == 3 and self.owners.get(subtask) == worker and not self.is_closed
        assert (outcome is AckOutcome.ACCEPTED) == (is_right and subtask not in self.expected)
        if outcome is AckOutcome.ACCEPTED:
            self.expected[subtask] = data

    @rule(subtask=st.sampled_from(subtasks), worker=st.sampled_from([0, 1]))
    def decline(self, subtask, worker):
        is_right = self.owners[subtask] == worker and subtask not in self.expected and not self.is_closed
        assert (self.checkpoint.decline(3, subtask, "no", worker) is AckOutcome.ACCEPTED) == is_right
        self.is_closed |= is_right

    @rule()
    def complete(self):
        if self.is_closed or self.expected.keys() != set(self.subtasks):
            with pytest.raises(InternalError):
                self.checkpoint.complete()
        else:
            assert self.checkpoint.complete() == self.expected
            self.is_closed = True

    @invariant()
    def misses_exactly_those_who_have_not_acknowledged(self):
        assert self.checkpoint.acks_missing == set(self.subtasks) - self.expected.keys()
        assert self.checkpoint.is_closed == self.is_closed


TestCollectingAcks = CollectingAcks.TestCase
TestCollectingAcks.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


# ------------------------------------------------------------------ what a manifest says


def two_task_plan():
    return JobPlan(
        job="j",
        max_parallelism=128,
        operators=(
            OperatorSpec("read", "read", OperatorKind.SOURCE, 1),
            OperatorSpec("count", "count", OperatorKind.COUNT, 2),
            OperatorSpec("out", "out", OperatorKind.SINK, 2),
        ),
        tasks=(TaskSpec(0, ("read",), 1), TaskSpec(1, ("count", "out"), 2)),
        edges=(),
        fingerprint="f",
    )


def test_when_all_acks_are_there_then_the_manifest_has_every_operator_by_subtask():
    split = {"id": "s", "data": {}, "position": 5, "ended": False}
    committable = {"checkpoint": 7, "data": "part-1"}
    acks = {
        SubtaskId(0, 0): {"read": {"splits": [split]}},
        SubtaskId(1, 0): {"out": {"committables": [committable]}},
        SubtaskId(1, 1): {},
    }

    operators = collect_operators(two_task_plan(), acks)

    assert operators == {
        "read": OperatorState(1, (SubtaskState(splits=(split,)),)),
        "count": OperatorState(2, (SubtaskState(), SubtaskState())),
        "out": OperatorState(2, (SubtaskState(committables=(committable,)), SubtaskState())),
    }


def test_when_a_subtask_is_missing_then_there_is_no_manifest():
    with pytest.raises(InternalError, match=r"missing \[SubtaskId\(task=1, index=1\)\]"):
        collect_operators(two_task_plan(), {SubtaskId(0, 0): {}, SubtaskId(1, 0): {}})


def test_when_a_subtask_acknowledges_an_operator_of_another_task_then_there_is_no_manifest():
    acks = {subtask: {} for subtask in two_task_plan().subtasks()} | {SubtaskId(0, 0): {"count": {}}}

    with pytest.raises(InternalError, match=r"does not run: \['count'\]"):
        collect_operators(two_task_plan(), acks)


# ------------------------------------------------------------------ counting failures


@pytest.mark.parametrize("failure", CheckpointFailure, ids=str)
def test_when_a_checkpoint_fails_then_it_counts_as_in_flink(failure):
    assert failure.counts == (failure in COUNTING)
    assert FailureCounter(0).failed(1, failure) == (failure in COUNTING)
    assert failure.text


def test_when_no_failure_is_tolerable_then_the_first_fails_the_job_over():
    assert FailureCounter(0).failed(1, CheckpointFailure.DECLINED)


def test_when_more_fail_in_a_row_than_tolerable_then_the_job_fails_over_and_counting_starts_anew():
    counter = FailureCounter(2)

    outcomes = [counter.failed(checkpoint, CheckpointFailure.EXPIRED) for checkpoint in range(1, 7)]

    assert outcomes == [False, False, True] * 2


def test_when_many_subtasks_decline_one_checkpoint_then_it_counts_once():
    counter = FailureCounter(1)

    assert not any(
        counter.failed(1, reason) for reason in (CheckpointFailure.DECLINED, CheckpointFailure.FINALIZE_FAILED)
    )
    assert counter.count == 1


def test_when_a_checkpoint_that_led_to_a_failover_is_heard_of_again_then_it_does_not_count_again():
    counter = FailureCounter(0)
    counter.failed(1, CheckpointFailure.DECLINED)

    assert not counter.failed(1, CheckpointFailure.FINALIZE_FAILED)
    assert counter.failed(2, CheckpointFailure.DECLINED)


def test_when_a_checkpoint_succeeds_then_earlier_failures_are_forgiven():
    counter = FailureCounter(1)
    counter.failed(1, CheckpointFailure.DECLINED)

    counter.succeeded(2)

    assert not counter.failed(3, CheckpointFailure.DECLINED)
    assert counter.failed(4, CheckpointFailure.DECLINED)


def test_when_a_checkpoint_fails_after_a_newer_one_succeeded_then_it_does_not_count():
    counter = FailureCounter(0)
    counter.succeeded(5)

    assert not counter.failed(4, CheckpointFailure.EXPIRED)


def test_when_a_savepoint_fails_then_it_does_not_count():
    assert not FailureCounter(0).failed(1, CheckpointFailure.DECLINED, kind="savepoint")


@pytest.mark.parametrize("tolerable", [0, 1, 2])
def test_when_checkpoints_end_in_any_order_then_the_job_fails_over_exactly_at_a_run_of_failures(tolerable):
    for ends in itertools.product([None, *CheckpointFailure], repeat=4):
        counter, in_a_row = FailureCounter(tolerable), 0
        for checkpoint, end in enumerate(ends, start=1):
            if end is None:
                counter.succeeded(checkpoint)
                in_a_row = 0
                continue
            in_a_row += end in COUNTING
            must_fail_over = end in COUNTING and in_a_row > tolerable
            assert counter.failed(checkpoint, end) == must_fail_over
            in_a_row = 0 if must_fail_over else in_a_row


def test_when_a_negative_number_is_tolerable_then_it_is_a_bug():
    with pytest.raises(AssertionError, match="tolerable=-1"):
        FailureCounter(-1)
