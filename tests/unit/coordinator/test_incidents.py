"""`coordinator.incidents`: what is one incident, and what is the next one."""

from __future__ import annotations

import pytest

from flowpoint.coordinator.crew import Loss
from flowpoint.coordinator.incidents import Incidents, failure_of
from flowpoint.errors import Fenced
from flowpoint.model import messages
from flowpoint.model.settings import Settings
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.restart import GiveUp, Restart


@pytest.fixture
def incidents() -> Incidents:
    return Incidents("wordcount", Settings(parallelism=2, workers=2), lambda: 0.0)


def lose(incidents: Incidents, state: JobState, loss: Loss, present: set[int]) -> ev.JobEvent | None:
    return incidents.loss(state, 1, loss, present=present, now=0.0)


def verdict_of(event: ev.JobEvent | None) -> Restart | GiveUp:
    assert isinstance(event, ev.FailureSeen)
    return event.verdict


def dead(worker: int) -> Loss:
    return Loss(worker, f"worker {worker} ended with exit code 1: ImportError: no polars", is_at_start=True)


def test_two_workers_that_die_at_start_together_are_one_incident(incidents: Incidents) -> None:
    first = lose(incidents, JobState.STARTING, dead(0), {1})

    assert verdict_of(first) == Restart(0.0)
    assert lose(incidents, JobState.RESTARTING, dead(1), set()) == ev.FurtherLoss((1,))


def test_a_process_that_was_started_after_an_incident_and_dies_is_the_next_one(incidents: Incidents) -> None:
    lose(incidents, JobState.STARTING, dead(0), {1})

    again = lose(incidents, JobState.RESTARTING, dead(0), {1})

    assert verdict_of(again) == Restart(1.0)


def test_workers_that_die_at_start_again_and_again_fail_the_job_with_their_reason(incidents: Incidents) -> None:
    rounds = [lose(incidents, JobState.STARTING, dead(0), set()) for _ in range(3)]

    assert [type(verdict_of(one)) for one in rounds] == [Restart, Restart, GiveUp]
    reason = verdict_of(rounds[-1]).reason  # type: ignore[union-attr]
    assert "ImportError: no polars" in reason
    assert "`flowpoint logs wordcount`" in reason
    assert "3 times in a row" in reason


def test_an_attempt_that_was_deployed_shows_that_workers_can_start(incidents: Incidents) -> None:
    for _ in range(5):
        assert verdict_of(lose(incidents, JobState.STARTING, dead(0), set())) == Restart(pytest.approx(0.0, abs=100))
        incidents.deployed()


def test_a_lost_link_is_hearsay_and_a_users_error_is_not(incidents: Incidents) -> None:
    def failure(kind: str) -> messages.Failure:
        return messages.Failure(1, 0, [], "", kind, "text", "", retry=True)

    assert incidents.is_hearsay(failure("LinkLost"))
    assert not incidents.is_hearsay(failure("UserCodeError"))


def test_a_job_that_another_coordinator_has_taken_over_ends_with_that_and_with_no_older_failure(
    incidents: Incidents,
) -> None:
    lose(incidents, JobState.RUNNING, Loss(0, "worker 0 was killed"), {1})

    incidents.fenced(failure_of(Fenced("attempt 3 is fenced"), 3))

    assert incidents.last is not None
    assert (incidents.last.kind, incidents.last.message) == ("Fenced", "attempt 3 is fenced")
