"""The job file of a random job, as a person would write it, and the files that it reads.

Not here: drawing a job (`jobs`), what must come out (`references`), the wider topologies (`topologies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from flowpoint.sim import topologies
from flowpoint.sim.jobs import OUTPUT, JobShape, Topology
from flowpoint.sim.world import EPOCH_MS

INPUT = "/data/in"
INPUT_FILES = 3
RANGES_PER_FILE = 2

_HEAD = """\
from flowpoint import BroadcastState, CoProcessFunction, Job, KeyedProcessFunction, ListState, MapState
from flowpoint import ProcessFunction, ReducingState, ValueState
from flowpoint.connectors import FileSource, SequenceSource
from flowpoint.runtime.contracts import Split
from flowpoint.sim.user_code import stumble
from flowpoint.sim.witnessed_sink import WitnessedSink
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
class KeptSink(WitnessedSink):
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


def job_text(shape: JobShape, classes: str = "") -> str:
    """The job file of a shape; `classes` takes the place of those that its topology has."""
    sink = "WitnessedSink" if shape.takes_back else "KeptSink"
    slow = _SLOW.format(delay=shape.sink_delay, base=sink) if shape.sink_delay else ""
    sink = "SlowSink" if shape.sink_delay else sink
    width = f", parallelism={shape.sink_parallelism}" if shape.sink_parallelism is not None else ""
    usual_classes, stream = _stream(shape)
    return "\n".join(
        [
            _HEAD,
            classes or usual_classes,
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
        case Topology.KEYED_MAP:
            middle = f'{numbers}.key_by(lambda n: n % 7).map(lambda n: n, uid="middle")'
            return "", f'{middle}{keyed}.count(uid="counts")'
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
    at = f"lambda n: n * {topologies.MS_PER_NUMBER}, max_out_of_orderness=0"
    assign = f".assign_timestamps({at}, uid='times', parallelism={subtasks})"
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
