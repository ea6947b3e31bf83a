"""When all subtasks of a worker have said the same of a checkpoint: that they acknowledge it, or have committed it.

Then, and not with each of them, goes along what is told of the whole worker.

Invariant: what is remembered ends with the next round of its kind that comes to its end, as given-up checkpoints never do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from flowpoint.model import messages
from flowpoint.model.plan import SubtaskId

Answer = messages.Ack | messages.Committed


class Rounds:
    """The answers of the subtasks of one attempt in one worker.

    Args:
        subtasks: all of them.
        sinks: those that commit.
    """

    def __init__(self, subtasks: Iterable[SubtaskId], sinks: Iterable[SubtaskId]) -> None:
        self._expected: dict[type[Answer], Collection[SubtaskId]] = {
            messages.Ack: frozenset(subtasks),
            messages.Committed: frozenset(sinks),
        }
        self._missing: dict[tuple[type[Answer], int], set[SubtaskId]] = {}

    def ends_with(self, answer: Answer) -> bool:
        """Take note of an answer; whether it is the last one of its kind about its checkpoint."""
        kind, checkpoint = type(answer), answer.checkpoint
        missing = self._missing.setdefault((kind, checkpoint), set(self._expected[kind]))
        missing.discard(SubtaskId(*answer.subtask))
        if missing:
            return False
        self._missing = {key: left for key, left in self._missing.items() if key[0] is not kind or key[1] > checkpoint}
        return True
