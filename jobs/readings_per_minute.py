"""Summarise sensor readings per minute of event time: out-of-order readings count, late ones go elsewhere.

Shows: `assign_timestamps`, event-time timers, keyed state per window, a side output for late records.

    flowpoint run jobs/readings_per_minute.py --param output=out [--param readings=20000]

Three sensors send a reading a second of event time, up to four seconds out of order; every ten-thousandth reading is two
hours late. `output/minutes` gets [sensor, start of the minute, readings, greatest value], once the minute is over;
`output/late` gets [sensor, timestamp] of the late ones.
"""

from flowpoint import Job, KeyedProcessFunction, MapState
from flowpoint.connectors import FileSink, SequenceSource

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS


def reading(n):
    """The n-th reading: sensor, epoch ms, value."""
    at = (n - n * 7 % 5) * SECOND_MS
    if n % 10_000 == 9_999:
        at -= 2 * HOUR_MS
    return {"sensor": f"sensor-{n % 3}", "at": max(at, 0), "value": n % 17}


class PerMinute(KeyedProcessFunction):
    counts = MapState("counts")
    greatest = MapState("greatest")

    def process(self, reading, ctx):
        start = ctx.timestamp // MINUTE_MS * MINUTE_MS
        end = start + MINUTE_MS - 1
        if end <= ctx.watermark:
            ctx.output("late", (ctx.key, ctx.timestamp))
            return
        self.counts[start] = self.counts.get(start, 0) + 1
        self.greatest[start] = max(self.greatest.get(start, reading["value"]), reading["value"])
        ctx.timers.event(end)

    def on_timer(self, timestamp, ctx):
        start = timestamp + 1 - MINUTE_MS
        yield ctx.key, start, self.counts.pop(start), self.greatest.pop(start)


def build(params):
    job = Job("readings-per-minute")
    minutes = (
        job.source(SequenceSource(0, int(params.get("readings", "20000"))), uid="numbers", parallelism=1)
        .map(reading, parallelism=1)
        .assign_timestamps(lambda r: r["at"], max_out_of_orderness="4s", uid="times", parallelism=1)
        .key_by(lambda r: r["sensor"])
        .process(PerMinute(), uid="minutes")
    )
    minutes.sink(FileSink(f"{params['output']}/minutes", format="jsonl"), uid="out")
    minutes.side_output("late").sink(FileSink(f"{params['output']}/late", format="jsonl"), uid="late")
    return job
