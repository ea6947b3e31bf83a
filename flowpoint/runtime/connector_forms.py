"""Sources and sinks as authors may write them, made into the one form that the runtime calls.

An author may write without `async` what does not wait, `commit` and `abort` without the context, a reader or writer
without `close`, and a sink without `begin`, `clean` and `can_take_back`, which then are what `Sink` has. What is in full
form is returned as it is, and nothing is put between; anything else gets an object in front of it that forwards. Which
of the two is decided once: for a sink when the plan is compiled, for a reader or writer when it is opened, never per
batch.

Not here: whether it is a source or sink at all (`plan.validate`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from flowpoint.runtime.contracts import (
    ConnectorContext,
    EndOfSplit,
    PreparesBeside,
    Sink,
    SinkWithFiles,
    SinkWriter,
    SourceReader,
)

R = TypeVar("R")

_SINK_METHODS: Final = ("begin", "open", "commit", "abort", "clean")
_WRITER_METHODS: Final = ("write", "prepare", "close")
_READER_METHODS: Final = ("read", "close")


async def settled(outcome: R | Awaitable[R]) -> R:
    """What a method has returned, or what comes of it when it has to be awaited."""
    if inspect.isawaitable(outcome):
        awaited: R = await outcome
        return awaited
    return outcome


def full_sink(sink: Sink) -> Sink:
    """A sink all of whose methods are awaited, and take the context."""
    takes_all = _takes_context(sink.commit) and _takes_context(sink.abort)
    # A property is looked for and not run: it may say something only where the job runs.
    if takes_all and _waits(sink, _SINK_METHODS) and inspect.getattr_static(sink, "can_take_back", None) is not None:
        return sink
    return _SinkWithFilesInFull(sink) if isinstance(sink, SinkWithFiles) else _SinkInFull(sink)


def full_writer(writer: SinkWriter) -> SinkWriter:
    """A writer all of whose methods are there and are awaited."""
    if isinstance(writer, PreparesBeside) or _waits(writer, _WRITER_METHODS):
        return writer
    return _WriterInFull(writer)


def full_reader(reader: SourceReader) -> SourceReader:
    """A reader all of whose methods are there and are awaited."""
    return reader if _waits(reader, _READER_METHODS) else _ReaderInFull(reader)


def _waits(connector: object, methods: tuple[str, ...]) -> bool:
    return all(inspect.iscoroutinefunction(getattr(connector, name, None)) for name in methods)


def _takes_context(method: Callable[..., object]) -> bool:
    try:
        inspect.signature(method).bind(None, None)
    except TypeError:
        return False
    return True


async def _call_if_there(connector: object, name: str, *arguments: object) -> None:
    method = getattr(connector, name, None)
    if method is not None:
        await settled(method(*arguments))


class _SinkInFull:
    """Forwards to a sink with other forms of methods."""

    def __init__(self, sink: Sink) -> None:
        self._sink: Any = sink
        self._commits_in_context = _takes_context(sink.commit)
        self._aborts_in_context = _takes_context(sink.abort)

    @property
    def can_take_back(self) -> bool:
        return bool(getattr(self._sink, "can_take_back", False))

    async def begin(self, ctx: ConnectorContext) -> None:
        await _call_if_there(self._sink, "begin", ctx)

    async def open(self, ctx: ConnectorContext) -> SinkWriter:
        writer: SinkWriter = await settled(self._sink.open(ctx))
        return writer

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        await settled(self._sink.commit(committable, *([ctx] if self._commits_in_context else [])))

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        await settled(self._sink.abort(committable, *([ctx] if self._aborts_in_context else [])))

    async def clean(self, ctx: ConnectorContext) -> None:
        await _call_if_there(self._sink, "clean", ctx)


class _SinkWithFilesInFull(_SinkInFull):
    """The same for one whose output travels in savepoints."""

    async def files_of(self, committable: Any, ctx: ConnectorContext) -> list[str]:
        files: list[str] = await settled(self._sink.files_of(committable, ctx))
        return files

    async def take_in(self, committable: Any, files: list[str], ctx: ConnectorContext) -> Any:
        return await settled(self._sink.take_in(committable, files, ctx))


class _WriterInFull:
    """Forwards to a writer with other forms of methods."""

    def __init__(self, writer: SinkWriter) -> None:
        self._writer: Any = writer

    async def write(self, batch: list[Any]) -> None:
        await settled(self._writer.write(batch))

    async def prepare(self, checkpoint: int) -> Any:
        return await settled(self._writer.prepare(checkpoint))

    async def close(self) -> None:
        await _call_if_there(self._writer, "close")


class _ReaderInFull:
    """Forwards to a reader with other forms of methods."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader: Any = reader

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        records: list[Any] | EndOfSplit = await settled(self._reader.read(n))
        return records

    def position(self) -> Any:
        return self._reader.position()

    async def close(self) -> None:
        await _call_if_there(self._reader, "close")
