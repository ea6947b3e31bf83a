"""Runs real subtasks on a loop with virtual time, between fakes that a test looks at.

`run(main)` takes no time however long `main` sleeps; with `order` (a seed) callbacks run in a random order, which is
how races are tried out.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

from flowpoint.model import messages
from flowpoint.model.plan import Partition, SubtaskId
from flowpoint.runtime.attempt import first_cause
from flowpoint.runtime.contracts import END, ConnectorContext, Split
from flowpoint.runtime.inputs import InputGate
from flowpoint.runtime.outputs import EdgeOutput, Outputs
from flowpoint.runtime.parts import SinkPart
from flowpoint.runtime.pipeline import Pipeline
from flowpoint.runtime.processing_subtask import Channel, ProcessingSubtask
from flowpoint.runtime.source_subtask import SourcePart, SourceSubtask, SplitState
from flowpoint.runtime.subtask_parts import SubtaskParts
from flowpoint.sim.loop import SimLoop
from flowpoint.transport.inbox import LocalChannel
from tests.unit.runtime.fakes import CODEC, FakeOutlet

ATTEMPT = 3
BUFFER_TIMEOUT = 0.01


def run(main, order=None):
    """Run a coroutine in virtual time."""
    loop = SimLoop(None if order is None else Random(order))
    try:
        return loop.run_until_complete(main)
    finally:
        loop.dispose()


def connector_context(uid="connector"):
    return ConnectorContext(uid, 0, 1, "lineage", ATTEMPT, disk=None, clock=None)


class Running:
    """A subtask that runs, and what came out of it."""

    def __init__(self, subtask, outlets, reports, logs):
        self.subtask = subtask
        self.outlets = outlets
        self.reports = reports
        self.logs = logs
        self.task = None

    @property
    def records(self):
        """What came out of the first channel."""
        return self.outlets[0].records

    def reported(self, kind):
        return [message for message in self.reports if isinstance(message, kind)]

    def acked(self, checkpoint):
        """The operators of an acknowledgement."""
        return next(ack.operators for ack in self.reported(messages.Ack) if ack.checkpoint == checkpoint)

    def positions(self, checkpoint, uid="source"):
        """split id -> position, as acknowledged."""
        return {split["id"]: split["position"] for split in self.acked(checkpoint)[uid]["splits"]}

    def trigger(self, checkpoint, **more):
        message = messages.Trigger(ATTEMPT, checkpoint, **{"kind": "checkpoint", "halt": False, "final": False, **more})
        self.subtask.trigger(message)

    async def failure(self):
        """What the subtask failed with."""
        await asyncio.wait([self.task])
        return first_cause(self.task.exception())

    async def stop(self):
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def running(it):
    """Let a subtask run inside the block."""
    it.task = asyncio.create_task(it.subtask.run())
    try:
        yield it
    finally:
        await it.stop()


def build(
    operators=(),
    outlets=None,
    parts=(),
    batch_size=1024,
    clock=None,
    slice_max=1024,
    partition="rebalance",
    timed=False,
    restored=(),
    write_channels=None,
    entries=(),
):
    """`SubtaskParts` around a pipeline, with fakes to look at."""
    outlets = [FakeOutlet()] if outlets is None else outlets
    wakeup = asyncio.Event()
    reports, logs = [], []
    edge = EdgeOutput("op", Partition(partition), outlets, batch_size, CODEC.copy, timed=timed)
    edges = [edge] if outlets else []
    built = SubtaskParts(
        called="tested#0",
        id=SubtaskId(1, 0),
        attempt=ATTEMPT,
        pipeline=Pipeline(list(operators), None, entries=entries),
        outputs=Outputs(edges, BUFFER_TIMEOUT, wakeup.set),
        parts=list(parts),
        wakeup=wakeup,
        report=reports.append,
        clock_ms=clock or WallClock(),
        log=logs.append,
        slice_max=slice_max,
        restored=list(restored),
        write_channels=write_channels,
    )
    return built, outlets, reports, logs


class WallClock:
    """Wall time: the loop's, and as much as the test lets it jump. Epoch ms."""

    def __init__(self):
        self.jumped = 1_000_000

    def __call__(self):
        return round(asyncio.get_running_loop().time() * 1000) + self.jumped


# ---------------------------------------------------------------- sources


class ListReader:
    """Reads `values` from `position` on, at most `per_read` at a time, each read after `delay` seconds."""

    def __init__(self, values, position=0, per_read=1_000_000, delay=0.0):
        self.values = values
        self.at = position
        self.per_read = per_read
        self.delay = delay
        self.reads = 0
        self.closed = 0

    async def read(self, n):
        self.reads += 1
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.at >= len(self.values):
            return END
        values = self.values[self.at : self.at + min(n, self.per_read)]
        self.at += len(values)
        return values

    def position(self):
        return self.at

    async def close(self):
        self.closed += 1


class EndlessReader(ListReader):
    """The same, but after the last value there is just nothing, now."""

    async def read(self, n):
        values = await super().read(n)
        return [] if values is END else values


class FakeSource:
    """Opens the readers it was made with; `opened` says which, with which position."""

    def __init__(self, readers, open_delay=0.0):
        self.readers = readers
        self.open_delay = open_delay
        self.opened = []

    async def open(self, split, position, ctx):
        if self.open_delay:
            await asyncio.sleep(self.open_delay)
        self.opened.append((split.id, position))
        reader = self.readers[split.id]
        if isinstance(reader, Exception):
            raise reader
        return reader


def source(readers, positions=None, ended=(), batch_size=1024, open_delay=0.0, **more):
    """A source subtask over readers by split id (one reader: split "s")."""
    readers = readers if isinstance(readers, dict) else {"s": readers}
    splits = [SplitState(Split(name), (positions or {}).get(name), name in ended) for name in readers]
    part = SourcePart("source", FakeSource(readers, open_delay), connector_context("source"), splits)
    built, outlets, reports, logs = build(parts=[part, *more.pop("parts", ())], batch_size=batch_size, **more)
    return Running(SourceSubtask(built, part, batch_size), outlets, reports, logs)


# ---------------------------------------------------------------- processing


class Processing(Running):
    """A processing subtask, with its channels."""

    def __init__(self, channels=1, exactly_once=True, timed=False, ports=None, unaligned=None, forward=(), **more):
        built, outlets, reports, logs = build(timed=timed, **more)
        self.channels = [LocalChannel() for _ in range(channels)]
        gate = InputGate([channel.inbox for channel in self.channels], built.wakeup.set)
        known = [
            Channel(port, timed, may_be_overtaken=number not in forward)
            for number, port in enumerate(ports or [0] * channels)
        ]
        subtask = ProcessingSubtask(built, gate, known, exactly_once=exactly_once, unaligned=unaligned)
        super().__init__(subtask, outlets, reports, logs)

    def send(self, *values, channel=0, at=None):
        self.channels[channel].send_batch(list(values), at)

    def event(self, event, channel=0):
        self.channels[channel].send_event(event)


class FakeSink:
    """Keeps what is written, prepared and committed."""

    def __init__(self, write_delay=0.0):
        self.write_delay = write_delay
        self.written = []
        self.sizes = []
        self.commits = []
        self.closed = 0
        self.committing = None
        """Set by a test: an event that commits wait for."""

    async def write(self, batch):
        if self.write_delay:
            await asyncio.sleep(self.write_delay)
        self.sizes.append(len(batch))
        self.written += batch

    async def prepare(self, checkpoint):
        prepared, self.written = self.written, []
        return {"records": prepared} if prepared else None

    async def commit(self, committable, ctx):
        if self.committing is not None:
            await self.committing.wait()
        self.commits.append(committable["records"])

    async def close(self):
        self.closed += 1

    async def open(self, ctx):
        return self


async def no_savepoint(uid, chain, frozen, folder):
    raise AssertionError(f"nobody asked for savepoint {folder}")


async def no_files(uid, files, folder):
    raise AssertionError(f"nobody asked for savepoint {folder}")


def sink_part(sink, uid="sink"):
    part = SinkPart(uid, sink, connector_context(uid), no_files)
    part.writer = sink
    return part


class FakeFrozen:
    """What one freeze took out of a `FakeBackend`."""

    def __init__(self, backend, entries, full):
        self.backend = backend
        self.content = entries
        self.full = full
        self.replaces = backend.replaces

    def durable(self):
        self.backend.ended.append("durable")

    def failed(self):
        self.backend.ended.append("failed")
        self.backend.dirty = {**self.content, **self.backend.dirty}


class FakeBackend:
    """Keyed state that only knows freezing. `spilling` says whether it wants to be frozen early."""

    def __init__(self):
        self.dirty = {}
        self.ended = []
        self.replaces = 0
        self.spilling = False
        self.merges = 0
        self.closed = 0

    def freeze(self, *, full=False):
        entries, self.dirty = self.dirty, {}
        self.spilling = False
        return FakeFrozen(self, entries, full)

    def schemas(self):
        return {"value": {"kind": "value"}}

    is_unread = False

    def needs_spill(self):
        return self.spilling

    def merge_some(self):
        self.merges += 1
        return False

    def merge_steps(self, records):
        return 1

    def close(self):
        self.closed += 1
