"""Starting from somebody else's snapshot: it becomes the first checkpoint of a new lineage, by links or copies.

    its parent's committed output is completed -> sinks begin -> files linked or copied, uncommitted output taken in
    -> manifest -> commit entry

From that entry on the lineage has a checkpoint like any other: failover uses it, retention removes it in its time, and
nothing depends on the source any more. Until then the next attempt does all of this again. The source is only read;
a claimed one is removed by retention together with the checkpoint that was made of it.

Invariant: the uncommitted output of the source comes out once. What its job had committed by a checkpoint in its log is
that job's and is completed in its name; what travels in a savepoint becomes this lineage's.
In a lineage that starts from where a stop has drained, event time begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flowpoint.errors import FlowPointError, SnapshotError
from flowpoint.host.base import Host
from flowpoint.model.manifest import Manifest, OperatorState, StateFile, SubtaskState
from flowpoint.runtime.contracts import ConnectorContext, Sink, SinkWithFiles
from flowpoint.runtime.failures import naming
from flowpoint.snapshot import names
from flowpoint.snapshot.manifests import check_file, write_manifest
from flowpoint.snapshot.rereading import PatientStorage
from flowpoint.snapshot.savepoints import FoundSnapshot
from flowpoint.snapshot.storage import Storage


class Takeover:
    """Takes a snapshot over into a job's own storage, for one attempt."""

    def __init__(
        self,
        host: Host,
        source: FoundSnapshot,
        storage: Storage,
        sinks: Mapping[str, tuple[Sink, ConnectorContext]],
        warn: Callable[[str], None],
    ) -> None:
        """`sinks`: by uid, each with its context in the new attempt."""
        self._host = host
        self._source = source
        self._storage = storage
        self._sinks = sinks
        self._warn = warn

    async def complete_parent(self) -> None:
        """Commit what a checkpoint holds, in the name of the job that took it: it is in that job's log, so it counts.

        That job does the same when it runs again. What cannot be done here is left to it, and said.
        """
        for uid, operator in self._source.manifest.operators.items():
            if uid not in self._sinks:
                continue
            sink, ctx = self._sinks[uid]
            parents = replace(ctx, lineage=self._source.manifest.lineage, job=self._source.manifest.job)
            counted = [c for subtask in operator.subtasks for c in subtask.committables if not _travels(c)]
            for committable in counted:
                try:
                    with naming(uid, "commit()"):
                        await sink.commit(committable["data"], parents)
                except FlowPointError as error:
                    self._warn(f"output of {self._source.path} is left as it is: {error}")

    async def make_own(self, lineage: str, attempt: int) -> Manifest:
        """Link or copy everything, and write the manifest of the checkpoint it becomes.

        Raises:
            SnapshotError: the source is damaged or incomplete.
            StorageError: something could not be read or written; trying again may help.
        """
        source = self._source.manifest
        directory = names.checkpoint_directory(source.id, attempt)
        taken: dict[str, str] = {}
        operators = {}
        for uid, operator in source.operators.items():
            subtasks = [await self._own_state(uid, state, directory, taken) for state in operator.subtasks]
            operators[uid] = OperatorState(operator.parallelism, tuple(subtasks))
        own = replace(
            source,
            kind="checkpoint",
            lineage=lineage,
            attempt=attempt,
            parent=0,
            created=self._host.wall_ms(),
            operators=operators,
            finished=False,
            handed_on=False,
            drained=False,
        )
        await write_manifest(self._storage, own)
        return own

    async def _own_state(self, uid: str, state: SubtaskState, directory: str, taken: dict[str, str]) -> SubtaskState:
        files, broadcast, channels = [
            tuple([await self._own_file(file, directory, taken) for file in given])
            for given in (state.files, state.broadcast, state.channels)
        ]
        committables = [committable for committable in state.committables if _travels(committable)]
        if uid in self._sinks:
            committables = [await self._take_in(uid, committable, state) for committable in committables]
        # Else the job no longer has this sink: that is refused, or allowed, where state is dealt out.
        return replace(
            state,
            files=files,
            broadcast=broadcast,
            channels=channels,
            committables=tuple(committables),
            exports=(),
            watermark=None if self._source.manifest.drained else state.watermark,
        )

    async def _own_file(self, file: StateFile, directory: str, taken: dict[str, str]) -> StateFile:
        if file.path not in taken:
            name = names.imported_file(directory, len(taken) + 1, file.path)
            try:
                await self._storage.adopt(self._source.local_path(file.path), name)
            except FileNotFoundError as error:
                raise SnapshotError(
                    f"the snapshot {self._source.path} is incomplete: {file.path} is missing; use another snapshot"
                ) from error
            taken[file.path] = name
        return replace(file, path=taken[file.path])

    async def _take_in(self, uid: str, committable: dict[str, Any], state: SubtaskState) -> dict[str, Any]:
        sink, ctx = self._sinks[uid]
        if not isinstance(sink, SinkWithFiles):
            return {"checkpoint": committable["checkpoint"], "data": committable["data"]}
        exports = {file.path: file for file in state.exports}
        for path in committable["files"]:
            problem = await check_file(PatientStorage(self._source.storage), exports[path])
            if problem:
                raise SnapshotError(f"the savepoint {self._source.path} is damaged: {path} is {problem}")
        paths = [self._source.local_path(path) for path in committable["files"]]
        with naming(uid, "take_in()"):
            data = await sink.take_in(committable["data"], paths, ctx)
        return {"checkpoint": committable["checkpoint"], "data": data}


def _travels(committable: dict[str, Any]) -> bool:
    """Whether a committable was put into a savepoint, and not into a checkpoint, which its own job commits."""
    return "files" in committable
