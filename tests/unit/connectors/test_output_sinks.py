"""PrintSink and CallbackSink hand out each record at once, and say that some may come again."""

from __future__ import annotations

import pytest

from flowpoint.connectors import CallbackSink, CollectionSource, FileSink, FileSource, PrintSink, SequenceSource
from flowpoint.errors import BadRecordError, PlanError, UserCodeError
from flowpoint.runtime.contracts import HasGuarantee, Sink, Source
from tests.unit.connectors.conftest import World


async def test_print_sink_prints_a_line_per_record(memory: World, capsys: pytest.CaptureFixture[str]) -> None:
    writer = await PrintSink().open(memory.context())

    await writer.write([])
    await writer.write(["a", 1, ("b", 2)])

    assert capsys.readouterr().out == "a\n1\n('b', 2)\n"


async def test_callback_sink_calls_plain_and_async_functions_in_order(memory: World) -> None:
    seen: list[int] = []

    async def later(value: int) -> None:
        seen.append(value * 10)

    await (await CallbackSink(seen.append).open(memory.context())).write([1, 2])
    await (await CallbackSink(later).open(memory.context())).write([3, 4])

    assert seen == [1, 2, 30, 40]


async def test_when_the_callback_fails_then_sink_record_and_error_are_named(memory: World) -> None:
    def fail(value: int) -> None:
        raise ValueError("no room")

    writer = await CallbackSink(fail).open(memory.context(uid="alerts"))

    with pytest.raises(UserCodeError, match="sink 'alerts' failed with ValueError: no room; the record was 7") as error:
        await writer.write([7])
    assert isinstance(error.value.__cause__, ValueError)


async def test_nothing_is_held_back_and_nothing_can_be_taken_back(memory: World) -> None:
    sink = PrintSink()
    context = memory.context()
    await sink.begin(context)
    writer = await sink.open(context)

    await writer.prepare(1)
    await writer.close()
    await sink.commit(None, context)
    await sink.abort(None, context)
    await sink.clean(context)

    assert not sink.can_take_back


def test_a_callback_must_be_callable() -> None:
    with pytest.raises(PlanError, match="not a function"):
        CallbackSink("print")  # type: ignore[arg-type]


def test_every_connector_says_what_it_guarantees() -> None:
    sources: list[Source] = [FileSource("x"), CollectionSource([]), SequenceSource(0, 1)]
    sinks: list[Sink] = [FileSink("x"), PrintSink(), CallbackSink(print)]

    assert [connector.guarantee for connector in [*sources, *sinks] if isinstance(connector, HasGuarantee)] == [
        "replayable: exactly-once",
        "replayable: exactly-once",
        "replayable: exactly-once",
        "exactly-once",
        "at-least-once",
        "at-least-once",
    ]


def _nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


async def test_what_is_nested_too_deeply_to_be_printed_is_refused_by_its_type(
    memory: World, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = await PrintSink().open(memory.context(uid="shown"))

    with pytest.raises(BadRecordError, match="sink 'shown' cannot print a value of type list: .*; flatten it"):
        await writer.write(["a", _nested(1200)])
    assert capsys.readouterr().out == ""


async def test_a_record_that_cannot_be_shown_does_not_hide_what_the_callback_raised(memory: World) -> None:
    def fail(value: object) -> None:
        raise ValueError("no room")

    writer = await CallbackSink(fail).open(memory.context(uid="alerts"))

    with pytest.raises(UserCodeError, match="failed with ValueError: no room; the record was <list"):
        await writer.write([_nested(1200)])
