#!/usr/bin/env python3
"""How long a checkpoint takes while queues are full: aligned and unaligned, in one run.

The job's sink, behind a `rebalance`, takes 1 ms a record, and its source gives as much as it is allowed to. Printed are
the median duration of the checkpoints of each kind, in ms, and the ratio. Exit 1 when the unaligned one takes over a
second, or the aligned one less than ten times as long.

scripts/bench/unaligned.py [--rounds 3] [--blocking]      --blocking: the sink sleeps in its thread and not in asyncio
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILL_SECONDS = 5.0
UNALIGNED_MS_MAX = 1000
RATIO_MIN = 10

JOB = """\
import asyncio
import time
from flowpoint import Job
from flowpoint.connectors import SequenceSource


class Writer:
    async def write(self, batch):
        for _ in batch:
            {sleep}(0.001)

    async def prepare(self, checkpoint):
        return None

    async def close(self):
        pass


class SlowSink:
    guarantee = "at-least-once"
    can_take_back = True

    async def begin(self, ctx):
        pass

    async def open(self, ctx):
        return Writer()

    async def commit(self, committable, ctx):
        pass

    abort = commit

    async def clean(self, ctx):
        pass


job = Job("{name}")
job.source(SequenceSource(0, 100_000_000), uid="numbers").rebalance().sink(SlowSink(), uid="out")
"""


def flowpoint(home: Path, *words: str) -> str:
    """Run a command and give its output."""
    environment = {**os.environ, "FLOWPOINT_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "flowpoint", *words], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"flowpoint {' '.join(words)} exited with {done.returncode}:\n{done.stderr}")
    return done.stdout


def measure(folder: Path, name: str, rounds: int, *, unaligned: bool, blocking: bool) -> float:
    """The median duration of some checkpoints under back-pressure, in ms."""
    job = folder / f"{name}.py"
    job.write_text(JOB.format(name=name, sleep="time.sleep" if blocking else "await asyncio.sleep"))
    settings = [f"checkpoint.unaligned={str(unaligned).lower()}", "checkpoint.interval=0"]
    chosen = [word for setting in settings for word in ("--set", setting)]
    flowpoint(folder, "run", str(job), "-p", "2", "--detach", *chosen)
    try:
        time.sleep(FILL_SECONDS)
        for _ in range(rounds):
            flowpoint(folder, "checkpoint", name)
            time.sleep(1)
        records: list[dict[str, Any]] = json.loads(flowpoint(folder, "checkpoints", name, "--json"))
        return median(record["duration_ms"] for record in records if record["state"] == "completed")
    finally:
        flowpoint(folder, "cancel", name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocking", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fp-") as temporary:
        folder = Path(temporary)
        unaligned = measure(folder, "overtaking", options.rounds, unaligned=True, blocking=options.blocking)
        print(f"unaligned {unaligned:.0f} ms", flush=True)
        aligned = measure(folder, "aligned", options.rounds, unaligned=False, blocking=options.blocking)
    print(f"aligned {aligned:.0f} ms, {aligned / unaligned:.0f} times as long")
    return 0 if unaligned < UNALIGNED_MS_MAX and aligned > RATIO_MIN * unaligned else 1


if __name__ == "__main__":
    sys.exit(main())
