"""The watermark of a subtask with several input channels: the least of what its channels have said.

A watermark `w` in a channel says: no more records with a timestamp <= w come here. The subtask's own watermark is the
minimum over the channels that count:

    channel                                          counts
    its records have timestamps (`EdgeSpec.timed`)   yes, while it is not idle
    its records have none                            no: it says nothing about event time, and must not hold it back
    all channels that count are idle                 the greatest of them is taken, and the subtask itself is idle

Invariants:
- The watermark never falls: a channel that comes back behind it holds it where it is.
- A channel that has said nothing yet holds the watermark back until it speaks, is idle, or ends (its last watermark is
  WATERMARK_MAX).

Not here: firing timers (`runtime`), where a watermark comes from (`assign_timestamps`), where it is saved (rule 15).
"""

from __future__ import annotations

from collections.abc import Sequence

from flowpoint.model.elements import WATERMARK_MIN


class InputWatermarks:
    """Merges the watermarks of one subtask's channels. Every `on_...` gives the new watermark when it has risen.

    Example:
        >>> inputs = InputWatermarks([True, True])
        >>> inputs.on_watermark(0, 5), inputs.on_watermark(1, 4), inputs.on_idle(1)
        (None, 4, 5)
    """

    def __init__(self, timed: Sequence[bool], start: int = WATERMARK_MIN) -> None:
        """`timed`: per channel, whether its records have timestamps. `start`: the saved watermark (rule 15)."""
        self._channels = {channel: start for channel, counts in enumerate(timed) if counts}
        self._idle: set[int] = set()
        self.watermark = start

    @property
    def is_idle(self) -> bool:
        """Whether every channel that counts is idle."""
        return bool(self._channels) and len(self._idle) == len(self._channels)

    def on_watermark(self, channel: int, watermark: int) -> int | None:
        """A channel has spoken. It is not idle any more."""
        assert channel in self._channels, f"a watermark came in {channel=}, whose records have no timestamps"
        self._idle.discard(channel)
        self._channels[channel] = max(watermark, self._channels[channel])
        return self._risen()

    def on_idle(self, channel: int) -> int | None:
        """A channel is idle from now on."""
        assert channel in self._channels, f"{channel=} is idle, and its records have no timestamps"
        self._idle.add(channel)
        return self._risen()

    def on_active(self, channel: int) -> None:
        """A channel has records again, or says that it will."""
        self._idle.discard(channel)

    def _risen(self) -> int | None:
        if self.is_idle:
            reached = max(self._channels.values())
        else:
            reached = min(said for channel, said in self._channels.items() if channel not in self._idle)
        if reached <= self.watermark:
            return None
        self.watermark = reached
        return reached
