"""Streams: the methods by which an author adds operators to a job.

A stream is a handle on the operators whose output it is (several after `union`); each method appends one operator to
the job's graph and returns the stream of its output. `key_by` only remembers the key function for the keyed operators
that follow. Nothing runs, and nothing is checked but that streams fit together: the graph as a whole is judged when
the job is compiled, with messages that name the line recorded here.

Every method that makes an operator takes `uid` (identifies its state in snapshots), `name` (for people) and
`parallelism` (the job's when None).

Invariant: a stream never changes; using one twice sends its records both ways.

Not here: judgement (`plan.validate`), chaining (`plan.compile`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from flowpoint.errors import PlanError
from flowpoint.model.plan import OperatorKind
from flowpoint.plan.graph import KeySelector, StreamGraph

if TYPE_CHECKING:
    from flowpoint.api.functions import KeyedProcessFunction
    from flowpoint.runtime.contracts import Sink

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class Stream(Generic[T]):
    """Records of type `T`. Made by `Job.source` and by the methods of streams, never directly.

    Example:
        >>> from flowpoint import Job
        >>> from flowpoint.connectors import CollectionSource, PrintSink
        >>> job = Job("demo")
        >>> numbers = job.source(CollectionSource([1, 2, 3]), uid="numbers")
        >>> numbers.filter(lambda n: n > 1).map(lambda n: n * n).sink(PrintSink(), uid="out")
        >>> [operator.kind.value for operator in job.graph().operators]
        ['source', 'filter', 'map', 'sink']
    """

    def __init__(self, graph: StreamGraph, inputs: tuple[int, ...]) -> None:
        self._graph = graph
        self._inputs = inputs

    def map(
        self, fn: Callable[[T], U], *, uid: str | None = None, name: str | None = None, parallelism: int | None = None
    ) -> Stream[U]:
        """One record out for each record in: `fn(record)`."""
        return self._add(OperatorKind.MAP, fn, uid, name, parallelism)

    def filter(
        self,
        fn: Callable[[T], object],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[T]:
        """Only the records for which `fn(record)` is true."""
        return self._add(OperatorKind.FILTER, fn, uid, name, parallelism)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[U]:
        """Any number of records out for each record in: all of the iterable (or generator) `fn(record)`."""
        return self._add(OperatorKind.FLAT_MAP, fn, uid, name, parallelism)

    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]:
        """The same records, with `fn(record)` as the key of the keyed operator that follows.

        All records of one key go to the same subtask, in the order in which each upstream subtask sent them.
        """
        return KeyedStream(self._graph, self._inputs, self._graph.add_key(fn, call_place()))

    def union(self, *others: Stream[T]) -> Stream[T]:
        """The records of this stream and of all others, in no particular order between them.

        Raises:
            PlanError: one of them is not a stream of this job.
        """
        inputs = self._inputs
        for other in others:
            if not isinstance(other, Stream):
                raise PlanError(f"union at {call_place()} got {_describe(other)}: pass streams")
            if other._graph is not self._graph:
                raise PlanError(
                    f"union at {call_place()} mixes streams of two jobs, {self._graph.job!r} and {other._graph.job!r}:"
                    " build both streams from one Job"
                )
            inputs += other._inputs
        return Stream(self._graph, inputs)

    def sink(
        self, sink: Sink, *, uid: str | None = None, name: str | None = None, parallelism: int | None = None
    ) -> None:
        """Write the records to `sink`. The stream may still be used for other operators."""
        self._add(OperatorKind.SINK, sink, uid, name, parallelism)

    def _add(
        self, kind: OperatorKind, function: object, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        index = self._graph.add(
            kind, function, self._inputs, place=call_place(), uid=uid, name=name, parallelism=parallelism
        )
        return Stream(self._graph, (index,))


class KeyedStream(Generic[K, T]):
    """Records of type `T` with keys of type `K`. Made by `Stream.key_by`; only keyed operators can follow.

    `count`, `sum` and `reduce` emit `(key, value)` for every record, `value` being the result so far.

    Example:
        >>> from flowpoint import Job
        >>> from flowpoint.connectors import CollectionSource, PrintSink
        >>> job = Job("demo")
        >>> words = job.source(CollectionSource(["a", "b", "a"]), uid="words")
        >>> words.key_by(str.lower).count(uid="counts").sink(PrintSink(), uid="out")
    """

    def __init__(self, graph: StreamGraph, inputs: tuple[int, ...], key: KeySelector) -> None:
        self._graph = graph
        self._inputs = inputs
        self._key = key

    def count(
        self, *, uid: str | None = None, name: str | None = None, parallelism: int | None = None
    ) -> Stream[tuple[K, int]]:
        """`(key, number of records so far)` for every record."""
        return self._add(OperatorKind.COUNT, None, uid, name, parallelism)

    def sum(
        self,
        fn: Callable[[T], U] | None = None,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[K, U]]:
        """`(key, sum so far)` for every record, of `fn(record)`, or of the records themselves."""
        return self._add(OperatorKind.SUM, fn, uid, name, parallelism)

    def reduce(
        self,
        fn: Callable[[T, T], T],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[K, T]]:
        """`(key, value)` for every record: the first record itself, then `fn(value so far, record)`."""
        return self._add(OperatorKind.REDUCE, fn, uid, name, parallelism)

    def process(
        self,
        fn: KeyedProcessFunction,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """What `fn.process` and `fn.on_timer` yield; `fn` may keep state and set timers per key."""
        return self._add(OperatorKind.PROCESS, fn, uid, name, parallelism)

    def _add(
        self, kind: OperatorKind, function: object, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        index = self._graph.add(
            kind, function, self._inputs, place=call_place(), key=self._key, uid=uid, name=name, parallelism=parallelism
        )
        return Stream(self._graph, (index,))

    if not TYPE_CHECKING:  # for a checker, these methods simply do not exist

        def __getattr__(self, attribute: str) -> NoReturn:
            if attribute.startswith("_") or not hasattr(Stream, attribute):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")
            raise PlanError(
                f"{attribute} at {call_place()} cannot follow {self._key.name}: a keyed operator must follow key_by"
                f" (count, sum, reduce or process); use {attribute} before key_by or after the keyed operator"
            )


def call_place() -> str:
    """Where the author's code called into FlowPoint, as "file:line"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _OWN_MODULES:
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


_OWN_MODULES = frozenset({"flowpoint.api.stream", "flowpoint.api.job"})


def _describe(thing: object) -> str:
    if isinstance(thing, KeyedStream):
        return f"the result of {thing._key.name}, which needs a keyed operator (count, sum, reduce or process) first"
    return f"a {type(thing).__name__}"
