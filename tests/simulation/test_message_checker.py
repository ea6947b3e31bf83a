"""The message checker: each rule, broken once by hand, by a word that is said too early or that nobody may say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flowpoint.model import messages
from flowpoint.model.plan import TaskSpec
from flowpoint.sim.message_checker import MessageChecker
from flowpoint.sim.world import InvariantBroken, SimProcess
from flowpoint.transport.control import encode_message
from tests.simulation.machine import Machine

FILE = {"path": "shared/f-1-a1", "kind": "delta", "bytes": 1, "checksum": "", "groups": [0, 1]}
PART = {"folder": "/o", "hidden": ".part-x", "final": "part-x"}


class Company(Machine):
    """A coordinator and its worker, who say what a test lets them say."""

    def __init__(self) -> None:
        super().__init__()
        self.checker = MessageChecker(self.world, self.storage)
        self.said: list[tuple[str, Any]] = []
        self.commit(1, 1, kind="attempt")

    def says(self, who: str, message: Any) -> None:
        self.said.append((who, message))

    def verdict(self) -> None:
        try:
            self.world.run(self._say_all())
        finally:
            self.world.close()

    async def _say_all(self) -> None:
        async def idle(host, args):
            await asyncio.Event().wait()

        self.world.programs.update(coordinator=idle, worker=idle)
        coordinator = self.world.start("coordinator", ())
        worker = self._worker(coordinator)
        speakers = {"coordinator": coordinator, "worker": worker}
        if ("stranger", None) in self.said:
            self._worker(self.world.start("coordinator", ()))
        self.world.network.listen(coordinator, "/a", lambda link: None)
        for who, message in self.said:
            if message is not None:
                self.world.network.connect(speakers[who], "/a").send_nowait(encode_message(message))
        await asyncio.sleep(0)

    def _worker(self, parent: SimProcess) -> SimProcess:
        return self.world.start("worker", [json.dumps([0, "incarnation", "/a"])], parent=parent)


@pytest.fixture
def company():
    return Company()


def ack(**operator: Any) -> messages.Ack:
    return messages.Ack(1, 1, [0, 0], {"uid": operator})


def failure(kind: str) -> messages.Failure:
    return messages.Failure(1, 0, [0, 0], "uid", kind, "text", "trace", True)


def deploy(attempt: int = 1, **committable: Any) -> messages.Deploy:
    state = {"committables": [{"checkpoint": 1, "data": committable}]} if committable else {}
    return messages.Deploy(attempt, "j", "L", {}, {}, {}, {}, {}, {"out": [[state]]}, 0, "/s", "/w")


def trigger(checkpoint: int) -> messages.Trigger:
    return messages.Trigger(1, checkpoint, "checkpoint", False, False, f"chk-{checkpoint}-a1")


def break_unsynced_file(c):
    c.write("/s/shared/f-1-a1", b"x", sync=False)
    c.says("worker", ack(files=[FILE]))


def break_missing_part(c):
    c.says("worker", ack(committables=[{"checkpoint": 1, "data": PART}]))


def break_confirmed_too_early(c):
    c.says("worker", messages.Committed(1, 1, [0, 0]))


def break_word_after_release(c):
    c.says("worker", messages.Released(1, 0))
    c.says("worker", messages.Ended(1, [0, 0]))


def break_bug_of_our_own(c):
    c.says("worker", failure("InternalError"))


def break_bug_without_a_name(c):
    c.says("worker", failure("KeyError"))


def break_unfenced_attempt(c):
    c.says("coordinator", deploy(attempt=2))


def break_stranger_lives(c):
    c.says("stranger", None)
    c.says("coordinator", deploy())


def break_records_before_commits(c):
    c.says("coordinator", deploy(**PART))
    c.says("coordinator", messages.Start(1))


def break_descending_triggers(c):
    c.says("coordinator", trigger(3))
    c.says("coordinator", trigger(2))


def break_trigger_of_a_committed_number(c):
    c.checkpoint(2, 1, 1)
    c.says("coordinator", trigger(1))


def break_manifest_without_an_acknowledgement(c):
    c.tasks = [TaskSpec(0, ("uid",), 1)]
    c.checker._to_commit[1] = []  # as after the deployment of attempt 1
    c.checkpoint(2, 1, 1)


def break_complete_before_its_entry(c):
    c.says("coordinator", messages.Complete(1, 1))


def break_complete_before_its_entry_is_durable(c):
    c.manifest(2, 1)
    c.commit(2, 1, 2, sync_dir=False)
    c.says("coordinator", messages.Complete(1, 2))


@pytest.mark.parametrize(
    ("breach", "complaint"),
    [
        (break_unsynced_file, "which is not durable"),
        (break_missing_part, "which is not durable"),
        (break_confirmed_too_early, "which is not in the commit log"),
        (break_word_after_release, "which it has let go of"),
        (break_bug_of_our_own, "found a bug in itself"),
        (break_bug_without_a_name, "found a bug in itself"),
        (break_unfenced_attempt, "the commit log ends with"),
        (break_stranger_lives, "of another one lives"),
        (break_records_before_commits, "is not visible"),
        (break_descending_triggers, "is triggered after"),
        (break_trigger_of_a_committed_number, "committed already"),
        (break_manifest_without_an_acknowledgement, "without an acknowledgement of subtask 0#0"),
        (break_complete_before_its_entry, "not durably in the commit log"),
        (break_complete_before_its_entry_is_durable, "not durably in the commit log"),
    ],
)
def test_a_word_too_early_ends_the_run(company, breach, complaint):
    breach(company)

    with pytest.raises(InvariantBroken, match=complaint):
        company.verdict()


def test_an_orderly_conversation_is_fine(company):
    company.checkpoint(2, 1, 1)
    company.write("/o/part-x", b"row\n")
    company.commit(3, 2, kind="attempt")
    company.says("coordinator", deploy(2, **PART))
    company.says("coordinator", messages.Start(2))
    company.says("coordinator", trigger(2))
    company.says("worker", ack(files=[FILE], committables=[{"checkpoint": 1, "data": PART}]))
    company.says("coordinator", messages.Complete(1, 1))
    company.says("worker", messages.Committed(1, 1, [0, 0]))
    for kind in "UserCodeError", "StorageError", "LinkLost", "FileNotFoundError":
        company.says("worker", failure(kind))
    company.says("worker", messages.Released(1, 0))

    company.verdict()
