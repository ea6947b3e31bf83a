"""A drawn job under drawn faults: what campaigns run.

The real coordinator and workers run a random job (`jobs`) while random faults happen (`faults`), watched by all
checkers. In the end the committed output must be that of the plain loop.

Not here: how a world is made and lived through (`run`), what must hold meanwhile (`checkers`, `message_checker`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from flowpoint.coordinator.job import Wishes
from flowpoint.sim.checkers import StorageChecker
from flowpoint.sim.faults import ALL_FAULTS, DRAINS, KILLS, FaultKind, FaultMix, draw_mix
from flowpoint.sim.job import INTERRUPTED, ROOT, SAVEPOINTS, Programs, install
from flowpoint.sim.job_text import input_files, job_text
from flowpoint.sim.jobs import JOB_FILE, OUTPUT, STORAGE, TIMED, JobShape, draw_shape
from flowpoint.sim.local_checker import LocalChecker
from flowpoint.sim.local_trouble import LocalTrouble, draw_local_trouble
from flowpoint.sim.message_checker import MessageChecker
from flowpoint.sim.output_checkers import CommittableChecker, OutputChecker, SavepointChecker
from flowpoint.sim.references import check_output
from flowpoint.sim.topologies import Row
from flowpoint.sim.world import InvariantBroken, SimProcess, SimWorld
from flowpoint.snapshot.places import MEMORY

ASKED = (FaultKind.ASK_SAVEPOINT, FaultKind.ASK_RESCALE, FaultKind.ASK_RESCALE, FaultKind.ASK_STOP_TO)
DISK_TROUBLE = frozenset({FaultKind.DISK_ERRORS, FaultKind.LOST_ANSWERS, FaultKind.DISK_FULL})


LEAVES_FILES = DISK_TROUBLE | {
    FaultKind.KILL_COORDINATOR,
    FaultKind.KILL_AT_POINT,
    FaultKind.POWER_FAILURE,
    FaultKind.ASK_CANCEL,
}
"""Under these the coordinator that ends the job may be unable to tidy up, or die before it has."""


ENDS_COORDINATOR = frozenset(
    {
        FaultKind.KILL_COORDINATOR,
        FaultKind.KILL_AT_POINT,
        FaultKind.POWER_FAILURE,
        FaultKind.ASK_STOP,
        FaultKind.ASK_STOP_TO,
        FaultKind.ASK_CANCEL,
    }
)


class JobScenario:
    """One seed's job and faults. With `checked=False` only the final output is looked at."""

    safety_seconds, liveness_seconds = 60.0, 120.0

    def __init__(
        self,
        seed: int,
        *,
        checked: bool = True,
        shape: JobShape | None = None,
        mix: FaultMix | None = None,
        local: LocalTrouble | None = None,
    ) -> None:
        """`shape`, `mix` and `local` take the place of what would be drawn."""
        draw = Random(f"{seed}:workload")
        self.shape = shape or draw_shape(draw)
        self._local_trouble = local or draw_local_trouble(Random(f"{seed}:local files"))
        self.mix: FaultMix = self._local_trouble.added_to(mix or draw_mix(draw, ALL_FAULTS))
        self.name = str(self.shape)
        self.checked = checked
        self._programs: Programs
        self._storage: StorageChecker | None = None
        self._savepoints: SavepointChecker | None = None
        self._local: LocalChecker | None = None

    def set_up(self, world: SimWorld) -> None:
        shape = self.shape
        for path, data in input_files(shape).items():
            world.files.write_whole(path, data)
        self._local_trouble.set_up(world)
        if self.checked:
            self._storage = StorageChecker(world, STORAGE)
            OutputChecker(world, OUTPUT, self._storage, takes_back=shape.takes_back)
            self._savepoints = SavepointChecker(world, SAVEPOINTS, self._storage)
            CommittableChecker(world, self._storage, SAVEPOINTS)
            self._local = LocalChecker(world, self._storage, MessageChecker(world, self._storage))
        wishes = Wishes(resume_drained=True)
        self._programs = install(world, job_text(shape), shape.settings, JOB_FILE, STORAGE, wishes)

    def root(self) -> tuple[str, Sequence[str]]:
        return ROOT, ()

    def may_start_again(self, process: SimProcess) -> bool:
        """After an interrupt it may. A coordinator whose disk fails under it may say so and end."""
        if process.exit_code == INTERRUPTED:
            return True
        return bool(DISK_TROUBLE.intersection(self.mix.kinds))

    def damage(self, world: SimWorld) -> str | None:
        """Only where an older checkpoint is kept, and the sink can take back, may it be used (rule 1)."""
        is_fair = self.shape.takes_back and self.shape.settings.checkpoint.retained > 1
        return self._storage.damage_newest() if self._storage is not None and is_fair else None

    def ask(self, world: SimWorld, request: FaultKind) -> None:
        self._programs.ask(request)

    def judge(self, world: SimWorld) -> None:
        check_output(self.shape, read_output(world))
        if self._storage is None or self._savepoints is None or self._local is None:
            return
        for path in self._programs.savepoints:
            self._savepoints.check_whole(path.removeprefix(f"{SAVEPOINTS}/"))
        newest = self._storage.newest
        if newest is None or newest.kind != "finished":
            raise InvariantBroken(f"the job has finished, and its log ends with {newest}")
        # What dead attempts left may still be there, where it could not be removed.
        hidden = [
            name for name in world.files.list(OUTPUT) if name.startswith(".part-") and f"-a{newest.attempt}-" in name
        ]
        if hidden:
            raise InvariantBroken(f"the job has finished and left uncommitted output: {hidden}")
        if not LEAVES_FILES.intersection(self.mix.kinds):
            left = self._storage.unnamed()
            if left:
                raise InvariantBroken(f"the job has finished and left files that no retained checkpoint names: {left}")
            if left := self._local.left_over():
                raise InvariantBroken(f"the job has finished and left local files of what is in no storage: {left}")


class AskedScenario(JobScenario):
    """A job of which a person keeps asking for savepoints, hand-overs and rescales while faults happen."""

    def __init__(self, seed: int) -> None:
        draw = Random(f"{seed}:asked")
        shape, mix = draw_shape(draw), draw_mix(draw, ALL_FAULTS)
        records = max(shape.records, 500)
        settings = replace(shape.settings, workers=draw.choice((0, shape.settings.workers)))
        shape = replace(shape, records=records, rate=records // draw.choice((1, 2, 4)), settings=settings)
        asked = ASKED if shape.topology in TIMED else (*ASKED, *sorted(DRAINS))
        kinds = (*mix.kinds, *asked * draw.choice((1, 2, 4)))
        super().__init__(seed, shape=shape, mix=replace(mix, kinds=kinds, quiet=0.1, gap=draw.choice((0.1, 0.3))))


class MemoryScenario(JobScenario):
    """A job whose snapshots are in the memory of its coordinator, which therefore lives to the end."""

    def __init__(self, seed: int) -> None:
        draw = Random(f"{seed}:memory")
        shape, mix = draw_shape(draw), draw_mix(draw, ALL_FAULTS - ENDS_COORDINATOR - {FaultKind.BIT_ROT})
        checkpoint = replace(shape.settings.checkpoint, storage=MEMORY)
        shape = replace(shape, settings=replace(shape.settings, checkpoint=checkpoint))
        super().__init__(seed, shape=shape, mix=replace(mix, spares_coordinator=True))

    def may_start_again(self, process: SimProcess) -> bool:
        """Never: nothing would be left."""
        return False


class LocalFilesScenario(JobScenario):
    """A busy job whose workers and machine die again and again, while local files are not what they were."""

    def __init__(self, seed: int) -> None:
        draw = Random(f"{seed}:local files")
        shape = draw_shape(draw)
        records = max(shape.records, 1000)
        checkpoint = replace(shape.settings.checkpoint, interval=0.05)
        shape = replace(
            shape, records=records, rate=records // 2, settings=replace(shape.settings, checkpoint=checkpoint)
        )
        kinds = tuple(kind for kind in FaultKind if kind in KILLS | DISK_TROUBLE | {FaultKind.BIT_ROT})
        mix = FaultMix(kinds, quiet=0.3, gap=0.2, count_max=12, second_failure_rate=0.3, pause_seconds=0.5)
        super().__init__(seed, shape=shape, mix=mix, local=LocalTrouble(apart=draw.random() < 0.5, hurt=True))


def read_output(world: SimWorld) -> Counter[Row]:
    """The rows of all committed parts."""
    rows: Counter[Row] = Counter()
    for name in world.files.list(OUTPUT):
        if name.startswith("part-"):
            lines = bytes(world.files.file(f"{OUTPUT}/{name}").data).splitlines()
            # One call for all of them: a call per line would take longer than the job.
            rows.update(tuple(row) for row in json.loads(b"[%s]" % b",".join(lines)))
    return rows
