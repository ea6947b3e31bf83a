"""A rescale that is asked for: what is done while records still flow, and that whoever asked is answered."""

import asyncio
from types import SimpleNamespace

import pytest

from flowpoint.coordinator.requests import Requests
from flowpoint.errors import CheckpointFailed
from flowpoint.protocol import job_events as ev
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.schedule import TriggerKind


def plan_of(parallelism):
    return SimpleNamespace(fingerprint=f"plan {parallelism}")


class Asked:
    """A running job whose checkpoints end when the test says so. `log` has what happened, in order."""

    def __init__(self):
        self.log = []
        self.checkpoint = None
        self.requests = Requests(
            SimpleNamespace(state=JobState.RUNNING, is_over=False),
            self,
            self.log.append,
            savepoints="",
            replan=lambda parallelism: SimpleNamespace(workers=parallelism + 1, plan=plan_of(parallelism)),
            reserve=lambda workers: self.log.append(f"reserve {workers}"),
        )

    def request(self, kind, now, savepoints="", *, drain=False):
        self.log.append(kind)
        self.checkpoint = asyncio.get_running_loop().create_future()
        return self.checkpoint


async def test_workers_are_started_and_a_checkpoint_taken_before_the_job_halts():
    asked = Asked()
    rescale = asyncio.create_task(asked.requests.rescale(4, plan_of(3)))
    await asyncio.sleep(0)

    assert asked.log == ["reserve 5", TriggerKind.CHECKPOINT]
    asked.checkpoint.set_result(SimpleNamespace(state="completed"))
    await asyncio.sleep(0)
    assert asked.log[2:] == [ev.RescaleRequested(4)]

    asked.requests.settle_rescale(None)
    await rescale


async def test_a_checkpoint_that_was_not_taken_does_not_hinder_the_rescale():
    asked = Asked()
    rescale = asyncio.create_task(asked.requests.rescale(4, plan_of(3)))
    await asyncio.sleep(0)

    asked.checkpoint.set_exception(CheckpointFailed("no checkpoint was taken"))
    await asyncio.sleep(0)
    assert asked.log[2:] == [ev.RescaleRequested(4)]

    asked.requests.settle_rescale(CheckpointFailed("the job was not rescaled"))
    with pytest.raises(CheckpointFailed, match="was not rescaled"):
        await rescale


async def test_when_who_asked_goes_away_then_the_job_is_rescaled_all_the_same_and_can_be_again():
    asked = Asked()
    rescale = asyncio.create_task(asked.requests.rescale(4, plan_of(3)))
    await asyncio.sleep(0)

    rescale.cancel()
    await asyncio.wait([rescale])

    assert asked.log[2:] == [ev.RescaleRequested(4)]
    asked.requests.settle_rescale(None)
    again = asyncio.create_task(asked.requests.rescale(2, plan_of(4)))
    await asyncio.sleep(0)
    assert asked.log[3:] == ["reserve 3", TriggerKind.CHECKPOINT]
    again.cancel()


async def test_a_job_that_has_the_parallelism_already_is_left_alone():
    asked = Asked()

    assert not await asked.requests.rescale(4, plan_of(4))

    assert asked.log == []
