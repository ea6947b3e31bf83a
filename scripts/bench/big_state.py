#!/usr/bin/env python3
"""What big state costs: recovery, rescale, incremental checkpoint, savepoint and verify, on a real job, in one run.

A job with 120-byte entries, half of them in each of two workers, is filled through its source; then a trickle of
updates goes on while each thing is done to it from the shell. Every subtask writes down when it processes a record, at
most once a millisecond: gaps between these stamps are the pauses.

scripts/bench/big_state.py [--mb 1000] [--backend rocksdb] [--keep]      exit 1 when a figure misses its target

Figures of small state say little: the targets are meant for 1000 MB on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from statistics import median
from struct import Struct
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ENTRY_BYTES = 120
CHANGE_SECONDS = 8.0
CHECKPOINTS = 10
MERGE_SECONDS = 2.0  # what a checkpoint has made durable is merged after it
STAMP = Struct("dddd")

JOB = """\
import gc
import os
import struct
import time

from flowpoint import Job, KeyedProcessFunction, ValueState
from flowpoint.connectors import PrintSink, SequenceSource

KEYS = {keys}
SCHEDULING = "/proc/thread-self/schedstat"  # its second number: ns for which the thread waited for a processor
collector = dict(begun=0.0, seconds=0.0)


def time_collector(phase, _):
    if phase == "start":
        collector["begun"] = time.thread_time()
    else:
        collector["seconds"] += time.thread_time() - collector["begun"]


gc.callbacks.append(time_collector)


class Keep(KeyedProcessFunction):
    value = ValueState("value", default="")

    def __init__(self):
        self.stamps = None
        self.stamped = 0.0
        self.scheduling = None

    def waited(self):
        return int(os.pread(self.scheduling, 64, 0).split()[1]) / 1e9 if self.scheduling else 0.0

    def process(self, number, ctx):
        self.value.value = f"{{number:0110d}}"
        now = time.monotonic()
        if now - self.stamped > 0.001:
            self.stamped = now
            if self.stamps is None:
                self.stamps = os.open({stamps!r} + f"/{{os.getpid()}}-{{id(self)}}", os.O_WRONLY | os.O_CREAT)
                self.scheduling = os.open(SCHEDULING, os.O_RDONLY) if os.path.exists(SCHEDULING) else None
            numbers = now, time.thread_time(), self.waited(), collector["seconds"]
            os.write(self.stamps, struct.pack("dddd", *numbers))
        return ()


job = Job("big-state")
filled = job.source(SequenceSource(0, KEYS), uid="fill")
updated = job.source(SequenceSource(KEYS, 10**12, rate={rate}), uid="updates")
(
    filled.union(updated)
    .key_by(lambda number: number * 2654435761 % KEYS)
    .process(Keep(), uid="keep")
    .sink(PrintSink(), uid="out")
)
"""


class Stamp(NamedTuple):
    """What a subtask notes when it processes a record, in seconds; of its thread, but for the moment.

    computed: the processor's time. waited: ready to run, while others had the processors. collected: of what it
    computed, the time of the garbage collector.
    """

    moment: float = 0.0
    computed: float = 0.0
    waited: float = 0.0
    collected: float = 0.0

    def since(self, before: Stamp) -> Stamp:
        """The differences."""
        return Stamp(*(mine - theirs for mine, theirs in zip(self, before, strict=True)))

    def made_of(self) -> str:
        """What a gap was made of. What is left is waiting for the interpreter, the disk or input."""
        return (
            f"{self.moment * 1000:.0f} ms = computed {self.computed * 1000:.0f} (collector {self.collected * 1000:.0f})"
            f" + waited for a processor {self.waited * 1000:.0f}"
            f" + else {max(0.0, self.moment - self.computed - self.waited) * 1000:.0f}"
        )


@dataclass
class Bench:
    """The job under measurement and what was measured."""

    folder: Path
    keys: int
    backend: str
    rows: list[tuple[str, float, str, float, bool]] = field(default_factory=list)

    @property
    def stamps(self) -> Path:
        return self.folder / "stamps"

    def prepare(self) -> None:
        """Write the job file."""
        self.stamps.mkdir()
        text = JOB.format(keys=self.keys, stamps=str(self.stamps), rate=round(self.keys / 100 / CHANGE_SECONDS))
        (self.folder / "job.py").write_text(text)

    def shell(self, *arguments: str) -> str:
        """Run one command of FlowPoint to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "flowpoint", *arguments],
            env=os.environ | {"FLOWPOINT_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"flowpoint {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout

    def data(self, *arguments: str) -> Any:
        """The same, with `--json`."""
        return json.loads(self.shell(*arguments, "--json"))

    def row(self, what: str, seen: float, unit: str, limit: float, *, at_most: bool = True) -> None:
        """Note and print one figure."""
        passed = seen <= limit if at_most else seen >= limit
        self.rows.append((what, seen, unit, limit, passed))
        sign = "<=" if at_most else ">="
        print(f"{'ok  ' if passed else 'MISS'}  {what:<58} {seen:>9.1f} {unit}  ({sign} {limit:g})", flush=True)

    def all_stamps(self, since: float) -> list[float]:
        """When records were processed, in any subtask."""
        return sorted(
            stamp.moment for path in self.stamps.iterdir() for stamp in stamps_in(path) if stamp.moment >= since
        )

    def gap_ms(self, since: float) -> float:
        """The longest time without a record, in ms."""
        return max((b - a for a, b in pairwise([since, *self.all_stamps(since)])), default=0.0) * 1000

    def gaps(self, since: float, until: float = float("inf")) -> list[Stamp]:
        """What passed between two records of one subtask, for all that begin in [since, until)."""
        return [
            after.since(before)
            for path in self.stamps.iterdir()
            for before, after in pairwise(stamps_in(path))
            if since <= before.moment < until
        ]

    def pause(self, what: str, since: float) -> None:
        """The longest time for which one subtask that goes on processed no record, and what it was made of."""
        gaps = self.gaps(since)
        longest = max(gaps, key=attrgetter("moment"), default=Stamp())
        busiest = max(gaps, key=attrgetter("computed"), default=Stamp())
        self.row(what, longest.moment * 1000, "ms", 50)
        print(f"      {longest.made_of()}; the most computed between two records: {busiest.made_of()}", flush=True)

    # ------------------------------------------------------------------ what is done

    def fill(self) -> None:
        """Start the job and wait until every key is there."""
        began = time.monotonic()
        self.shell(
            "run", "job.py", "-p", "2", "--detach", "--set", "checkpoint.interval=0",
            "--set", f"state.backend={self.backend}", "--set", "checkpoint.timeout=10m",
        )  # fmt: skip
        while self.data("status", "big-state")["records_in"] < self.keys:
            time.sleep(0.5)
        while not self.is_filled():
            time.sleep(1.0)
        print(f"      filled {self.keys:,} keys in {time.monotonic() - began:.0f} s", flush=True)

    def is_filled(self) -> bool:
        """Whether a new checkpoint shows that the source of the keys has ended."""
        taken = self.data("checkpoint", "big-state")
        print(f"      checkpoint: {taken['bytes'] / 1e6:.0f} MB in {taken['duration_ms'] / 1000:.1f} s", flush=True)
        path = self.folder / "home" / "checkpoints" / "big-state" / taken["path"]
        manifest = json.loads((path / "manifest.json").read_text())
        splits = [split for subtask in manifest["operators"]["fill"]["subtasks"] for split in subtask["splits"]]
        return all(split["ended"] for split in splits)

    def full_bytes(self) -> int:
        """The size of the state in the newest checkpoint, every entry counted once."""
        return self.keys * ENTRY_BYTES

    def checkpoints(self) -> None:
        """Ten checkpoints, with one per cent of the entries changed before each."""
        self.shell("checkpoint", "big-state")
        taken = []
        spans = []
        for _ in range(CHECKPOINTS):
            time.sleep(CHANGE_SECONDS)
            began = time.monotonic()
            taken.append(self.data("checkpoint", "big-state"))
            time.sleep(MERGE_SECONDS)
            spans.append((began, time.monotonic()))
        self.row("incremental checkpoint, % of the full one (median of 10)",
                 100 * median(one["bytes"] for one in taken) / self.full_bytes(), "%", 5)  # fmt: skip
        pauses = [max(self.gaps(*span), key=attrgetter("moment"), default=Stamp()) for span in spans]
        self.row("longest pause of the record path meanwhile (median of 10)",
                 1000 * median(pause.moment for pause in pauses), "ms", 50)  # fmt: skip
        print(f"      the longest of all: {max(pauses, key=attrgetter('moment')).made_of()}", flush=True)
        print(f"      they took {median(one['duration_ms'] for one in taken)} ms (median)", flush=True)

    def kill(self) -> None:
        """kill -9 of one worker of two."""
        self.shell("checkpoint", "big-state")
        victim = self.data("workers", "big-state")[0]["pid"]
        before = set(self.stamps.iterdir())
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        while not (set(self.stamps.iterdir()) - before):
            time.sleep(0.01)
        time.sleep(1.0)
        again = min(stamps_in(path)[0].moment for path in set(self.stamps.iterdir()) - before)
        self.row("recovery after kill -9: first record again", again - killed, "s", 3)
        time.sleep(5.0)
        self.pause("longest pause after that, while state moves over", again)

    def rescale(self, parallelism: int) -> None:
        """Go on with another parallelism."""
        began = time.monotonic()
        self.shell("rescale", "big-state", "-p", str(parallelism))
        took = time.monotonic() - began
        time.sleep(1.0)
        self.row(f"rescale to {parallelism}: pause", self.gap_ms(began) / 1000, "s", 5)
        print(f"      the command took {took:.1f} s", flush=True)

    def savepoint(self, workers: int) -> Path:
        """A savepoint, with so many workers."""
        made = self.data("savepoint", "big-state", "--to", str(self.folder / f"saved-{workers}"))
        speed = made["bytes"] / 1e6 / (made["duration_ms"] / 1000) / min(workers, os.cpu_count() or 1)
        self.row(f"savepoint with {workers} workers, a core", speed, "MB/s", 80, at_most=False)
        print(f"      {made['bytes'] / 1e6:.0f} MB in {made['duration_ms'] / 1000:.1f} s", flush=True)
        return Path(made["path"])

    def verify(self, snapshot: Path) -> None:
        """Prove a savepoint."""
        size = sum(path.stat().st_size for path in snapshot.rglob("*") if path.is_file())
        began = time.monotonic()
        self.shell("verify", str(snapshot))
        self.row("verify", size / 1e6 / (time.monotonic() - began), "MB/s", 80, at_most=False)

    def inspect(self, snapshot: Path) -> None:
        """Look one key up."""
        began = time.monotonic()
        self.shell("inspect", str(snapshot), "--operator", "keep", "--state", "value", "--key", "4711")
        print(f"      inspect --key took {(time.monotonic() - began) * 1000:.0f} ms, the command in all", flush=True)

    def run(self) -> bool:
        """Everything, in an order in which nothing disturbs what comes after it."""
        self.prepare()
        try:
            self.fill()
            self.checkpoints()
            snapshot = self.savepoint(2)
            self.kill()
            self.rescale(4)
            self.rescale(1)
            self.savepoint(1)
        finally:
            subprocess.run(
                [sys.executable, "-m", "flowpoint", "cancel", "big-state"],
                env=os.environ | {"FLOWPOINT_HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)},
                capture_output=True,
                check=False,
            )
        self.inspect(snapshot)
        self.verify(snapshot)
        return all(passed for *_, passed in self.rows)


def stamps_in(path: Path) -> list[Stamp]:
    """The stamps of a subtask."""
    data = path.read_bytes()
    return [Stamp(*numbers) for numbers in STAMP.iter_unpack(data[: len(data) // STAMP.size * STAMP.size])]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of the state, in millions of bytes")
    parser.add_argument("--backend", default="rocksdb", choices=("rocksdb", "heap"))
    parser.add_argument("--keep", action="store_true", help="leave the folder there")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flowpoint-big-state-"))
    print(f"{options.mb} MB of {ENTRY_BYTES}-byte entries, {options.backend}, in {folder}; "
          f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    try:
        passed = Bench(folder, options.mb * 1_000_000 // ENTRY_BYTES, options.backend).run()
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
