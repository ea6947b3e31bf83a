"""The two ends of a channel: an `Inbox` that a task reads, and an `Outlet` that a task writes to.

Nothing here waits. A reader is called when its queue is no longer empty and takes what is there; a writer looks at
`writable` and is called when it becomes true again. Since taking is one synchronous step, a cancelled wait can lose
nothing.

Invariants: elements leave in the order in which they came in; a batch's credit goes back when it is taken, not when it
arrives; events need no credit (rule 13). A channel holds at most its window of batches, plus the one that overdrew it.
Watermarks that nobody took yet are merged when they follow each other, so events do not pile up either.

Not here: alignment (`blocked` is a note that the input gate keeps), links (`transport.exchange`). In a local channel
the values are handed over, not copied: whoever sends one value to two channels copies it first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from flowpoint.model.elements import Barrier, Batch, Element, Event, Watermark
from flowpoint.protocol.credit import ReceiverCredit, SenderCredit

SAMPLE_SIZE = 4
SAMPLE_DEPTH = 3


class BrokenBatch(Batch):
    """Stands in a queue for a batch that could not be decoded; taking it raises `error`."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error


class Inbox:
    """The receiving end of one channel. `grant` carries credit (batches, bytes) back to the sender.

    Attributes:
        queue: what came in and was not taken yet, oldest first. Look, but take with `take`.
        blocked: whether the input gate holds this channel back. Kept by the gate.
        on_ready: called when the queue goes from empty to non-empty.
        on_barrier: called with each barrier as soon as it is in the queue, whatever stands before it.
        queued_bytes: the size of the batches in `queue`.
    """

    __slots__ = (
        "_credit",
        "_grant",
        "_recorder",
        "_recording",
        "_sizes",
        "blocked",
        "on_barrier",
        "on_ready",
        "queue",
        "queued_bytes",
    )

    def __init__(self, grant: Callable[[int, int], None]) -> None:
        self.queue: deque[Element] = deque()
        self.blocked = False
        self.on_ready: Callable[[], None] = _nobody_waits
        self.on_barrier: Callable[[Barrier], None] | None = None
        self.queued_bytes = 0
        self._sizes: deque[int] = deque()
        self._credit = ReceiverCredit()
        self._grant = grant
        self._recorder: Callable[[Batch], None] | None = None
        self._recording = 0

    def record(self, checkpoint: int, recorder: Callable[[Batch], None]) -> None:
        """Show `recorder` every batch before the barrier of `checkpoint`: those in the queue now, then those to come.

        It sees them before anybody takes them, and must neither keep nor change them.
        """
        for element in self.queue:
            if isinstance(element, Batch):
                recorder(element)
            elif isinstance(element, Barrier) and element.checkpoint >= checkpoint:
                return
        self._recorder, self._recording = recorder, checkpoint

    def stop_recording(self) -> None:
        """Show nothing any more."""
        self._recorder = None

    def take(self) -> Element:
        """The oldest element. The queue must not be empty.

        Raises:
            Exception: what decoding the batch raised, so that it comes up in the task that reads it.
        """
        element = self.queue.popleft()
        if isinstance(element, Batch):
            size = self._sizes.popleft()
            self.queued_bytes -= size
            grant = self._credit.taken(size)
            if grant is not None:
                self._grant(*grant)
            if type(element) is BrokenBatch:
                raise element.error
        return element

    def put_batch(self, batch: Batch, nbytes: int) -> None:
        """A batch came in, worth `nbytes` of credit."""
        if self._recorder is not None:
            self._recorder(batch)
        self._sizes.append(nbytes)
        self.queued_bytes += nbytes
        self._put(batch)

    def put_event(self, event: Event) -> None:
        """An event came in."""
        queue = self.queue
        if queue and type(event) is Watermark and type(queue[-1]) is Watermark:
            queue[-1] = event
        else:
            self._put(event)
            if type(event) is Barrier:
                self._on_barrier(event)

    def _on_barrier(self, barrier: Barrier) -> None:
        if barrier.checkpoint >= self._recording:
            self._recorder = None
        if self.on_barrier is not None:
            self.on_barrier(barrier)

    def _put(self, element: Element) -> None:
        was_empty = not self.queue
        self.queue.append(element)
        if was_empty:
            self.on_ready()


class Outlet(Protocol):
    """The sending end of one channel.

    Attributes:
        on_writable: called when `writable` becomes true again.
    """

    on_writable: Callable[[], None] | None

    @property
    def writable(self) -> bool:
        """Whether a batch may be sent now."""

    def send_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """Send a batch; look at `writable` first. The lists belong to the channel from here on."""

    def send_event(self, event: Event) -> None:
        """Send an event. Needs no credit, never waits."""


class CreditedOutlet:
    """What both kinds of outlet share: the window, and the call when it opens again."""

    def __init__(self) -> None:
        self.on_writable: Callable[[], None] | None = None
        self._credit = SenderCredit()

    @property
    def writable(self) -> bool:
        """See `Outlet`."""
        return self._credit.writable

    def granted(self, batches: int, nbytes: int) -> None:
        """The receiver gave credit back."""
        was_writable = self._credit.writable
        self._credit.grant(batches, nbytes)
        if not was_writable and self._credit.writable and self.on_writable is not None:
            self.on_writable()


class LocalChannel(CreditedOutlet):
    """Both ends of a channel inside one worker: nothing is encoded, the same window holds."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox(self.granted)

    def send_batch(self, values: list[Any], timestamps: list[int] | None) -> None:
        """See `Outlet`."""
        size = estimated_bytes(values)
        self._credit.spend(size)
        self.inbox.put_batch(Batch(values, timestamps), size)

    def send_event(self, event: Event) -> None:
        """See `Outlet`."""
        self.inbox.put_event(event)


def estimated_bytes(values: list[Any]) -> int:
    """About how big these values would be when encoded, from a few of them; costs the same for any number of values."""
    if not values:
        return 0
    sample = values[:: max(1, len(values) // SAMPLE_SIZE)][:SAMPLE_SIZE]
    return sum(_size(value, SAMPLE_DEPTH) for value in sample) * len(values) // len(sample)


def _size(value: object, depth: int) -> int:
    if isinstance(value, (str, bytes, bytearray)):
        return len(value) + 2
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return 2 + sum(_size(item, depth - 1) for item in value)
    if depth and isinstance(value, dict):
        return 2 + sum(_size(item, depth - 1) for pair in value.items() for item in pair)
    return 9


def _nobody_waits() -> None:
    """The `on_ready` of an inbox that has no reader yet."""
