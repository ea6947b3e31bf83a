"""`protocol.stage_deadline`: how long a job may wait for others to deploy and to commit."""

import pytest

from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.stage_deadline import LIMITED, REPORTED, StageDeadline


@pytest.mark.parametrize("state", sorted(LIMITED | REPORTED))
def test_when_a_state_that_must_end_lasts_for_the_timeout_then_it_is_over(state):
    stage = StageDeadline(10.0)

    stage.seen(state, 100.0)
    stage.seen(state, 105.0)

    assert not stage.is_over(109.9)
    assert stage.is_over(110.0)


@pytest.mark.parametrize("state", sorted(set(JobState) - LIMITED - REPORTED))
def test_when_a_state_moves_on_by_itself_then_it_has_no_deadline(state):
    stage = StageDeadline(10.0)

    stage.seen(state, 100.0)

    assert stage.deadline is None
    assert not stage.is_over(1e9)


def test_when_the_next_attempt_is_deployed_then_its_time_begins_anew():
    stage = StageDeadline(10.0)
    stage.seen(JobState.DEPLOYING, 100.0)
    stage.seen(JobState.RESTARTING, 110.0)

    stage.seen(JobState.DEPLOYING, 111.0)

    assert stage.deadline == 121.0


def test_when_a_job_waits_on_then_it_is_told_again_after_as_long_and_how_long_it_has_been():
    stage = StageDeadline(10.0)
    stage.seen(JobState.RECORDING, 100.0)

    assert stage.wait_on(110.0) == 10.0
    assert not stage.is_over(119.9)
    assert stage.is_over(120.0)
    assert stage.wait_on(120.0) == 20.0


def test_when_the_coordinator_stood_still_then_nobody_is_late_by_it():
    stage = StageDeadline(10.0)
    stage.seen(JobState.COMMITTING, 100.0)

    stage.postpone(60.0)

    assert not stage.is_over(165.0)
    assert stage.wait_on(170.0) == 10.0
