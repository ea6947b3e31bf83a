"""Sources and sinks of one's own may leave out what they have no use for: `async`, the context, `close`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowpoint import END, Job, Sink, SinkWriter, Source, Split
from flowpoint.connectors import CallbackSink, FileSink, PrintSink
from flowpoint.errors import UserCodeError
from flowpoint.runtime.connector_forms import full_reader, full_sink, full_writer
from flowpoint.runtime.contracts import SinkWithFiles


class Numbers(Source):
    def splits(self) -> list[Split]:
        return [Split("all")]

    def open(self, split: Split, position: Any, ctx: Any) -> Any:
        return NumbersReader(position or 0)


class NumbersReader:
    """As few methods as there can be."""

    def __init__(self, following: int) -> None:
        self.following = following

    async def read(self, n: int) -> Any:
        if self.following == 10:
            return END
        self.following += 1
        return [self.following - 1]

    def position(self) -> int:
        return self.following


class Collected(Sink):
    def __init__(self, target: list[Any]) -> None:
        self.target = target

    def open(self, ctx: Any) -> Any:
        return CollectedWriter()

    def commit(self, committable: Any) -> None:  # type: ignore[override]
        self.target.extend(committable)

    def abort(self, committable: Any) -> None:  # type: ignore[override]
        raise AssertionError("nobody aborts")


class CollectedWriter:
    def __init__(self) -> None:
        self.batch: list[Any] = []

    async def write(self, batch: list[Any]) -> None:
        self.batch.extend(batch)

    def prepare(self, checkpoint: int) -> Any:
        batch, self.batch = self.batch, []
        return batch or None


class Waiting(Collected):
    """With `async`, and without the context."""

    async def open(self, ctx: Any) -> Any:
        return CollectedWriter()

    async def commit(self, committable: Any) -> None:  # type: ignore[override]
        self.target.extend(committable)


class OfTheContractAlone:
    """No subclass of anything, and no more than has to be there."""

    def __init__(self, target: list[Any]) -> None:
        self.target = target

    def open(self, ctx: Any) -> Any:
        return CollectedWriter()

    async def commit(self, committable: Any) -> None:
        self.target.extend(committable)

    async def abort(self, committable: Any) -> None:
        raise AssertionError("nobody aborts")


class AsyncOfTheContractAlone(OfTheContractAlone):
    """In full form but for what the contract doesn't name."""

    async def open(self, ctx: Any) -> Any:
        return CollectedWriter()

    async def commit(self, committable: Any, ctx: Any = None) -> None:
        self.target.extend(committable)

    async def abort(self, committable: Any, ctx: Any = None) -> None:
        raise AssertionError("nobody aborts")


@pytest.mark.parametrize("kind", [Collected, Waiting, OfTheContractAlone, AsyncOfTheContractAlone])
def test_a_source_and_a_sink_of_the_fewest_methods_run_to_the_end(kind: type[Any]) -> None:
    target: list[int] = []
    job = Job("own", config={"parallelism": 1})
    job.source(Numbers(), uid="numbers").sink(kind(target), uid="out")

    job.run()

    assert target == list(range(10))


def test_what_such_a_sink_raises_is_the_users_and_names_the_sink() -> None:
    class Refusing(Collected):
        def commit(self, committable: Any) -> None:  # type: ignore[override]
            raise ValueError("no room")

    job = Job("own", config={"parallelism": 1, "restart": {"strategy": "none"}})
    job.source(Numbers(), uid="numbers").sink(Refusing([]), uid="out")

    with pytest.raises(UserCodeError, match="'out'.*commit.*no room"):
        job.run()


@pytest.mark.parametrize("sink", [FileSink("out"), PrintSink(), CallbackSink(print)])
def test_nothing_is_put_before_a_sink_in_full_form(sink: Sink) -> None:
    assert full_sink(sink) is sink


async def test_what_a_sink_need_not_have_is_as_the_base_class_has_it() -> None:
    sink = full_sink(cast(Any, OfTheContractAlone([])))

    await sink.begin(cast(Any, None))
    await sink.clean(cast(Any, None))

    assert sink.can_take_back is False


def test_a_source_that_is_derived_from_nothing_is_one() -> None:
    class Bare:
        def splits(self) -> list[Split]:
            return [Split("all")]

        def open(self, split: Split, position: Any, ctx: Any) -> Any:
            return NumbersReader(position or 0)

    target: list[int] = []
    job = Job("own", config={"parallelism": 1})
    job.source(cast(Any, Bare()), uid="numbers").sink(cast(Any, OfTheContractAlone(target)), uid="out")

    job.run()

    assert target == list(range(10))


async def test_a_sink_with_files_stays_one() -> None:
    class WithFiles(Collected):
        def files_of(self, committable: Any, ctx: Any) -> list[str]:
            return [str(committable)]

        def take_in(self, committable: Any, files: list[str], ctx: Any) -> Any:
            return files

    sink = full_sink(WithFiles([]))

    assert isinstance(sink, SinkWithFiles)
    assert await sink.files_of("a", cast(Any, None)) == ["a"]
    assert await sink.take_in("a", ["b"], cast(Any, None)) == ["b"]
    assert not isinstance(full_sink(Collected([])), SinkWithFiles)


async def test_what_an_author_closes_is_closed() -> None:
    closed: list[str] = []

    class Reader(NumbersReader):
        def close(self) -> None:
            closed.append("reader")

    class Writer(CollectedWriter):
        async def close(self) -> None:
            closed.append("writer")

    await full_reader(cast(Any, Reader(0))).close()
    await full_writer(cast(Any, Writer())).close()

    assert closed == ["reader", "writer"]


def test_nothing_is_put_before_a_writer_that_prepares_beside() -> None:
    class Beside(SinkWriter):
        prepares_beside = True

    writer = Beside()

    assert full_writer(writer) is writer
