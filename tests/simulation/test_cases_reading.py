"""Cases in which a file is whole and cannot be read at the moment: that is no damage, and nothing older is used."""

from __future__ import annotations

import errno
import os
from collections import Counter

import pytest

from flowpoint.sim.disk import SimDisk
from flowpoint.sim.jobs import STORAGE
from tests.simulation.stage import Stage, settings

KEYS, RECORDS = 10, 1000
COUNTS = f'job.source(SequenceSource(0, {RECORDS}, rate=1000), uid="numbers").key_by(lambda n: n % {KEYS})'
COUNTS += '.count(uid="counts").sink(SINK)'
ALL_COUNTS = Counter({(key, n): 1 for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1)})


class Refusals:
    """What the disk of the machine does not let anybody read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: tuple[str, ...] = ()
        """Paths with all of these in them are refused."""
        self.error = errno.EIO
        self.left = 0
        self.seen: list[str] = []
        self._read, self._open = SimDisk.read, SimDisk.open
        monkeypatch.setattr(SimDisk, "read", self._refusing(SimDisk.read))
        monkeypatch.setattr(SimDisk, "open", self._refusing(SimDisk.open))
        monkeypatch.setattr(SimDisk, "list", self._refusing(SimDisk.list))

    def begin(self, *words: str, times: int = 1_000_000, error: int = errno.EIO) -> None:
        self.words, self.left, self.error = words, times, error

    def end(self) -> None:
        self.left = 0

    def _refusing(self, call):
        async def asked(disk, path, *args):
            if self.left > 0 and all(word in path for word in self.words):
                self.left -= 1
                self.seen.append(path)
                raise OSError(self.error, os.strerror(self.error), path)
            return await call(disk, path, *args)

        return asked


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Refusals:
    return Refusals(monkeypatch)


def newest_checkpoint(stage: Stage) -> str:
    """The folder of the newest checkpoint in the commit log."""
    return max(
        (one for one in stage.storage.commits.values() if one.kind == "checkpoint"), key=lambda one: one.checkpoint
    ).directory


async def cut_after_checkpoints(stage: Stage, count: int = 3) -> str:
    """Run until that many checkpoints are there, and kill everybody; the folder of the newest one."""
    stage.start()
    await stage.until(lambda: stage.completed(count))
    stage.kill_all()
    await stage.all_dead()
    return newest_checkpoint(stage)


PLACES = ["manifest.json", "/shared/", "/commits"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_what_cannot_be_read_for_a_moment_is_read_again(refusals, place, error):
    stage = Stage(COUNTS, settings(2))

    async def script():
        await cut_after_checkpoints(stage)
        refusals.begin(STORAGE, place, times=3, error=error)
        await stage.finish(stage.start())

    stage.play(script())

    assert len(refusals.seen) == 3
    assert not stage.story("is skipped") and not stage.story("restarting")
    assert stage.output() == ALL_COUNTS


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_read_at_a_start_refuses_it_and_nothing_older_is_used(refusals, place):
    stage = Stage(COUNTS, settings(2))

    async def script():
        newest = await cut_after_checkpoints(stage)
        refusals.begin(STORAGE, place)
        await stage.finish(stage.start(), code=1)
        assert newest_checkpoint(stage) == newest
        refusals.end()
        await stage.finish(stage.start())

    stage.play(script())

    assert not stage.story("is skipped") and not stage.story("restarting")
    assert stage.story(refusals.seen[0], "Input/output error (EIO)", "may well be whole")
    assert stage.output() == ALL_COUNTS


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_read_while_a_job_runs_is_left_to_the_restart_strategy(refusals, place):
    stage = Stage(COUNTS, settings(2))

    async def script():
        run = stage.start()
        await stage.until(lambda: stage.completed(3))
        refusals.begin(STORAGE, place)
        stage.kill(stage.workers()[0])
        await stage.until(lambda: stage.story("restarting in", "may well be whole"), seconds=60)
        refusals.end()
        await stage.finish(run)

    stage.play(script())

    assert not stage.story("is skipped")
    assert stage.output() == ALL_COUNTS
