"""What connectors and operators must provide: Source, Sink, their contexts, and the definition of an operator.

Source and Sink objects are immutable factories (rule 21): `open` makes the working object, one per subtask.
Positions and committables are JSON-able data, so that a manifest can be read with `cat` and edited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from flowpoint.host.base import Disk, Host
from flowpoint.model.plan import OperatorKind


class EndOfSplit:
    """The type of `END`."""

    def __repr__(self) -> str:
        return "END"


END: Final = EndOfSplit()
"""What `SourceReader.read` returns when the split has no more records."""


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a source's input that one subtask reads. `data` is JSON-able and says what it is."""

    id: str
    data: dict[str, Any] = field(default_factory=dict)


class Clock(Protocol):
    """Time for connectors and operators."""

    def wall_ms(self) -> int:
        """Wall-clock time, epoch ms."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never jumps back."""

    async def sleep(self, seconds: float) -> None:
        """Wait, in virtual time when simulated."""


class HostClock:
    """`Clock` on a host."""

    def __init__(self, host: Host) -> None:
        self.wall_ms = host.wall_ms

    def monotonic(self) -> float:
        """Seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What a source reader or sink writer knows about where it runs.

    `restored_checkpoint` is the checkpoint this attempt started from (0: none). `inherits` is the lineage whose output
    this one goes on with, because that one was stopped for it ("": none). `is_branch`: the lineage begins with this attempt,
    from a snapshot of another one that keeps what it has written. `take_output` is the shell's
    `--take-output`, `skip_lost_input` its `--skip-lost-input`. `metrics` is a dict of counters shown by `status`.
    `log(text)` writes a line to the job's log. `job` is the job's name, for messages. `shared` is what the readers of one
    subtask keep for each other while it lives; no snapshot has it.
    """

    uid: str
    subtask: int
    parallelism: int
    lineage: str
    attempt: int
    disk: Disk
    clock: Clock
    restored_checkpoint: int = 0
    take_output: bool = False
    skip_lost_input: bool = False
    metrics: dict[str, int] = field(default_factory=dict)
    log: Callable[[str], None] = print
    job: str = ""
    inherits: str = ""
    is_branch: bool = False
    shared: dict[str, Any] = field(default_factory=dict)


class SourceReader(Protocol):
    """Reads one split."""

    async def read(self, n: int) -> list[Any] | EndOfSplit:
        """About `n` records at most, an empty list for "nothing now", or `END`.

        Never cancelled while the job runs. May wait a while, but not for ever.
        """

    def position(self) -> Any:
        """JSON-able: where to go on after what `read` has *returned* so far. May be called while a read waits."""

    async def close(self) -> None:
        """Release what is open."""


class Source(Protocol):
    """An input. `splits` is called once in the life of a job (rule 19), in the coordinator, and may block."""

    def splits(self) -> list[Split]:
        """The parts of the input, in a stable order. Subtask i gets splits i, i + parallelism, ..."""

    async def open(self, split: Split, position: Any, ctx: ConnectorContext) -> SourceReader:
        """A reader at `position` (None: the start). Raises LostInputError when the position is gone."""


class SinkWriter(Protocol):
    """Writes for one subtask."""

    async def write(self, batch: list[Any]) -> None:
        """Take these records. May wait: that is back-pressure. The list must not be kept."""

    def prepare(self, checkpoint: int) -> Coroutine[Any, Any, Any]:
        """Make everything written so far durable but invisible; returns a JSON-able committable, or None if empty.

        The next `write` belongs to the next checkpoint. It waits for this; see `PreparesBeside` for those that need not.
        """

    async def close(self) -> None:
        """Release what is open. What was not prepared is lost, and rightly so."""


@runtime_checkable
class PreparesBeside(Protocol):
    """What a writer has besides when its `prepare` need not be awaited before the next `write`.

    With `prepares_beside` True the call itself must end the checkpoint's share: records written afterwards belong to the
    next one, while the coroutine that it returned makes the share durable beside the stream. These are awaited in order,
    one at a time. One that fails ends the attempt; one that is not awaited any more is closed without having begun.
    """

    prepares_beside: bool

    def prepare(self, checkpoint: int) -> Coroutine[Any, Any, Any]:
        """See `SinkWriter`."""


class Sink(Protocol):
    """An output. All methods but `open` may be called in any process, any number of times."""

    async def begin(self, ctx: ConnectorContext) -> None:
        """Once per attempt, in the coordinator, before any writer exists: claim the target for `ctx.lineage`.

        Takes back what was committed after `ctx.restored_checkpoint` by this lineage. Raises ForeignOutputError.
        """

    @property
    def can_take_back(self) -> bool:
        """Whether `begin` can undo commits that are newer than the restored checkpoint (rule 1)."""

    async def open(self, ctx: ConnectorContext) -> SinkWriter:
        """A writer for `ctx.subtask`."""

    async def commit(self, committable: Any, ctx: ConnectorContext) -> None:
        """Make it visible. Idempotent: done already is success."""

    async def abort(self, committable: Any, ctx: ConnectorContext) -> None:
        """Throw it away. Idempotent: gone already is success. What it raises is told, and ends nothing.

        Called in the coordinator of the next attempt, after everything restored is committed and before `clean`, for
        what an ended attempt had acknowledged and no checkpoint will ever count (`protocol.prepared_output`). Never for
        what a checkpoint that failed had prepared while its attempt lives on: that is committed with the next one.
        `ctx` is as for `clean`, whichever subtask had prepared it.
        """

    async def clean(self, ctx: ConnectorContext) -> None:
        """Once per attempt, in the coordinator, after everything restored is committed: remove leftovers of older
        attempts of this lineage. Only this finds what was prepared and not acknowledged, or by a coordinator's death
        forgotten."""


@runtime_checkable
class SinkWithFiles(Protocol):
    """What a sink has besides when its committables stand for local files: these travel inside savepoints.

    The committables of any other sink are carried in savepoints as they are.
    """

    async def files_of(self, committable: Any, ctx: ConnectorContext) -> list[str]:
        """The files behind a committable: durable, and never changed again. One may have been committed meanwhile."""

    async def take_in(self, committable: Any, files: list[str], ctx: ConnectorContext) -> Any:
        """The reverse, in a job that starts from the savepoint: a committable of `ctx.lineage`, made of copies.

        Once, in the coordinator, after `begin`. `committable` is the one that was exported, `files` are its copies.
        """


AT_LEAST_ONCE: Final = "at-least-once"
"""The `guarantee` of a sink that gets records again after a failure: a person is told when such a job starts."""


@runtime_checkable
class HasGuarantee(Protocol):
    """Sources and sinks say what they guarantee, for messages and the table in the docs."""

    guarantee: str


@dataclass(frozen=True, slots=True)
class OperatorDef:
    """A user's operator as this process sees it: the spec's kind plus the objects that cannot leave the process.

    function: the callable, process function, aggregate, timestamp assignment, Source or Sink (None for count).
    key: for keyed operators, the key selector of the `key_by` before it. second_key: that of the second input.
    """

    uid: str
    kind: OperatorKind
    function: Any
    key: Callable[[Any], Any] | None = None
    types: tuple[type, ...] = ()
    second_key: Callable[[Any], Any] | None = None
