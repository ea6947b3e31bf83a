"""Files of failed checkpoints, and which of them nobody needs any more.

A subtask may build its next checkpoint on files that it wrote for a failed one. What it still builds on stands in its
part of every newer checkpoint; so a file is over once a checkpoint that is newer than the file's does not name it.

Not here: removing them (`snapshot.retention`).
"""

from __future__ import annotations

from flowpoint.model import messages
from flowpoint.model.manifest import SubtaskState


class AbandonedFiles:
    """What the failed checkpoints of one attempt have left. A new attempt sweeps storage and begins with none."""

    def __init__(self) -> None:
        self._newest_of: dict[str, int] = {}  # path -> the newest failed checkpoint that names it

    def add(self, ack: messages.Ack) -> None:
        """A subtask's part of a checkpoint that has failed."""
        for data in ack.operators.values():
            for file in SubtaskState.from_data(data).every_file():
                self._newest_of[file.path] = max(ack.checkpoint, self._newest_of.get(file.path, 0))

    def take(self, newest: int, files: frozenset[str]) -> list[str]:
        """The files that no later checkpoint of this attempt can name; each is given out once.

        Args:
            newest: the id of the newest completed checkpoint.
            files: the paths that it names.
        """
        over = [path for path, checkpoint in self._newest_of.items() if checkpoint < newest or path in files]
        for path in over:
            del self._newest_of[path]
        return [path for path in over if path not in files]
