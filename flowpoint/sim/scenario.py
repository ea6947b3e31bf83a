"""Random jobs for campaigns: a topology, a workload and settings drawn from the seed, and what must come out.

A job is drawn as a `JobShape`, written as the text of a job file, as a person would write it, and run by the real
coordinator and workers. Its reference is a plain loop over the numbers, never the engine. Every topology's output is a
multiset that does not depend on the order in which records of different subtasks meet, so it is compared exactly.

Not here: how a world is made and lived through (`run`), what must hold on disk meanwhile (`checkers`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import TypeAlias, assert_never

from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings
from flowpoint.sim.checkers import OutputChecker, StorageChecker
from flowpoint.sim.faults import ALL_FAULTS, FaultKind, FaultMix, draw_mix
from flowpoint.sim.job import install
from flowpoint.sim.world import InvariantBroken, SimProcess, SimWorld

STORAGE = "/flowpoint/checkpoints/simulated"
OUTPUT = "/data/out"
JOB_FILE = "/data/job.py"
DISK_TROUBLE = frozenset({FaultKind.DISK_ERRORS, FaultKind.LOST_ANSWERS, FaultKind.DISK_FULL})

Row: TypeAlias = tuple[int | str, ...]


class Topology(StrEnum):
    """The jobs that are drawn from."""

    COUNT = "count"
    TWO_KEYED = "two_keyed"
    UNION = "union"
    STATES = "states"
    TIMERS = "timers"


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job: the numbers 0..records-1 go through `topology`, spread over `keys` keys."""

    topology: Topology
    records: int
    keys: int
    parallelism: int
    workers: int
    rate: int | None
    settings: Settings

    def __str__(self) -> str:
        return f"{self.topology} of {self.records} records, {self.keys} keys, parallelism {self.parallelism}"


def draw_shape(random: Random) -> JobShape:
    """Draw a job."""
    parallelism = random.randint(1, 3)
    workers = random.randint(1, parallelism)
    return JobShape(
        topology=random.choice(list(Topology)),
        records=random.choice((0, 50, 500, 3000)),
        keys=random.choice((1, 5, 40)),
        parallelism=parallelism,
        workers=workers,
        rate=random.choice((None, 300, 3000)),
        settings=_draw_settings(random, parallelism, workers),
    )


def _draw_settings(random: Random, parallelism: int, workers: int) -> Settings:
    heartbeat = random.choice((0.05, 0.5))
    return Settings(
        parallelism=parallelism,
        workers=workers,
        max_parallelism=random.choice((4, 128)),
        batch_size=random.choice((1, 16, 1024)),
        checkpoint=CheckpointSettings(
            interval=random.choice((0.05, 0.2, 1.0)),
            timeout=random.choice((0.5, 5.0)),
            max_concurrent=random.choice((1, 1, 2)),
            tolerable_failures=random.choice((0, 0, 3)),
            min_pause=random.choice((0.0, 0.1)),
            retained=random.choice((1, 3)),
            storage=f"file://{STORAGE}",
        ),
        # RocksDB writes its own files outside of any host; the conformance suite proves the two backends equal.
        state=StateSettings(backend="heap", cache_bytes=random.choice((10_000, 1_000_000))),
        restart=RestartSettings(),
        heartbeat=HeartbeatSettings(interval=heartbeat, timeout=heartbeat * random.choice((4, 10))),
    )


# ------------------------------------------------------------------ the job and its reference


_IMPORTS = """\
from flowpoint import Job, KeyedProcessFunction, ListState, MapState, ValueState
from flowpoint.connectors import FileSink, SequenceSource
"""

_STATES = """\
class Process(KeyedProcessFunction):
    seen = ValueState("seen", default=0)
    numbers = ListState("numbers")
    kinds = MapState("kinds")

    def process(self, n, ctx):
        self.seen.value += 1
        self.numbers.append(n)
        self.kinds[n % 3] = self.kinds.get(n % 3, 0) + 1
        yield ("seen", ctx.key, self.seen.value)
        yield ("length", ctx.key, len(list(self.numbers)))
        yield ("kind", ctx.key, n % 3, self.kinds[n % 3])
"""

_TIMERS = """\
class Process(KeyedProcessFunction):
    seen = ValueState("seen", default=0)

    def process(self, n, ctx):
        self.seen.value += 1
        if self.seen.value == 1:
            ctx.timers.processing(ctx.timers.now() + 50)
        yield ("seen", ctx.key, self.seen.value)

    def on_timer(self, timestamp, ctx):
        yield ("timer", ctx.key)
"""


def job_text(shape: JobShape) -> str:
    """The job file of a shape."""
    rate = f", rate={shape.rate}" if shape.rate is not None else ""
    source = f'job.source(SequenceSource(0, {shape.records}{rate}), uid="numbers")'
    keyed = f".key_by(lambda n: n % {shape.keys})"
    classes = ""
    match shape.topology:
        case Topology.COUNT:
            stream = f'{source}{keyed}.count(uid="counts")'
        case Topology.TWO_KEYED:
            again = f'.key_by(lambda pair: pair[1] % {shape.keys}).count(uid="counts_of_counts")'
            stream = f'{source}{keyed}.count(uid="counts"){again}'
        case Topology.UNION:
            other = f'job.source(SequenceSource({shape.records}, {2 * shape.records}{rate}), uid="more_numbers")'
            stream = f'{source}.union({other}){keyed}.count(uid="counts")'
        case Topology.STATES:
            classes, stream = _STATES, f'{source}{keyed}.process(Process(), uid="process")'
        case Topology.TIMERS:
            classes, stream = _TIMERS, f'{source}{keyed}.process(Process(), uid="process")'
        case _:
            assert_never(shape.topology)
    sink = f'.sink(FileSink("{OUTPUT}", format="jsonl"), uid="out")'
    return f'{_IMPORTS}\n{classes}\njob = Job("simulated")\n{stream}{sink}\n'


def reference(shape: JobShape) -> Counter[Row]:
    """What the job must write, each row as often as given; rows of timers are judged apart."""
    match shape.topology:
        case Topology.COUNT:
            rows = _running_counts(n % shape.keys for n in range(shape.records))
        case Topology.UNION:
            rows = _running_counts(n % shape.keys for n in range(2 * shape.records))
        case Topology.TWO_KEYED:
            first = _running_counts(n % shape.keys for n in range(shape.records))
            rows = _running_counts(int(count) % shape.keys for _, count in first)
        case Topology.STATES:
            rows = list(_states_reference(shape))
        case Topology.TIMERS:
            rows = [("seen", *row) for row in _running_counts(n % shape.keys for n in range(shape.records))]
        case _:
            assert_never(shape.topology)
    return Counter(rows)


def _running_counts(keys: Iterator[int]) -> list[Row]:
    counts: Counter[int] = Counter()
    rows: list[Row] = []
    for key in keys:
        counts[key] += 1
        rows.append((key, counts[key]))
    return rows


def _states_reference(shape: JobShape) -> Iterator[Row]:
    counts: Counter[int] = Counter()
    kinds: Counter[tuple[int, int]] = Counter()
    for n in range(shape.records):
        key = n % shape.keys
        counts[key] += 1
        kinds[key, n % 3] += 1
        yield ("seen", key, counts[key])
        yield ("length", key, counts[key])
        yield ("kind", key, n % 3, kinds[key, n % 3])


def check_output(shape: JobShape, rows: Counter[Row]) -> None:
    """Compare committed rows with the reference.

    Whether a processing-time timer fires before the input ends is a matter of time; more than once per key is wrong.

    Raises:
        InvariantBroken: rows are missing, doubled or wrong.
    """
    timers = Counter({row: count for row, count in rows.items() if row[0] == "timer"})
    doubled = {row: count for row, count in timers.items() if count > 1}
    if doubled:
        raise InvariantBroken(f"timers fired more than once: {doubled}")
    expected, found = reference(shape), rows - timers
    missing, extra = expected - found, found - expected
    if missing or extra:
        raise InvariantBroken(
            f"the output is wrong: {missing.total()} rows are missing, such as {list(missing)[:3]}; "
            f"{extra.total()} are too many, such as {list(extra)[:3]}"
        )


# ------------------------------------------------------------------ the scenario


class JobScenario:
    """A drawn job under drawn faults."""

    safety_seconds, liveness_seconds = 60.0, 120.0

    def __init__(self, seed: int) -> None:
        draw = Random(f"{seed}:workload")
        self.shape = draw_shape(draw)
        self.mix: FaultMix = draw_mix(draw, ALL_FAULTS)
        self.name = str(self.shape)
        self._root: tuple[str, Sequence[str]] = ("", ())
        self._storage: StorageChecker

    def set_up(self, world: SimWorld) -> None:
        world.files.write_whole(JOB_FILE, job_text(self.shape).encode())
        self._storage = StorageChecker(world, STORAGE)
        OutputChecker(world, OUTPUT, self._storage)
        self._root = install(world, job_text(self.shape), self.shape.settings, JOB_FILE, STORAGE)

    def root(self) -> tuple[str, Sequence[str]]:
        return self._root

    def may_start_again(self, process: SimProcess) -> bool:
        """A coordinator whose disk fails under it may say so and end; it may never find a bug in itself."""
        return bool(DISK_TROUBLE.intersection(self.mix.kinds)) and "InternalError" not in process.exit_reason

    def damage(self, world: SimWorld) -> str | None:
        return self._storage.damage_newest()

    def judge(self, world: SimWorld) -> None:
        check_output(self.shape, read_output(world))


def read_output(world: SimWorld) -> Counter[Row]:
    """The rows of all committed parts."""
    rows: Counter[Row] = Counter()
    for name in world.files.list(OUTPUT):
        if name.startswith("part-"):
            for line in bytes(world.files.file(f"{OUTPUT}/{name}").data).splitlines():
                rows[tuple(json.loads(line))] += 1
    return rows
