"""How much a sender may send before the receiver has taken what came: the flow control of one channel.

Both ends start with the same window, counted in batches and in bytes. Sending spends it; the receiver gives back what
its task has *taken* (not what has merely arrived), so the queue of a channel is bounded by the window. Grants are
bundled: one goes out when half a window is owed in either unit.

No deadlock: what the sender lacks is in flight, queued at the receiver, or owed. If nothing is in flight or queued,
less than half of both windows is owed, so more than half is with the sender, and it is writable.

Invariants:
- Barriers, watermarks and ends need no credit (rule 13); nothing here is about them.
- `available + in flight + queued + owed == window`, in batches and in bytes. Credit may go below zero: a sender that
  is writable sends its whole batch, however large, in as many frames as it is cut into.

Not here: time (a batch is cut by time at the sender), frames, the queue itself.
"""

from __future__ import annotations

WINDOW_BATCHES = 4
WINDOW_BYTES = 1024 * 1024


class SenderCredit:
    """The sending end.

    Example:
        >>> credit = SenderCredit(batches=1, nbytes=100)
        >>> credit.spend(250)
        >>> credit.writable
        False
        >>> credit.grant(1, 250)
        >>> credit.writable
        True
    """

    __slots__ = ("_batches", "_bytes", "_window_batches", "_window_bytes")

    def __init__(self, batches: int = WINDOW_BATCHES, nbytes: int = WINDOW_BYTES) -> None:
        assert batches >= 1, f"a window holds a batch at least; {batches=}"
        assert nbytes >= 1, f"a window holds a byte at least; {nbytes=}"
        self._window_batches = self._batches = batches
        self._window_bytes = self._bytes = nbytes

    @property
    def writable(self) -> bool:
        """Whether another batch may be sent."""
        return self._batches > 0 and self._bytes > 0

    @property
    def unused(self) -> tuple[int, int]:
        """What is left of the window: batches and bytes, below zero after an overdraft."""
        return self._batches, self._bytes

    def spend(self, nbytes: int) -> None:
        """A batch (or one piece of a cut batch) was sent."""
        assert nbytes >= 0, f"{nbytes=}"
        self._batches -= 1
        self._bytes -= nbytes

    def grant(self, batches: int, nbytes: int) -> None:
        """The receiver gave credit back."""
        assert batches >= 0, f"{batches=}"
        assert nbytes >= 0, f"{nbytes=}"
        self._batches += batches
        self._bytes += nbytes
        assert self._batches <= self._window_batches, f"more batches granted than sent: {self.unused=}"
        assert self._bytes <= self._window_bytes, f"more bytes granted than sent: {self.unused=}"


class ReceiverCredit:
    """The receiving end. Takes the same window as its sender.

    Example:
        >>> credit = ReceiverCredit(batches=4, nbytes=1000)
        >>> credit.taken(10)
        >>> credit.taken(10)
        (2, 20)
    """

    __slots__ = ("_due_batches", "_due_bytes", "_owed_batches", "_owed_bytes")

    def __init__(self, batches: int = WINDOW_BATCHES, nbytes: int = WINDOW_BYTES) -> None:
        assert batches >= 1, f"a window holds a batch at least; {batches=}"
        assert nbytes >= 1, f"a window holds a byte at least; {nbytes=}"
        self._due_batches = max(1, batches // 2)
        self._due_bytes = max(1, nbytes // 2)
        self._owed_batches = 0
        self._owed_bytes = 0

    def taken(self, nbytes: int) -> tuple[int, int] | None:
        """The task took a batch out of the queue. Returns the grant to send now: (batches, bytes), or None yet."""
        assert nbytes >= 0, f"{nbytes=}"
        self._owed_batches += 1
        self._owed_bytes += nbytes
        if self._owed_batches >= self._due_batches or self._owed_bytes >= self._due_bytes:
            return self.flush()
        return None

    def flush(self) -> tuple[int, int] | None:
        """All that is owed, to be sent now; None when nothing is."""
        if not self._owed_batches:
            return None
        grant = self._owed_batches, self._owed_bytes
        self._owed_batches = self._owed_bytes = 0
        return grant
