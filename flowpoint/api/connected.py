"""Two streams as the inputs of one function: what `connect` returns.

It knows neither streams nor the graph, since streams are made of it and it makes streams: `connect` hands it how an
operator that reads both is added.

Not here: whether the two streams fit together (`stream.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from flowpoint.api.calls import call_place, refuse_unless
from flowpoint.errors import PlanError
from flowpoint.model.plan import OperatorKind

if TYPE_CHECKING:
    from flowpoint.api.functions import CoProcessFunction
    from flowpoint.api.stream import Stream


class AddsOperator(Protocol):
    """Adds an operator that reads both streams; the stream of its output."""

    def __call__(
        self, kind: OperatorKind, fn: CoProcessFunction, uid: str | None, name: str | None, parallelism: int | None, /
    ) -> Stream[Any]: ...


class ConnectedStreams:
    """Two streams that one function reads. Made by `connect`; only `process` can follow.

    Example:
        >>> from flowpoint import CoProcessFunction, Job
        >>> from flowpoint.connectors import CollectionSource, PrintSink
        >>> class Both(CoProcessFunction):
        ...     def process1(self, value, ctx):
        ...         yield "first", value
        ...
        ...     def process2(self, value, ctx):
        ...         yield "second", value
        >>> job = Job("demo")
        >>> words, numbers = job.source(CollectionSource(["a"])), job.source(CollectionSource([1]))
        >>> words.connect(numbers).process(Both(), uid="both").sink(PrintSink(), uid="out")
    """

    def __init__(self, add: AddsOperator, *, is_keyed: bool, others: tuple[type, ...]) -> None:
        self._add = add
        self._is_keyed = is_keyed
        self._others = others

    def process(
        self,
        fn: CoProcessFunction,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """What `fn.process1`, `fn.process2` and `fn.on_timer` yield."""
        kind = OperatorKind.CO_PROCESS if self._is_keyed else OperatorKind.PLAIN_CO_PROCESS
        return self._add(kind, fn, uid, name, parallelism)

    if not TYPE_CHECKING:  # as in KeyedStream

        def __getattr__(self, attribute: str) -> NoReturn:
            refuse_unless(self._others, self, attribute)
            raise PlanError(
                f"{attribute} at {call_place()} cannot follow connect: one function reads both streams; write"
                f" connect(...).process(CoProcessFunction), then {attribute}, or union to treat their records alike"
            )
