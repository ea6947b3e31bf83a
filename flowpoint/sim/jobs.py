"""Random jobs for campaigns: a topology, a workload and settings drawn from the seed, and what must come out.

A job is drawn as a `JobShape` and written as the text of a job file, as a person would write it. Its reference is a
plain loop over the numbers, never the engine. Every topology's output is a multiset that does not depend on the order
in which records of different subtasks meet, so it is compared exactly.

A shape is drawn so that faults find it at work: most runs give their records over a part of a second up to a few,
with several checkpoints meanwhile.

Not here: faults (`faults`), how the job is run and judged on disk (`scenario`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from random import Random
from typing import Any, assert_never

from flowpoint.model.settings import CheckpointSettings, HeartbeatSettings, RestartSettings, Settings, StateSettings
from flowpoint.sim import topologies
from flowpoint.sim.topologies import Row as Row
from flowpoint.sim.world import EPOCH_MS, InvariantBroken

STORAGE = "/flowpoint/checkpoints/simulated"
OUTPUT = "/data/out"
INPUT = "/data/in"
JOB_FILE = "/data/job.py"
INPUT_FILES = 3
RANGES_PER_FILE = 2


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
    }
)
"""Where a record that comes twice adds rows and changes none, so that at least once can be told from loss."""


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
    return JobShape(
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
        # RocksDB writes its own files outside of any host; the conformance suite proves the two backends equal.
        state=StateSettings(backend="heap", cache_bytes=random.choice((100, 10_000, 1_000_000))),
        restart=RestartSettings(delay=random.choice((0.1, 1.0))),
        heartbeat=HeartbeatSettings(interval=heartbeat, timeout=heartbeat * random.choice((4, 10))),
    )


# ------------------------------------------------------------------ the job file


_HEAD = """\
from flowpoint import BroadcastState, CoProcessFunction, Job, KeyedProcessFunction, ListState, MapState
from flowpoint import ProcessFunction, ReducingState, ValueState
from flowpoint.connectors import FileSink, FileSource, SequenceSource
from flowpoint.runtime.contracts import Split
from flowpoint.sim.user_code import stumble
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
        yield ("length", ctx.key, len(self.numbers))
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

# The folder of a simulated machine cannot be listed while a job file is executed, so the splits are written down.
_FILES = """\
class Prepared(FileSource):
    def splits(self):
        return [Split(f"{{part['path']}}@{{part['start']}}", part) for part in {parts!r}]
"""

# Whatever is committed stays: a commit that comes too early is then seen in the output, not taken back.
_KEPT = """\
class KeptSink(FileSink):
    can_take_back = False

    async def _take_back(self, ctx):
        pass
"""


_SLOW = """\
class Slow:
    def __init__(self, writer, ctx):
        self.writer, self.ctx = writer, ctx

    async def write(self, batch):
        await self.ctx.clock.sleep({delay!r} * len(batch))
        await self.writer.write(batch)

    async def prepare(self, checkpoint):
        return await self.writer.prepare(checkpoint)

    async def close(self):
        await self.writer.close()


class SlowSink({base}):
    async def open(self, ctx):
        return Slow(await super().open(ctx), ctx)
"""


def job_text(shape: JobShape) -> str:
    """The job file of a shape."""
    sink = "FileSink" if shape.takes_back else "KeptSink"
    slow = _SLOW.format(delay=shape.sink_delay, base=sink) if shape.sink_delay else ""
    sink = "SlowSink" if shape.sink_delay else sink
    width = f", parallelism={shape.sink_parallelism}" if shape.sink_parallelism is not None else ""
    classes, stream = _stream(shape)
    return "\n".join(
        [
            _HEAD,
            classes,
            "" if shape.takes_back else _KEPT,
            slow,
            'job = Job("simulated")',
            f'{stream}.sink({sink}("{OUTPUT}", format="jsonl"), uid="out"{width})',
            "",
        ]
    )


def _stream(shape: JobShape) -> tuple[str, str]:
    """The classes that the job needs, and its stream up to the sink."""
    numbers = _source(shape, 0, "numbers")
    keyed = f".key_by(lambda n: n % {shape.keys})"
    match shape.topology:
        case Topology.COUNT:
            return "", f'{numbers}{keyed}.count(uid="counts")'
        case Topology.TWO_KEYED:
            again = f'.key_by(lambda pair: pair[1] % {shape.keys}).count(uid="counts_of_counts")'
            return "", f'{numbers}{keyed}.count(uid="counts"){again}'
        case Topology.UNION:
            more = _source(shape, shape.records, "more_numbers")
            return "", f'{numbers}.union({more}){keyed}.count(uid="counts")'
        case Topology.STATES:
            return _STATES, f'{numbers}{keyed}.process(Process(), uid="process")'
        case Topology.TIMERS:
            return _TIMERS, f'{numbers}{keyed}.process(Process(), uid="process")'
        case Topology.FILES:
            read = f'job.source(Prepared("{INPUT}"), uid="numbers"{_source_width(shape)}).map(int)'
            classes = _FILES.format(parts=_input_parts(shape))
            return classes, f'{read}{_stumble(shape, "numbers")}{keyed}.count(uid="counts")'
        case Topology.STATELESS:
            return "", f"{numbers}.filter(lambda n: n % 3 > 0).flat_map(lambda n: [(n, 0), (n, 1)])"
        case Topology.REBALANCED:
            middle = f'{numbers}.rebalance().map(lambda n: n, uid="middle")'
            return "", f'{middle}{keyed}.count(uid="counts").rebalance()'
        case _:
            return _wider_stream(shape, numbers, keyed)


def _wider_stream(shape: JobShape, numbers: str, keyed: str) -> tuple[str, str]:
    width = _source_width(shape)
    more = _source(shape, shape.records, "more_numbers")
    match shape.topology:
        case Topology.REBALANCE:
            return "", f'{numbers}.rebalance().map(lambda n: n + 1{width}){keyed}.count(uid="counts")'
        case Topology.SIDE_OUTPUT:
            halves = f'halves = {numbers}.process(Halves(), uid="halves"{width})'
            return topologies.SPLIT, f'{halves}\nhalves.union(halves.side_output("odd"))'
        case Topology.TWO_INPUTS:
            return topologies.BOTH, f'{numbers}{keyed}.connect({more}{keyed}).process(Both(), uid="both"{width})'
        case Topology.BROADCAST:
            return (
                topologies.RULES,
                f'{numbers}{keyed}.connect({more}.broadcast()).process(Rules(), uid="rules"{width})',
            )
        case Topology.EVENT_TIME:
            return _event_time_stream(shape, keyed)
        case _:
            raise AssertionError(f"{shape.topology} is not among the wider topologies")


def _event_time_stream(shape: JobShape, keyed: str) -> tuple[str, str]:
    subtasks = shape.source_parallelism or shape.settings.parallelism
    rate = f", rate={shape.rate}" if shape.rate is not None else ""
    numbers = f'job.source(Ordered(0, {shape.records}{rate}), uid="numbers", parallelism={subtasks})'
    assign = f".assign_timestamps(lambda n: n * {topologies.MS_PER_NUMBER}, uid='times', parallelism={subtasks})"
    windows = f'windows = {numbers}{assign}{_stumble(shape, "numbers")}{keyed}.process(Windows(), uid="windows")'
    by_pane = f".key_by(lambda window: window[2] // {topologies.PANE_MS})"
    panes = f'panes = windows{by_pane}.process(Panes(), uid="panes"{_source_width(shape)})'
    return topologies.ordered_classes(shape.records, subtasks), f"{windows}\n{panes}\nwindows.union(panes)"


def _source(shape: JobShape, first: int, uid: str) -> str:
    rate = f", rate={shape.rate}" if shape.rate is not None else ""
    sequence = f"SequenceSource({first}, {first + shape.records}{rate})"
    return f'job.source({sequence}, uid="{uid}"{_source_width(shape)}){_stumble(shape, uid)}'


def _source_width(shape: JobShape) -> str:
    return f", parallelism={shape.source_parallelism}" if shape.source_parallelism is not None else ""


def _stumble(shape: JobShape, uid: str) -> str:
    return f'.map(stumble, uid="stumble_{uid}")' if shape.shaky else ""


def input_files(shape: JobShape) -> Mapping[str, bytes]:
    """The files that the job reads."""
    if shape.topology is not Topology.FILES:
        return {}
    files: dict[str, bytes] = {}
    for index in range(INPUT_FILES):
        lines = "".join(f"{n}\n" for n in range(index, shape.records, INPUT_FILES))
        files[f"{INPUT}/{index}.txt"] = lines.encode()
    return files


def _input_parts(shape: JobShape) -> list[dict[str, object]]:
    """The files cut at any byte, as `FileSource.splits` describes ranges."""
    parts: list[dict[str, object]] = []
    for path, data in input_files(shape).items():
        cuts = [len(data) * i // RANGES_PER_FILE for i in range(RANGES_PER_FILE + 1)] if data else [0, 0]
        parts += [
            {"path": path, "start": start, "end": end, "size": len(data), "mtime_ms": EPOCH_MS}
            for start, end in pairwise(cuts)
        ]
    return parts


# ------------------------------------------------------------------ what must come out


def reference(shape: JobShape) -> Counter[Row]:
    """What the job must write, each row as often as given."""
    numbers = range(shape.records)
    match shape.topology:
        case Topology.COUNT | Topology.FILES | Topology.REBALANCED:
            rows = _running_counts(n % shape.keys for n in numbers)
        case Topology.UNION:
            rows = _running_counts(n % shape.keys for n in range(2 * shape.records))
        case Topology.TWO_KEYED:
            first = _running_counts(n % shape.keys for n in numbers)
            rows = _running_counts(int(count) % shape.keys for _, count in first)
        case Topology.STATES:
            rows = list(_states_reference(shape))
        case Topology.TIMERS:
            rows = [("seen", *row) for row in _running_counts(n % shape.keys for n in numbers)]
            # What waits for time when the input ends fires then.
            rows += [("timer", key) for key in range(min(shape.keys, shape.records))]
        case Topology.STATELESS:
            rows = [(n, copy) for n in numbers if n % 3 > 0 for copy in (0, 1)]
        case Topology.REBALANCE:
            rows = _running_counts((n + 1) % shape.keys for n in numbers)
        case Topology.SIDE_OUTPUT:
            rows = list(topologies.halves_reference(shape.records))
        case Topology.TWO_INPUTS:
            rows = list(topologies.both_reference(shape.records, shape.keys))
        case Topology.BROADCAST:
            rows = list(topologies.rules_reference(shape.records, shape.keys))
        case Topology.EVENT_TIME:
            rows = list(topologies.windows_reference(shape.records, shape.keys))
        case _:
            assert_never(shape.topology)
    return Counter(rows)


def _running_counts(keys: Iterable[int]) -> list[Row]:
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


def check_output(shape: JobShape, found: Counter[Row]) -> None:
    """Compare committed rows with the reference.

    At least once, rows may be given again, and counts go on above what they should be; none may be missing.

    Raises:
        InvariantBroken: rows are missing, doubled or wrong.
    """
    expected = reference(shape)
    missing, extra = expected - found, found - expected
    if shape.settings.checkpoint.mode == "at_least_once":
        extra = Counter()
    if missing or extra:
        raise InvariantBroken(
            f"the output is wrong: {missing.total()} rows are missing, such as {list(missing)[:3]}; "
            f"{extra.total()} are too many, such as {list(extra)[:3]}"
        )
