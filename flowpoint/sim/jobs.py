"""Random jobs for campaigns: a topology, a workload and settings drawn from the seed.

A shape is drawn so that faults find it at work: most runs give their records over a part of a second up to a few,
with several checkpoints meanwhile.

Not here: the job file of a shape (`job_text`), what must come out of it (`references`), faults (`faults`), how the job
is run and judged on disk (`scenario`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any, Final

from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings

STORAGE = "/flowpoint/checkpoints/simulated"
WORK_DIR = "/flowpoint/work"
OUTPUT = "/data/out"
JOB_FILE = "/data/job.py"


class Topology(StrEnum):
    """The jobs that are drawn from."""

    COUNT = "count"
    TWO_KEYED = "two_keyed"
    UNION = "union"
    STATES = "states"
    TIMERS = "timers"
    FILES = "files"
    STATELESS = "stateless"
    REBALANCED = "rebalanced"
    REBALANCE = "rebalance"
    SIDE_OUTPUT = "side_output"
    TWO_INPUTS = "two_inputs"
    BROADCAST = "broadcast"
    EVENT_TIME = "event_time"
    KEYED_MAP = "keyed_map"


GROWING = frozenset(
    {
        Topology.COUNT,
        Topology.TWO_KEYED,
        Topology.UNION,
        Topology.STATES,
        Topology.TIMERS,
        Topology.FILES,
        Topology.STATELESS,
        Topology.REBALANCED,
        Topology.REBALANCE,
        Topology.KEYED_MAP,
    }
)
"""Where a record that comes twice adds rows and changes none, so that at least once can be told from loss."""

TIMED = frozenset({Topology.STATES, Topology.TIMERS, Topology.TWO_INPUTS, Topology.BROADCAST, Topology.EVENT_TIME})
"""Where it shows in the output when time ends before the input does."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job: the numbers 0..records-1 go through `topology`, spread over `keys` keys.

    source_parallelism, sink_parallelism: of these operators, where they differ from the job's. In the wider topologies
    the source's is also that of the operator in the middle.
    shaky: a user function is in the way that raises now and then (`user_code.stumble`).
    takes_back: whether the sink can undo what it committed. One that cannot shows every commit that came too early.
    sink_delay: seconds that the sink takes for each record, so that queues fill up before it.
    """

    topology: Topology
    records: int
    keys: int
    rate: int | None
    settings: Settings
    source_parallelism: int | None = None
    sink_parallelism: int | None = None
    shaky: bool = False
    takes_back: bool = True
    sink_delay: float = 0.0

    def __str__(self) -> str:
        settings = self.settings
        pace = f"{self.rate} per second" if self.rate is not None else "flat out"
        return (
            f"{self.topology} of {self.records} records, {pace}, {self.keys} keys, parallelism {settings.parallelism} "
            f"on {settings.workers} workers, {checkpoint_text(settings.checkpoint)}"
        )


def checkpoint_text(settings: CheckpointSettings) -> str:
    """How a job's checkpoints are taken, in a few words."""
    how = "unaligned " if settings.unaligned else ""
    if settings.aligned_timeout:
        how = f"after {settings.aligned_timeout} s unaligned "
    if settings.mode == "at_least_once":
        how = "at-least-once "
    return f"a {how}checkpoint each {settings.interval} s, {settings.max_concurrent} at a time"


def draw_shape(random: Random) -> JobShape:
    """Draw a job."""
    parallelism = random.choice((1, 2, 2, 3, 3, 4))
    workers = random.randint(1, parallelism)
    settings = _draw_settings(random, parallelism, workers)
    topology = random.choice(list(Topology))
    records = random.choice((0, 60, 500, 500, 500, 2000, 2000, 4000))
    rate: int | None = None
    if topology is not Topology.FILES and random.random() < 0.6:
        rate = max(50, int(records / random.choice((0.5, 1.0, 2.0))))
    else:
        # As many as a run can have in reasonable time, so that it lasts a while in virtual time too.
        records = min(records * 4, 300 * settings.batch_size)
    # Together not more than some seconds, however many records there are and however many a barrier waits for.
    sink_delay = min(random.choice((0.0, 0.0, 0.0005, 0.005)), 4.0 / (records + 1), 1.0 / (32 * settings.batch_size))
    if settings.checkpoint.mode == "at_least_once" and topology not in GROWING:
        settings = replace(settings, checkpoint=replace(settings.checkpoint, mode="exactly_once"))
    if sink_delay:
        settings = replace(settings, checkpoint=replace(settings.checkpoint, timeout=5.0))
    shape = JobShape(
        topology=topology,
        records=records,
        keys=random.choice((1, 5, 40)),
        rate=rate,
        settings=settings,
        source_parallelism=random.choice((None, None, None, 1, 2)),
        sink_parallelism=random.choice((None, None, None, 1)),
        shaky=random.random() < 0.3,
        takes_back=random.random() < 0.6,
        sink_delay=sink_delay,
    )
    state = replace(settings.state, backend=random.choice(("heap", "rocksdb")))
    if state.backend == "rocksdb":
        state = replace(state, cache_bytes=max(state.cache_bytes, CACHE_BYTES_MIN))
    return replace(shape, settings=replace(settings, state=state))


CACHE_BYTES_MIN: Final = 20_000
"""Of a database's cache. With room for less than a few entries every record writes a file early, and on a slow disk the job
is at no end in time."""


def _draw_guarantee(random: Random) -> dict[str, Any]:
    """How barriers meet records: aligned and one or several at a time, unaligned sooner or later, at least once."""
    concurrent = random.choice((1, 1, 2, 3))
    match random.choice(("aligned", "aligned", "unaligned", "in_time", "at_least_once")):
        case "unaligned":
            return {"unaligned": True}
        case "in_time":
            return {"unaligned": True, "aligned_timeout": random.choice((0.005, 0.05))}
        case "at_least_once":
            return {"mode": "at_least_once", "max_concurrent": concurrent}
        case _:
            return {"max_concurrent": concurrent}


def _draw_settings(random: Random, parallelism: int, workers: int) -> Settings:
    heartbeat = random.choice((0.05, 0.5))
    return Settings(
        parallelism=parallelism,
        workers=workers,
        max_parallelism=random.choice((4, 128)),
        buffer_timeout=random.choice((0.0, 0.01, 0.05)),
        batch_size=random.choice((1, 16, 64, 1024)),
        checkpoint=CheckpointSettings(
            interval=random.choice((0.03, 0.1, 0.1, 0.4)),
            # Less is unfair to a slow machine: an attempt that is given no time for a checkpoint never gets anywhere.
            timeout=random.choice((1.0, 5.0)),
            tolerable_failures=random.choice((0, 0, 3)),
            min_pause=random.choice((0.0, 0.0, 0.05)),
            retained=random.choice((1, 2, 3, 3)),
            incremental=random.random() < 0.85,
            storage=f"file://{STORAGE}",
            **_draw_guarantee(random),
        ),
        state=StateSettings(backend="heap", cache_bytes=random.choice((100, 10_000, 1_000_000))),
        restart=RestartSettings(delay=random.choice((0.1, 1.0))),
        heartbeat=HeartbeatSettings(interval=heartbeat, timeout=heartbeat * random.choice((4, 10))),
    )
