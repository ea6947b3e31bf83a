"""LangGraph's saver on the core: every method of `BaseCheckpointSaver`, sync and async.

The async methods call the sync ones: at once where that takes no longer than a look at memory, in a thread where it
waits for a disk. So a saver belongs to no loop and to no thread. `copy.copy` of it shares everything with it.

How a run has read travels as one extra key of `configurable`, `READ_TOKEN`: LangGraph copies what `get_tuple` returns
into the config of every put of that run. `put` returns the plain three keys.

Not here: what is stored and how (`core` and below).
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)

from flowpoint.agents import retention
from flowpoint.agents.conflicts import token
from flowpoint.agents.core import SaverCore
from flowpoint.agents.entry_names import Place
from flowpoint.agents.every_thread import EveryThread
from flowpoint.agents.given import check_expiry
from flowpoint.agents.reading import Saved
from flowpoint.agents.serde import TypedSerde
from flowpoint.errors import DamagedStoreError, UsageError

T = TypeVar("T")

logger = logging.getLogger("flowpoint.agents")

READ_TOKEN: Final = "__flowpoint_read"
"""The extra key of `configurable`. The underscores keep it out of the metadata of checkpoints."""

RUN: Final = "__flowpoint_run"
"""The key of `configurable` for the name of a run that tells when it ends."""

_DURABILITY: Final = "__pregel_durability"
_LEFT_OUT_MAX: Final = 256
_FRAMEWORKS_OWN: Final = frozenset({"source", "step", "parents"})
"""What LangGraph puts into every metadata, and nothing that a saver would have to look at."""


class CoreSaver(BaseCheckpointSaver[Any]):
    """A saver on any store. Use `RocksSaver` or `FolderSaver`."""

    core: SaverCore
    reads_wait = False
    """Whether reading may wait for a disk, so that it does not belong on a loop."""
    writes_wait = False
    """Whether also a write that is not synced may."""

    def __init__(self, core: SaverCore) -> None:
        super().__init__(serde=TypedSerde(core.values.serde))
        self.core = core
        self._told = _Told()

    # ------------------------------------------------------------------ life

    def close(self) -> None:
        """Let go of the store. Idempotent; every copy of this saver is closed with it."""
        self.core.kv.close()

    def setup(self) -> None:
        """Nothing: opening a store makes it. For programs that call it, as other savers want it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await _in_thread(self.close)

    @property
    def on_conflict(self) -> str:
        """What happens when two runs of a thread meet: "branch" or "raise"."""
        return self.core.on_conflict

    @property
    def counts(self) -> dict[str, int]:
        """How many conflicts, late writes and notes there were since the saver was opened."""
        return dict(self.core.counts)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> CoreSaver:
        """A copy that knows the classes of a graph, too; LangGraph asks for it in its strict mode."""
        twin = copy.copy(self)
        twin.core = self.core.with_types(extra_allowlist)
        twin.serde = TypedSerde(twin.core.values.serde)
        return twin

    def get_next_version(self, current: Any, channel: None = None) -> Any:
        """The version after `current`, of the same type: threads that come from other savers keep theirs."""
        if current is None:
            return 1
        if isinstance(current, str):
            number, _dot, rest = current.partition(".")
            return f"{int(number) + 1:0{len(number)}}{_dot}{'0' * len(rest)}"
        return current + 1

    # ------------------------------------------------------------------ reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the head of its thread."""
        place, id_ = _place(config), _id(config)
        saved = self.core.get(place, id_)
        run = self.core.runs.get(config["configurable"].get(RUN))
        if run is not None:
            run.read(place, None if saved is None else saved.id, explicit=bool(id_))
        return None if saved is None else _tuple(saved, self.core.token(saved, explicit=bool(id_)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints that match, newest first; of all threads when `config` is None.

        Of all threads, what is whole comes first and the error last, so that one damaged thread hides no other: whoever
        reads to the end, or up to the limit, is told what is missing, and whoever stops before has what was asked for.

        Raises:
            DamagedStoreError: something cannot be read; of all threads: with the names of those it belongs to.
        """
        found = self.core.reader.listed(
            thread=None if config is None else _place(config).thread,
            ns=None if config is None else config["configurable"].get("checkpoint_ns"),
            id=None if config is None else _id(config),
            before=None if before is None else _id(before),
            filter=filter,
            limit=limit,
        )
        return (_tuple(saved, token(True, saved.place.ns, saved.id)) for saved in map(self.core.upgraded, found))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As the base class does it, over checkpoints that no run is going to continue from."""
        return BaseCheckpointSaver.get_delta_channel_history(
            cast(CoreSaver, _Past(self.core)), config=config, channels=channels
        )

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `get_delta_channel_history`."""
        return await self._reading(lambda: self.get_delta_channel_history(config=config, channels=channels))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        return await self._reading(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`. The loop gets a turn after every checkpoint."""
        found = await self._reading(lambda: self.list(config, filter=filter, before=before, limit=limit))
        while (one := await self._reading(next, found, None)) is not None:
            yield one
            await asyncio.sleep(0)

    # ------------------------------------------------------------------ writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Commit a checkpoint.

        Raises:
            ConcurrentRunError: another run of the thread came first (with `on_conflict="raise"`), or the thread was
                deleted meanwhile.
        """
        configurable = config["configurable"]
        place = _place(config)
        self.core.put(
            place,
            checkpoint,
            self._told.metadata(config, metadata),
            new_versions,
            parent=_id(config),
            token=configurable.get(READ_TOKEN),
            sync=_is_synced(config),
            run=configurable.get(RUN),
        )
        return _config(place, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, until the next checkpoint holds it."""
        id_ = config["configurable"]["checkpoint_id"]
        self.core.put_writes(_place(config), id_, writes, task_id, task_path, sync=False)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        if self.writes_wait or _is_synced(config):
            return await _in_thread(self.put, config, checkpoint, metadata, new_versions)
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See `put_writes`."""
        if self.writes_wait:
            await _in_thread(self.put_writes, config, writes, task_id, task_path)
        else:
            self.put_writes(config, writes, task_id, task_path)

    # ------------------------------------------------------------------ history

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread, also a damaged one; nothing happens when there is none."""
        retention.delete_thread(self.core, str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what these runs have put, in all threads.

        Raises:
            DamagedStoreError: threads cannot be read, whose names it says; the others are done.
        """
        retention.delete_for_runs(self.core, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread with its whole history.

        Raises:
            UsageError: the target has checkpoints already.
        """
        retention.copy_thread(self.core, str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the head of every namespace and what it needs ("keep_latest"), or nothing ("delete").

        Raises:
            UsageError: another strategy.
            DamagedStoreError: threads cannot be read, whose names it says; the others are done.
        """
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"cannot prune with strategy {strategy!r}; use 'keep_latest' or 'delete'")
        every = EveryThread("prune")
        for thread in map(str, thread_ids):
            with every.passing_over(thread):
                if strategy == "delete":
                    retention.delete_thread(self.core, thread)
                else:
                    retention.keep(self.core, thread, last=1)
        every.tell()

    def expire(
        self, thread_ids: Sequence[str] | None = None, *, keep_last: int | None = None, ttl: timedelta | None = None
    ) -> int:
        """Remove what is neither among the last `keep_last` of its namespace nor younger than `ttl`.

        Heads, checkpoints with a pending interrupt, tips of branches that are young enough and what any of them needs
        stay. With `ttl` alone, a thread whose head is older is deleted, unless it waits for an answer.

        Args:
            thread_ids: all threads when None.

        Returns:
            How many checkpoints went.

        Raises:
            UsageError: nothing says what stays, or what does is no number or no timedelta.
            DamagedStoreError: threads cannot be read, whose names it says; the others are done.
        """
        check_expiry(keep_last, ttl)
        every = EveryThread("expire")
        gone = 0
        for thread in self.core.reader.threads(every) if thread_ids is None else map(str, thread_ids):
            with every.passing_over(thread):
                gone += retention.expire(self.core, thread, keep_last=keep_last, ttl=ttl)
        every.tell()
        return gone

    def sweep(self, older_than: timedelta = retention.ORPHAN_AGE) -> int:
        """Remove pending writes whose checkpoint never came, and what interrupted removals left. How many entries.

        Raises:
            DamagedStoreError: threads cannot be read, whose names it says; the others are done.
        """
        return retention.sweep(self.core, older_than)

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await _in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await _in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await _in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await _in_thread(lambda: self.prune(thread_ids, strategy=strategy))

    async def _reading(self, fn: Callable[..., T], *args: Any) -> T:
        return await _in_thread(fn, *args) if self.reads_wait else fn(*args)


class _Past:
    """A saver to look back with: what a run could not continue from can be looked at."""

    def __init__(self, core: SaverCore) -> None:
        self._core = core
        self._seen: set[tuple[Place, str]] = set()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `CoreSaver`.

        Raises:
            DamagedStoreError: it was asked for already, so that the way back leads in a circle.
        """
        saved = self._core.get(_place(config), _id(config), for_run=False)
        if saved is not None:
            if (saved.place, saved.id) in self._seen:
                raise DamagedStoreError(
                    f"cannot read the history of thread {saved.place.thread!r}: checkpoint {saved.id} is an ancestor of "
                    "itself; go on from another one, or restore the store from a good copy"
                )
            self._seen.add((saved.place, saved.id))
        return None if saved is None else _tuple(saved, token(True, saved.place.ns, saved.id))


async def _in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Call a sync method that waits for a disk. Whoever is cancelled meanwhile leaves when it is over, not before.

    What was begun cannot be stopped, and a put that lands after its run has ended would be in the way of the next one.
    """
    call = asyncio.get_running_loop().run_in_executor(None, fn, *args)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        if not call.cancelled() and (error := call.exception()) is not None:
            logger.warning("a call that was cancelled failed: %s", error)
        raise


def _place(config: RunnableConfig) -> Place:
    configurable = config["configurable"]
    thread = configurable.get("thread_id")
    if type(thread) is str:
        return Place(thread, configurable.get("checkpoint_ns") or "")
    if thread is None:
        raise UsageError("cannot tell which thread is meant: give config={'configurable': {'thread_id': ...}}")
    return Place(str(thread), configurable.get("checkpoint_ns") or "")


def _id(config: RunnableConfig) -> str | None:
    return config.get("configurable", {}).get("checkpoint_id") or None


class _Told:
    """What of a config goes into metadata: as a rule nothing, as most of it is the framework's own.

    Which keys these are is remembered, since a config with ten of them is handed over with every step.
    """

    def __init__(self) -> None:
        self._left_out = set(EXCLUDED_METADATA_KEYS)

    def metadata(self, config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
        """The metadata of a checkpoint with what the config adds."""
        layers: Any = config.get("metadata")
        layers = layers.maps if type(layers) is ChainMap else (layers or {},)
        told: dict[str, Any] = {}
        left_out = self._left_out
        for layer in (*layers, config["configurable"]):
            if not layer.keys() <= left_out:
                self._add(layer, told)
        if not told and metadata.keys() <= _FRAMEWORKS_OWN:
            return metadata
        return get_serializable_checkpoint_metadata({"metadata": told}, metadata)

    def _add(self, layer: Mapping[str, Any], told: dict[str, Any]) -> None:
        for key, value in layer.items():
            if key in self._left_out:
                continue
            if not key.startswith("__"):
                told.setdefault(key, value)
            elif len(self._left_out) < _LEFT_OUT_MAX:
                self._left_out.add(key)


def _is_synced(config: RunnableConfig) -> bool:
    return config["configurable"].get(_DURABILITY) != "async"


def _config(place: Place, id: str, read: str | None = None) -> RunnableConfig:
    configurable = {"thread_id": place.thread, "checkpoint_ns": place.ns, "checkpoint_id": id}
    return {"configurable": configurable if read is None else {**configurable, READ_TOKEN: read}}


def _tuple(saved: Saved, read: str) -> CheckpointTuple:
    place, parent = saved.place, saved.parent
    return CheckpointTuple(
        config=_config(place, saved.id, read),
        checkpoint=saved.checkpoint,  # type: ignore[arg-type]  # as LangGraph handed it to us
        metadata=saved.metadata,  # type: ignore[arg-type]
        parent_config=None if parent is None else _config(place, parent, token(True, place.ns, parent)),
        pending_writes=[(write.task_id, write.channel, write.value) for write in saved.writes],
    )
