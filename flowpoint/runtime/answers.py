"""What one subtask tells the coordinator about checkpoints and its end.

Every answer carries attempt and subtask, so that a late one of an older attempt counts for nothing (rule 4).

Not here: when an answer is right (`captures` for acknowledgements, `subtask` for the rest).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from flowpoint.errors import StorageLimit
from flowpoint.model import messages
from flowpoint.model.plan import SubtaskId

Report: TypeAlias = Callable[[messages.Message], None]


@dataclass(frozen=True, slots=True)
class Answers:
    """Sends the answers of one subtask of one attempt. `called`: what a person calls it."""

    attempt: int
    subtask: SubtaskId
    called: str
    report: Report

    def acknowledge(
        self, checkpoint: int, operators: dict[str, Any], saved: dict[str, Any], stats: dict[str, Any]
    ) -> None:
        """Everything named in `operators`, and in `saved` for a savepoint, is durable."""
        self.report(messages.Ack(self.attempt, checkpoint, list(self.subtask), operators, stats, saved))

    def tell_files(self, checkpoint: int, operators: dict[str, Any], stats: dict[str, Any], *, partial: bool) -> None:
        """What was written for a checkpoint that has failed. `partial`: some of it could not be written."""
        self.report(messages.Ack(self.attempt, checkpoint, list(self.subtask), operators, stats, partial=partial))

    def decline(self, checkpoint: int, reason: str, *, restoring: bool = False) -> None:
        """This checkpoint cannot be. `restoring`: not yet, which nobody is to blame for."""
        self.report(messages.Decline(self.attempt, checkpoint, list(self.subtask), reason, restoring=restoring))

    def decline_failed(self, checkpoint: int, what: str, error: Exception) -> None:
        """Its part could not be written. `what`: such as "records under way"."""
        reason = f"failed while writing{f' {what}' if what else ''}: {error}"
        is_beyond = isinstance(error, StorageLimit)
        self.report(messages.Decline(self.attempt, checkpoint, list(self.subtask), reason, beyond_limit=is_beyond))

    def committed(self, checkpoint: int) -> None:
        """The sink has committed everything up to `checkpoint`."""
        self.report(messages.Committed(self.attempt, checkpoint, list(self.subtask)))

    def ended(self) -> None:
        """Every input has ended."""
        self.report(messages.Ended(attempt=self.attempt, subtask=list(self.subtask)))
