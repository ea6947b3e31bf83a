"""Alert when a sensor has been silent for a while.

Shows: processing-time timers; each reading moves the sensor's timer, and the one that fires tells of the silence.

    flowpoint run jobs/inactivity_alert.py --param output=out [--param silence=1000]

Five sensors send twenty readings each, one sensor after the other, a hundred readings a second in all. The numbers that
follow belong to no sensor; they keep the job alive until the last silence (in ms) has been noticed. Each line of the
output is [sensor, last reading].
"""

from flowpoint import Job, KeyedProcessFunction, ValueState
from flowpoint.connectors import FileSink, SequenceSource

RATE = 100
SENSORS = 5
READINGS = 20


class SilenceAlert(KeyedProcessFunction):
    last = ValueState("last", default=None)
    due = ValueState("due", default=None)

    def __init__(self, silence_ms):
        self.silence_ms = silence_ms

    def process(self, reading, ctx):
        if self.due.value is not None:
            ctx.timers.delete_processing(self.due.value)
        self.last.value = reading
        self.due.value = ctx.timers.now() + self.silence_ms
        ctx.timers.processing(self.due.value)

    def on_timer(self, timestamp, ctx):
        yield ctx.key, self.last.value
        self.due.clear()


def build(params):
    job = Job("inactivity-alert")
    silence_ms = int(params.get("silence", 1000))
    alive = SENSORS * READINGS + RATE * (silence_ms + 1000) // 1000
    (
        job.source(SequenceSource(0, alive, rate=RATE), uid="readings", parallelism=1)
        .filter(lambda n: n < SENSORS * READINGS, parallelism=1)
        .key_by(lambda n: f"sensor-{n // READINGS}")
        .process(SilenceAlert(silence_ms), uid="alerts")
        .sink(FileSink(params["output"], format="jsonl"), uid="out")
    )
    return job
