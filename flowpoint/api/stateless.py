"""The operators without state, which can follow any stream: on its records where they are, or dealt out by key.

Not here: operators that keep something (`stream.py`), and how records flow on from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from flowpoint.model.plan import OperatorKind

if TYPE_CHECKING:
    from flowpoint.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")


class Stateless(Generic[T]):
    """What streams and keyed streams share. Behind `key_by`, the records of one key go through one subtask, in order.

    What comes out is a stream without keys in either case: a keyed operator that follows needs a `key_by` of its own.
    """

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

    def _add(
        self, kind: OperatorKind, function: object, uid: str | None, name: str | None, parallelism: int | None
    ) -> Stream[Any]:
        """The output of a new operator on this stream."""
        raise NotImplementedError
