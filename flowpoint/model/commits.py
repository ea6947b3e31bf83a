"""One entry of a job's commit log, as data: what happened, in which attempt, and which checkpoint is the newest then.

`snapshot.commit_log` writes and reads the log; `protocol.recovery` decides from a list of entries what to restore.
Commit numbers, attempts and checkpoint ids are three different counters (rule 4).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """What happened as number `number`. Every entry repeats the attempt and the newest checkpoint.

    kind: "attempt", "checkpoint", "savepoint", "finished", "stopped" or "abandoned".
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
