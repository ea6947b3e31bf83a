"""`protocol.restart`: whether and when a failed job starts again."""

from dataclasses import replace

import pytest

from flowpoint.errors import InternalError
from flowpoint.model.messages import Failure
from flowpoint.model.settings import RestartSettings
from flowpoint.protocol.restart import ERRORS_REMEMBERED_MAX, GiveUp, Restart, RestartPolicy

LOST = Failure(1, 0, [], "", "WorkerLost", "worker 0 was killed", "", retry=True)
USER = Failure(1, 0, [1, 0], "parse", "UserCodeError", "ValueError: bad date", "", retry=True)


def delays(policy, count, failure=LOST, jitter=0.0):
    return [policy.failure(float(now), failure, jitter).delay for now in range(count)]


def test_when_a_job_fails_again_and_again_then_the_delay_grows_from_nothing_to_its_maximum():
    policy = RestartPolicy(RestartSettings())

    seen = delays(policy, 14)

    assert seen[:5] == pytest.approx([0.0, 1.0, 1.5, 2.25, 3.375])
    assert seen[-2:] == [60.0, 60.0]


def test_when_a_checkpoint_completes_then_the_next_restart_is_immediate():
    policy = RestartPolicy(RestartSettings())
    delays(policy, 5)

    policy.checkpoint_completed()

    assert policy.restarts == 0
    assert delays(policy, 2) == [0.0, 1.0]


@pytest.mark.parametrize(("jitter", "expected"), [(-1.0, 0.9), (0.0, 1.0), (1.0, 1.1)])
def test_when_there_is_jitter_then_the_delay_moves_by_its_share(jitter, expected):
    policy = RestartPolicy(RestartSettings())

    assert delays(policy, 2, jitter=jitter) == pytest.approx([0.0, expected])


def test_when_a_job_fails_for_ever_then_the_growing_delay_does_not_overflow():
    policy = RestartPolicy(RestartSettings(factor=1e300, delay_max=1e308))

    assert delays(policy, 2000)[-1] == 1e308


def test_when_the_factor_is_one_then_the_delay_stays():
    assert delays(RestartPolicy(RestartSettings(factor=1.0)), 3) == [0.0, 1.0, 1.0]


def test_when_the_strategy_is_fixed_then_it_gives_up_after_its_attempts():
    policy = RestartPolicy(RestartSettings(strategy="fixed", delay=5.0, attempts=2))

    assert delays(policy, 2) == [0.0, 5.0]
    verdict = policy.failure(9.0, LOST)

    assert isinstance(verdict, GiveUp)
    assert "worker 0 was killed" in verdict.reason
    assert "2 restarts" in verdict.reason


def test_when_the_strategy_is_fixed_and_a_checkpoint_completes_then_it_counts_anew():
    policy = RestartPolicy(RestartSettings(strategy="fixed", attempts=1))
    delays(policy, 1)

    policy.checkpoint_completed()

    assert policy.failure(2.0, LOST) == Restart(0.0)


def test_when_the_strategy_is_failure_rate_then_it_gives_up_at_too_many_within_the_window():
    policy = RestartPolicy(RestartSettings(strategy="failure_rate", attempts=2, window=10.0, delay=1.0))

    assert policy.failure(0.0, LOST) == Restart(0.0)
    assert policy.failure(5.0, LOST) == Restart(1.0)
    assert policy.failure(10.0, LOST) == Restart(1.0)  # the one at 0 has left the window
    policy.checkpoint_completed()  # the rate is about time alone
    assert isinstance(policy.failure(14.0, LOST), GiveUp)


def test_when_the_strategy_is_none_then_it_gives_up_at_once():
    verdict = RestartPolicy(RestartSettings(strategy="none")).failure(0.0, LOST)

    assert verdict == GiveUp("worker 0 was killed (restart.strategy is none)")


@pytest.mark.parametrize("strategy", ["exponential", "fixed", "failure_rate", "none"])
def test_when_the_engine_found_bad_data_then_no_strategy_restarts(strategy):
    bad = replace(USER, kind="BadRecordError", message="line 7 is no JSON", retry=False)

    assert RestartPolicy(RestartSettings(strategy=strategy)).failure(0.0, bad) == GiveUp("line 7 is no JSON")


def test_when_the_same_user_error_comes_three_times_without_a_checkpoint_then_the_job_fails():
    policy = RestartPolicy(RestartSettings())
    assert delays(policy, 2, USER) == [0.0, 1.0]

    verdict = policy.failure(2.0, USER)

    assert isinstance(verdict, GiveUp)
    assert "ValueError: bad date" in verdict.reason
    assert "'parse'" in verdict.reason
    assert "3 times" in verdict.reason


def test_when_the_engine_meets_the_same_bug_three_times_without_a_checkpoint_then_the_job_fails():
    policy = RestartPolicy(RestartSettings())
    bug = replace(LOST, kind="InternalError", message="a barrier came twice")
    delays(policy, 2, bug)

    verdict = policy.failure(2.0, bug)

    assert isinstance(verdict, GiveUp)
    assert "a barrier came twice (the job failed with this error 3 times" in verdict.reason


def test_when_a_checkpoint_completes_between_then_the_same_user_error_is_counted_anew():
    policy = RestartPolicy(RestartSettings())
    delays(policy, 2, USER)

    policy.checkpoint_completed()

    assert delays(policy, 2, USER) == [0.0, 1.0]


@pytest.mark.parametrize("change", [{"operator": "x"}, {"kind": "BadRecordError"}, {"message": "KeyError"}])
def test_when_user_errors_differ_then_they_are_not_the_same(change):
    policy = RestartPolicy(RestartSettings())
    delays(policy, 2, USER)

    assert isinstance(policy.failure(2.0, replace(USER, **change)), Restart)


def test_when_other_failures_come_between_then_the_same_user_error_still_counts():
    policy = RestartPolicy(RestartSettings())
    for failure in (USER, LOST, USER, LOST):
        assert isinstance(policy.failure(0.0, failure), Restart)

    assert isinstance(policy.failure(0.0, USER), GiveUp)


@pytest.mark.parametrize(
    "kind", ["WorkerLost", "StorageError", "CheckpointFailed", "LinkLost", "NoSuchKind", "replace"]
)
def test_when_the_surroundings_fail_the_same_way_for_ever_then_the_job_goes_on(kind):
    assert len(delays(RestartPolicy(RestartSettings()), 50, replace(LOST, kind=kind))) == 50


def test_when_something_cannot_be_read_before_anything_was_deployed_then_the_start_is_refused():
    policy = RestartPolicy(RestartSettings())
    unreadable = replace(LOST, kind="UnreadableError", message="cannot read manifest.json")

    assert policy.failure(0.0, LOST) == Restart(0.0)
    assert policy.failure(0.0, unreadable) == GiveUp("cannot read manifest.json")


def test_when_something_cannot_be_read_once_an_attempt_was_deployed_then_the_job_goes_on():
    policy = RestartPolicy(RestartSettings())
    policy.deployed()

    assert len(delays(policy, 50, replace(LOST, kind="UnreadableError"))) == 50


def test_when_ever_new_user_errors_come_then_what_is_remembered_is_bounded():
    policy = RestartPolicy(RestartSettings())

    for number in range(3 * ERRORS_REMEMBERED_MAX):
        policy.failure(0.0, replace(USER, message=f"record {number}"))

    assert len(policy._user_errors) == ERRORS_REMEMBERED_MAX


def test_when_the_strategy_is_unknown_then_it_is_a_bug():
    with pytest.raises(InternalError, match="'sometimes'"):
        RestartPolicy(RestartSettings(strategy="sometimes")).failure(0.0, LOST)


def test_when_the_jitter_is_out_of_range_then_it_is_a_bug():
    with pytest.raises(AssertionError, match="jitter"):
        RestartPolicy(RestartSettings()).failure(0.0, LOST, jitter=1.5)


BORN_DEAD = Failure(1, 0, [], "", "DiedAtStart", "worker 0 ended with exit code 1: no polars", "", retry=True)


def test_when_workers_die_at_start_three_times_in_a_row_then_the_job_is_given_up_with_their_reason():
    policy = RestartPolicy(RestartSettings())

    verdicts = [policy.failure(float(now), BORN_DEAD) for now in range(3)]

    assert verdicts[:2] == [Restart(0.0), Restart(1.0)]
    assert isinstance(verdicts[2], GiveUp)
    assert verdicts[2].reason.startswith(BORN_DEAD.message)
    assert "3 times in a row" in verdicts[2].reason


@pytest.mark.parametrize("between", [LOST, USER])
def test_when_something_else_fails_between_then_deaths_at_start_are_not_in_a_row(between):
    policy = RestartPolicy(RestartSettings())

    verdicts = [policy.failure(0.0, one) for one in (BORN_DEAD, BORN_DEAD, between, BORN_DEAD, BORN_DEAD)]

    assert all(isinstance(verdict, Restart) for verdict in verdicts)


def test_when_an_attempt_was_deployed_between_then_deaths_at_start_are_not_in_a_row():
    policy = RestartPolicy(RestartSettings())

    for now in range(6):
        assert isinstance(policy.failure(float(now), BORN_DEAD), Restart)
        policy.deployed()


def test_when_workers_are_killed_by_a_signal_then_the_job_is_never_given_up():
    assert len(delays(RestartPolicy(RestartSettings()), 50)) == 50


def test_when_the_job_file_raises_the_same_error_only_in_workers_then_it_is_given_up():
    policy = RestartPolicy(RestartSettings())
    refused = Failure(1, 0, [], "", "UsageError", "job file job.py, line 3 raised KeyError: 'HOME'", "", retry=True)

    verdicts = [policy.failure(float(now), refused) for now in range(3)]

    assert isinstance(verdicts[2], GiveUp)
    assert "3 times" in verdicts[2].reason
