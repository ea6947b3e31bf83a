"""State is opened from local files after a failure, and whatever becomes of these costs no checkpoint and no record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.sim.files import FileSystem
from flowpoint.sim.jobs import STORAGE, WORK_DIR
from flowpoint.sim.local_checker import LocalChecker
from flowpoint.sim.local_trouble import LOCAL
from flowpoint.sim.message_checker import MessageChecker
from flowpoint.sim.report import Campaign
from flowpoint.sim.run import simulate
from flowpoint.sim.scenario import LocalFilesScenario
from flowpoint.snapshot.local_files import LocalFiles
from tests.simulation.stage import Stage, settings

JOB = """
(
    job.source(SequenceSource(0, 900, rate=1500), uid="numbers")
    .key_by(lambda n: n % 40)
    .count(uid="counts")
    .sink(SINK)
)
"""

REACHED = (
    "state files opened locally",
    "is not used, the checkpoint storage is read instead",
    "damage was found in state that may have been opened from local files",
    "bit rot in",
)


def staged(*, apart: bool = False, **checkpoint: Any) -> tuple[Stage, LocalChecker]:
    """JOB, and who watches its local files. `apart`: the work folder is on a file system of its own."""
    stage = Stage(JOB, settings(2, interval=0.1, **checkpoint))
    stage.world.files.volume = WORK_DIR if apart else ""
    return stage, LocalChecker(stage.world, stage.storage, MessageChecker(stage.world, stage.storage))


def assert_exact(stage: Stage) -> None:
    """The committed output is that of a plain loop."""
    assert stage.output() == {(key, count): 1 for key in range(40) for count in range(1, 900 // 40 + (key < 20) + 1)}


def opened_locally(stage: Stage) -> list[str]:
    """What workers said of attempts in which nothing but local files was opened."""
    return stage.story("from the checkpoint storage: 0 (0 bytes)")


@pytest.mark.parametrize("apart", [False, True], ids=["one file system", "two"])
def test_survivors_and_replacements_open_local_files_after_a_kill(apart):
    stage, local = staged(apart=apart)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert_exact(stage)
    assert len(opened_locally(stage)) == 2
    assert local.left_over() == []


@pytest.mark.parametrize("parallelism", [None, 3], ids=["as before", "another parallelism"])
def test_so_does_the_next_run_after_the_coordinator_was_killed(parallelism):
    stage, local = staged()

    async def script():
        first = stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.kill(first)
        await stage.all_dead()
        await stage.finish(stage.start() if parallelism is None else stage.start_with(parallelism))

    stage.play(script())

    assert_exact(stage)
    assert len(opened_locally(stage)) == 2, "of two workers"
    assert local.left_over() == []


@pytest.mark.parametrize("forgets", [True, False], ids=["as it is", "with the safeguard off"])
def test_local_names_go_with_the_files_that_they_are_of(forgets, monkeypatch):
    async def keep(*_: object) -> None:
        """Nothing is let go of."""

    if not forgets:
        monkeypatch.setattr(LocalFiles, "forget", keep)
    stage, local = staged(incremental=False, retained=1)

    async def script():
        await stage.finish(stage.start())

    stage.play(script())

    assert (local.left_over() == []) is forgets


def replace_by_another(files: FileSystem, path: str) -> None:
    """Another run has left another state file there."""
    others = [
        bytes(file.data) for other, file in files.walk(f"{STORAGE}/shared") if path.rpartition("/")[2] not in other
    ]
    files.write_whole(path, others[0])


def cut_off(files: FileSystem, path: str) -> None:
    """The power went while it was written."""
    files.write_whole(path, bytes(files.file(path).data)[:-5])


def take_away(files: FileSystem, path: str) -> None:
    """It is gone."""
    files.remove(path)


@pytest.mark.parametrize("harm", [replace_by_another, cut_off, take_away])
def test_local_files_that_are_not_those_of_the_checkpoint_are_refused_without_another_failure(
    harm: Callable[[FileSystem, str], None],
):
    stage, _ = staged()

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        for path, _ in list(stage.world.files.walk(LOCAL)):
            harm(stage.world.files, path)
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert_exact(stage)
    assert len(stage.story("is running")) == 2
    assert len(stage.story("opened locally: 0 (0 bytes)")) == 2


def rot(files: FileSystem) -> None:
    """The first block of every copy is damaged, which its index does not show."""
    for path, file in list(files.walk(LOCAL)):
        data = bytearray(file.data)
        data[20] ^= 1
        files.write_whole(path, bytes(data))


def test_a_copy_that_has_rotted_costs_a_restart_and_no_checkpoint():
    stage, _ = staged(apart=True)

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        rot(stage.world.files)
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert_exact(stage)
    assert len(stage.story("damage was found in state that may have been opened from local files")) == 1
    assert stage.story("is damaged and is skipped") == []
    assert len(stage.story("is running")) == 3
    assert len(stage.story("opened locally: 0 (0 bytes)")) == 2


def test_where_the_storage_is_damaged_too_an_older_checkpoint_is_used_as_ever():
    stage, _ = staged()

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(4))
        damaged = stage.storage.damage_newest()
        assert damaged is not None
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert_exact(stage)
    assert len(stage.story("is damaged and is skipped")) == 1


def test_a_full_work_folder_costs_local_files_and_nothing_else():
    stage, local = staged(apart=True)
    stage.world.disk_faults.volume_full = True

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(2))
        stage.kill(stage.workers()[0])
        await stage.finish(run)

    stage.play(script())

    assert_exact(stage)
    assert stage.story("cannot keep local state files")
    assert stage.story("checkpoint", "failed") == []
    assert len(stage.story("opened locally: 0 (0 bytes)")) == 2
    assert local.left_over() == []


def test_a_machine_that_lost_its_power_may_have_lost_local_names_and_goes_on():
    for seed in range(5):
        stage = Stage(JOB, settings(2, interval=0.1), seed=seed)
        LocalChecker(stage.world, stage.storage, MessageChecker(stage.world, stage.storage))

        async def script(stage: Stage = stage):
            stage.start()
            await stage.until(lambda: stage.completed(3))
            stage.world.power_failure()
            await stage.finish(stage.start())

        stage.play(script())

        assert_exact(stage)


def test_jobs_are_exact_whatever_becomes_of_their_local_files():
    campaign, told = Campaign(), ""
    for seed in range(10):
        outcome = simulate(seed, LocalFilesScenario)
        campaign.add(outcome)
        told += "\n".join(outcome.story)

    assert [outcome.tell() for outcome in campaign.failures] == []
    assert [words for words in REACHED if words not in told] == []
