"""`coordinator.checkpoints`: when the coordinator has to look again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flowpoint.coordinator.abandoned import AbandonedFiles
from flowpoint.coordinator.checkpoint_record import CheckpointEnd, Triggered
from flowpoint.coordinator.checkpoints import Checkpoints
from flowpoint.coordinator.publishing import Lineage, Published, without_committed
from flowpoint.errors import Fenced, OutcomeUnknown
from flowpoint.model import messages
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId, TaskSpec
from flowpoint.model.settings import CheckpointSettings
from flowpoint.protocol.checkpoint import CheckpointFailure
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.protocol.schedule import ASKED_PAUSE_SECONDS, TriggerKind

ATTEMPT = 3
PLAN = JobPlan("job", 128, (), (TaskSpec(0, ("log",), 1),), (), "")


class Room:
    """The checkpoints of one running attempt with one subtask, and the messages that they sent to workers."""

    def __init__(self, **settings: float) -> None:
        self.sent: list[messages.Message] = []
        self.ended: list[CheckpointEnd] = []
        self.queue: list[Triggered] = []
        self.publishing = SimpleNamespace(
            newest_id=0,
            newest_files=frozenset(),
            begin=lambda plan, lineage: None,
            put=self._put,
            taken=lambda _: self.queue.pop(0),
            take_waiting=self._take_waiting,
            counts=lambda _: None,
            next=lambda: None,
        )
        host = SimpleNamespace(wall_ms=lambda: 0)
        self.checkpoints = Checkpoints(
            host,
            "job",
            CheckpointSettings(**settings),
            self.publishing,
            PreparedOutput(),
            self.sent.append,
            lambda *_: None,
            self.ended.append,
        )
        self.checkpoints.begin(ATTEMPT, PLAN, {SubtaskId(0, 0): 0}, Lineage("L", 0), 1, now=0.0)

    def _put(self, complete: Triggered) -> None:
        complete.is_publishing = True
        self.queue.append(complete)

    def _take_waiting(self) -> list[Triggered]:
        waiting, self.queue[:] = list(self.queue), []
        return waiting

    def publish(self, now: float, error: Exception | None = None) -> None:
        """The manifest of the first one that everybody has acknowledged, and its entry, are in the log."""
        manifest: Any = object()
        pending: Any = None
        self.checkpoints.on_published(Published(pending, None if error else manifest, error), now)

    @property
    def triggered(self) -> list[int]:
        return [message.checkpoint for message in self.sent if isinstance(message, messages.Trigger)]


async def test_one_asked_for_too_early_is_not_looked_for_all_the_time_although_a_periodic_one_is_due() -> None:
    room = Room(interval=1.0)
    asked = room.checkpoints.request(TriggerKind.CHECKPOINT, 1.0)
    decline = messages.Decline(ATTEMPT, 1, [0, 0], "still restoring", restoring=True)

    room.checkpoints.on_decline(0, decline, 2.0)
    room.checkpoints.tick(2.0)

    assert room.triggered == [1]
    assert room.checkpoints.next_deadline(2.0) == 2.0 + ASKED_PAUSE_SECONDS
    room.checkpoints.tick(2.0 + ASKED_PAUSE_SECONDS)
    assert room.triggered == [1, 2]
    assert not asked.done()
    asked.cancel()
    await asyncio.sleep(0)


def late_ack(checkpoint: int, path: str) -> messages.Ack:
    state = SubtaskState(files=(StateFile(path, "base", 5, "c0ffee"),))
    return messages.Ack(ATTEMPT, checkpoint, [0, 0], {"counts": state.to_data()})


async def test_what_a_subtask_wrote_for_a_checkpoint_after_that_had_expired_is_removed_once_a_newer_one_counts() -> (
    None
):
    room = Room(interval=1.0, timeout=5.0)
    room.checkpoints.tick(1.0)
    room.checkpoints.tick(6.0)

    room.checkpoints.on_ack(0, late_ack(1, "shared/counts-0-a3-1.base"))

    assert room.checkpoints.take_abandoned() == []
    room.publishing.newest_id = 2
    assert room.checkpoints.take_abandoned() == ["shared/counts-0-a3-1.base"]


def full_ack(checkpoint: int) -> messages.Ack:
    """Of a subtask that writes all of its state anew each time."""
    return late_ack(checkpoint, f"shared/counts-0-a3-{checkpoint}.base")


async def test_what_a_subtask_wrote_for_one_failed_checkpoint_is_over_once_it_went_on_without_it_for_the_next() -> None:
    room = Room(interval=1.0, timeout=5.0)
    for checkpoint, now in enumerate((1.0, 11.0, 21.0), start=1):
        room.checkpoints.tick(now)
        room.checkpoints.tick(now + 5.0)
        room.checkpoints.on_ack(0, full_ack(checkpoint))

    assert room.checkpoints.has_abandoned
    assert room.checkpoints.take_abandoned() == ["shared/counts-0-a3-1.base", "shared/counts-0-a3-2.base"]
    assert not room.checkpoints.has_abandoned


def test_a_file_stays_while_a_checkpoint_from_before_it_was_dropped_is_pending() -> None:
    left = AbandonedFiles()
    for checkpoint in (1, 3):
        left.heard(full_ack(checkpoint))
        left.add(full_ack(checkpoint))

    assert left.over(0, frozenset(), oldest_pending=2) == []
    assert left.over(0, frozenset(), oldest_pending=4) == ["shared/counts-0-a3-1.base"]
    assert left.over(0, frozenset(), oldest_pending=None) == ["shared/counts-0-a3-1.base"]


def test_a_file_on_which_its_subtask_still_builds_stays() -> None:
    left = AbandonedFiles()
    for checkpoint in (1, 2):
        ack = late_ack(checkpoint, "shared/counts-0-a3-1.base")
        left.heard(ack)
        left.add(ack)

    assert left.take(0, frozenset(), None) == []


def test_a_file_stays_when_a_savepoint_which_names_copies_was_acknowledged_later() -> None:
    left = AbandonedFiles()
    ack = late_ack(1, "shared/counts-0-a3-1.base")
    left.heard(ack)
    left.add(ack)

    left.heard(messages.Ack(ATTEMPT, 2, [0, 0], {}, savepoint=full_ack(2).operators))

    assert left.take(0, frozenset(), None) == []


def test_a_file_stays_when_a_later_part_could_not_be_written_in_full() -> None:
    left = AbandonedFiles()
    ack = late_ack(1, "shared/counts-0-a3-1.base")
    left.heard(ack)
    left.add(ack)

    left.heard(messages.Ack(ATTEMPT, 2, [0, 0], {"counts": {}}, partial=True))

    assert left.take(0, frozenset(), None) == []


async def test_a_part_beyond_a_limit_fails_the_checkpoint_as_such() -> None:
    room = Room(interval=1.0, timeout=5.0)
    room.checkpoints.tick(1.0)

    room.checkpoints.on_decline(0, messages.Decline(ATTEMPT, 1, [0, 0], "too much", beyond_limit=True), 2.0)

    assert room.ended[-1].failure is CheckpointFailure.BEYOND_LIMIT
    assert room.checkpoints.history[-1].reason == "it is more than the configuration allows: log#0: too much"


async def test_what_was_restored_has_been_read_once_a_checkpoint_counts_of_which_no_subtask_says_otherwise() -> None:
    room = Room(interval=1.0, timeout=5.0)
    heard = []
    for checkpoint, stats in enumerate(({"unread": True}, {}, {"unread": True}), start=1):
        room.checkpoints.tick(checkpoint * 10.0)
        room.checkpoints.on_ack(0, messages.Ack(ATTEMPT, checkpoint, [0, 0], {}, stats))
        heard.append(room.checkpoints.is_read)
        room.publish(checkpoint * 10.0 + 1.0)
        heard.append(room.checkpoints.is_read)

    assert heard == [False, False, False, True, True, True]
    room.checkpoints.end(CheckpointFailure.ABORTED_BY_FAILOVER, 40.0)
    room.checkpoints.begin(ATTEMPT + 1, PLAN, {SubtaskId(0, 0): 0}, Lineage("L", 0), 4, now=41.0)
    assert not room.checkpoints.is_read


async def test_what_is_pending_gets_the_time_in_which_the_coordinator_stood_still() -> None:
    room = Room(interval=1.0, timeout=5.0)
    room.checkpoints.tick(1.0)

    room.checkpoints.postpone(3.0)
    room.checkpoints.tick(8.9)
    assert room.ended == []

    room.checkpoints.tick(9.0)
    assert [end.failure for end in room.ended] == [CheckpointFailure.EXPIRED]


@pytest.mark.parametrize("error", [Fenced("attempt 4 has begun"), OutcomeUnknown("the entry may stand")])
async def test_when_an_entry_is_fenced_or_unknown_nothing_is_triggered_or_pending_any_more(error: Exception) -> None:
    room = Room(interval=1.0, max_concurrent=2)
    room.checkpoints.tick(1.0)
    room.checkpoints.on_ack(0, full_ack(1))
    room.checkpoints.tick(2.0)

    with pytest.raises(type(error)):
        room.publish(3.0, error)
    room.checkpoints.tick(100.0)

    assert room.triggered == [1, 2]
    assert [(end.record.id, end.failure) for end in room.ended] == [
        (1, CheckpointFailure.ABORTED_BY_FAILOVER),
        (2, CheckpointFailure.ABORTED_BY_FAILOVER),
    ]


async def test_what_waits_to_be_published_when_its_attempt_ends_is_given_up() -> None:
    room = Room(interval=1.0, max_concurrent=2)
    for checkpoint, now in ((1, 1.0), (2, 2.0)):
        room.checkpoints.tick(now)
        room.checkpoints.on_ack(0, full_ack(checkpoint))

    room.checkpoints.end(CheckpointFailure.ABORTED_BY_FAILOVER, 3.0)
    assert room.ended == []  # the first is being published, and may count
    room.publish(4.0)

    assert [(end.record.id, end.failure) for end in room.ended] == [
        (1, None),
        (2, CheckpointFailure.ABORTED_BY_FAILOVER),
    ]


def test_a_savepoint_leaves_out_the_output_that_its_job_commits() -> None:
    files = [StateFile(f"data/out-0-L-a3.output.{number}", "output", 5, "c0ffee") for number in (3, 4)]
    committables = tuple(
        {"checkpoint": number, "data": {}, "files": [file.path]} for number, file in zip((3, 4), files, strict=True)
    )
    state = OperatorState(1, (SubtaskState(committables=committables, exports=tuple(files)),))
    manifest = Manifest("savepoint", "job", 5, ATTEMPT, "L", 3, 0, {}, {"out": state})

    (left,) = without_committed(manifest, 3).operators["out"].subtasks

    assert (left.committables, left.exports) == (committables[1:], tuple(files[1:]))
