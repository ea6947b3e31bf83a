"""Which output that sinks have prepared can never be committed any more: it is void, and its sink aborts it.

    known   acknowledged by a subtask of the living attempt, for whichever checkpoint
    void    of an attempt that is over, and in no checkpoint that counts; until its sink has aborted it

While an attempt lives nothing of it is void, whatever becomes of its checkpoints: what one that failed had prepared stays
in the state of the next one, and is committed with that (rule 7). It is decided once the next attempt has begun in the
commit log: from then on no append of an older one can succeed, so the log says for good what counts (rule 5). Commit of
N means of everything up to N; hence what is newer than the newest checkpoint of the log is void, and nothing else.

A savepoint hands out what it holds: another job may commit that, so it is never void, whatever became of the savepoint.

Known is only what was acknowledged to this coordinator. What else dead attempts have prepared, and all of it when the
coordinator itself was killed, can be found by the sink alone, in its `clean`.

Not here: calling sinks (`coordinator.housekeeping`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What the sink of one subtask has prepared for one checkpoint. `committable` is its own JSON-able data."""

    uid: str
    subtask: int
    checkpoint: int
    committable: Any


class PreparedOutput:
    """What the sinks of one job have prepared, as one coordinator knows it over all its attempts.

    Example:
        >>> output = PreparedOutput()
        >>> output.acknowledged("out", 0, [{"checkpoint": 4, "data": "rows 4"}, {"checkpoint": 5, "data": "rows 5"}])
        >>> output.settle(4)
        >>> [one.committable for one in output.void()]
        ['rows 5']
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], Prepared] = {}
        self._void: list[Prepared] = []
        self._handed_out = 0  # a savepoint holds everything up to here that no checkpoint has committed

    def acknowledged(self, uid: str, subtask: int, committables: Iterable[Mapping[str, Any]]) -> None:
        """A subtask of the living attempt holds these `SubtaskState.committables`, also if that checkpoint has failed."""
        for one in committables:
            if one["checkpoint"] > self._handed_out:
                prepared = Prepared(uid, subtask, one["checkpoint"], one["data"])
                self._known.setdefault((uid, subtask, prepared.checkpoint), prepared)

    def counts(self, checkpoint: int) -> None:
        """A checkpoint is in the log: sinks commit everything up to it."""
        self._forget(checkpoint)

    def handed_out(self, savepoint: int) -> None:
        """A savepoint with this id is being published, from which others may commit what it holds."""
        self._handed_out = max(self._handed_out, savepoint)
        self._forget(savepoint)

    def settle(self, newest: int) -> None:
        """The attempt is over, and the next one has begun in the log. What is left of it is void.

        Args:
            newest: the newest checkpoint of the log (0: none), also when an older one is restored: what was committed
                by it is taken back and not aborted.
        """
        self._forget(newest)
        self._void += sorted(self._known.values(), key=lambda one: (one.uid, one.subtask, one.checkpoint))
        self._known.clear()

    def void(self) -> list[Prepared]:
        """What is to be aborted; that of one subtask in the order in which it was prepared."""
        return list(self._void)

    def aborted(self, prepared: Prepared) -> None:
        """The sink has thrown it away."""
        self._void.remove(prepared)

    def _forget(self, checkpoint: int) -> None:
        self._known = {key: one for key, one in self._known.items() if one.checkpoint > checkpoint}
