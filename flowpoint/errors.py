"""Every exception of FlowPoint, rooted by who must act.

    FlowPointError
    ├ UsageError                 the person at the shell must act          exit 2
    │ ├ ConfigError              a key or value of the configuration is wrong
    │ └ StoreInUseError          another process has the memory of agents open
    ├ NotFoundError              no such job or snapshot                    exit 3
    ├ JobError                   the job's author must act                  exit 1 (2 before it runs)
    │ ├ PlanError                the graph is wrong: no source, uid used twice, ...   exit 2
    │ ├ UserCodeError            a user's function raised; carries operator and cause
    │ ├ BadRecordError           a record, key or line that cannot be handled
    │ │ └ UnknownTypeError       a class that the job or agent does not declare
    │ ├ SchemaError              stored state of an agent that its code cannot take over
    │ ├ IncompatibleStateError   the snapshot does not fit the job
    │ ├ LostInputError           a source position is gone
    │ ├ ForeignOutputError       the output folder belongs to another lineage
    │ ├ DamagedOutputError       what is kept beside the output is damaged, or something stands in its way
    │ └ LostOutputError          prepared output is gone, as when its folder was moved
    ├ SnapshotError              a snapshot is damaged or incomplete
    │ └ LostLogError             entries of the commit log have been removed while the job ran
    ├ DamagedStoreError          the memory of agents is damaged, or written by a newer version
    ├ SealError                  an encrypted value that cannot be opened, or one that is not encrypted
    ├ TransientError             failover may mend it: links, workers, disks
    │ ├ LinkLost, WorkerLost, CheckpointFailed
    │ │           └ DiedAtStart  a worker ended by itself before it had begun to work
    │ ├ NotListening             a job that is starting or ending does not answer yet, or no more
    │ ├ ConcurrentRunError       another run of the same agent's thread came first: run again
    │ └ StorageError             storage refused an operation
    │   ├ UnreadableError        what may well be whole cannot be read: no damage
    │   ├ StorageFull            no space left: waiting may mend it
    │   ├ StorageLimit           beyond a limit of the configuration: another setting mends it
    │   └ OutcomeUnknown         a write that may or may not have happened: the attempt ends, sinks abort nothing
    └ Fenced                     this process belongs to an older attempt and must end
    InternalError                a bug in FlowPoint itself (not a FlowPointError)

Message form: what could not be done, what was seen, what to do. Messages name the operator, uid, file or key.
Across processes an error travels as data (`model.messages.Failure`), never as a pickled exception.
"""

from __future__ import annotations


class FlowPointError(Exception):
    """The root; never raised itself."""

    exit_code = 1
    operator: str = ""
    """The uid of the operator it happened in, when there is one."""


class UsageError(FlowPointError):
    """A command, path or job file that cannot be used as given."""

    exit_code = 2


class ConfigError(UsageError):
    """An unknown configuration key or a value out of its range."""


class StoreInUseError(UsageError):
    """The memory of agents is open in another process, which only one may write to."""


class NotFoundError(FlowPointError):
    """There is no such job or snapshot."""

    exit_code = 3


class JobError(FlowPointError):
    """Something in the job or its data that restarting cannot mend."""


class PlanError(JobError):
    """The stream graph cannot be compiled into a plan."""

    exit_code = 2


class UserCodeError(JobError):
    """A user's function raised. The original exception is chained as `__cause__`."""


class BadRecordError(JobError):
    """A record, a key or a line of input that the engine cannot handle."""


class UnknownTypeError(BadRecordError):
    """A value is, or its bytes name, an instance of a class that is not declared; `type_name` says which."""

    type_name: str = ""

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class SchemaError(JobError):
    """A thread of an agent holds state that the code, or a migration of it, cannot take over."""


class IncompatibleStateError(JobError):
    """The snapshot holds state that this job cannot take over."""


class LostInputError(JobError):
    """A source was asked to continue at a position that no longer exists."""


class ForeignOutputError(JobError):
    """The output target belongs to another lineage."""


class DamagedOutputError(JobError):
    """What FlowPoint keeps beside the output is not what it wrote, or something else stands in its place."""


class LostOutputError(JobError):
    """Output that a checkpoint prepared is not where it was left, or the folder of the output is gone."""


class SnapshotError(FlowPointError):
    """A snapshot whose manifest or files are missing, torn or do not match their checksums."""


class LostLogError(SnapshotError):
    """The commit log has lost its newest entries, so that it does not tell any more what the job has done."""


class DamagedStoreError(FlowPointError):
    """The memory of agents holds what cannot be read: damaged, moved, or written by a newer version."""


class SealError(FlowPointError):
    """A stored value that should be encrypted is not, was changed or moved, or needs a key that was not given."""


class TransientError(FlowPointError):
    """A failure of the surroundings that a new attempt may mend."""


class LinkLost(TransientError):
    """The other end of a link is gone."""


class WorkerLost(TransientError):
    """A worker process ended or fell silent."""


class DiedAtStart(WorkerLost):
    """A worker process ended by itself, with an error, before it had anything to run."""


class NotListening(TransientError):
    """A job that is starting, or ending, cannot be asked at this moment."""


class ConcurrentRunError(TransientError):
    """Another run of the same thread came first, or the thread was deleted; nothing of this one is at the head."""


class StorageError(TransientError):
    """Storage refused an operation: disk full, no permission, I/O error."""


class UnreadableError(StorageError):
    """What is stored cannot be read at the moment, also not when tried again; nothing says that it is damaged."""


class StorageFull(StorageError):
    """The storage has no space left; what was being written is not there."""


class StorageLimit(StorageError):
    """It would be more than the configuration allows; what was being written is not there."""


class OutcomeUnknown(StorageError):
    """A write that may or may not have happened, and reading back cannot tell.

    The attempt ends, and no sink is aborted because of it: the commit may stand (rule 5).
    """


class CheckpointFailed(TransientError):
    """A checkpoint could not be completed; carries the reason in its message."""


class Fenced(FlowPointError):
    """A newer attempt or coordinator has taken over; this one must end at once."""


class InternalError(Exception):
    """A bug in FlowPoint. Please report it together with the message."""


FINAL_ERRORS = (
    BadRecordError,
    DamagedOutputError,
    ForeignOutputError,
    IncompatibleStateError,
    LostInputError,
    LostLogError,
    LostOutputError,
    PlanError,
)
"""A new attempt meets the same data, state and files again: these end the job instead of looping (rule 18)."""
