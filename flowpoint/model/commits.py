"""One entry of a job's commit log, as data: what happened, in which attempt, and which checkpoint is the newest then.

`snapshot.commit_log` writes and reads the log; `protocol.recovery` decides from a list of entries what to restore.
Commit numbers, attempts and checkpoint ids are three different counters (rule 4).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class CommitKind(StrEnum):
    """What an entry of the commit log says: the values of `CommitEntry.kind`."""

    ATTEMPT = "attempt"  # attempt k begins: everything older is fenced
    CHECKPOINT = "checkpoint"  # a checkpoint is complete: from here on it counts, and sinks commit
    RESTORED = "restored"  # an older checkpoint was fallen back to: what came after it never counts again
    SAVEPOINT = "savepoint"  # a savepoint is complete; sinks do not commit, failover never uses it
    STOPPED = "stopped"  # a graceful stop came about
    FINISHED = "finished"  # the job has read all its input and committed all its output
    ABANDONED = "abandoned"  # the lineage was refused before it had begun; the one before it goes on being the job's


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """What happened as number `number`. Every entry repeats the attempt and the newest checkpoint.

    kind: a `CommitKind`; as text, so that an entry of a newer release can be told to be one.
    checkpoint, directory: the newest checkpoint once this has happened (0 and "": there is none), e.g. 17, "chk-17-a7".
    parent: the checkpoint that one was taken after (0: none).
    nonce: tells this append from any other one for the same number.
    created: epoch ms.
    extra: further JSON-able facts of this kind of entry.
    """

    number: int
    kind: str
    attempt: int
    lineage: str
    checkpoint: int
    directory: str
    parent: int
    nonce: str
    created: int
    extra: dict[str, Any] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> CommitEntry:
        """The reverse of `to_data`."""
        return cls(**{**data, "extra": dict(data.get("extra", {}))})
