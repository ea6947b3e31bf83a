"""One entry of the commit log, as data: what happened to a job, in the order of `number`.

`snapshot.commit_log` writes and reads entries, `protocol.recovery` decides from them. Commit numbers, attempts and
checkpoint ids are three different counters (design 5a, rule 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CommitKind(StrEnum):
    """What an entry says."""

    ATTEMPT = "attempt"  # attempt k begins: everything older is fenced
    CHECKPOINT = "checkpoint"  # a checkpoint is complete: from here on it counts, and sinks commit
    SAVEPOINT = "savepoint"  # a savepoint is complete; sinks do not commit, failover never uses it
    STOPPED = "stopped"  # a graceful stop came about
    FINISHED = "finished"  # the job has read all its input and committed all its output


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """An entry. `kind` is a `CommitKind`; `created` is epoch ms.

    checkpoint: the id of the checkpoint or savepoint that the entry is about (0: none).
    directory: its folder, such as "chk-17-a7" ("" for none); the one name that no two snapshots share.
    parent: the checkpoint *id* that it was taken after or restored from (0: none), as in its manifest.
    """

    number: int
    kind: str
    attempt: int
    lineage: str
    checkpoint: int = 0
    directory: str = ""
    parent: int = 0
    nonce: str = ""
    created: int = 0
    extra: dict[str, Any] = field(default_factory=dict)
