"""Files of failed checkpoints, and which of them nobody needs any more.

A subtask may build its next checkpoint on files that it wrote for a failed one. What it still builds on stands in its
part of every newer checkpoint; so a file is over once a checkpoint that is newer than the file's does not name it: one
that counts, or one for which its subtask has acknowledged its own part, when nothing older is pending. Once dropped, a
file is never named again.

Not here: removing them (`snapshot.retention`).
"""

from __future__ import annotations

from dataclasses import dataclass

from flowpoint.model import messages
from flowpoint.model.manifest import SubtaskState
from flowpoint.model.plan import SubtaskId


@dataclass(frozen=True, slots=True)
class _Left:
    """Whose file it is, and the newest failed checkpoint that names it."""

    subtask: SubtaskId
    checkpoint: int


class AbandonedFiles:
    """What the failed checkpoints of one attempt have left. A new attempt sweeps storage and begins with none."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        self._newest: dict[SubtaskId, messages.Ack] = {}

    def heard(self, ack: messages.Ack) -> None:
        """A subtask's part of a checkpoint, whatever becomes of that.

        Its part of a savepoint names copies, and so says nothing of what the subtask builds on; nor does a part of which
        some could not be written.
        """
        if ack.partial or (ack.savepoint and not ack.operators):
            return
        subtask = SubtaskId(*ack.subtask)
        known = self._newest.get(subtask)
        if known is None or known.checkpoint < ack.checkpoint:
            self._newest[subtask] = ack

    def add(self, ack: messages.Ack) -> None:
        """A subtask's part of a checkpoint that has failed."""
        subtask = SubtaskId(*ack.subtask)
        for path in _named_in(ack):
            left = self._left.get(path)
            self._left[path] = _Left(subtask, max(ack.checkpoint, left.checkpoint if left is not None else 0))

    def take(self, newest: int, files: frozenset[str], oldest_pending: int | None) -> list[str]:
        """What is `over`; each file is given out once."""
        over = self.over(newest, files, oldest_pending)
        # Those that count now are a matter of retention.
        self._left = {path: left for path, left in self._left.items() if path not in files}
        for path in over:
            del self._left[path]
        return over

    def over(self, newest: int, files: frozenset[str], oldest_pending: int | None) -> list[str]:
        """The files that no later checkpoint of this attempt can name.

        Args:
            newest: the id of the newest completed checkpoint.
            files: the paths that it names.
            oldest_pending: the oldest checkpoint or savepoint that is still under way (None: there is none).
        """
        if not self._left:
            return []
        named = {subtask: _named_in(ack) for subtask, ack in self._newest.items()}

        def is_dropped(path: str, left: _Left) -> bool:
            """Whether its subtask has gone on without it, and nobody can be building on what was before."""
            ack = self._newest.get(left.subtask)
            if ack is None or not left.checkpoint < ack.checkpoint or path in named[left.subtask]:
                return False
            return oldest_pending is None or ack.checkpoint <= oldest_pending

        return [
            path
            for path, left in self._left.items()
            if path not in files and (left.checkpoint < newest or is_dropped(path, left))
        ]


def _named_in(ack: messages.Ack) -> frozenset[str]:
    states = map(SubtaskState.from_data, ack.operators.values())
    return frozenset(file.path for state in states for file in state.every_file())
