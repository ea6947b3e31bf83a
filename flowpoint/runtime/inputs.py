"""The input gate of a subtask: takes elements from its channels in turn, skipping blocked ones.

Channels are numbered 0..n-1 in the order of the plan's edges and source indices. A channel is in `ready` when it has
elements and is not blocked, and then exactly once. One element is taken per turn, so a busy channel does not starve the
others. Order within a channel is never changed.

With `watch_barriers` the gate also notes each barrier as soon as it is in a channel's queue (`announced`), for unaligned
checkpoints.

Not here: deciding what to block (`protocol.alignment`), where elements come from (`transport`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from flowpoint.model.elements import Barrier, Batch, Element
from flowpoint.transport.inbox import Inbox


class InputGate:
    """Merges the inboxes of one subtask; `wake` is called when something becomes ready."""

    def __init__(self, inboxes: Sequence[Inbox], wake: Callable[[], None]) -> None:
        self._inboxes = list(inboxes)
        self._ready: deque[int] = deque()
        self._wake = wake
        self.announced: deque[tuple[int, Barrier]] = deque()
        """Barriers that have arrived and were not looked at yet, with their channels."""
        for channel, inbox in enumerate(self._inboxes):
            inbox.on_ready = self._make_ready_callback(channel)
            if inbox.queue:
                self._ready.append(channel)

    def __len__(self) -> int:
        return len(self._inboxes)

    def _make_ready_callback(self, channel: int) -> Callable[[], None]:
        inbox = self._inboxes[channel]

        def on_ready() -> None:
            if not inbox.blocked:
                self._ready.append(channel)
                self._wake()

        return on_ready

    def watch_barriers(self) -> None:
        """From here on, note barriers in `announced`."""
        for channel, inbox in enumerate(self._inboxes):
            inbox.on_barrier = partial(self._announce, channel)
            for element in inbox.queue:
                if isinstance(element, Barrier):
                    self._announce(channel, element)

    def _announce(self, channel: int, barrier: Barrier) -> None:
        self.announced.append((channel, barrier))
        self._wake()

    def record(self, channel: int, checkpoint: int, recorder: Callable[[Batch], None]) -> None:
        """Show `recorder` what comes before the barrier of `checkpoint` in a channel (`Inbox.record`)."""
        self._inboxes[channel].record(checkpoint, recorder)

    def stop_recording(self) -> None:
        """Record nothing any more."""
        for inbox in self._inboxes:
            inbox.stop_recording()

    @property
    def has_ready(self) -> bool:
        """Whether something can be taken now."""
        return bool(self._ready)

    def take(self) -> tuple[int, Element] | None:
        """The next element and its channel, or None when nothing can be taken now.

        Raises:
            Exception: what decoding the element raised.
        """
        if not self._ready:
            return None
        channel = self._ready.popleft()
        inbox = self._inboxes[channel]
        element = inbox.take()
        if inbox.queue:
            self._ready.append(channel)
        return channel, element

    def block(self, channel: int) -> None:
        """Take nothing more from a channel until it is unblocked."""
        inbox = self._inboxes[channel]
        assert not inbox.blocked, f"channel={channel} is blocked already"
        inbox.blocked = True
        if inbox.queue:
            self._ready.remove(channel)

    def unblock(self, channels: Iterable[int]) -> None:
        """Read these channels again."""
        for channel in channels:
            inbox = self._inboxes[channel]
            assert inbox.blocked, f"channel={channel} is not blocked"
            inbox.blocked = False
            if inbox.queue:
                self._ready.append(channel)
        if self._ready:
            self._wake()
