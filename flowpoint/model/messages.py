"""Every control message between the coordinator and its workers: one frozen dataclass each.

Fields hold only what msgpack carries (None, bool, int, float, str, bytes, list, dict with str keys), so that
`transport.control` can encode any of them by name and fields. `subtask` is `[task, index]`. Every message after the
greeting carries the attempt: both ends drop what belongs to another one (rule 8).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# ------------------------------------------------------------------ worker -> coordinator


@dataclass(frozen=True, slots=True)
class Hello:
    """First message on a control link: who I am, and where other workers reach me."""

    worker: int
    pid: int
    start_time: float
    incarnation: str
    data_address: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent on a link of its own by a thread of its own, so that user code cannot silence it (rule 17)."""

    worker: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Deployed:
    """All subtasks of this worker are built, state is open, restored committables are committed."""

    attempt: int
    worker: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A subtask's part of a checkpoint is durable. `operators` maps uid -> `model.manifest.SubtaskState` data.

    `savepoint` is the same for the savepoint that was written at the barrier, if any. `stats` has `alignment_ms`, and
    `unread` where restored state has not been read to its end: whether it is whole is not known yet.
    partial: of a checkpoint that has failed, and some of it could not be written. It tells of the files that were, and not
    of all that the subtask builds on.
    """

    attempt: int
    checkpoint: int
    subtask: list[int]
    operators: dict[str, Any]
    stats: dict[str, Any] = field(default_factory=dict)
    savepoint: dict[str, Any] = field(default_factory=dict)
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Decline:
    """A subtask cannot take part in a checkpoint, or could not write its part.

    restoring: only because it is still taking in the in-flight records of the checkpoint it started from.
    beyond_limit: its part is more than the configuration allows.
    """

    attempt: int
    checkpoint: int
    subtask: list[int]
    reason: str
    restoring: bool = False
    beyond_limit: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A subtask has seen the end of all its inputs and processed everything before it."""

    attempt: int
    subtask: list[int]


@dataclass(frozen=True, slots=True)
class Committed:
    """The sinks of a subtask have committed everything up to and including this checkpoint."""

    attempt: int
    checkpoint: int
    subtask: list[int]


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as data. `kind` is the class's name in `flowpoint.errors`; `retry` says whether a new attempt may help."""

    attempt: int
    worker: int
    subtask: list[int]
    operator: str
    kind: str
    message: str
    trace: str
    retry: bool


@dataclass(frozen=True, slots=True)
class Warn:
    """Something that a person should know of now, such as a full disk. One line.

    once: other subtasks may say the very same, and it is to be told only once.
    """

    attempt: int
    worker: int
    text: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Everything of this attempt has been torn down in this worker; its data links are closed."""

    attempt: int
    worker: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Numbers for the live table: about once a second, and before the last answer of a worker about each checkpoint.

    `subtasks`: by "uid#index". Counters are numbers; "metrics" is a dict of those that the operator's connector counts
    itself. "at_work": for how many seconds the records in hand have been worked on.
    """

    attempt: int
    worker: int
    subtasks: dict[str, Any]


# ------------------------------------------------------------------ coordinator -> worker


@dataclass(frozen=True, slots=True)
class Deploy:
    """Build these subtasks. `assignment` maps str(worker) -> list of [task, index]; `peers` str(worker) -> data address.

    `restore` maps uid -> list (per new subtask index) of the `SubtaskState` data it takes over; `None` starts empty.
    `storage`: what opens the job's storage in a worker (`snapshot.places`): the path of a folder, or "memory:" and an
    address. `full`: the first snapshot must not build on the restored files, which are those of somebody else's snapshot.
    `uses_local`: state may be opened from local files, and such are made.
    """

    attempt: int
    job: str
    lineage: str
    plan: dict[str, Any]
    settings: dict[str, Any]
    source: dict[str, Any]
    assignment: dict[str, Any]
    peers: dict[str, str]
    restore: dict[str, Any]
    restored_checkpoint: int
    storage: str
    work_dir: str
    full: bool = False
    uses_local: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Every worker is deployed: let records flow."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Trigger:
    """Sources of this worker: emit the barrier of this checkpoint now. The fields are those of the barrier."""

    attempt: int
    checkpoint: int
    kind: str
    halt: bool
    final: bool
    savepoint: str = ""
    drain: bool = False
    triggered: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """Checkpoint `checkpoint` is aborted: release alignments, forget its parts."""

    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Checkpoint `checkpoint` is in the commit log: sinks commit up to it."""

    attempt: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Resume:
    """A stop did not come about: sources that halted after a barrier go on."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Release:
    """The attempt is over: tear everything of it down, then answer `Released`."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Exit:
    """End this process in an orderly way."""

    reason: str


FROM_WORKER = Hello | Heartbeat | Deployed | Ack | Decline | Ended | Committed | Failure | Warn | Released | Stats
TO_WORKER = Deploy | Start | Trigger | Abort | Complete | Resume | Release | Exit
Message = FROM_WORKER | TO_WORKER
