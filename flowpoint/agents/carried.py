"""What a checkpoint has of its parent: channels that the code did not hand us, as it may no longer know of them.

The last checkpoint of each place is remembered, since it is the parent of nearly every put. It is known by the number of
its commit, too: others may put another checkpoint under its id, or remove it.

Invariant: a channel is carried along only at the version that the parent has it in; one that the code has removed, or
has written to, is not. Not here: what is done with stored channels that the code does not know (`schema`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from flowpoint.agents.entry_names import Place
from flowpoint.agents.reading import Record
from flowpoint.agents.values import Ref

_RECENT_MAX: Final = 64


class Carried:
    """Completes the checkpoints that are put into one store. To be called in sections of the thread."""

    def __init__(self, earlier: Callable[[Place, str], Record | None]) -> None:
        """`earlier` finds a checkpoint."""
        self._earlier = earlier
        self._recent: dict[Place, tuple[str, int, Mapping[str, Any], Mapping[str, Ref]]] = {}
        """The last checkpoint that was put in a place: its id and number, the versions of its channels, their values."""

    def add(
        self,
        place: Place,
        parent: str | None,
        number: int | None,
        versions: Mapping[str, Any],
        channels: dict[str, Ref],
        changed: Collection[str],
    ) -> None:
        """Add to the values of `channels` those of the parent, whose `number` it is, that have the same version."""
        if parent is None:
            return
        recent = self._recent.get(place)
        if recent is not None and recent[0] == parent and recent[1] == number:
            _, _, old_versions, old_channels = recent
        elif versions.keys() <= channels.keys() | set(changed):
            return
        else:
            record = self._earlier(place, parent)
            if record is None:
                return
            old_versions, old_channels = record.checkpoint["channel_versions"], record.channels
        for channel in sorted(old_channels.keys() - channels.keys()):
            if channel in versions and channel not in changed and old_versions.get(channel) == versions[channel]:
                channels[channel] = old_channels[channel]

    def remember(
        self, place: Place, id: str, number: int, versions: Mapping[str, Any], channels: Mapping[str, Ref]
    ) -> None:
        """Keep the checkpoint that was put last in a place."""
        if place not in self._recent and len(self._recent) >= _RECENT_MAX:
            self._recent.clear()
        self._recent[place] = id, number, versions, channels
