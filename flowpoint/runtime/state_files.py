"""The files that the subtasks of one worker write for snapshots: how each is called, and where it goes.

Files of checkpoints go to the job's storage, under names that carry the attempt and a number that no other file of this
worker has in it (rule 4). Those of a savepoint go into the savepoint's own folder.

Not here: what is in them (`snapshot`), and when they are written (`captures`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from flowpoint.errors import CheckpointFailed, TransientError
from flowpoint.model import messages
from flowpoint.model.manifest import NO_GROUPS, StateFile, SubtaskState
from flowpoint.model.plan import SubtaskId
from flowpoint.runtime.captures import WriteChannels
from flowpoint.runtime.channel_state import Recording
from flowpoint.runtime.parts import SaveFiles, WriteSavepoint, WriteState
from flowpoint.runtime.surroundings import Surroundings
from flowpoint.snapshot import names
from flowpoint.snapshot.channel_files import CHANNEL, write_channels
from flowpoint.snapshot.copies import copy_state
from flowpoint.snapshot.storage import FolderStorage, Storage
from flowpoint.snapshot.writer import BASE, DELTA, save_file, wait_for_room, write_state
from flowpoint.state.backend import Frozen


class StateFiles:
    """Makes the functions that write the files of one subtask each."""

    def __init__(self, deploy: messages.Deploy, around: Surroundings) -> None:
        self._deploy = deploy
        self._around = around
        self._sequence = 0

    def state(self, subtask: SubtaskId, groups: tuple[int, int]) -> WriteState:
        """Writes a base or a delta of keyed or broadcast state."""

        async def write(uid: str, frozen: Frozen) -> list[StateFile]:
            name = self._name(uid, subtask, BASE if frozen.full else DELTA)
            return await write_state(self._around.storage, frozen, name, groups=groups, on_full=self._warn_once(uid))

        return write

    def savepoint_state(self, subtask: SubtaskId, groups: tuple[int, int]) -> WriteSavepoint:
        """Writes all of an operator's state into a savepoint: copies of its chain of files, and what is in none yet."""

        async def write(uid: str, chain: Sequence[StateFile], frozen: Frozen, folder: str) -> list[StateFile]:
            storage = self._storage_at(folder)
            lineage, attempt = self._deploy.lineage, self._deploy.attempt

            def name(number: int) -> str:
                return names.savepoint_state(uid, subtask.index, lineage, attempt, number)

            saved = [
                await copy_state(self._around.storage, file, storage, name(number)) for number, file in enumerate(chain)
            ]
            newest = await write_state(storage, frozen, name(len(chain)), groups=groups)
            # What has nothing below it is a base.
            return [*saved, *(newest if saved else [replace(file, kind=BASE) for file in newest])]

        return write

    def savepoint_output(self, subtask: SubtaskId) -> SaveFiles:
        """Copies a sink's uncommitted files into a savepoint."""

        async def save(uid: str, files: list[str], folder: str) -> list[StateFile]:
            stem = names.savepoint_output(uid, subtask.index, self._deploy.lineage, self._deploy.attempt)
            saved = []
            for path in files:
                self._sequence += 1
                saved.append(await save_file(self._storage_at(folder), path, f"{stem}.{self._sequence}"))
            return saved

        return save

    def channels(self, uid: str, subtask: SubtaskId, owned: tuple[int, int]) -> WriteChannels:
        """Writes channel state: keyed records in one file, those that may go anywhere in another.

        Args:
            uid: of the operator that the records are for.
            owned: its key groups in this subtask.
        """

        async def write(recording: Recording) -> tuple[str, SubtaskState]:
            warn = self._warn_once(uid)

            def while_wanted(problem: str) -> None:
                """Nothing builds on these: when the checkpoint is given up they are needed no more."""
                if recording.is_discarded:
                    raise CheckpointFailed("the checkpoint was given up")
                warn(problem)

            recorded = recording.batches()
            files: list[StateFile] = []
            for groups, batches in (
                (owned, [batch for batch in recorded if batch.groups is not None]),
                (NO_GROUPS, [batch for batch in recorded if batch.groups is None]),
            ):
                if batches:
                    name = self._name(uid, subtask, CHANNEL)
                    step = partial(write_channels, self._around.storage, batches, name, groups)
                    try:
                        files.append(await wait_for_room(step, while_wanted))
                    except TransientError:
                        await self._remove(files)
                        raise
            return uid, SubtaskState(channels=tuple(files))

        return write

    async def _remove(self, files: Sequence[StateFile]) -> None:
        """Remove what was written of something that did not become whole: nobody will ever name it."""
        if files:
            await self._around.storage.delete(*(file.path for file in files))

    def _name(self, uid: str, subtask: SubtaskId, kind: str) -> str:
        self._sequence += 1
        return names.state_file(uid, subtask.index, self._deploy.attempt, self._sequence, kind)

    def _warn_once(self, uid: str) -> Callable[[str], None]:
        """Says aloud, once, that a full disk is waited for (rule 23)."""
        is_told = False

        def on_full(problem: str) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                text = f"operator '{uid}' waits for room to write its state: {problem}"
                self._around.report(messages.Warn(self._deploy.attempt, self._around.worker, text))

        return on_full

    def _storage_at(self, folder: str) -> Storage:
        return FolderStorage(self._around.host.disk, self._around.host.new_id, folder)
