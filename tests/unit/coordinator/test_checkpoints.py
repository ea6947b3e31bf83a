"""`coordinator.checkpoints`: when the coordinator has to look again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from flowpoint.coordinator.checkpoints import Checkpoints
from flowpoint.coordinator.publishing import Lineage
from flowpoint.model import messages
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId, TaskSpec
from flowpoint.model.settings import CheckpointSettings
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.protocol.schedule import ASKED_PAUSE_SECONDS, TriggerKind

ATTEMPT = 3
PLAN = JobPlan("job", 128, (), (TaskSpec(0, ("log",), 1),), (), "")


class Room:
    """The checkpoints of one running attempt with one subtask, and the messages that they sent to workers."""

    def __init__(self, **settings: float) -> None:
        self.sent: list[messages.Message] = []
        self.publishing = SimpleNamespace(newest_id=0, newest_files=frozenset(), begin=lambda plan, lineage: None)
        host = SimpleNamespace(wall_ms=lambda: 0)
        self.checkpoints = Checkpoints(
            host,
            "job",
            CheckpointSettings(**settings),
            self.publishing,
            PreparedOutput(),
            self.sent.append,
            lambda *_: None,
            lambda _: None,
        )
        self.checkpoints.begin(ATTEMPT, PLAN, {SubtaskId(0, 0): 0}, Lineage("L", 0), 1, now=0.0)

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
