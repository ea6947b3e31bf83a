"""What a process function emits does not depend on how many records a batch has, whatever it keeps in state and changes.

Each step of a job is one way of holding a value in state and in an emitted record at once. The reference is the same job
with one record per batch, each of whose results is turned into bytes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowpoint.api.functions import CoProcessFunction, KeyedProcessFunction
from flowpoint.codec.placement import GroupCache
from flowpoint.codec.values import Codec, TypeRegistry
from flowpoint.model.elements import Batch
from flowpoint.runtime.operators.calls import Port
from flowpoint.runtime.operators.process import KeyedParts, Process
from flowpoint.state.backend import Backend
from flowpoint.state.broadcast import BroadcastAccess, BroadcastState, bind_broadcast
from flowpoint.state.descriptor import bind
from flowpoint.state.handles import KeyCell
from flowpoint.state.heap import HeapBackend
from flowpoint.state.kinds import ListState, MapState, ReducingState, ValueState
from flowpoint.state.open import open_backend
from flowpoint.state.timers import TimerService
from tests.conformance.state_jobs import KINDS, MAX

Step = tuple[int, str, int]
"""Key, way, number: one record."""


@dataclass
class Session:
    numbers: list[int]


def merged(before: list[int], more: list[int]) -> list[int]:
    before.extend(more)
    return before


class Mutating(CoProcessFunction):
    """Every way of emitting what is in state and changing it later."""

    value = ValueState("value")
    kept = ValueState("kept")
    preset = ValueState("preset", default={"n": []})
    session = ValueState("session", Session)
    pair = ValueState("pair", default=(0, []))
    listed = ListState("listed")
    lists = ListState("lists")
    by_name = MapState("by_name")
    reduced = ReducingState("reduced", merged)
    rules = BroadcastState("rules")

    def process1(self, record: dict[str, Any], ctx: Any) -> Iterator[Any]:
        yield from getattr(self, record["way"])(record, record["number"], ctx)

    def process2(self, record: dict[str, Any], ctx: Any) -> Iterator[Any]:
        """A record of the broadcast stream."""
        rule = self.rules.setdefault("rule", [])
        rule.append(record["number"])
        yield ["rule", rule]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        held = self.by_name.setdefault("timer", [])
        held.append(timestamp)
        yield ["timer", held]

    def number_only(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.by_name["sum"] = self.by_name.get("sum", 0) + n
        yield {"sum": self.by_name["sum"]}

    def growing_list(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        s = self.value.value or []
        s.append(n)
        self.value.value = s
        yield [ctx.key, s]

    def changed_after_put(self, record: Any, n: int, ctx: Any) -> list[Any]:
        self.value.value = s = []
        s.append(n)
        return [s, {"again": s}]

    def preset_in_place(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.preset.value["n"].append(n)
        yield self.preset.value

    def dataclass_in_place(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        session = self.session.value or Session([])
        session.numbers.append(n)
        self.session.value = session
        yield {"session": session}

    def inside_a_tuple(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        count, numbers = self.pair.value
        numbers.append(n)
        self.pair.value = (count + 1, numbers)
        yield self.pair.value

    def list_itself(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.listed.append(n)
        yield self.listed.value

    def elements(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.lists.append([n])
        for element in self.lists:
            element.append(-n)
        yield list(self.lists)

    def extended_and_set(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        inner = [n]
        self.lists.extend([inner])
        yield inner
        self.lists.value = [[n], *self.lists]
        yield from self.lists

    def map_values(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.by_name.setdefault("a", []).append(n)
        yield list(self.by_name.values())

    def reducing(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        self.reduced.add([n])
        yield self.reduced.value

    def aside(self, record: Any, n: int, ctx: Any) -> None:
        self.by_name.setdefault("aside", []).append(n)
        ctx.output("aside", self.by_name["aside"])
        return iter(())  # type: ignore[return-value]

    def timer(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        ctx.timers.event(n)
        ctx.timers.event(n + 1)
        yield self.by_name.get("timer")

    def record_kept(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        before = self.kept.value
        if before is not None:
            before["number"] += 1
        self.kept.value = record
        yield record
        yield before

    def rule_read(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        yield self.rules.get("rule")

    def cleared(self, record: Any, n: int, ctx: Any) -> Iterator[Any]:
        yield self.value.value
        self.value.clear()


WAYS = [
    "number_only", "growing_list", "changed_after_put", "preset_in_place", "dataclass_in_place", "inside_a_tuple",
    "list_itself", "elements", "extended_and_set", "map_values", "reducing", "aside", "timer", "record_kept", "rule_read",
    "cleared", "rule",
]  # fmt: skip
CODEC = Codec(TypeRegistry([Session]))


class Operator:
    """A `Mutating` function, and all that it has emitted."""

    def __init__(self, state: Backend) -> None:
        self.state = state
        function, cell = Mutating(), KeyCell()
        bind(function, state, cell)
        access = BroadcastAccess(cell.sharing)
        bind_broadcast(function, HeapBackend(CODEC, MAX), access)
        keyed = KeyedParts(cell, TimerService(state, cell), GroupCache(MAX))
        ports = (Port("process1", lambda record: record["key"], "key_by"), Port("process2", is_broadcast=True))
        self.process = Process(
            "p", function, ports, lambda: 0, keyed=keyed, access=access, side_tags=["aside"], has_event_time=True
        )

    def run(self, steps: Sequence[Step], batch_size: int) -> Iterator[list[Any]]:
        """What each batch, and the timers after all of them, emit."""
        port, waiting = 0, []
        for key, way, number in steps:
            if waiting and (len(waiting) == batch_size or port != (way == "rule")):
                yield from self.emitted(self.process.apply(Batch(waiting, [0] * len(waiting)), port))
                waiting = []
            port = int(way == "rule")
            waiting.append({"key": key, "way": way, "number": number})
        if waiting:
            yield from self.emitted(self.process.apply(Batch(waiting, [0] * len(waiting)), port))
        for batch in self.process.advance(10**6, 10**6 if batch_size > 1 else 1):
            yield from self.emitted(batch)

    def emitted(self, batch: Batch) -> Iterator[list[Any]]:
        yield batch.values
        for _, aside in self.process.sides.take():
            yield [("aside", value) for value in aside.values]


def steps_of(kinds: Sequence[str]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.integers(0, 1), st.sampled_from(kinds), st.integers(0, 9)), max_size=25)


def split(values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Main output and side output, each in its order."""
    is_aside = [isinstance(value, tuple) and value[:1] == ("aside",) for value in values]
    return (
        [value for value, aside in zip(values, is_aside, strict=True) if not aside],
        [value for value, aside in zip(values, is_aside, strict=True) if aside],
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(before=steps_of(WAYS), after=steps_of(WAYS), batch_size=st.integers(2, 50))
def test_the_output_is_that_of_one_record_at_a_time(
    kind: str, before: list[Step], after: list[Step], batch_size: int
) -> None:
    with TemporaryDirectory() as folder:
        alone, together = (
            Operator(open_backend(KINDS[kind], CODEC, MAX, str(Path(folder, name)), "p"))
            for name in ("alone", "together")
        )
        expected: list[Any] = []
        seen: list[Any] = []
        for steps in (before, after):
            for values in alone.run(steps, 1):
                expected += CODEC.decode(CODEC.encode(values))
            for values in together.run(steps, batch_size):
                seen += values
            for operator in (alone, together):
                operator.state.freeze()
        alone.state.close()
        together.state.close()

    assert split(seen) == split(expected)


class Growing(KeyedProcessFunction):
    """Emits the same list again and again while it grows, within one call too."""

    seen = ValueState("seen")

    def process(self, value: int, ctx: Any) -> Iterator[Any]:
        numbers = self.seen.value or []
        self.seen.value = numbers
        for more in (value, -value):
            numbers.append(more)
            yield numbers


def test_a_list_that_is_emitted_twice_in_one_call_is_what_it_was_each_time() -> None:
    function, cell, state = Growing(), KeyCell(), HeapBackend(Codec(), MAX)
    bind(function, state, cell)
    keyed = KeyedParts(cell, TimerService(state, cell), GroupCache(MAX))
    operator = Process("p", function, (Port("process", lambda _: 0),), lambda: 0, keyed=keyed)

    assert operator.apply(Batch([1, 2])).values == [[1], [1, -1], [1, -1, 2], [1, -1, 2, -2]]
