"""The wider topologies of random jobs: two inputs, broadcast, rebalance, side outputs, event time.

Each is a piece of a job file, as a person would write it, and what must come out of it, computed by plain loops. Like
all references (`jobs`) these are multisets that do not depend on the order in which records of different subtasks meet:

- what depends on both inputs of a function is told at the end of input, when everything has come;
- event time is a number's ten-fold; each source subtask gives its numbers in order, so no record is ever late, and a
  record that is finds its way into the output as a row that nobody expects.

Not here: drawing a job, sources and sinks (`jobs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, TypeAlias

Row: TypeAlias = tuple[int | str, ...]

MS_PER_NUMBER: Final = 10
WINDOW_MS: Final = 200
PANE_MS: Final = 1000

SPLIT: Final = """\
class Halves(ProcessFunction):
    def process(self, n, ctx):
        if n % 2:
            ctx.output("odd", ("odd", n))
        else:
            yield ("even", n)
"""

BOTH: Final = """\
class Both(CoProcessFunction):
    first = ValueState("first", default=0)
    second = ValueState("second", default=0)
    greatest = ReducingState("greatest", max)

    def process1(self, n, ctx):
        self.first.value += 1
        self.take(n, ctx)
        yield ("first", ctx.key, self.first.value)

    def process2(self, n, ctx):
        self.second.value += 1
        self.take(n, ctx)
        yield ("second", ctx.key, self.second.value)

    def take(self, n, ctx):
        self.greatest.add(n)
        ctx.timers.processing(2**50)

    def on_timer(self, timestamp, ctx):
        yield ("both", ctx.key, self.first.value + self.second.value, self.greatest.value)
"""

RULES: Final = """\
class Rules(CoProcessFunction):
    seen = ValueState("seen", default=0)
    rules = BroadcastState("rules")

    def process1(self, n, ctx):
        self.seen.value += 1
        ctx.timers.processing(2**50)
        yield ("seen", ctx.key, self.seen.value)

    def process2(self, rule, ctx):
        self.rules[rule % 7] = self.rules.get(rule % 7, 0) + 1

    def on_timer(self, timestamp, ctx):
        for rule, count in self.rules.items():
            yield ("rule", ctx.key, rule, count)
"""

# One split for each subtask, in order: what comes out of a subtask is never out of order.
ORDERED: Final = """\
class Ordered(SequenceSource):
    def splits(self):
        return [
            Split(str(i), {{"start": i, "end": {records}, "step": {width}, "index": i, "of": {width}}})
            for i in range({width})
        ]


class Windows(KeyedProcessFunction):
    counts = MapState("counts")

    def process(self, n, ctx):
        if ctx.timestamp != n * {ms_per_number} or ctx.timestamp <= ctx.watermark:
            yield ("late", n, ctx.timestamp, ctx.watermark)
        start = ctx.timestamp // {window_ms} * {window_ms}
        self.counts[start] = self.counts.get(start, 0) + 1
        ctx.timers.event(start + {window_ms} - 1)

    def on_timer(self, timestamp, ctx):
        start = timestamp + 1 - {window_ms}
        yield ("window", ctx.key, start, self.counts.pop(start))


class Panes(KeyedProcessFunction):
    total = ValueState("total", default=0)

    def process(self, window, ctx):
        if ctx.timestamp != window[2] + {window_ms} - 1 or ctx.timestamp <= ctx.watermark:
            yield ("late window", *window, ctx.timestamp, ctx.watermark)
        self.total.value += window[3]
        ctx.timers.event((ctx.key + 1) * {pane_ms} - 1)

    def on_timer(self, timestamp, ctx):
        yield ("pane", ctx.key, self.total.value)
        self.total.clear()
"""


def ordered_classes(records: int, width: int) -> str:
    """The classes of an event-time job with `width` source subtasks."""
    return ORDERED.format(
        records=records, width=width, ms_per_number=MS_PER_NUMBER, window_ms=WINDOW_MS, pane_ms=PANE_MS
    )


def halves_reference(records: int) -> Iterator[Row]:
    """Every number, by the way it took."""
    for n in range(records):
        yield ("odd" if n % 2 else "even", n)


def both_reference(records: int, keys: int) -> Iterator[Row]:
    """Running counts of both inputs (0..records-1 and the as many that follow), and what both came to at the end."""
    counts: Counter[tuple[str, int]] = Counter()
    greatest: dict[int, int] = {}
    for n in range(2 * records):
        side, key = "first" if n < records else "second", n % keys
        counts[side, key] += 1
        greatest[key] = n
        yield (side, key, counts[side, key])
    for key, n in greatest.items():
        yield ("both", key, counts["first", key] + counts["second", key], n)


def rules_reference(records: int, keys: int) -> Iterator[Row]:
    """Running counts of the numbers, and for each key all rules (the numbers that follow) at the end."""
    counts: Counter[int] = Counter()
    rules = Counter(n % 7 for n in range(records, 2 * records))
    for n in range(records):
        counts[n % keys] += 1
        yield ("seen", n % keys, counts[n % keys])
    for key in counts:
        for rule, count in rules.items():
            yield ("rule", key, rule, count)


def windows_reference(records: int, keys: int) -> Iterator[Row]:
    """How many numbers are in each window of each key, and in each pane of all."""
    windows: Counter[tuple[int, int]] = Counter()
    panes: Counter[int] = Counter()
    for n in range(records):
        at = n * MS_PER_NUMBER
        windows[n % keys, at // WINDOW_MS * WINDOW_MS] += 1
        panes[at // PANE_MS] += 1
    for (key, start), count in windows.items():
        yield ("window", key, start, count)
    for pane, count in panes.items():
        yield ("pane", pane, count)
