"""Streams: the methods by which an author adds operators to a job.

A stream is a handle on the operators whose output it is (several after `union`); each method appends one operator to
the job's graph and returns the stream of its output. `key_by` only remembers the key function for the operators that
follow; `rebalance`, `broadcast` and `side_output` remember how, and which, records flow on. Nothing runs, and
nothing is checked but that streams fit together: the graph as a whole is judged when the job is compiled, with messages
that name the line recorded here.

Every method that makes an operator takes `uid` (identifies its state in snapshots), `name` (for people) and
`parallelism` (the job's when None).

Invariant: a stream never changes; using one twice sends its records both ways.

Not here: operators without state (`stateless.py`), two streams as the inputs of one function (`connected.py`),
judgement (`plan.validate`), chaining (`plan.compile`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from flowpoint.api.calls import call_place, refuse_unless
from flowpoint.api.connected import ConnectedStreams
from flowpoint.api.stateless import Stateless
from flowpoint.errors import PlanError
from flowpoint.model.event_time import TimestampAssignment
from flowpoint.model.plan import PROCESS_KINDS, OperatorKind, Partition
from flowpoint.model.texts import with_article
from flowpoint.plan.graph import KeySelector, Link, StreamGraph

if TYPE_CHECKING:
    from flowpoint.api.functions import Aggregate, CoProcessFunction, KeyedProcessFunction, ProcessFunction
    from flowpoint.runtime.contracts import Sink

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class Stream(Stateless[T]):
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

    def __init__(self, graph: StreamGraph, links: tuple[Link, ...]) -> None:
        self._graph = graph
        self._links = links

    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]:
        """The same records, with `fn(record)` as the key of the keyed operator that follows.

        All records of one key go to the same subtask, in the order in which each upstream subtask sent them.

        Raises:
            PlanError: the stream is broadcast.
        """
        if any(link.partition is Partition.BROADCAST for link in self._links):
            raise PlanError(
                f"key_by at {call_place()} cannot follow broadcast: the records of one key go to one subtask, those of"
                " a broadcast stream to all; remove broadcast, or connect a keyed stream with it"
            )
        return KeyedStream(self._graph, self._links, self._graph.add_key(fn, call_place()))

    def process(
        self,
        fn: ProcessFunction,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """What `fn.process` yields: per-record logic that sees timestamps and has side outputs, without keys."""
        return self._add(OperatorKind.PLAIN_PROCESS, fn, uid, name, parallelism)

    def assign_timestamps(
        self,
        fn: Callable[[T], int],
        max_out_of_orderness: float | str = "2s",
        idle_timeout: float | str | None = None,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[T]:
        """The same records, with `fn(record)` as their event time (epoch ms), and watermarks that follow the newest.

        Args:
            fn: record -> epoch milliseconds, an int.
            max_out_of_orderness: how far behind the newest a record may come and still be on time: the watermark is
                `newest - max_out_of_orderness - 1`. Seconds, or text such as "2s".
            idle_timeout: when a subtask has waited this long for a record, others no longer wait for its watermark.
                None: they do.

        Raises:
            PlanError: one of the two is not a duration.
        """
        place = call_place()
        assignment = TimestampAssignment(
            fn,
            round(_seconds("max_out_of_orderness", max_out_of_orderness, place) * 1000),
            None if idle_timeout is None else _seconds("idle_timeout", idle_timeout, place),
        )
        return self._add(OperatorKind.ASSIGN_TIMESTAMPS, assignment, uid, name, parallelism)

    def rebalance(self) -> Stream[T]:
        """The same records, dealt out in turn to the subtasks of the operator that follows."""
        return self._moved(Partition.REBALANCE)

    def broadcast(self) -> Stream[T]:
        """The same records, each going to every subtask of the operator that follows."""
        return self._moved(Partition.BROADCAST)

    def _moved(self, partition: Partition) -> Stream[T]:
        return Stream(self._graph, tuple(replace(link, partition=partition) for link in self._links))

    def side_output(self, tag: str) -> Stream[Any]:
        """What the process function right before it emits with `ctx.output(tag, value)`.

        Raises:
            PlanError: there is no process function right before it.
        """
        place = call_place()
        if not isinstance(tag, str) or not tag or not tag.isprintable():
            raise PlanError(f"side_output at {place} got the tag {tag!r}: a tag is a str of printable characters")
        for link in self._links:
            operator = self._graph.operators[link.source]
            if operator.kind not in PROCESS_KINDS or link.tag or link.partition is not None:
                raise PlanError(
                    f"side_output({tag!r}) at {place} does not stand right behind a process function, so nothing can be"
                    f" in it: call it on the stream that process(...) returned (seen: {operator.label})"
                )
        return Stream(self._graph, tuple(Link(link.source, tag=tag) for link in self._links))

    def connect(self, other: Stream[Any] | KeyedStream[Any, Any]) -> ConnectedStreams:
        """This stream and another one as the two inputs of one function: `connect(...).process(function)`.

        Raises:
            PlanError: `other` is not a stream of this job.
        """
        return _connected(self, other)

    def union(self, *others: Stream[T]) -> Stream[T]:
        """The records of this stream and of all others, in no particular order between them.

        Raises:
            PlanError: one of them is not a stream of this job.
        """
        links = self._links
        for other in others:
            if not isinstance(other, Stream):
                raise PlanError(f"union at {call_place()} got {_describe(other)}: pass streams")
            if other._graph is not self._graph:
                raise PlanError(
                    f"union at {call_place()} mixes streams of two jobs, {self._graph.job!r} and {other._graph.job!r}:"
                    " build both streams from one Job"
                )
            links += other._links
        return Stream(self._graph, links)

    def sink(
        self, sink: Sink, *, uid: str | None = None, name: str | None = None, parallelism: int | None = None
    ) -> None:
        """Write the records to `sink`. The stream may still be used for other operators."""
        self._add(OperatorKind.SINK, sink, uid, name, parallelism)

    def _add(
        self, kind: OperatorKind, function: object, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        return _added(self._graph, kind, function, self._links, uid, name, parallelism)

    if not TYPE_CHECKING:  # for a checker, these methods simply do not exist

        def __getattr__(self, attribute: str) -> NoReturn:
            refuse_unless((KeyedStream,), self, attribute)
            raise PlanError(
                f"{attribute} at {call_place()} needs a keyed stream, since it keeps something for each key: write"
                f" .key_by(...).{attribute}(...)"
            )


class KeyedStream(Stateless[T], Generic[K, T]):
    """Records of type `T` with keys of type `K`. Made by `Stream.key_by`; keyed operators follow, or stateless ones.

    `count`, `sum`, `min`, `max`, `reduce` and `aggregate` emit `(key, value)` for every record, `value` being the
    result so far.

    Example:
        >>> from flowpoint import Job
        >>> from flowpoint.connectors import CollectionSource, PrintSink
        >>> job = Job("demo")
        >>> words = job.source(CollectionSource(["a", "b", "a"]), uid="words")
        >>> words.key_by(str.lower).count(uid="counts").sink(PrintSink(), uid="out")
    """

    def __init__(self, graph: StreamGraph, links: tuple[Link, ...], key: KeySelector) -> None:
        self._graph = graph
        self._links = links
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

    def min(
        self,
        fn: Callable[[T], U] | None = None,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[K, U]]:
        """`(key, least so far)` for every record, of `fn(record)`, or of the records themselves."""
        return self._add(OperatorKind.MIN, fn, uid, name, parallelism)

    def max(
        self,
        fn: Callable[[T], U] | None = None,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[K, U]]:
        """`(key, greatest so far)` for every record, of `fn(record)`, or of the records themselves."""
        return self._add(OperatorKind.MAX, fn, uid, name, parallelism)

    def aggregate(
        self,
        aggregate: Aggregate[T, Any, U],
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[tuple[K, U]]:
        """`(key, result so far)` for every record."""
        return self._add(OperatorKind.AGGREGATE, aggregate, uid, name, parallelism)

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

    def connect(self, other: Stream[Any] | KeyedStream[Any, Any]) -> ConnectedStreams:
        """This stream and another keyed or broadcast one as the two inputs of one function.

        Raises:
            PlanError: `other` is not a stream of this job.
        """
        return _connected(self, other)

    def _add(
        self, kind: OperatorKind, function: object, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        return _added(self._graph, kind, function, self._links, uid, name, parallelism, key=self._key)

    if not TYPE_CHECKING:  # for a checker, these methods simply do not exist

        def __getattr__(self, attribute: str) -> NoReturn:
            refuse_unless((Stream,), self, attribute)
            raise PlanError(
                f"{attribute} at {call_place()} cannot follow {self._key.name}: a keyed operator must follow key_by"
                f" (count, sum, reduce, process, ...), or map, filter or flat_map; use {attribute} before key_by or after"
                " the keyed operator"
            )


def _added(
    graph: StreamGraph,
    kind: OperatorKind,
    function: object,
    links: tuple[Link, ...],
    uid: str | None,
    name: str | None,
    parallelism: int | None,
    *,
    key: KeySelector | None = None,
    second_key: KeySelector | None = None,
) -> Stream[Any]:
    """The output of a new operator that reads `links`."""
    index = graph.add(
        kind,
        function,
        links,
        place=call_place(),
        key=key,
        second_key=second_key,
        uid=uid,
        name=name,
        parallelism=parallelism,
    )
    return Stream(graph, (Link(index),))


def _connected(first: Stream[Any] | KeyedStream[Any, Any], second: object) -> ConnectedStreams:
    if not isinstance(second, Stream | KeyedStream):
        raise PlanError(
            f"connect at {call_place()} got {with_article(type(second).__name__)}: pass a stream of the same job"
        )
    if second._graph is not first._graph:
        raise PlanError(
            f"connect at {call_place()} mixes streams of two jobs, {first._graph.job!r} and {second._graph.job!r}:"
            " build both streams from one Job"
        )
    graph, links = first._graph, (*first._links, *(replace(link, port=1) for link in second._links))
    key, second_key = getattr(first, "_key", None), getattr(second, "_key", None)

    def add(
        kind: OperatorKind, fn: CoProcessFunction, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        return _added(graph, kind, fn, links, uid, name, parallelism, key=key, second_key=second_key)

    is_keyed = key is not None or second_key is not None
    return ConnectedStreams(add, is_keyed=is_keyed, others=(Stream, KeyedStream))


def _seconds(what: str, value: float | str, place: str) -> float:
    # Found when it is needed: describing a job must not load what runs it.
    from flowpoint.launch.quantities import parse_duration

    try:
        return parse_duration(value)
    except ValueError as error:
        raise PlanError(f"assign_timestamps at {place} got {what}={value!r}: it must be {error}") from None


def _describe(thing: object) -> str:
    if isinstance(thing, KeyedStream):
        return f"the result of {thing._key.name}, which needs a keyed operator (count, sum, reduce, process, ...) first"
    return with_article(type(thing).__name__)
