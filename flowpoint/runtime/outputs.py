"""The outputs of a subtask: deal batches out to the channels of every outgoing edge, and send events to all of them.

Records wait in one buffer per channel until a batch is full, `buffer_timeout` has passed, or an event must overtake
nothing: `send_event` flushes first. A subtask looks at `writable` before it takes more input; what is already in its
hands may overshoot the credit by one batch per channel.

Not here: encoding, credit, sockets (`transport`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from flowpoint.codec.keys import group_of
from flowpoint.errors import BadRecordError
from flowpoint.model.elements import Event
from flowpoint.model.key_groups import owner_of
from flowpoint.model.plan import Partition
from flowpoint.runtime.chain import HashEmit, Loop
from flowpoint.transport.inbox import Outlet

TARGETS_MAX = 200_000


class Routes:
    """key -> index of the target subtask. The cache is bounded; it may exist only because equal keys have equal groups."""

    def __init__(self, parallelism: int, max_parallelism: int) -> None:
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self.targets: dict[Any, int] = {}

    def miss(self, key: Any) -> int:
        """The target of a key that is not in `targets` yet. Raises BadRecordError for a key of no good type."""
        target = owner_of(group_of(key, self._max_parallelism), self._parallelism, self._max_parallelism)
        if len(self.targets) >= TARGETS_MAX:
            self.targets.clear()
        self.targets[key] = target
        return target


class EdgeOutput:
    """One outgoing edge of one subtask."""

    def __init__(
        self,
        partition: Partition,
        outlets: Sequence[Outlet],
        batch_size: int,
        hash_emit: HashEmit | None = None,
        uid: str = "",
    ) -> None:
        """`uid` is the operator whose output this is, for messages."""
        self._uid = uid
        self._partition = partition
        self._outlets = list(outlets)
        self._batch_size = batch_size
        self._buffers: list[list[Any]] = [[] for _ in outlets] if hash_emit is None else list(hash_emit.buffers)
        self._split = None if hash_emit is None else Loop([], hash_emit)
        self._turn = 0

    def add(self, values: list[Any]) -> None:
        """Deal values out into the buffers."""
        if self._split is not None:
            self._split.run(values)
            return
        buffers = self._buffers
        if len(buffers) == 1:
            buffers[0].extend(values)
        elif self._partition is Partition.BROADCAST:
            for buffer in buffers:
                buffer.extend(values)
        else:
            width = len(buffers)
            for offset in range(width):
                buffers[(self._turn + offset) % width].extend(values[offset::width])
            self._turn = (self._turn + len(values)) % width

    def locate(self, error: Exception) -> Exception | None:
        """The explained form of an error that a key function of this edge raised."""
        return None if self._split is None else self._split.locate(error)

    def send_full(self) -> bool:
        """Send the buffers that hold a whole batch; True when something smaller stays behind."""
        rest = False
        for buffer, outlet in zip(self._buffers, self._outlets, strict=True):
            if len(buffer) >= self._batch_size:
                self._send(buffer, outlet)
            elif buffer:
                rest = True
        return rest

    def flush(self, only_writable: bool = False) -> bool:
        """Send everything; with `only_writable` what has no credit stays, and True says that something did."""
        rest = False
        for buffer, outlet in zip(self._buffers, self._outlets, strict=True):
            if not buffer:
                continue
            if only_writable and not outlet.writable:
                rest = True
                continue
            self._send(buffer, outlet)
        return rest

    def _send(self, buffer: list[Any], outlet: Outlet) -> None:
        try:
            # A copy, since the generated loop holds on to the buffer's `append`.
            outlet.send_batch(buffer[:], None)
        except BadRecordError as error:
            explained = BadRecordError(f"operator '{self._uid}' emitted a record that cannot be sent on: {error}")
            explained.operator = self._uid
            raise explained from error
        buffer.clear()

    def send_event(self, event: Event) -> None:
        """Send an event into every channel. Needs no credit and never waits (rule 13)."""
        for outlet in self._outlets:
            outlet.send_event(event)

    @property
    def writable(self) -> bool:
        """Whether every channel has credit."""
        return all(outlet.writable for outlet in self._outlets)

    def on_writable(self, callback: Callable[[], None]) -> None:
        """Call back whenever a channel gets credit again."""
        for outlet in self._outlets:
            outlet.on_writable = callback


class Outputs:
    """All outgoing edges of one subtask."""

    def __init__(self, edges: Sequence[EdgeOutput], buffer_timeout: float, wake: Callable[[], None]) -> None:
        self._edges = list(edges)
        self._buffer_timeout = buffer_timeout
        self._wake = wake
        self._failure: BadRecordError | None = None
        self._timer: asyncio.TimerHandle | None = None
        for edge in edges:
            edge.on_writable(wake)

    def add(self, values: list[Any] | None) -> None:
        """Take the records that a chain has produced (None: the chain dealt them out itself) and send full batches."""
        if values:
            for edge in self._edges:
                edge.add(values)
        rest = False
        for edge in self._edges:
            rest |= edge.send_full()
        if rest and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._buffer_timeout, self._on_timeout)

    def _on_timeout(self) -> None:
        self._timer = None
        rest = False
        try:
            for edge in self._edges:
                rest |= edge.flush(only_writable=True)
        except BadRecordError as error:
            # Nobody waits for a timer: the subtask gets the error when it looks whether it may go on.
            self._failure = error
            self._wake()
            return
        if rest:
            self._timer = asyncio.get_running_loop().call_later(self._buffer_timeout, self._on_timeout)

    def send_event(self, event: Event) -> None:
        """Flush, then send an event into all channels in one step."""
        for edge in self._edges:
            edge.flush()
        for edge in self._edges:
            edge.send_event(event)

    def locate(self, error: Exception) -> Exception | None:
        """The explained form of an error raised while dealing records out."""
        return next((found for edge in self._edges if (found := edge.locate(error)) is not None), None)

    @property
    def writable(self) -> bool:
        """Whether more records may be produced. Raises BadRecordError when what waited could not be sent."""
        if self._failure is not None:
            raise self._failure
        return all(edge.writable for edge in self._edges)

    def close(self) -> None:
        """Stop the flush timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
