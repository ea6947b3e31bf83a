"""Makes checkpoints count that everybody has acknowledged: one at a time, in the order of their ids.

    manifest -> commit entry -> `Published` to the mailbox

The line in `_append` after which a checkpoint counts is marked. The newest commit is the newest checkpoint, so the
next one is published when the outcome of the one before has been taken (`next`).

A savepoint is published into a folder of its own; its entry only says that it exists. The savepoint of a stop is
written at the barrier of the stop's checkpoint and published by `publish_handover`, when all that the checkpoint holds
has been committed.

Not here: what an outcome means (`checkpoints`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from flowpoint.coordinator.checkpoint_record import CheckpointRecord, Triggered
from flowpoint.errors import FlowPointError
from flowpoint.host.base import Host
from flowpoint.model import messages
from flowpoint.model.commits import CommitEntry, CommitKind
from flowpoint.model.manifest import SAVEPOINT, Manifest, SubtaskState
from flowpoint.model.plan import JobPlan
from flowpoint.protocol.checkpoint import PendingCheckpoint, collect_operators
from flowpoint.protocol.schedule import TriggerKind
from flowpoint.snapshot import names
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.manifests import write_manifest
from flowpoint.snapshot.savepoints import publish_savepoint
from flowpoint.snapshot.storage import FolderStorage, Storage


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest and the commit entry are durable, or one of them could not be written."""

    pending: PendingCheckpoint[messages.Ack]
    manifest: Manifest | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a checkpoint of this attempt continues: the job's lineage, and the checkpoint it started from."""

    id: str
    restored_checkpoint: int
    restored_files: frozenset[str] = frozenset()


class Publishing:
    """The publisher of one coordinator; `begin` says for which attempt."""

    def __init__(
        self,
        host: Host,
        job: str,
        storage: Storage,
        log: CommitLog,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        post: Callable[[Published], None],
    ) -> None:
        self._host = host
        self._job = job
        self._storage = storage
        self._log = log
        self._spawn = spawn
        self._post = post
        self._plan: JobPlan | None = None
        self._lineage = ""
        self._queue: deque[Triggered] = deque()  # the first is being published
        self._idle = asyncio.Event()
        self._idle.set()
        self._handover: tuple[Manifest, CheckpointRecord] | None = None
        self.newest_id = 0
        """The newest checkpoint that counts: of this attempt, or the one that it started from."""
        self.newest_files: frozenset[str] = frozenset()

    # ------------------------------------------------------------------ an attempt

    def begin(self, plan: JobPlan, lineage: Lineage) -> None:
        """An attempt with this plan begins."""
        self._plan, self._lineage = plan, lineage.id
        self._handover = None
        self.newest_id, self.newest_files = lineage.restored_checkpoint, lineage.restored_files

    async def wait_idle(self) -> None:
        """Wait until nothing is being published, so that the commit log stands still (rule 5)."""
        await self._idle.wait()

    def give_up(self) -> None:
        """What was being published has been cancelled: its outcome stays unknown here, and nobody asks."""
        self._idle.set()

    # ------------------------------------------------------------------ the queue

    def put(self, complete: Triggered) -> None:
        """Everybody has acknowledged: publish it after those before."""
        complete.is_publishing = True
        self._idle.clear()
        self._queue.append(complete)
        if len(self._queue) == 1:
            self._publish_first()

    def taken(self, published: Published) -> Triggered:
        """The mailbox has got to an outcome: it is of the first in the queue, which leaves it."""
        done = self._queue.popleft()
        assert done.pending is published.pending, f"published {published.pending}, expected {done.record.id}"
        return done

    def next(self) -> None:
        """Go on with what waits."""
        if self._queue:
            self._publish_first()
        else:
            self._idle.set()

    def take_waiting(self) -> list[Triggered]:
        """Take back what waits and has not begun, once `taken` has been called for what had."""
        waiting = list(self._queue)
        self._queue.clear()
        return waiting

    def counts(self, manifest: Manifest) -> None:
        """This checkpoint is the newest one now."""
        self.newest_id = manifest.id
        self.newest_files = frozenset(file.path for file in manifest.files())

    # ------------------------------------------------------------------ beside the mailbox

    def _publish_first(self) -> None:
        first = self._queue[0]
        first.record.parent = self.newest_id
        assert self._plan is not None
        self._spawn(self._publish(first, self._plan), f"publish checkpoint {first.record.id}")

    async def _publish(self, complete: Triggered, plan: JobPlan) -> None:
        """Manifest first, then the commit entry; says how it went by `Published`."""
        manifest: Manifest | None = None
        error: Exception | None = None
        try:
            acks = complete.pending.complete()
            parts = {s: ack.savepoint if complete.is_savepoint else ack.operators for s, ack in acks.items()}
            manifest = self._manifest(complete, plan, parts)
            if complete.is_savepoint:
                manifest = without_committed(manifest, complete.record.parent)
                await self._publish_savepoint(manifest, complete.record.savepoint, self._cost(complete, manifest))
            else:
                await write_manifest(self._storage, manifest)
                await self._append(manifest, complete)
                if complete.record.savepoint:
                    saved = collect_operators(plan, {s: ack.savepoint for s, ack in acks.items()})
                    self._handover = (
                        replace(manifest, kind=SAVEPOINT, operators=saved, handed_on=True),
                        complete.record,
                    )
        except (FlowPointError, OSError) as problem:
            error = problem
        self._post(Published(complete.pending, manifest, error))

    def _manifest(self, complete: Triggered, plan: JobPlan, parts: dict[Any, dict[str, Any]]) -> Manifest:
        pending = complete.pending
        return Manifest(
            kind=pending.kind,
            job=self._job,
            id=pending.id,
            attempt=pending.attempt,
            lineage=self._lineage,
            parent=complete.record.parent,
            created=self._host.wall_ms(),
            plan=plan.to_data(),
            operators=collect_operators(plan, parts),
            finished=complete.trigger is TriggerKind.FINAL,
            drained=complete.record.drained,
        )

    async def _append(self, manifest: Manifest, complete: Triggered) -> CommitEntry:
        folder = complete.record.savepoint
        entry = await self._log.append(
            CommitKind.CHECKPOINT,
            manifest.attempt,
            checkpoint=manifest.id,
            directory=names.checkpoint_directory(manifest.id, manifest.attempt),
            parent=manifest.parent,
            extra=self._cost(complete, manifest) | ({"savepoint": folder} if folder else {}),
        )
        # From here on the checkpoint counts: a recovery starts from it, and sinks may commit.
        return entry  # noqa: RET504  the line above belongs between

    def _cost(self, complete: Triggered, manifest: Manifest) -> dict[str, Any]:
        """What `checkpoints` shows of it, also to who asks when the job has ended. Written is what no older one has."""
        record = complete.record
        older = frozenset[str]() if complete.is_savepoint else self.newest_files
        record.bytes = sum(file.bytes for file in manifest.files() if file.path not in older)
        record.duration_ms = round((asyncio.get_running_loop().time() - complete.pending.triggered_at) * 1000)
        return {"started": record.started, "duration_ms": record.duration_ms, "bytes": record.bytes}

    async def _publish_savepoint(self, manifest: Manifest, folder: str, cost: dict[str, Any]) -> dict[str, Any]:
        """What is logged of it."""
        await publish_savepoint(FolderStorage(self._host.disk, self._host.new_id, folder), manifest)
        facts = {"savepoint": folder, "id": manifest.id, **cost, **({"drained": True} if manifest.drained else {})}
        await self._log.append(CommitKind.SAVEPOINT, manifest.attempt, extra=facts)
        return facts

    def withdraw_handover(self) -> None:
        """The job goes on: its next attempt discards the savepoint of the stop."""
        self._handover = None

    async def publish_handover(self) -> dict[str, Any]:
        """Publish the savepoint of the stop, if it has one, and log it; what is logged of it.

        Raises as `publish_savepoint` and `CommitLog.append`.
        """
        if self._handover is None:
            return {}
        manifest, record = self._handover
        size = sum(file.bytes for file in manifest.files())
        cost = {"started": record.started, "duration_ms": record.duration_ms, "bytes": size}
        return await self._publish_savepoint(manifest, record.savepoint, cost)


def without_committed(manifest: Manifest, checkpoint: int) -> Manifest:
    """A savepoint's manifest without the output that the job commits by `checkpoint`, which is in the log."""

    def kept(state: SubtaskState) -> SubtaskState:
        committables = tuple(c for c in state.committables if c["checkpoint"] > checkpoint)
        needed = {path for committable in committables for path in committable["files"]}
        exports = tuple(file for file in state.exports if file.path in needed)
        return replace(state, committables=committables, exports=exports)

    operators = {
        uid: replace(operator, subtasks=tuple(map(kept, operator.subtasks)))
        for uid, operator in manifest.operators.items()
    }
    return replace(manifest, operators=operators)
