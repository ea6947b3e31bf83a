"""`protocol.job`: every cell of its table, the stories that matter, and all that can happen to a small job.

`World` is a coordinator with two workers, reduced to facts. `explore` follows every order in which its facts and up to
three failures can come, checks after each step that the orders given out are sound, and afterwards that every state
leads to an end once nothing fails any more.
"""

import copy
import itertools
from dataclasses import fields

import pytest

from flowpoint.errors import InternalError
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.protocol.job import HISTORY_MAX, JobLife
from flowpoint.protocol.job_table import MEANINGS, OVER, TRANSITIONS, JobState
from flowpoint.protocol.restart import GiveUp, Restart

EVENTS = {
    event: event(**{field.name: value for field in fields(event) if (value := SAMPLES.get(field.name)) is not None})
    for SAMPLES in [
        {
            "reason": "disk full",
            "verdict": Restart(1.5),
            "replacement": 1,
            "checkpoint": 9,
            "lost": (0,),
            "parallelism": 3,
        }
    ]
    for event in ev.JobEvent.__args__
}
LOST = ev.FailureSeen("worker 1 was killed", Restart(0.0), lost=(1,))
HOPELESS = ev.FailureSeen("line 7 is no JSON", GiveUp("line 7 is no JSON"))
TO_RUNNING = (ev.Begin(), ev.WorkersReady(), ev.AllDeployed())
PATHS = {
    JobState.CREATED: (),
    JobState.STARTING: TO_RUNNING[:1],
    JobState.DEPLOYING: TO_RUNNING[:2],
    JobState.RUNNING: TO_RUNNING,
    JobState.RESTARTING: (*TO_RUNNING, LOST),
    JobState.RESCALING: (*TO_RUNNING, ev.RescaleRequested(3)),
    JobState.STOPPING: (*TO_RUNNING, ev.StopRequested()),
    JobState.FINISHING: (*TO_RUNNING, ev.AllEnded()),
    JobState.COMMITTING: (*TO_RUNNING, ev.StopRequested(), ev.StopCheckpointDone(9)),
    JobState.RECORDING: (*TO_RUNNING, ev.StopRequested(), ev.StopCheckpointDone(9), ev.AllCommitted(9)),
    JobState.FINISHED: (*TO_RUNNING[:2], ev.FoundFinished()),
    JobState.STOPPED: (ev.StopRequested(),),
    JobState.CANCELLED: (ev.CancelRequested(),),
    JobState.FAILED: (*TO_RUNNING, HOPELESS),
}


def life_after(*events):
    life = JobLife()
    for event in events:
        life.handle(event)
    return life


def told(life, *events):
    """All that is ordered after these events."""
    return [action for event in events for action in life.handle(event)]


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize(
    ("state", "event"), list(itertools.product(JobState, EVENTS)), ids=lambda x: getattr(x, "__name__", x)
)
def test_when_an_event_comes_in_a_state_then_the_table_says_what_may_follow(state, event):
    life = life_after(*PATHS[state])
    assert life.state is state

    if (state, event) in TRANSITIONS:
        life.handle(EVENTS[event])
        assert life.state in TRANSITIONS[state, event].targets
    else:
        with pytest.raises(InternalError, match=f"job is {state}, which has no event {event.__name__}"):
            life.handle(EVENTS[event])
        assert life.state is state


def test_when_a_bug_is_reported_then_the_last_events_are_in_it_and_no_more():
    life = life_after(*TO_RUNNING)
    for number in range(2 * HISTORY_MAX):
        life.handle(ev.AllCommitted(number))

    with pytest.raises(InternalError) as caught:
        life.handle(ev.Begin())

    assert str(caught.value).count("AllCommitted") == HISTORY_MAX


def test_when_the_job_is_over_then_late_events_order_nothing():
    for state in OVER:
        for event in EVENTS.values():
            if not isinstance(event, ev.Begin):
                assert life_after(*PATHS[state]).handle(event) == []


def test_when_states_are_listed_then_each_has_a_meaning():
    assert set(MEANINGS) == set(JobState) == set(PATHS)


def test_when_a_job_is_asked_about_then_its_answers_fit_its_state():
    for state, path in PATHS.items():
        life = life_after(*path)
        assert life.is_over == (state in OVER)
        assert life.is_live == (
            state.name in {"DEPLOYING", "RUNNING", "RESCALING", "STOPPING", "FINISHING", "COMMITTING"}
        )
        assert life.awaits_workers == (state.name in {"STARTING", "RESTARTING"})


# ------------------------------------------------------------------ stories


def test_when_the_input_ends_then_the_job_finishes_in_three_steps():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.AllEnded()) == [ev.SuspendCheckpoints(), ev.TriggerFinalCheckpoint()]
    assert life.handle(ev.FinalCheckpointDone(5)) == []
    assert life.handle(ev.AllCommitted(5)) == [ev.AppendEntry("finished")]
    assert life.handle(ev.EntryAppended()) == [
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_END),
        ev.EndWorkers(),
        ev.ExitJob("finished", 0, "all input read, all output committed"),
    ]


def test_when_a_stop_is_asked_for_then_the_job_stops_with_a_checkpoint_and_the_asked_code():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.StopRequested(exit_code=130)) == [ev.SuspendCheckpoints(), ev.TriggerStopCheckpoint()]
    assert life.handle(ev.StopCheckpointDone(5)) == []
    assert life.handle(ev.AllCommitted(5)) == [ev.AppendEntry("stopped")]
    assert life.handle(ev.EntryAppended())[-1] == ev.ExitJob("stopped", 130, "stopped")


def test_when_a_stop_is_asked_for_twice_then_the_first_says_how_the_job_exits():
    life = life_after(*TO_RUNNING, ev.StopRequested(exit_code=130), ev.StopRequested(exit_code=0))

    actions = told(life, ev.StopCheckpointDone(5), ev.AllCommitted(5), ev.EntryAppended())

    assert actions[-1] == ev.ExitJob("stopped", 130, "stopped")


def test_when_an_older_checkpoint_is_confirmed_while_committing_then_the_last_one_is_still_awaited():
    life = life_after(*TO_RUNNING, ev.AllEnded(), ev.FinalCheckpointDone(5))

    assert life.handle(ev.AllCommitted(4)) == []
    assert life.state is JobState.COMMITTING


def test_when_a_worker_dies_then_it_is_killed_the_others_released_and_all_starts_again():
    life = life_after(*TO_RUNNING)

    assert life.handle(LOST) == [
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_FAILOVER),
        ev.KillWorkers((1,)),
        ev.ReleaseAttempt(),
        ev.ScheduleRestart(0.0, replacement=1),
    ]
    assert life.handle(ev.RestartDue(1)) == [ev.SpawnWorkers()]
    assert life.handle(ev.WorkersReady()) == [ev.DeployAttempt()]
    assert life.handle(ev.AllDeployed()) == [ev.StartRecords()]
    assert life.restarts == 1


def test_when_a_user_function_raises_then_the_workers_are_kept():
    life = life_after(*TO_RUNNING)

    actions = life.handle(ev.FailureSeen("ValueError", Restart(1.0)))

    assert not any(isinstance(action, ev.KillWorkers) for action in actions)
    assert actions[-1] == ev.ScheduleRestart(1.0, replacement=1)


def test_when_the_workers_are_ready_before_the_delay_is_over_then_the_delay_is_still_kept():
    life = life_after(*TO_RUNNING, ev.FailureSeen("ValueError", Restart(1.0)))

    assert life.handle(ev.WorkersReady()) == []
    assert not life.awaits_workers
    assert life.handle(ev.RestartDue(1)) == [ev.DeployAttempt()]


def test_when_a_second_worker_dies_while_restarting_then_everything_is_awaited_anew():
    life = life_after(*PATHS[JobState.RESTARTING], ev.RestartDue(1))

    actions = life.handle(ev.FailureSeen("worker 0 was killed", Restart(1.0), lost=(0,)))

    assert actions == [ev.KillWorkers((0,)), ev.ScheduleRestart(1.0, replacement=2)]
    assert life.awaits_workers
    assert told(life, ev.RestartDue(1)) == []  # of the delay before, on its way when the second worker died
    assert told(life, ev.RestartDue(2), ev.WorkersReady()) == [ev.SpawnWorkers(), ev.DeployAttempt()]


def test_when_a_released_worker_dies_during_the_delay_then_no_attempt_is_deployed_without_it():
    life = life_after(*TO_RUNNING, ev.FailureSeen("ValueError", Restart(1.0)), ev.WorkersReady())

    life.handle(ev.FailureSeen("worker 0 was killed", Restart(1.0), lost=(0,)))

    assert life.awaits_workers
    assert life.handle(ev.RestartDue(2)) == [ev.SpawnWorkers()]


def test_when_survivors_report_the_failure_too_then_it_is_one_failure():
    life = life_after(*PATHS[JobState.RESTARTING])

    assert life.handle(ev.FailureSeen("link to worker 1 lost", Restart(1.0))) == []
    assert life.restarts == 1


def test_when_hopeless_news_comes_while_restarting_then_the_job_fails():
    assert life_after(*PATHS[JobState.RESTARTING], HOPELESS).state is JobState.FAILED


def test_when_a_worker_dies_before_the_first_attempt_then_nothing_is_released():
    life = life_after(ev.Begin())

    assert life.handle(LOST) == [ev.KillWorkers((1,)), ev.ScheduleRestart(0.0, replacement=1)]


def test_when_the_failure_is_hopeless_then_the_job_fails_with_its_reason():
    life = life_after(*TO_RUNNING)

    assert life.handle(HOPELESS)[-1] == ev.ExitJob("failed", 1, "line 7 is no JSON")


@pytest.mark.parametrize(
    "state", ["STARTING", "DEPLOYING", "RUNNING", "RESTARTING", "RESCALING", "STOPPING", "FINISHING", "COMMITTING"]
)
def test_when_a_stop_is_asked_for_and_a_failure_comes_then_it_still_happens_after_recovery(state):
    life = life_after(*PATHS[JobState[state]], ev.StopRequested())

    life.handle(LOST)
    replacement = life.replacement
    actions = told(life, ev.RestartDue(replacement), ev.WorkersReady(), ev.AllDeployed())

    assert actions[-3:] == [
        ev.StartRecords(),
        ev.SuspendCheckpoints(),
        ev.TriggerStopCheckpoint(),
    ]
    assert life.state is JobState.STOPPING


def test_when_the_checkpoint_of_a_stop_fails_then_the_sources_go_on_and_the_stop_is_over():
    life = life_after(*PATHS[JobState.STOPPING])

    assert life.handle(ev.StopCheckpointFailed("disk full")) == [
        ev.ReportStopFailed("disk full"),
        ev.ResumeSources(),
        ev.ResumeCheckpoints(),
    ]
    assert life.state is JobState.RUNNING


DRAINING = (*TO_RUNNING, ev.StopRequested(drain=True))


def test_when_a_stop_drains_then_time_ends_before_its_checkpoint():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.StopRequested(drain=True))[-1] == ev.TriggerStopCheckpoint(drain=True)


def test_when_the_checkpoint_of_a_drain_fails_then_the_attempt_is_replaced_as_its_timers_may_have_fired():
    life = life_after(*DRAINING)

    actions = life.handle(ev.StopCheckpointFailed("disk full", Restart(0.0)))

    assert actions == [
        ev.ReportStopFailed("disk full"),
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_FAILOVER),
        ev.ReleaseAttempt(),
        ev.ScheduleRestart(0.0, replacement=1),
    ]
    assert told(life, ev.RestartDue(1), ev.WorkersReady(), ev.AllDeployed(3))[-1] == ev.StartRecords()
    assert life.state is JobState.RUNNING


def test_when_a_drain_fails_and_the_policy_gives_up_then_the_job_has_failed():
    life = life_after(*DRAINING)

    life.handle(ev.StopCheckpointFailed("disk full", GiveUp("disk full (restart.strategy is none)")))

    assert life.state is JobState.FAILED


def test_when_a_worker_is_lost_after_a_drain_is_in_the_log_then_no_record_flows_any_more():
    life = life_after(*DRAINING, ev.StopCheckpointDone(9), LOST)

    actions = told(life, ev.RestartDue(1), ev.WorkersReady(), ev.AllDeployed(restored_checkpoint=9))

    assert actions[-1] == ev.AppendEntry("stopped")
    assert ev.StartRecords() not in actions
    assert life.handle(ev.EntryAppended())[-1] == ev.ExitJob("stopped", 0, "stopped")


@pytest.mark.parametrize("before", [[], [ev.RestartDue(1), ev.WorkersReady()]])
def test_when_a_drain_is_heard_to_be_in_the_log_only_after_its_attempt_has_failed_then_no_record_flows_either(before):
    life = life_after(*DRAINING, LOST, *before)

    assert life.handle(ev.StopCheckpointDone(9)) == []
    actions = told(life, *[ev.RestartDue(1), ev.WorkersReady()][len(before) :], ev.AllDeployed(restored_checkpoint=9))

    assert actions[-1] == ev.AppendEntry("stopped")
    assert ev.StartRecords() not in actions
    assert life.handle(ev.EntryAppended())[-1] == ev.ExitJob("stopped", 0, "stopped")


def test_when_the_drained_checkpoint_proves_damaged_then_the_job_drains_once_more():
    life = life_after(*DRAINING, ev.StopCheckpointDone(9), LOST, ev.RestartDue(1), ev.WorkersReady())

    assert life.handle(ev.AllDeployed(restored_checkpoint=8)) == [
        ev.StartRecords(),
        ev.SuspendCheckpoints(),
        ev.TriggerStopCheckpoint(drain=True),
    ]


def test_when_the_stop_fails_after_all_input_has_ended_then_the_job_finishes():
    life = life_after(*PATHS[JobState.STOPPING], ev.AllEnded())

    actions = life.handle(ev.StopCheckpointFailed("disk full"))

    assert actions[-1] == ev.TriggerFinalCheckpoint()
    assert life.state is JobState.FINISHING


def test_when_all_input_had_ended_before_a_failure_then_the_next_attempt_says_so_again():
    life = life_after(*PATHS[JobState.STOPPING], ev.AllEnded(), LOST, ev.RestartDue(1), ev.WorkersReady())
    life.handle(ev.AllDeployed())

    life.handle(ev.StopCheckpointFailed("disk full"))

    assert life.state is JobState.RUNNING


def test_when_the_final_checkpoint_fails_tolerably_then_it_is_tried_again():
    life = life_after(*PATHS[JobState.FINISHING])

    assert life.handle(ev.FinalCheckpointFailed("declined")) == [ev.TriggerFinalCheckpoint()]


def test_when_a_worker_dies_after_everything_is_committed_then_the_job_still_ends_well():
    life = life_after(*PATHS[JobState.RECORDING])

    assert life.handle(LOST) == []
    assert life.handle(HOPELESS) == []
    life.handle(ev.EntryAppended())
    assert life.state is JobState.STOPPED


def test_when_the_last_entry_cannot_be_written_then_the_job_restarts_and_replaces_whom_it_lost_meanwhile():
    life = life_after(*PATHS[JobState.RECORDING], LOST)

    assert life.handle(ev.EntryFailed("disk full", Restart(1.0))) == [
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_FAILOVER),
        ev.KillWorkers((1,)),
        ev.ReleaseAttempt(),
        ev.ScheduleRestart(1.0, replacement=1),
    ]


def test_when_the_last_entry_cannot_be_written_for_good_then_the_job_fails():
    life = life_after(*PATHS[JobState.RECORDING])

    assert life.handle(ev.EntryFailed("disk full", GiveUp("")))[-1] == ev.ExitJob("failed", 1, "disk full")


def test_when_another_worker_of_the_failed_attempt_is_lost_then_it_is_one_restart_and_no_new_delay():
    life = life_after(*TO_RUNNING, LOST)

    assert life.handle(ev.FurtherLoss((0,))) == [ev.KillWorkers((0,))]
    assert life.handle(ev.RestartDue(1)) == [ev.SpawnWorkers()]
    assert life.handle(ev.FurtherLoss((0,))) == [ev.KillWorkers((0,)), ev.SpawnWorkers()]
    assert life.restarts == 1


def test_when_a_cancel_is_asked_for_then_pending_checkpoints_are_aborted_as_stopped():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.CancelRequested(exit_code=0)) == [
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_STOP),
        ev.EndWorkers(),
        ev.ExitJob("cancelled", 0, "cancelled"),
    ]


def test_when_a_stop_with_a_savepoint_is_asked_for_then_its_checkpoint_writes_it_too():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.StopRequested(0, "/backup"))[-1] == ev.TriggerStopCheckpoint("/backup")


def test_when_a_rescale_is_asked_for_then_a_checkpoint_is_taken_and_the_next_attempt_has_the_new_parallelism():
    life = life_after(*TO_RUNNING)

    assert life.handle(ev.RescaleRequested(3)) == [ev.SuspendCheckpoints(), ev.TriggerRescaleCheckpoint()]
    assert life.handle(ev.RescaleCheckpointDone(9)) == [
        ev.AbortCheckpoints(CheckpointFailure.ABORTED_BY_RESCALE),
        ev.ReleaseAttempt(),
        ev.ChangeParallelism(3),
        ev.ScheduleRestart(0.0, replacement=1),
    ]
    assert told(life, ev.RestartDue(1), ev.WorkersReady()) == [ev.SpawnWorkers(), ev.DeployAttempt()]
    assert life.handle(ev.AllDeployed()) == [ev.StartRecords(), ev.ReportRescaled()]
    assert life.restarts == 0


def test_when_the_checkpoint_of_a_rescale_fails_then_the_job_goes_on_as_before_and_says_so():
    life = life_after(*PATHS[JobState.RESCALING])

    assert life.handle(ev.RescaleCheckpointFailed("disk full")) == [
        ev.ReportRescaleFailed("disk full"),
        ev.ResumeSources(),
        ev.ResumeCheckpoints(),
    ]
    assert life.state is JobState.RUNNING


def test_when_a_worker_dies_before_the_checkpoint_of_a_rescale_then_the_job_restarts_as_it_was():
    life = life_after(*PATHS[JobState.RESCALING])

    actions = told(life, LOST, ev.RestartDue(1), ev.WorkersReady(), ev.AllDeployed())

    assert ev.ReportRescaleFailed("worker 1 was killed") in actions
    assert not any(isinstance(action, ev.ChangeParallelism | ev.ReportRescaled) for action in actions)


def test_when_a_worker_dies_after_the_checkpoint_of_a_rescale_then_the_new_parallelism_stays():
    life = life_after(*PATHS[JobState.RESCALING], ev.RescaleCheckpointDone(9))

    actions = told(life, LOST, ev.RestartDue(1), ev.RestartDue(2), ev.WorkersReady(), ev.AllDeployed())

    assert actions[-1] == ev.ReportRescaled()


def test_when_a_rescale_is_asked_for_at_another_time_then_whoever_asks_is_told():
    life = life_after(*PATHS[JobState.RESTARTING])

    assert life.handle(ev.RescaleRequested(3)) == [
        ev.ReportRescaleFailed("the job is restarting; try again when it is running")
    ]


def test_when_a_stop_is_asked_for_while_rescaling_then_it_happens_after_the_rescale():
    life = life_after(*PATHS[JobState.RESCALING], ev.StopRequested())

    actions = told(life, ev.RescaleCheckpointDone(9), ev.RestartDue(1), ev.WorkersReady(), ev.AllDeployed())

    assert actions[-1] == ev.TriggerStopCheckpoint()


def test_when_a_stop_is_asked_for_while_rescaling_and_the_rescale_fails_then_it_happens_at_once():
    life = life_after(*PATHS[JobState.RESCALING], ev.StopRequested())

    assert life.handle(ev.RescaleCheckpointFailed("disk full"))[-1] == ev.TriggerStopCheckpoint()


# ------------------------------------------------------------------ all that can happen


class World:
    """The facts that a coordinator with two workers sees, and what it has been ordered to do."""

    def __init__(self):
        self.life = JobLife()
        # absent, starting, ready, busy, releasing, lost (not yet killed), killed, replaced (killed, to be started)
        self.slots = ("absent", "absent")
        self.timer = 0
        self.stale_timers = ()
        self.deploying = self.flowing = self.ended = self.periodic = False
        self.last = ""  # the last checkpoint that is being taken
        self.draining = self.drained = False  # time ends before it; one of a drain is in the log
        self.late = False  # one of a drain was being published when its attempt failed, and may be in the log
        self.appending = ""
        self.failures_left, self.stops_left, self.tolerated_left, self.rescales_left = 2, 2, 1, 1
        self.rescaling = False  # somebody waits for the end of a rescale
        self.exits = 0

    def key(self):
        facts = {name: value for name, value in vars(self).items() if name != "life"}
        life = {name: value for name, value in vars(self.life).items() if name != "_history"}
        return tuple(sorted(facts.items())), tuple(sorted((name, str(value)) for name, value in life.items()))

    def clone(self):
        twin = copy.copy(self)
        twin.life = copy.copy(self.life)
        twin.life._history = self.life._history.copy()
        return twin

    # ---- what can happen next

    def progress(self):
        """What happens by itself sooner or later, as (event or slot change)."""
        life, state = self.life, self.life.state
        if state is JobState.CREATED:
            yield ev.Begin()
        changes = {"starting": "ready", "releasing": "ready", "killed": "absent", "replaced": "starting"}
        yield from ((slot, changes[now]) for slot, now in enumerate(self.slots) if now in changes)
        if life.awaits_workers and self.slots == ("ready", "ready"):
            yield ev.WorkersReady()
        # A delay that was replaced may be over already and wait in the mailbox, so it comes before the new one.
        if self.stale_timers or self.timer:
            yield ev.RestartDue((*self.stale_timers, self.timer)[0])
        if self.deploying:
            yield ev.AllDeployed(9 if self.drained else 0)
        if self.flowing and not self.ended:
            yield ev.AllEnded()
        if self.last == "stop":
            yield ev.StopCheckpointDone(9)
        if self.last == "rescale":
            yield ev.RescaleCheckpointDone(9)
        if self.last == "final":
            yield ev.FinalCheckpointDone(9)
        if state is JobState.COMMITTING:
            yield ev.AllCommitted(9)
        if self.appending:
            yield ev.EntryAppended()

    def trouble(self):
        """What need not happen."""
        state = self.life.state
        if self.stops_left:
            yield ev.StopRequested()
            yield ev.StopRequested(drain=True)
        if self.rescales_left and not self.rescaling:
            yield ev.RescaleRequested(3)
        if self.flowing:
            yield ev.AllCommitted(8)
        if self.tolerated_left and self.last == "stop":
            verdicts = (Restart(0.0), GiveUp("hopeless")) if self.draining else (None,)
            yield from (ev.StopCheckpointFailed("tolerated", verdict) for verdict in verdicts)
        if self.tolerated_left and self.last == "rescale":
            yield ev.RescaleCheckpointFailed("tolerated")
        if self.tolerated_left and self.last == "final":
            yield ev.FinalCheckpointFailed("tolerated")
        if not self.failures_left:
            return
        if self.late:
            yield ev.StopCheckpointDone(9)
        if self.deploying:
            yield ev.FoundFinished()
            yield ev.AllDeployed(8)
        if self.appending:
            yield from (ev.EntryFailed("storage", verdict) for verdict in (Restart(0.0), GiveUp("storage")))
        if state is not JobState.CREATED:
            yield from (ev.FailureSeen("report", verdict) for verdict in (Restart(0.0), GiveUp("hopeless")))
        for slot, now in enumerate(self.slots):
            if now in ("starting", "ready", "busy", "releasing"):
                yield ev.FailureSeen("lost", Restart(0.0), lost=(slot,))
                if state is JobState.RESTARTING:
                    yield ev.FurtherLoss(lost=(slot,))

    def always(self):
        yield from (ev.CancelRequested(), ev.FencedOff("a newer coordinator"))

    # ---- making it happen

    def happen(self, event):
        if isinstance(event, tuple):
            self.set_slot(*event)
            return
        match event:
            case ev.FailureSeen(lost=lost) | ev.FurtherLoss(lost=lost):
                self.failures_left -= 1
                for slot in lost:
                    self.set_slot(slot, "lost")
            case ev.EntryFailed():
                self.failures_left -= 1
                self.appending = ""
            case ev.EntryAppended():
                self.appending = ""
            case ev.StopRequested():
                self.stops_left -= 1
            case ev.RescaleRequested():
                self.rescales_left -= 1
                self.rescaling = True
            case ev.StopCheckpointFailed() | ev.FinalCheckpointFailed() | ev.RescaleCheckpointFailed():
                self.tolerated_left -= 1
                self.last = ""
            case ev.StopCheckpointDone():
                self.tolerated_left -= self.late  # one oddity is enough for one story
                self.last, self.drained, self.late = "", self.draining, False
            case ev.FinalCheckpointDone() | ev.RescaleCheckpointDone():
                self.last = ""
            case ev.RestartDue(number):
                self.timer = 0 if number == self.timer else self.timer
                self.stale_timers = tuple(other for other in self.stale_timers if other != number)
            case ev.AllDeployed(restored):
                # It was prepared only when nothing was being published any more.
                self.deploying, self.drained, self.late = False, self.drained and restored == 9, False
            case ev.FoundFinished():
                self.deploying = self.late = False
            case ev.AllEnded():
                self.ended = True
        for action in self.life.handle(event):
            self.carry_out(action)
        self.check()

    def set_slot(self, slot, now):
        slots = list(self.slots)
        slots[slot] = now
        self.slots = tuple(slots)

    def carry_out(self, action):
        assert not self.exits, f"{action} after the exit"
        match action:
            case ev.SpawnWorkers():
                starts = {"absent": "starting", "killed": "replaced"}
                self.slots = tuple(starts.get(now, now) for now in self.slots)
            case ev.KillWorkers(workers):
                for slot in workers:
                    assert self.slots[slot] == "lost", "a worker was killed that is not lost"
                    self.set_slot(slot, "killed")
            case ev.DeployAttempt():
                assert self.slots == ("ready", "ready"), "deployed on workers that are not there or not released"
                assert not (self.timer or self.deploying or self.flowing), "deployed too early"
                self.slots, self.deploying, self.ended = ("busy", "busy"), True, False
            case ev.ReleaseAttempt():
                self.slots = tuple("releasing" if now == "busy" else now for now in self.slots)
                self.deploying = self.flowing = self.periodic = False
            case ev.ScheduleRestart(_, replacement):
                self.stale_timers += (self.timer,) if self.timer else ()
                self.timer = replacement
            case ev.StartRecords():
                assert not self.drained, "records flow after time has ended"
                self.flowing = self.periodic = True
            case ev.ResumeCheckpoints():
                self.periodic = True
            case ev.SuspendCheckpoints():
                self.periodic = False
            case ev.AbortCheckpoints(failure):
                is_late = failure is CheckpointFailure.ABORTED_BY_FAILOVER and self.last == "stop" and self.draining
                self.last, self.late = "", is_late and self.tolerated_left == 1
            case ev.TriggerStopCheckpoint(drain=drain):
                assert self.flowing and not self.last
                self.last, self.draining = "stop", drain
            case ev.TriggerRescaleCheckpoint():
                assert self.flowing and not self.last
                self.last = "rescale"
            case ev.ChangeParallelism():
                assert not (self.deploying or self.flowing), "the parallelism of an attempt was changed"
            case ev.ReportRescaled() | ev.ReportRescaleFailed():
                assert self.rescaling, "told twice how the rescale ended"
                self.rescaling = False
            case ev.TriggerFinalCheckpoint():
                assert self.flowing and self.ended and not self.last
                self.last = "final"
            case ev.AppendEntry(kind):
                assert not self.appending and (self.ended or kind == "stopped")
                self.appending = kind
            case ev.EndWorkers():
                self.slots = ("absent", "absent")
            case ev.ExitJob():
                self.exits += 1

    def check(self):
        life, state = self.life, self.life.state
        assert self.exits == life.is_over
        assert "lost" not in self.slots or state is JobState.RECORDING, "a lost worker was not killed"
        if life.is_over:
            return
        assert self.periodic == (state is JobState.RUNNING)
        assert bool(self.last) == (state in (JobState.STOPPING, JobState.RESCALING, JobState.FINISHING))
        assert bool(self.appending) == (state is JobState.RECORDING)
        assert self.deploying == (state is JobState.DEPLOYING)


def explore():
    """All states of the world, by key, with the keys that progress leads to; and every move of the table taken."""
    start = World()
    graph, moves, stack = {}, set(), [start]
    while stack:
        world = stack.pop()
        key = world.key()
        if key in graph:
            continue
        graph[key] = (world.life.state, [])
        if world.life.is_over:
            continue
        groups = [(True, world.progress()), (False, world.trouble()), (False, world.always())]
        for is_progress, event in ((is_progress, event) for is_progress, group in groups for event in group):
            after = world.clone()
            after.happen(event)
            if not isinstance(event, tuple):
                moves.add((world.life.state, type(event), after.life.state))
            if is_progress:
                graph[key][1].append(after.key())
            stack.append(after)
    return graph, moves


@pytest.fixture(scope="module")
def everything():
    return explore()


def test_when_anything_happens_in_any_order_then_the_orders_are_sound(everything):
    graph, _ = everything

    assert len(graph) > 1_000
    assert {state for state, _ in graph.values()} == set(JobState)


def test_when_nothing_fails_any_more_then_every_state_leads_to_an_end(everything):
    graph, _ = everything
    sources = {key: [] for key in graph}
    for key, (_, targets) in graph.items():
        for target in targets:
            sources[target].append(key)

    ends = [key for key, (state, _) in graph.items() if state in OVER]
    reached = set(ends)
    while ends:
        for source in sources[ends.pop()]:
            if source not in reached:
                reached.add(source)
                ends.append(source)

    assert [graph[key][0] for key in graph.keys() - reached] == []


def test_when_everything_has_been_tried_then_every_move_of_the_table_was_taken_and_no_other(everything):
    _, moves = everything
    in_table = {
        (state, event, target)
        for (state, event), move in TRANSITIONS.items()
        if state not in OVER
        for target in move.targets
    }

    assert moves == in_table
