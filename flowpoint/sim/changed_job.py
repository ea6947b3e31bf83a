"""A job whose code changes while it is down: campaigns in which a later version restores what an earlier one has left.

The job keeps an account, numbers and kinds per key (as `jobs` has it for Topology.STATES), in three versions of its types:

    1  as they are first
    2  fields added, removed and in another place, an int widened to a float: taken over without a word of the author
    3  a field renamed, a map of other values, by migrations from version 1

The job is killed once in any case; whoever starts it again may have a newer version by then, never an older one. Half of
these starts are killed once more while they restore, and all of them a while later, so that what the newer version has
written is restored too. Whatever happens, the output is that of the one loop.

Not here: what goes wrong besides (`faults`), what must hold meanwhile (`checkers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from flowpoint.launch.jobfile import JobSource
from flowpoint.model import messages
from flowpoint.sim.faults import ALL_FAULTS, draw_mix
from flowpoint.sim.job_text import job_text
from flowpoint.sim.jobs import JOB_FILE, STORAGE, JobShape, Topology, draw_shape
from flowpoint.sim.network import SimLink
from flowpoint.sim.scenario import JobScenario
from flowpoint.sim.world import SimWorld

_TYPES: Final = (
    """\
@dataclass
class Account:
    seen: int
    total: int


class Number(NamedTuple):
    value: int
    text: str


TYPES = {"account": {}, "kinds": {}}
KIND = {"count": int}
account_of = lambda seen, total: Account(seen, total)
number_of = lambda n: Number(n, str(n))
kind_of = lambda count: {"count": count}
total_of = lambda account: account.total
count_of = lambda kind: kind["count"]
""",
    """\
@dataclass
class Account:
    total: float
    seen: int
    note: str = "none"


class Number(NamedTuple):
    value: int


TYPES = {"account": {}, "kinds": {}}
KIND = {"count": int, "last": (str, "")}
account_of = lambda seen, total: Account(total, seen)
number_of = lambda n: Number(n)
kind_of = lambda count: {"count": count, "last": "now"}
total_of = lambda account: int(account.total)
count_of = lambda kind: kind["count"]
""",
    """\
@dataclass
class Account:
    seen: int
    sum: int


class Number(NamedTuple):
    value: int


def migrated(old):
    return {"seen": old["seen"], "sum": int(old["total"])}


TYPES = {
    "account": {"version": 2, "migrate": {1: migrated}},
    "kinds": {"version": 3, "migrate": {1: lambda old: [old["count"]], 2: lambda old: old[0]}},
}
KIND = int
account_of = lambda seen, total: Account(seen, total)
number_of = lambda n: Number(n)
kind_of = lambda count: count
total_of = lambda account: account.sum
count_of = lambda kind: kind
""",
)
_PROCESS: Final = """\
class Process(KeyedProcessFunction):
    account = ValueState("account", Account, **TYPES["account"])
    numbers = ListState("numbers", Number)
    kinds = MapState("kinds", KIND, **TYPES["kinds"])

    def process(self, n, ctx):
        account = self.account.value or account_of(0, 0)
        assert total_of(account) == sum(number.value for number in self.numbers), "the account and the numbers differ"
        self.account.value = account_of(account.seen + 1, total_of(account) + n)
        self.numbers.append(number_of(n))
        count = count_of(self.kinds[n % 3]) + 1 if n % 3 in self.kinds else 1
        self.kinds[n % 3] = kind_of(count)
        yield ("seen", ctx.key, account.seen + 1)
        yield ("length", ctx.key, len(self.numbers))
        yield ("kind", ctx.key, n % 3, count)
"""
VERSIONS: Final = len(_TYPES)
_HEAD: Final = "from dataclasses import dataclass\nfrom typing import NamedTuple\n\n"
_CRASH_SECONDS: Final = (0.2, 1.0)


def versioned_text(shape: JobShape, version: int) -> str:
    """The job file in a version, counted from 0."""
    return job_text(shape, "\n".join([_HEAD, _TYPES[version], _PROCESS]))


class ChangedJobScenario(JobScenario):
    """A job that is killed, and goes on in a later version."""

    def __init__(self, seed: int, *, checked: bool = True) -> None:
        draw = Random(f"{seed}:changed")
        shape, mix = draw_shape(draw), draw_mix(draw, ALL_FAULTS)
        records = draw.choice((500, 1000))
        checkpoint = replace(shape.settings.checkpoint, mode="exactly_once")
        shape = replace(
            shape,
            topology=Topology.STATES,
            records=records,
            rate=records // 2,
            settings=replace(shape.settings, checkpoint=checkpoint),
        )
        super().__init__(seed, checked=checked, shape=shape, mix=mix)
        self.version = 0
        self._draw = draw
        self._world: SimWorld

    def set_up(self, world: SimWorld) -> None:
        super().set_up(world)
        self._world = world
        self._use(0)
        world.loop.call_later(self._draw.uniform(*_CRASH_SECONDS), self._kill, "its code is about to change")

    def root(self) -> tuple[str, Sequence[str]]:
        """What the person starts: each time perhaps a newer version than before."""
        if self._has_begun() and self.version < VERSIONS - 1:
            newer = self._draw.randint(self.version, VERSIONS - 1)
            if newer > self.version:
                self._use(newer)
                self._world.trace.mark(f"version {newer} goes on")
                if self._draw.random() < 0.5:
                    self._kill_in_restore()
                later = self._draw.uniform(*_CRASH_SECONDS)
                self._world.loop.call_later(later, self._kill, "after its code has changed")
        return super().root()

    def _has_begun(self) -> bool:
        """Whether the job has got as far as its commit log. Asked of the disk: there need not be a checker."""
        commits = f"{STORAGE}/commits"
        return self._world.files.find(commits) is not None and bool(self._world.files.list(commits))

    def _use(self, version: int) -> None:
        self.version = version
        self._programs.source = JobSource(JOB_FILE, versioned_text(self.shape, version).encode())

    def _kill_in_restore(self) -> None:
        """Kill everything once the workers have been told to restore, soon after."""
        start = bytes((0x92, 0xA0 + len("Deploy"))) + messages.Deploy.__name__.encode()
        done: list[bool] = []

        def watch(_: SimLink, frame: bytes) -> None:
            if frame.startswith(start) and not done:
                done.append(True)
                self._world.loop.call_later(self._draw.uniform(0.0, 0.02), self._kill, "while it restores")

        self._world.network.watch(watch)

    def _kill(self, why: str) -> None:
        for process in self._world.living():
            self._world.kill(process, why)
        self._world.trace.mark(f"killed {why}")
