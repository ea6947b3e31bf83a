"""User code of the named cases: what it saw is told to the test, and the test tells it when to fail.

Job files import this module, so one `witness` is shared by all simulated processes of a test, as a database beside the
machine would be. `stage` resets it before each run.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from flowpoint import Sink, SinkWriter
from flowpoint.connectors import FileSink
from flowpoint.errors import StorageError
from flowpoint.runtime.contracts import END, ConnectorContext, Split

T = TypeVar("T")

LOG = "/data/log"


class Witness:
    """What was seen, in order; how often things shall go wrong, by name; and a target that is written to by key."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.failures: dict[str, int] = {}
        self.target: dict[Any, Any] = {}

    def reset(self) -> None:
        self.seen.clear()
        self.failures.clear()
        self.target.clear()

    def fails(self, name: str) -> bool:
        """Whether this one shall fail; it is counted."""
        left = self.failures.get(name, 0)
        self.failures[name] = max(0, left - 1)
        return left > 0


witness = Witness()


def see(value: T) -> T:
    """For `map`: note what comes by."""
    witness.seen.append(value)
    return value


class LogSource:
    """The lines of a file that grows, as ints; a line "end" ends it. The position is the count of lines read."""

    def splits(self) -> list[Split]:
        return [Split("log")]

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> _LogReader:
        return _LogReader(position or 0, ctx)


class _LogReader:
    def __init__(self, position: int, ctx: ConnectorContext) -> None:
        self._position = position
        self._ctx = ctx

    async def read(self, n: int) -> Any:
        lines = (await self._ctx.disk.read(LOG)).decode().split()[self._position :][:n]
        if lines == ["end"]:
            return END
        numbers = [int(line) for line in lines if line != "end"]
        self._position += len(numbers)
        return numbers

    def position(self) -> int:
        return self._position

    async def close(self) -> None:
        """Nothing is open."""


class RefusingSink(FileSink):
    """A target that takes records and refuses them when they are to be made durable (AC-26)."""

    async def open(self, ctx: ConnectorContext) -> Any:
        return _RefusingWriter(await super().open(ctx))


class _RefusingWriter:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.write, self.close = inner.write, inner.close

    async def prepare(self, checkpoint: int) -> Any:
        committable = await self._inner.prepare(checkpoint)
        if witness.fails("prepare"):
            raise StorageError("the target refuses what it had taken")
        return committable


class SlowlyRefusingSink(FileSink):
    """A target that is written to beside the stream, has no answer for 400 to 499 for 5 s, and then refuses (AC-26)."""

    async def open(self, ctx: ConnectorContext) -> Any:
        return _SlowlyRefusingWriter(await super().open(ctx))


class _SlowlyRefusingWriter:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._unconfirmed: asyncio.Task[None] | None = None

    async def write(self, batch: list[Any]) -> None:
        await self._inner.write(batch)
        refused = any(400 <= n < 500 for (n,) in batch)
        if refused and self._unconfirmed is None and witness.fails("target"):
            witness.seen.append("refused")
            self._unconfirmed = asyncio.create_task(self._refuse())

    async def _refuse(self) -> None:
        await asyncio.sleep(5.0)
        witness.seen.append("failed")
        raise StorageError("the target had no room for 400 to 499 after 5 s")

    async def prepare(self, checkpoint: int) -> Any:
        if self._unconfirmed is not None:
            await self._unconfirmed
        return await self._inner.prepare(checkpoint)

    async def close(self) -> None:
        if self._unconfirmed is not None:
            self._unconfirmed.cancel()
        await self._inner.close()


class HangingSink(FileSink):
    """A target that gives no answer to a commit."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        if witness.fails("commit"):
            await asyncio.Event().wait()
        await super().commit(committable, ctx)


class CommitNotHeardSink(FileSink):
    """Commits, and the answer is lost (AC-27)."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        await super().commit(committable, ctx)
        if witness.fails("commit answer"):
            raise StorageError("the answer to a commit is lost")


class CommitFailsSink(FileSink):
    """Raises instead of committing (AC-12)."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        if witness.fails("commit"):
            raise StorageError("the commit is refused")
        await super().commit(committable, ctx)


class UpsertSink:
    """Keeps the newest value of each key in memory until a checkpoint, and writes it to `witness.target` (AC-25)."""

    can_take_back = False

    async def begin(self, ctx: ConnectorContext) -> None:
        """Nothing to claim."""

    async def open(self, ctx: ConnectorContext) -> Any:
        return _UpsertWriter()

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        witness.target.update(committable)

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        """Nothing is anywhere."""

    async def clean(self, ctx: ConnectorContext) -> None:
        """Nothing is left behind."""


class _UpsertWriter:
    def __init__(self) -> None:
        self._newest: dict[str, Any] = {}

    async def write(self, batch: list[Any]) -> None:
        self._newest.update(batch)

    async def prepare(self, checkpoint: int) -> Any:
        newest, self._newest = self._newest, {}
        return newest or None

    async def close(self) -> None:
        """What is in memory is gone."""


class PreparedRowsSink(Sink):
    """A database beside the machine, by the contract's methods alone: `witness.target` maps a name to (is visible, rows)."""

    can_take_back = False

    async def open(self, ctx: ConnectorContext) -> Any:
        return _PreparedRowsWriter(f"a{ctx.attempt}-{ctx.subtask}")

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        witness.seen.append(("commit", committable))
        witness.target[committable] = (True, witness.target[committable][1])

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        witness.seen.append(("abort", committable))
        if witness.fails("abort"):
            raise OSError("the database does not answer")
        witness.target.pop(committable, None)


class _PreparedRowsWriter(SinkWriter):
    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[Any] = []

    async def write(self, batch: list[Any]) -> None:
        self._rows += batch

    async def prepare(self, checkpoint: int) -> Any:
        name, rows, self._rows = f"{self._name}-{checkpoint}", self._rows, []
        witness.target[name] = (False, rows)
        return name


class LateSink(FileSink):
    """A target that takes 1 s to prepare when it is told to be late, and then fails when it is told to fail."""

    async def open(self, ctx: ConnectorContext) -> Any:
        return _LateWriter(await super().open(ctx), ctx)


class _LateWriter:
    def __init__(self, inner: Any, ctx: ConnectorContext) -> None:
        self._inner, self._ctx = inner, ctx
        self.write, self.close = inner.write, inner.close

    async def prepare(self, checkpoint: int) -> Any:
        committable = await self._inner.prepare(checkpoint)
        if witness.fails("late"):
            await self._ctx.clock.sleep(1.0)
            if witness.fails("prepare"):
                raise StorageError("the target refuses what it had taken")
        return committable
