"""What each operator of a subtask puts into a snapshot: keyed and broadcast state, watermarks, source positions, sink
committables.

`capture` is the short part that runs between two batches; the step it returns makes that durable beside the stream and
gives the `SubtaskState` for the manifest. Steps of one part run one after another, in the order of their captures, and
each of them runs: one that fails leaves its entries to the next (`state.backend`). Only steps for a savepoint that was
given up are dropped or cancelled.

`capture_savepoint` is the same for a savepoint, whose files all go into its own folder: state in full, and the output
that is not committed yet. A savepoint changes nothing for the checkpoints after it: they go on as if there were none.

Invariant: what is captured does not change any more, whatever a reader or writer does with the data it gave us.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flowpoint.codec.key_types import key_shapes, key_types
from flowpoint.errors import StorageError
from flowpoint.model.elements import WATERMARK_MIN, Barrier
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.runtime.closing import finish
from flowpoint.runtime.connector_forms import full_writer
from flowpoint.runtime.contracts import ConnectorContext, PreparesBeside, Sink, SinkWithFiles, SinkWriter
from flowpoint.runtime.failures import naming
from flowpoint.runtime.json_data import checked_json
from flowpoint.state.backend import Backend, Frozen
from flowpoint.state.key_functions import refuse_other_keys
from flowpoint.state.versions import stamped

_EXPORT_TRIES = 3


def _nothing() -> None:
    """What most captures hold back: nothing."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was captured and is to be made durable: exactly one of `write` and `drop` is called, once.

    drop: let go of what the capture holds back; nobody wants it written any more.
    """

    write: Callable[[], Coroutine[Any, Any, SubtaskState]]
    drop: Callable[[], None] = _nothing

    @classmethod
    def of(cls, state: SubtaskState) -> Captured:
        """What is small, and stands in the manifest: nothing else has to be made durable."""

        async def write() -> SubtaskState:
            return state

        return cls(write)


class Part(Protocol):
    """One operator's share of a snapshot."""

    uid: str

    async def capture(self, barrier: Barrier) -> Captured:
        """Freeze what belongs before the barrier; returns the step that makes it durable."""

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """The same for the savepoint `barrier.savepoint`. Comes after `capture` when the barrier is for both."""

    async def close(self) -> None:
        """Let go of what is open."""


WriteState = Callable[[str, Frozen], Coroutine[Any, Any, list[StateFile]]]
WriteSavepoint = Callable[[str, Sequence[StateFile], Frozen, str], Coroutine[Any, Any, list[StateFile]]]
"""(uid, the files to copy, what is newer than these, the savepoint's folder) -> the files."""
SaveFiles = Callable[[str, list[str], str], Coroutine[Any, Any, list[StateFile]]]
"""(uid, durable local files, the savepoint's folder) -> copies of them in it."""


@dataclass(slots=True)
class KeyedPart:
    """Keyed state of one operator. `files` is the chain that a snapshot names: a base, then what changed since.

    must_be_full: the files are those of somebody else's snapshot, so the next checkpoint starts a new chain.
    is_broadcast: it is the operator's broadcast state instead, which every subtask has whole.
    stored_keys: after a change of the key function, the types of the keys that state is stored under, until keys of this
    run were held against them; empty: there is nothing to look at. `seen_keys` gives keys of records since the last freeze
    or longer.
    """

    uid: str
    backend: Backend
    groups: tuple[int, int]
    write_state: WriteState
    write_savepoint: WriteSavepoint
    incremental: bool = True
    files: tuple[StateFile, ...] = ()
    must_be_full: bool = False
    is_broadcast: bool = False
    stored_keys: frozenset[str] = frozenset()
    seen_keys: Callable[[], Collection[Any]] = tuple

    async def capture(self, barrier: Barrier) -> Captured:
        """Swap the changed entries out."""
        return self.freeze()

    def freeze(self) -> Captured:
        """The same without a barrier: changed entries have outgrown memory and go out early, into the next snapshot.

        Raises:
            IncompatibleStateError: the keys of this run are not of the types that state is stored under.
        """
        self._check_keys()
        frozen = self.backend.freeze(full=self.must_be_full or not self.incremental)
        states = self.backend.schemas()

        async def write() -> tuple[StateFile, ...]:
            files = stamped(await self.write_state(self.uid, frozen), states)
            kept = () if frozen.full else self.files[: len(self.files) - frozen.replaces]
            self.files = (*kept, *files)
            self.must_be_full = False
            return self.files

        return self._captured(frozen, states, write)

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """Freeze what is in no file of the chain yet: with copies of these it makes up all of the state."""
        self._check_keys()
        frozen = self.backend.freeze_detached()
        # No uid has a slash in it: an operator may have both kinds of state.
        name = f"{self.uid}/broadcast" if self.is_broadcast else self.uid
        states = self.backend.schemas()

        async def write() -> tuple[StateFile, ...]:
            # A frozen that is full needs no file below it.
            chain = () if frozen.full else self.files
            return stamped(await self.write_savepoint(name, chain, frozen, barrier.savepoint), states)

        return self._captured(frozen, states, write)

    def _check_keys(self) -> None:
        """Nothing with keys of another type than the stored ones may get into a snapshot that counts."""
        if self.stored_keys:
            seen = key_types(key_shapes(self.seen_keys()))
            if seen:
                refuse_other_keys(self.uid, self.stored_keys, seen)
                self.stored_keys = frozenset()

    def _captured(
        self,
        frozen: Frozen,
        states: dict[str, Any],
        write_files: Callable[[], Awaitable[tuple[StateFile, ...]]],
    ) -> Captured:
        """What `frozen` becomes once `write_files` has made it durable; the backend learns how that ended."""

        async def write() -> SubtaskState:
            try:
                files = await write_files()
            except BaseException:
                frozen.failed()
                raise
            frozen.durable()
            if self.is_broadcast:
                return SubtaskState(broadcast=files, states=states)
            return SubtaskState(files=files, groups=self.groups, states=states)

        return Captured(write, frozen.failed)

    async def close(self) -> None:
        """Let go of the state; what is in no snapshot is gone."""
        self.backend.close()


class HasWatermark(Protocol):
    """A stage that knows where event time stands."""

    uid: str

    @property
    def watermark(self) -> int: ...


class WatermarkPart:
    """Where event time stands at one operator: a restored subtask goes on from there (rule 15)."""

    def __init__(self, stage: HasWatermark) -> None:
        self.uid = stage.uid
        self._stage = stage

    async def capture(self, barrier: Barrier) -> Captured:
        """Note the watermark."""
        watermark = self._stage.watermark
        return Captured.of(SubtaskState(watermark=None if watermark == WATERMARK_MIN else watermark))

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """The same."""
        return await self.capture(barrier)

    async def close(self) -> None:
        """Nothing to let go of."""


@dataclass(slots=True)
class SinkPart:
    """A sink: what was prepared and not yet confirmed is state (rule 7), oldest first.

    A writer that prepares beside the stream is only *asked* at the barrier: its committable stands in `uncommitted` at
    once, and gets its data in `finish_preparing`, before anything of that barrier is written or acknowledged.
    """

    uid: str
    sink: Sink
    context: ConnectorContext
    save_files: SaveFiles
    writer: SinkWriter | None = None
    uncommitted: list[dict[str, Any]] = field(default_factory=list)
    preparing: deque[tuple[dict[str, Any], Coroutine[Any, Any, Any]]] = field(default_factory=deque)

    async def open(self) -> None:
        """Make the writer."""
        with naming(self.uid, "open()"):
            self.writer = full_writer(await self.sink.open(self.context))

    async def write(self, values: list[Any]) -> None:
        """Give records to the writer."""
        assert self.writer is not None, self.uid
        with naming(self.uid, "write()"):
            await self.writer.write(values)

    async def capture(self, barrier: Barrier) -> Captured:
        """Prepare what was written since the last barrier."""
        await self._prepare(barrier)
        held = tuple(self.uncommitted)

        async def write() -> SubtaskState:
            return SubtaskState(committables=_with_output(held))

        return Captured(write)

    async def capture_savepoint(self, barrier: Barrier) -> Captured:
        """Prepare, and take everything that no checkpoint of this job has committed into the savepoint.

        A checkpoint at the same barrier commits all of it, before the savepoint counts.
        """
        if barrier.kind == "checkpoint":
            uncommitted: tuple[dict[str, Any], ...] = ()
        else:
            await self._prepare(barrier)
            uncommitted = tuple(self.uncommitted)

        async def write() -> SubtaskState:
            exports: list[StateFile] = []
            committables = []
            for committable in _with_output(uncommitted):
                files = await self._export(committable, barrier.savepoint)
                if files is None:
                    continue
                exports += files
                committables.append({**committable, "files": [file.path for file in files]})
            return SubtaskState(committables=tuple(committables), exports=tuple(exports))

        return Captured(write)

    async def _export(self, committable: dict[str, Any], folder: str) -> list[StateFile] | None:
        """Copies of the files that a committable stands for; none when the sink keeps everything in it.

        None for one that was committed meanwhile and whose files a reader has taken away: it belongs to the output that
        was there before.

        Raises:
            StorageError: files of output that is not committed cannot be found.
        """
        if not isinstance(self.sink, SinkWithFiles):
            return []
        for _ in range(_EXPORT_TRIES):
            with naming(self.uid, "files_of()"):
                files = await self.sink.files_of(committable["data"], self.context)
            try:
                return await self.save_files(self.uid, files, folder)
            except FileNotFoundError:
                # A checkpoint has committed it this very moment: it has another name now.
                continue
        if any(one is committable for one in self.uncommitted):
            raise StorageError(
                f"cannot take the output that sink '{self.uid}' prepared for checkpoint {committable['checkpoint']} into"
                f" the savepoint: {files} is not there; if somebody removed it, continue from an older checkpoint"
            )
        return None

    async def _prepare(self, barrier: Barrier) -> None:
        assert self.writer is not None, self.uid
        with naming(self.uid, "prepare()"):
            preparing = self.writer.prepare(barrier.checkpoint)
        committable: dict[str, Any] = {"checkpoint": barrier.checkpoint, "data": None}
        self.uncommitted.append(committable)
        self.preparing.append((committable, preparing))
        if not (isinstance(self.writer, PreparesBeside) and self.writer.prepares_beside):
            await self.finish_preparing(barrier.checkpoint)

    async def finish_preparing(self, checkpoint: int) -> None:
        """Make durable what the writer was asked to prepare up to `checkpoint`, in order.

        What fails here is no failed snapshot: a writer that could not prepare has lost records, and cannot go on.
        """
        while self.preparing and self.preparing[0][0]["checkpoint"] <= checkpoint:
            committable, preparing = self.preparing.popleft()
            with naming(self.uid, "prepare()"):
                data = checked_json(await preparing, f"the committable of sink '{self.uid}'")
            committable["data"] = data
            if data is None:
                self.uncommitted = [one for one in self.uncommitted if one is not committable]

    async def commit(self, checkpoint: int) -> None:
        """Commit everything up to and including `checkpoint`, in order. Confirmed ones leave the state."""
        while self.uncommitted and self.uncommitted[0]["checkpoint"] <= checkpoint:
            with naming(self.uid, "commit()"):
                committing = self.sink.commit(self.uncommitted[0]["data"], self.context)
                await finish(committing, f"operator '{self.uid}': commit()")
            del self.uncommitted[0]

    async def close(self) -> None:
        """Close the writer; what was not prepared is lost, and rightly so."""
        while self.preparing:
            self.preparing.popleft()[1].close()
        writer, self.writer = self.writer, None
        if writer is not None:
            with naming(self.uid, "close()"):
                await writer.close()


def _with_output(committables: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Those behind which there is output; known when all of them are prepared."""
    return tuple(one for one in committables if one["data"] is not None)


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The data of two parts of one operator (`SubtaskState.to_data`) as one; they share nothing but `states`."""
    states = {**first.get("states", {}), **second.get("states", {})}
    return {**first, **second, **({"states": states} if states else {})}
