"""Does to a simulated world what a mix of faults says: draws what happens next, and to whom.

Every draw comes from the stream "faults" of the world, so a seed replays them. What lasts (a burst, a pause, a trap) goes on
beside the next faults, and all of it ends with the injector.

Not here: what may happen at all, and how often (`faults`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import assert_never

from flowpoint.sim.disk import DiskFaults
from flowpoint.sim.faults import BURST_SECONDS, KILLS, FaultKind, FaultMix
from flowpoint.sim.local_trouble import hurt_local_files, remove_local_copy
from flowpoint.sim.network import Network
from flowpoint.sim.user_code import UserTrouble
from flowpoint.sim.world import Phase, Point, SimProcess, SimWorld

LATE_SECONDS = (0.1, 1.0)
TRAP_SECONDS = 5.0
SECOND_FAILURE_DELAY = (0.0, 0.6)
CLOCK_JUMPS_MS = (-3_600_000, -60_000, -1_000, 1_000, 60_000, 3_600_000)
# The way of a checkpoint from its manifest over its commit entry to the sinks' commits. A kill at each of these leaves
# another half of the truth on disk.
PUBLISHING = (
    ("disk.link", "manifest"),
    ("disk.sync_dir", "/chk-"),
    ("disk.link", "/commits/"),
    ("disk.sync_dir", "/commits"),
    ("disk.list", "/commits"),
    ("disk.rename", ".committed-"),
    ("disk.rename", "/part-"),
    ("disk.sync_dir", "/out"),
)
TRAPS = (
    ("connect", ""),
    ("disk.create", ""),
    ("disk.link", "/local/"),
    ("disk.make_dirs", "/chk-"),
    ("disk.read", "manifest"),
    ("disk.read", "/shared/"),
    ("disk.remove", ""),
    ("disk.remove", "/commits/"),
    ("disk.remove", "/local/"),
    ("disk.rename", ""),
    ("disk.sync", ""),
    ("disk.sync", "part-"),
    ("disk.sync", "/shared/"),
    ("disk.sync_dir", ""),
    ("disk.sync_dir", "/shared"),
    ("disk.write", ""),
    ("start_process", ""),
)


class FaultInjector:
    """Does to the world what the mix says."""

    def __init__(
        self,
        world: SimWorld,
        mix: FaultMix,
        damage: Callable[[], str | None] = lambda: None,
        ask: Callable[[FaultKind], None] = lambda _: None,
    ) -> None:
        """`damage` rots a file of the newest checkpoint, if it can, and says which; `ask` asks for something."""
        self._world = world
        self._mix = mix
        self._damage = damage
        self._ask = ask
        self._random = world.stream("faults")
        self._damaged = False
        self._second_failure_due = True
        self._trap: _Trap | None = None
        world.watch_points(self._on_point)

    async def run(self) -> None:
        """Inject until the mix is used up. Cancel it to end the faults; `SimWorld.heal` ends those that last."""
        try:
            # What lasts goes on beside the next faults.
            async with asyncio.TaskGroup() as lasting:
                await asyncio.sleep(self._mix.quiet)
                for _ in range(self._mix.count_max):
                    await asyncio.sleep(self._random.expovariate(1 / self._mix.gap))
                    kind = self._random.choice(self._mix.kinds)
                    self._inject(kind, lasting)
                    if kind in KILLS and self._draw_second_failure():
                        await asyncio.sleep(self._random.uniform(*SECOND_FAILURE_DELAY))
                        self._kill_one("while the last failure is being recovered from")
        finally:
            self._trap = None

    def _draw_second_failure(self) -> bool:
        # The first kill of a run always gets company, so that every campaign fails during recovery.
        due, self._second_failure_due = self._second_failure_due, False
        return due or self._random.random() < self._mix.second_failure_rate

    def _inject(self, kind: FaultKind, lasting: asyncio.TaskGroup) -> None:  # noqa: C901 - one switch
        self._world.trace.mark(f"fault {kind}")
        match kind:
            case FaultKind.KILL_WORKER:
                self._kill_some(self._children(), 1)
            case FaultKind.KILL_COORDINATOR:
                self._kill_some(self._roots(), 1)
            case FaultKind.KILL_WORKERS:
                self._kill_some(self._children(), len(self._world.processes))
            case FaultKind.KILL_AT_POINT:
                lasting.create_task(self._set_trap())
            case FaultKind.POWER_FAILURE:
                self._world.power_failure()
            case FaultKind.PAUSE_WORKER:
                lasting.create_task(self._pause(self._children()))
            case FaultKind.PAUSE_COORDINATOR:
                lasting.create_task(self._pause(self._roots()))
            case FaultKind.BREAK_LINK | FaultKind.CUT_LINK:
                self._hurt_link(kind)
            case FaultKind.STALL_LINKS:
                lasting.create_task(self._burst(kind, self._world.network, "stall_rate", (0.01, 0.1), 0.0))
            case FaultKind.LATE_WORDS:
                lasting.create_task(self._let_words_come_late())
            case FaultKind.DISK_ERRORS:
                lasting.create_task(self._burst(kind, self._world.disk_faults, "error_rate", (0.02, 0.2), 0.0))
            case FaultKind.LOST_ANSWERS:
                lasting.create_task(self._burst(kind, self._world.disk_faults, "lost_answer_rate", (0.02, 0.2), 0.0))
            case FaultKind.DISK_FULL:
                lasting.create_task(self._burst(kind, self._world.disk_faults, "full", (True,), False))
            case FaultKind.DISK_SLOW:
                lasting.create_task(self._burst(kind, self._world.disk_faults, "slowness", (10.0, 100.0), 1.0))
            case FaultKind.CLOCK_JUMP:
                jump = self._random.choice(CLOCK_JUMPS_MS)
                self._world.wall_skew_ms += jump
                self._tell(f"the wall clock jumps by {jump} ms")
            case FaultKind.BIT_ROT:
                lasting.create_task(self._rot())
            case FaultKind.LOCAL_FILES:
                self._hurt_local_files()
            case FaultKind.USER_ERRORS:
                rates = (0.002, 0.02, 0.2)
                lasting.create_task(self._burst(kind, self._world.user_trouble, "error_rate", rates, 0.0))
            case (
                FaultKind.ASK_CHECKPOINT
                | FaultKind.ASK_SAVEPOINT
                | FaultKind.ASK_RESCALE
                | FaultKind.ASK_STOP
                | FaultKind.ASK_STOP_TO
                | FaultKind.ASK_DRAIN
                | FaultKind.ASK_DRAIN_TO
                | FaultKind.ASK_CANCEL
            ):
                self._ask(kind)
            case _:
                assert_never(kind)

    # ------------------------------------------------------------------ processes

    def _roots(self) -> list[SimProcess]:
        return [process for process in self._world.living() if process.parent is None]

    def _children(self) -> list[SimProcess]:
        return [process for process in self._world.living() if process.parent is not None]

    def _kill_some(self, candidates: list[SimProcess], count: int) -> None:
        for _ in range(min(count, len(candidates))):
            self._kill(candidates.pop(self._random.randrange(len(candidates))), "by a fault")

    def _kill_one(self, why: str) -> None:
        living = self._children() if self._mix.spares_coordinator else self._world.living()
        if living:
            self._kill(self._random.choice(living), why)

    def _kill(self, process: SimProcess, why: str) -> None:
        self._world.trace.mark(f"killed {process.role} in {process.activity()}")
        self._world.kill(process, why)

    async def _pause(self, candidates: list[SimProcess]) -> None:
        if not candidates:
            return
        process = self._random.choice(candidates)
        self._world.pause(process)
        await asyncio.sleep(self._random.uniform(0.01, self._mix.pause_seconds))
        self._world.resume(process)

    # ------------------------------------------------------------------ kills at points

    async def _set_trap(self) -> None:
        """Kill whoever comes to a drawn point next; wait for it a while."""
        trap = self._trap = _Trap.draw(self._random)
        self._tell(f"a trap is set: {trap}")
        try:
            async with asyncio.timeout(TRAP_SECONDS):
                await trap.sprung.wait()
        except TimeoutError:
            if self._trap is trap:
                self._trap = None

    def _on_point(self, point: Point) -> None:
        if self._trap is not None and self._trap.catches(point):
            where = f"{point.phase} {point.operation} of {point.subject}"
            self._world.trace.mark(f"trapped {point.process.role} {point.phase} {self._trap.place}")
            self._trap.sprung.set()
            self._trap = None
            self._world.kill(point.process, f"at a point: {where}")

    # ------------------------------------------------------------------ links, disk, damage

    def _hurt_link(self, kind: FaultKind) -> None:
        links = [link for process in self._world.living() for link in process.links.values()]
        if not links:
            return
        link = self._random.choice(links)
        if kind is FaultKind.CUT_LINK:
            self._tell(f"what {link.owner.name} sends to {link.peer.name} now vanishes silently")
            link.cut_out()
        else:
            self._tell(f"a link between {link.owner.name} and {link.peer.name} breaks")
            link.break_both("the link broke")

    async def _let_words_come_late(self) -> None:
        """What one worker tells its coordinator takes long; another worker dies in between."""
        workers = self._children()
        if len(workers) < 2:
            return
        late = workers.pop(self._random.randrange(len(workers)))
        seconds = self._random.uniform(*LATE_SECONDS)
        self._tell(f"what {late.name} tells its coordinator takes {seconds:.3f} s")
        for link in late.links.values():
            if link.peer is late.parent:
                link.stall(seconds)
        await asyncio.sleep(self._random.uniform(0.0, seconds / 2))
        self._kill(self._random.choice(workers), f"while words of {late.name} are under way")

    async def _burst(
        self,
        kind: FaultKind,
        target: DiskFaults | Network | UserTrouble,
        attribute: str,
        values: Sequence[float],
        healthy: float,
    ) -> None:
        """Set what is wrong to one of the values for a while."""
        seconds, value = self._random.uniform(*BURST_SECONDS), self._random.choice(values)
        self._tell(f"{kind} for {seconds:.3f} s")
        setattr(target, attribute, value)
        await asyncio.sleep(seconds)
        setattr(target, attribute, healthy)

    async def _rot(self) -> None:
        """Damage the newest checkpoint as soon as there is an older one, and let the job need it at once."""
        deadline = self._world.loop.time() + TRAP_SECONDS
        while not self._damaged and self._world.loop.time() < deadline:
            damaged = self._damage()
            if damaged is not None:
                self._damaged = True
                self._world.trace.mark("bit rot")
                self._tell(f"bit rot in {damaged}")
                # A whole copy would be opened in its place, and the damage would become history.
                remove_local_copy(self._world.files, damaged)
                self._kill_one("before the damage is history")
            await asyncio.sleep(0.05)

    def _hurt_local_files(self) -> None:
        """Whatever becomes of them, the storage has the same files. A kill lets a restore ask for them."""
        if told := hurt_local_files(self._world.files, self._random):
            self._world.trace.mark("local files hurt")
            self._tell(told)
            self._kill_some(self._children(), 1)

    def _tell(self, text: str) -> None:
        self._world.trace.tell("fault", text)


class _Trap:
    """Waits for the n-th time that some operation is done to some subject."""

    def __init__(self, operation: str, subject: str, phase: Phase, countdown: int) -> None:
        self.operation = operation
        self.subject = subject
        self.phase = phase
        self.countdown = countdown
        self.sprung = asyncio.Event()

    @classmethod
    def draw(cls, random: Random) -> _Trap:
        """A trap at one of the points that matter, or at any one."""
        phases: tuple[Phase, Phase] = ("before", "after")
        phase = random.choice(phases)
        where = random.random()
        if where < 0.3:
            return cls("", "", phase, random.randint(1, 40))
        operation, subject = random.choice(PUBLISHING if where < 0.7 else TRAPS)
        return cls(operation, subject, phase, random.randint(1, 4))

    @property
    def place(self) -> str:
        """Where it was set, for counting."""
        return f"{self.operation} {self.subject}".strip() or "any operation"

    def catches(self, point: Point) -> bool:
        """Whether this is the point."""
        if point.phase != self.phase or self.operation not in point.operation or self.subject not in point.subject:
            return False
        self.countdown -= 1
        return self.countdown == 0

    def __str__(self) -> str:
        what = self.operation or "any operation"
        return f"{self.phase} the {self.countdown}. {what} on {self.subject or 'anything'}"
