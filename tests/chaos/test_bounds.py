"""Nothing grows without bound: a sink that is slow slows the source down, and memory stays where it is."""

from __future__ import annotations

import time

import psutil

from tests.e2e.shell import Shell

PAYLOAD_BYTES = 4000
UNDER_WAY_MAX = 10_000
"""Records that may have been read and not written: all windows, batches and kernel buffers together hold fewer."""
WATCHED_SECONDS = 4.0
GROWTH_MAX_MB = 60

SLOW = f"""
import asyncio
from flowpoint import Job, Sink, SinkWriter
from flowpoint.connectors import SequenceSource


class Writer(SinkWriter):
    async def write(self, batch):
        await asyncio.sleep(len(batch) * 0.001)

    async def prepare(self, checkpoint):
        return None

    async def close(self):
        pass


class Slow(Sink):
    can_take_back = True

    async def begin(self, ctx):
        pass

    async def open(self, ctx):
        return Writer()

    async def commit(self, committable, ctx):
        pass

    async def abort(self, committable, ctx):
        pass

    async def clean(self, ctx):
        pass


job = Job("slow")
(
    job.source(SequenceSource(0, 1_000_000_000), uid="numbers")
    .map(lambda n: (n % 100, "x" * {PAYLOAD_BYTES}), uid="big")
    .key_by(lambda row: row[0])
    .reduce(lambda old, new: new, uid="newest")
    .sink(Slow(), uid="out")
)
"""


def test_behind_a_slow_sink_the_source_waits_and_the_memory_of_workers_stays_where_it_is(shell: Shell) -> None:
    shell.write("job.py", SLOW)
    running = shell.start("run", "job.py", "-p", "2", "--json", "--set", "checkpoint.interval=0")
    shell.wait_for_status("slow", lambda status: status["records_out"] > 2000)
    workers = [psutil.Process(pid) for pid in shell.worker_pids("slow")]

    def memory() -> float:
        return sum(worker.memory_info().rss for worker in workers) / 1e6

    sizes: list[float] = []
    end = time.monotonic() + WATCHED_SECONDS
    running.wait_until(lambda: sizes.append(memory()) or time.monotonic() > end, "a few seconds")
    status = shell.status("slow")
    shell.run_ok("cancel", "slow")
    running.wait()

    assert status["backpressure"] > 0.5
    assert status["records_in"] - status["records_out"] < UNDER_WAY_MAX
    # Unbounded, it would be some hundred MB a second.
    assert max(sizes) - sizes[0] < GROWTH_MAX_MB, f"{sizes[0]:.0f} MB became {max(sizes):.0f} MB"
    print(
        f"{sizes[0]:.0f} MB, then at most {max(sizes):.0f} MB; {status['records_in']} in, {status['records_out']} out"
    )
