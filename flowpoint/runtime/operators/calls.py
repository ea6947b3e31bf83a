"""The calls of one input of a process function, record by record, over a whole batch.

This is the hot part: the key is put into the cell that every bound state handle reads, the method is called, and what
it returns is walked through. There is no try per record: what was going on is in a local variable. Where a stream has no
timestamps, none are touched.

Invariant: what is emitted shares nothing with state that either could be changed by: it is taken over as it is when it is
yielded (`state.sharing`). So the result does not depend on how many records a batch has.

Not here: timers, and which input a batch came from (`process.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, NoReturn

from flowpoint.codec.placement import GroupCache
from flowpoint.model.elements import Batch
from flowpoint.runtime.failures import USER_RAISED, Doing, Place, explain, on_record, refuse_single
from flowpoint.runtime.operators.context import ProcessContext
from flowpoint.state.handles import NO_KEY, KeyCell
from flowpoint.state.sharing import Sharing

SINGLE: Final = frozenset({str, bytes, bytearray, dict})
"""Iterable, but surely meant as one record."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input: the method that takes its records, and the `key_by` before it, if any."""

    method: str
    key: Callable[[Any], Any] | None = None
    key_name: str = ""
    is_broadcast: bool = False


class Calls:
    """Calls `port.method` of a function."""

    def __init__(
        self,
        uid: str,
        function: object,
        port: Port,
        cell: KeyCell,
        context: ProcessContext,
        groups: GroupCache | None,
        sharing: Sharing,
    ) -> None:
        """`groups`: where there are keys, checks new ones. `sharing`: of the function's state."""
        self.port = port
        self._uid = uid
        self._function = function
        self._cell = cell
        self._context = context
        self._sharing = sharing
        if port.key is not None:
            assert groups is not None, uid
            self._key_of: Callable[[Any], Any] = port.key
            self._known, self._check = groups.groups, groups.miss
        else:
            self._key_of = _no_key
            self._known, self._check = {NO_KEY: 0}, _never

    def run(self, batch: Batch) -> Batch:  # noqa: C901  two walks that differ in timestamps alone
        """Call for every record; returns what was emitted, in order.

        Where records have timestamps, the context has that of the record, and so has what is emitted. The two walks
        differ in nothing else: asking for each record whether it has one would cost more than it is worth.
        """
        stamps = batch.timestamps
        out: list[Any] = []
        out_stamps: list[int] | None = None if stamps is None else []
        append = out.append
        process = getattr(self._function, self.port.method)
        key_of, cell, context, sharing = self._key_of, self._cell, self._context, self._sharing
        sharing.emitted = out
        known, check, single = self._known, self._check, SINGLE
        in_key, in_state, in_function, in_result = Doing.KEY, Doing.STATE, Doing.FUNCTION, Doing.RESULT
        value: Any = None
        key: Any = None
        result: Any = None
        doing = in_key
        try:
            if stamps is None or out_stamps is None:
                for value in batch.values:
                    doing = in_key
                    key = key_of(value)
                    doing = in_state
                    if key not in known:
                        check(key)
                    cell.key = key
                    doing = in_function
                    result = process(value, context)
                    if result is not None:
                        doing = in_result
                        if type(result) in single:
                            raise refuse_single(result)
                        for emitted in result:
                            append(sharing.isolated(emitted) if sharing.is_on else emitted)
            else:
                for value, stamp in zip(batch.values, stamps, strict=True):
                    doing = in_key
                    key = key_of(value)
                    doing = in_state
                    if key not in known:
                        check(key)
                    cell.key = key
                    context.timestamp = stamp
                    doing = in_function
                    result = process(value, context)
                    if result is not None:
                        doing = in_result
                        if type(result) in single:
                            raise refuse_single(result)
                        for emitted in result:
                            append(sharing.isolated(emitted) if sharing.is_on else emitted)
                        out_stamps.extend(repeat(stamp, len(out) - len(out_stamps)))
        except USER_RAISED as error:
            raise_explained(self._place(doing), error, on_record(value), key if doing is in_state else result)
        finally:
            context.timestamp = None
            cell.clear()
            sharing.emitted = []
        return Batch(out, out_stamps)

    def _place(self, doing: Doing) -> Place:
        return Place(self._uid, self.port.method, doing, self.port.key_name)


def raise_explained(place: Place, error: BaseException, when: str, result: Any) -> NoReturn:
    """Raise an error that names operator and record, or the error itself when it is the engine's own."""
    explained = explain(place, error, when, result)
    if explained is None:
        raise error
    raise explained from error


def _no_key(_: Any) -> Any:
    """The key of a record of a stream without keys."""
    return NO_KEY


def _never(key: Any) -> int:
    raise AssertionError(f"a stream without keys has the key {key!r}")
