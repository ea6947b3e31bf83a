"""The state that the subtasks of one worker start with: what the restored checkpoint holds for each, and its stores.

`Deploy` deals the restored checkpoint out: for each operator and subtask, the states of the old subtasks that have a
share in the new one's. Here those become open stores, splits, committables, watermarks and records under way. Reading is
done a few milliseconds at a time, since other subtasks of the worker and its links need their turn.

Invariant: restored state that the job no longer declares is never dropped in silence.

Not here: operators and channels (`assembly`, `wiring`), who gets which state (`protocol.assignment`), how state is
written again (`state_files`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowpoint.codec.values import Codec
from flowpoint.errors import IncompatibleStateError, SnapshotError
from flowpoint.model import messages
from flowpoint.model.elements import WATERMARK_MIN
from flowpoint.model.key_groups import group_range, overlap
from flowpoint.model.manifest import SubtaskState, joined, within
from flowpoint.model.plan import JobPlan, OperatorSpec, SubtaskId
from flowpoint.model.settings import Settings
from flowpoint.runtime.captures import WriteChannels
from flowpoint.runtime.channel_state import RestoredBatch
from flowpoint.runtime.contracts import Split
from flowpoint.runtime.parts import KeyedPart
from flowpoint.runtime.source_subtask import SplitState
from flowpoint.runtime.state_files import StateFiles
from flowpoint.runtime.surroundings import Surroundings
from flowpoint.snapshot.channel_files import read_channels
from flowpoint.snapshot.reader import load, open_files
from flowpoint.state.backend import Backend
from flowpoint.state.declarations import DeclaredStates, declared_states
from flowpoint.state.evolution import Evolution, evolve
from flowpoint.state.key_functions import keys_to_hold_to
from flowpoint.state.open import open_backend
from flowpoint.state.spec import StateSpec
from flowpoint.state.stored_values import EvolvingCodec
from flowpoint.state.versions import check_versions


class StateAssembly:
    """Opens and restores state for the subtasks of one attempt in one worker."""

    def __init__(
        self, deploy: messages.Deploy, around: Surroundings, plan: JobPlan, settings: Settings, codec: Codec
    ) -> None:
        self.files = StateFiles(deploy, around)
        self._deploy = deploy
        self._around = around
        self._plan = plan
        self._settings = settings
        self._codec = codec

    # ------------------------------------------------------------------ keyed and broadcast state

    def keyed(self, spec: OperatorSpec, subtask: SubtaskId) -> KeyedPart:
        """The keyed state of an operator: opened, and empty until `restore`."""
        groups = self._groups(spec.uid, subtask.index)
        attempt = f"a{self._deploy.attempt}-w{self._around.worker}"
        # Several operators of one chain may have state: each has a folder of its own.
        place = self._plan.tasks[subtask.task].operators.index(spec.uid)
        work_dir = f"{self._deploy.work_dir}/{attempt}/{subtask.task}-{subtask.index}/{place}"
        return self._part(spec.uid, subtask, groups, self._open(self._settings, work_dir, spec.uid))

    async def restore(self, part: KeyedPart, index: int) -> None:
        """Take over the keyed state of the old subtasks, as the job declares it now.

        Raises:
            IncompatibleStateError: it cannot become that.
        """
        self._declare(part.backend, self._declared(part.uid).keyed)
        states = [state for state in self._restored(part.uid, index) if state.files]
        files = [file for state in states for file in within(state.files, overlap(part.groups, state.groups))]
        if files:
            part.files = tuple(joined(files))
            part.must_be_full = self._deploy.full
            await self._open_files(part, states, part.groups)
        part.stored_keys = self._keys_to_hold_to(part.uid)

    def broadcast(self, spec: OperatorSpec, subtask: SubtaskId) -> KeyedPart:
        """The broadcast state of an operator, in memory and whole in every subtask: empty until `restore_broadcast`."""
        all_groups = (0, self._plan.max_parallelism - 1)
        in_memory = replace(self._settings, state=replace(self._settings.state, backend="heap"))
        part = self._part(spec.uid, subtask, all_groups, self._open(in_memory, "", spec.uid))
        part.is_broadcast = True
        return part

    async def restore_broadcast(self, part: KeyedPart, index: int) -> None:
        """Take over the broadcast state that subtask `index` is dealt, as the job declares it now.

        Raises:
            IncompatibleStateError: it cannot become that.
        """
        self._declare(part.backend, self._declared(part.uid).broadcast)
        for state in self._restored(part.uid, index):
            if state.broadcast:
                part.files = state.broadcast
                part.must_be_full = self._deploy.full
                await self._open_files(part, [state], part.groups)

    def _keys_to_hold_to(self, uid: str) -> frozenset[str]:
        """What is stored under keys of which types, in all subtasks: this one may have none of it."""
        key_by = {spec.key_by for spec in self._declared(uid).keyed.values()}
        dealt_out = (SubtaskState.from_data(data) for states in self._deploy.restore.get(uid, ()) for data in states)
        return keys_to_hold_to(dealt_out, key_by.pop()) if key_by else frozenset()

    def accumulator(self, uid: str) -> StateSpec:
        """The one state of a count, sum, ..."""
        (spec,) = self._declared(uid).keyed.values()
        return spec

    def refuse_unclaimed(self, part: KeyedPart) -> None:
        """Look, once the function's state is bound, whether something restored is left over.

        Raises:
            IncompatibleStateError: it is, and nobody has allowed that.
        """
        unclaimed = part.backend.unclaimed()
        if unclaimed and not self._deploy.source.get("allow_non_restored"):
            unclaimed_names = ", ".join(map(repr, unclaimed))
            raise IncompatibleStateError(
                f"cannot restore operator '{part.uid}': the checkpoint holds state {unclaimed_names}, which the job "
                "no longer declares; declare it again, or pass --allow-non-restored to leave it behind"
            )

    def _open(self, settings: Settings, work_dir: str, uid: str) -> Backend:
        max_parallelism, open_database = self._plan.max_parallelism, self._around.open_database
        return open_backend(settings.state, self._codec, max_parallelism, work_dir, uid, open_database)

    def _part(self, uid: str, subtask: SubtaskId, groups: tuple[int, int], backend: Backend) -> KeyedPart:
        return KeyedPart(
            uid=uid,
            backend=backend,
            groups=groups,
            write_state=self.files.state(subtask, groups),
            write_savepoint=self.files.savepoint_state(subtask, groups),
            incremental=self._settings.checkpoint.incremental,
        )

    def _declare(self, backend: Backend, specs: Mapping[str, StateSpec]) -> None:
        """Open the tables that the job declares: what is restored besides is left over."""
        for spec in specs.values():
            if spec.is_map:
                backend.map_table(spec)
            else:
                backend.table(spec)

    async def _open_files(self, part: KeyedPart, states: Sequence[SubtaskState], groups: tuple[int, int]) -> None:
        """Let a store read what the part's files hold of `groups`, as what the job declares. Indexes are read one by one."""
        evolution = self._evolution(part, states)
        opened = await open_files(self._around.storage, part.files, self._around.local)
        for _ in part.backend.restoring(opened.files, groups, opened.close, evolution):
            await asyncio.sleep(0)
        for note in evolution.found():
            self._warn_once(note)

    def _warn_once(self, text: str) -> None:
        self._around.report(messages.Warn(self._deploy.attempt, self._around.worker, text, once=True))

    def _evolution(self, part: KeyedPart, states: Sequence[SubtaskState]) -> Evolution:
        """How the states of the old subtasks become those of the job."""
        stored: dict[str, Any] = {}
        for state in states:
            check_versions(part.uid, (*state.files, *state.broadcast), state.states)
            for name, data in state.states.items():
                if stored.setdefault(name, data) != data:
                    raise SnapshotError(
                        f"cannot restore state '{name}' of operator '{part.uid}': its subtasks wrote it in two schemas, "
                        f"{stored[name]} and {data}; use another snapshot"
                    )
        evolution = evolve(
            part.uid,
            stored,
            self._declared(part.uid).every,
            self._codec.registry,
            allow_non_restored=bool(self._deploy.source.get("allow_non_restored")),
        )
        if evolution.refusals:
            raise IncompatibleStateError("; ".join(evolution.refusals))
        return evolution

    def _declared(self, uid: str) -> DeclaredStates:
        definition = self._around.functions[uid]
        return declared_states(definition.kind, definition.function, (definition.key, definition.second_key))

    # ------------------------------------------------------------------ the other kinds of state

    def splits(self, uid: str, index: int) -> list[SplitState]:
        """The splits of a source that this subtask reads, and how far each has been read."""
        return [
            SplitState(Split(data["id"], data["data"]), data["position"], data["ended"])
            for state in self._restored(uid, index)
            for data in state.splits
        ]

    def committables(self, uid: str, index: int) -> list[dict[str, Any]]:
        """What a sink had prepared and nobody has confirmed, oldest first."""
        held = [committable for state in self._restored(uid, index) for committable in state.committables]
        return sorted(held, key=lambda committable: int(committable["checkpoint"]))

    def watermark(self, uid: str, index: int) -> int:
        """Where event time stood at this operator: the minimum over the old subtasks (rule 15)."""
        saved = [state.watermark for state in self._restored(uid, index) if state.watermark is not None]
        return min(saved, default=WATERMARK_MIN)

    async def records_under_way(self, subtask: SubtaskId) -> list[RestoredBatch]:
        """The records that the restored checkpoint overtook on their way here, first operators last: older ones first."""
        found: list[RestoredBatch] = []
        codec = EvolvingCodec(self._codec.registry)
        for uid in reversed(self._plan.tasks[subtask.task].operators):
            groups = self._groups(uid, subtask.index)
            files = [file for state in self._restored(uid, subtask.index) for file in state.channels]
            for file, data in await load(self._around.storage, files, self._around.local):
                found += [RestoredBatch(uid, port, batch) for port, batch in read_channels(file, data, codec, groups)]
        for note in codec.notes:
            self._warn_once(f"records under way to {subtask} are taken over as their classes are now: {note}")
        return found

    def channel_writer(self, subtask: SubtaskId) -> WriteChannels:
        """How a subtask makes channel state durable: it is input of its first operator."""
        uid = self._plan.tasks[subtask.task].operators[0]
        return self.files.channels(uid, subtask, self._groups(uid, subtask.index))

    def _restored(self, uid: str, index: int) -> list[SubtaskState]:
        states = self._deploy.restore.get(uid)
        return [SubtaskState.from_data(data) for data in states[index]] if states else []

    def _groups(self, uid: str, index: int) -> tuple[int, int]:
        return group_range(index, self._plan.operator(uid).parallelism, self._plan.max_parallelism)
