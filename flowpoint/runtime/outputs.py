"""The outputs of a subtask: deal batches out to the channels of every outgoing edge, and send events to all of them.

Records wait in one buffer per channel until a batch is full, `buffer_timeout` has passed, or an event must overtake
nothing: `send_event` flushes first. A subtask looks at `writable` before it takes more input; what is already in its
hands may overshoot the credit by one batch per channel. What the timer finds without credit goes out as soon as there
is credit again.

A watermark cuts no batch short: it waits for the records that were emitted before it, and follows them in their channel.

Invariants: per channel, records and events leave in the order in which they came; a watermark may let later records
pass, never earlier ones come after it. A batch has timestamps for all its records or for none. After `close` nothing is
sent. A value that goes to several channels is handed to the first and copied for the others: local channels do not
encode.

Not here: encoding, credit, sockets (`transport`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from flowpoint.codec.placement import group_of
from flowpoint.codec.values import IMMUTABLE
from flowpoint.errors import BadRecordError, FlowPointError
from flowpoint.model.elements import Batch, Event, Idleness, Watermark
from flowpoint.model.key_groups import owner_of
from flowpoint.model.plan import Partition
from flowpoint.runtime.chain import HashEmit, Loop
from flowpoint.runtime.failures import USER_RAISED, engine_class
from flowpoint.transport.inbox import Outlet

TARGETS_MAX: Final = 200_000
TARGET_KEY_MAX: Final = 256

Copy = Callable[[Any], Any]


class Routes:
    """key -> index of the target subtask. The cache may exist only because equal keys have equal groups.

    It is bounded: it starts over when it holds `TARGETS_MAX` keys, and does not keep long ones.
    """

    def __init__(self, parallelism: int, max_parallelism: int) -> None:
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self.targets: dict[Any, int] = {}

    def miss(self, key: Any) -> int:
        """The target of a key that is not in `targets` yet. Raises BadRecordError for a key of no good type."""
        target = owner_of(group_of(key, self._max_parallelism), self._parallelism, self._max_parallelism)
        if type(key) not in (str, bytes) or len(key) <= TARGET_KEY_MAX:
            if len(self.targets) >= TARGETS_MAX:
                self.targets.clear()
            self.targets[key] = target
        return target


class EdgeOutput:
    """One outgoing edge of one subtask.

    Args:
        uid: of the operator that sends, for messages.
        hash_emit: of a HASH edge with several targets.
        is_dealt: the chain's last loop puts the records into the buffers of `hash_emit` itself.
        tag: of the side output that it carries; "" is the main output.
        timed: its records have timestamps, so that it carries watermarks as well.
    """

    def __init__(
        self,
        uid: str,
        partition: Partition,
        outlets: Sequence[Outlet],
        batch_size: int,
        copy: Copy,
        hash_emit: HashEmit | None = None,
        *,
        is_dealt: bool = False,
        tag: str = "",
        timed: bool = False,
    ) -> None:
        self.tag = tag
        self.timed = timed
        self._uid = uid
        self._partition = partition
        self._outlets = list(outlets)
        self._batch_size = batch_size
        self._copy = copy
        self._buffers: list[list[Any]] = [[] for _ in outlets] if hash_emit is None else hash_emit.buffers
        self._stamps: list[list[int]] = [[] for _ in outlets] if hash_emit is None else hash_emit.stamps
        self._is_timed = False
        self._watermarks: list[int | None] = [None] * len(self._outlets)
        self._split = None if hash_emit is None or is_dealt else Loop([], hash_emit)
        self._turn = 0
        self.is_dealt = is_dealt
        self._sent = 0

    def expect(self, is_timed: bool) -> None:
        """Records with timestamps, or without, are coming: what waits of the other kind goes first."""
        if is_timed is not self._is_timed:
            self.flush()
            self._is_timed = is_timed

    def add(self, values: list[Any], stamps: list[int] | None = None) -> None:
        """Deal values out into the buffers.

        Raises:
            FlowPointError: the key function failed, or its key is of no good type; or a value cannot be copied.
        """
        assert not self.is_dealt, f"operator {self._uid} deals records out itself"
        self.expect(stamps is not None)
        if self._split is not None:
            self._deal_by_key(self._split, Batch(values, stamps))
        elif len(self._buffers) == 1:
            self._put(0, values, stamps)
        elif self._partition is Partition.BROADCAST:
            for index in range(len(self._buffers)):
                self._put(index, values if index == 0 else self.copies(values), stamps)
        else:
            self._deal_in_turn(values, stamps)

    def _put(self, index: int, values: list[Any], stamps: list[int] | None) -> None:
        self._buffers[index].extend(values)
        if stamps is not None:
            self._stamps[index].extend(stamps)

    def _deal_by_key(self, split: Loop, batch: Batch) -> None:
        try:
            split.apply(batch)
        except USER_RAISED as error:
            located = split.locate(error)
            if located is None:
                raise
            raise located from error

    def _deal_in_turn(self, values: list[Any], stamps: list[int] | None) -> None:
        width = len(self._buffers)
        for offset in range(width):
            index = (self._turn + offset) % width
            self._put(index, values[offset::width], None if stamps is None else stamps[offset::width])
        self._turn = (self._turn + len(values)) % width

    def copies(self, values: list[Any]) -> list[Any]:
        """The same values, and nothing that is changed in them later shows in the originals."""
        if IMMUTABLE.issuperset(map(type, values)):
            return values
        try:
            return list(map(self._copy, values))
        except BadRecordError as error:
            raise self._named(error) from error

    def send_full(self) -> bool:
        """Send the buffers that hold a whole batch; True when something smaller stays behind."""
        rest = False
        for index, buffer in enumerate(self._buffers):
            if len(buffer) >= self._batch_size:
                self._send(index)
            elif buffer:
                rest = True
        return rest

    def flush(self, only_writable: bool = False) -> bool:
        """Send everything; with `only_writable` what has no credit stays, and True says that something did."""
        rest = False
        for index, buffer in enumerate(self._buffers):
            if not buffer:
                continue
            if only_writable and not self._outlets[index].writable:
                rest = True
            else:
                self._send(index)
        return rest

    def _send(self, index: int) -> None:
        buffer, self._buffers[index] = self._buffers[index], []
        stamps: list[int] | None = None
        if self._is_timed:
            stamps, self._stamps[index] = self._stamps[index], []
        self._sent += len(buffer)
        try:
            self._outlets[index].send_batch(buffer, stamps)
        except BadRecordError as error:
            raise self._named(error) from error
        watermark, self._watermarks[index] = self._watermarks[index], None
        if watermark is not None:
            self._outlets[index].send_event(Watermark(watermark))

    def _named(self, error: FlowPointError) -> FlowPointError:
        named = engine_class(error)(f"operator '{self._uid}' cannot send its records on: {error}")
        named.operator = self._uid
        return named

    def advance(self, watermark: int) -> None:
        """Say in every channel how far event time has come, behind the records that wait there."""
        event = Watermark(watermark)
        for index, buffer in enumerate(self._buffers):
            if buffer:
                self._watermarks[index] = watermark
            else:
                self._outlets[index].send_event(event)

    @property
    def taken(self) -> int:
        """Records put into the buffers since the start."""
        return self._sent + sum(map(len, self._buffers))

    def send_event(self, event: Event) -> None:
        """Send an event into every channel. Needs no credit and never waits (rule 13)."""
        for outlet in self._outlets:
            outlet.send_event(event)

    @property
    def outlets(self) -> Sequence[Outlet]:
        """Its channels, by target subtask."""
        return self._outlets

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call back whenever a channel gets credit again."""
        for outlet in self._outlets:
            outlet.on_writable = callback

    def close(self) -> None:
        """Let go of generated code."""
        if self._split is not None:
            self._split.close()


class Outputs:
    """All outgoing edges of one subtask. `wake` is called when a channel has credit again, or sending has failed."""

    def __init__(self, edges: Sequence[EdgeOutput], buffer_timeout: float, wake: Callable[[], None]) -> None:
        self._edges = list(edges)
        self._main = [edge for edge in edges if not edge.tag]
        self._timed = [edge for edge in edges if edge.timed]
        self._outlets = [outlet for edge in edges for outlet in edge.outlets]
        self._buffer_timeout = buffer_timeout
        self._wake = wake
        self._timer: asyncio.Handle | None = None
        self._is_overdue = False
        self._is_closed = False
        self._failure: Exception | None = None
        self._added = 0
        for edge in edges:
            edge.on_writable(self._on_writable)

    def expect(self, is_timed: bool) -> None:
        """The chain is about to deal records out itself, with timestamps or without."""
        for edge in self._main:
            edge.expect(is_timed)

    def add(self, values: list[Any] | None, stamps: list[int] | None = None) -> None:
        """Take the records that a chain has produced (None: the chain dealt them out itself) and send full batches."""
        if values:
            self._put(self._main, values, stamps)
        self._send_full()

    def add_side(self, tag: str, values: list[Any], stamps: list[int] | None) -> None:
        """Take the records of a side output."""
        self._put([edge for edge in self._edges if edge.tag == tag], values, stamps)
        self._send_full()

    def _put(self, edges: Sequence[EdgeOutput], values: list[Any], stamps: list[int] | None) -> None:
        self._added += len(values)
        for number, edge in enumerate(edges):
            edge.add(values if number == 0 else edge.copies(values), stamps)

    def _send_full(self) -> None:
        rest = False
        for edge in self._edges:
            rest |= edge.send_full()
        if rest and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._buffer_timeout, self._on_timeout)

    def _on_timeout(self) -> None:
        """Send what has waited long enough."""
        self._timer = None
        self._is_overdue = False
        try:
            for edge in self._edges:
                self._is_overdue |= edge.flush(only_writable=True)
        except Exception as error:  # noqa: BLE001  nobody waits for a timer: the subtask raises it (`check`)
            self._failure = error
            self._wake()

    def _on_writable(self) -> None:
        if self._is_overdue and self._timer is None and not self._is_closed:
            # Not now: this is called while the receiver takes an element.
            self._timer = asyncio.get_running_loop().call_soon(self._on_timeout)
        self._wake()

    def check(self) -> None:
        """Raise what went wrong while the timer sent something."""
        if self._failure is not None:
            raise self._failure

    def advance(self, watermark: int) -> None:
        """Event time has come to `watermark`: no record given from now on has a timestamp up to it."""
        for edge in self._timed:
            edge.advance(watermark)

    def send_idleness(self, is_idle: bool) -> None:
        """Say whether anybody should wait for the watermark of these outputs."""
        for edge in self._timed:
            edge.flush()
            edge.send_event(Idleness(is_idle))

    def send_event(self, event: Event) -> None:
        """Flush, then send an event into all channels in one step."""
        self.check()
        for edge in self._edges:
            edge.flush()
        for edge in self._edges:
            edge.send_event(event)

    @property
    def writable(self) -> bool:
        """Whether more records may be produced. Asked for every element taken: a plain loop over all channels."""
        for outlet in self._outlets:  # noqa: SIM110  a generator costs as much as the answer
            if not outlet.writable:
                return False
        return True

    @property
    def records_out(self) -> int:
        """Records given to these outputs since the start; a record that goes to several channels counts once."""
        return self._added + sum(edge.taken for edge in self._edges if edge.is_dealt)

    def close(self) -> None:
        """Send nothing any more, also not by the timer."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for edge in self._edges:
            edge.close()
