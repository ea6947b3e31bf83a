"""The safeguards of exactness, each with a way to switch it off in the real code, and a campaign that must notice.

A safeguard is switched off by replacing functions of the code under test, never by a flag in it. Where several
independent guards protect against one mistake, all of them have to go before there is any damage; the comment says
which they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest
from xxhash import xxh3_64_hexdigest

from flowpoint.connectors.part_writer import PartWriter
from flowpoint.coordinator import publishing as publishing_module
from flowpoint.coordinator.abandoned import AbandonedFiles
from flowpoint.coordinator.checkpoints import Checkpoints
from flowpoint.coordinator.choosing import Choosing
from flowpoint.coordinator.coordinator import Coordinator
from flowpoint.coordinator.housekeeping import Housekeeping
from flowpoint.coordinator.local_recovery import LocalUse
from flowpoint.coordinator.orders import Orders
from flowpoint.coordinator.prepare import Preparation
from flowpoint.coordinator.publishing import Publishing
from flowpoint.errors import StorageError
from flowpoint.model import messages
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId
from flowpoint.protocol.alignment import BarrierAligner
from flowpoint.protocol.checkpoint import PendingCheckpoint, collect_operators
from flowpoint.protocol.membership import WorkerState
from flowpoint.protocol.prepared_output import PreparedOutput
from flowpoint.protocol.watermarks import InputWatermarks
from flowpoint.runtime import state_assembly as state_assembly_module
from flowpoint.runtime.channel_state import Recording
from flowpoint.runtime.parts import Captured, KeyedPart
from flowpoint.runtime.subtask import Subtask
from flowpoint.sim.changed_job import ChangedJobScenario
from flowpoint.sim.faults import FaultKind, FaultMix
from flowpoint.sim.jobs import JobShape, Topology, draw_shape
from flowpoint.sim.local_trouble import LocalTrouble
from flowpoint.sim.scenario import JobScenario
from flowpoint.snapshot import local_files as local_files_module
from flowpoint.snapshot import names, writer
from flowpoint.snapshot.commit_log import CommitLog
from flowpoint.snapshot.storage import FolderStorage
from flowpoint.state import layers as layers_module
from flowpoint.state.evolution import Evolution
from flowpoint.state.file_format import FileReader, ReadRange
from flowpoint.transport.inbox import Inbox


def no_trouble(patch: pytest.MonkeyPatch) -> None:
    """Faults are all that goes wrong."""


@dataclass(frozen=True)
class Ablation:
    """A safeguard that can be switched off, and the faults that make its absence hurt.

    trouble: what goes wrong besides, with the safeguard and without, where drawn faults would bring it about too rarely.
    first_seed: where the search begins: at a seed that is known to show the damage, where none before it does and each takes
    long. When other draws have moved it, the search goes on from there.
    """

    name: str
    switch_off: Callable[[pytest.MonkeyPatch], None]
    faults: tuple[FaultKind, ...]
    gap: float = 0.2
    topology: Topology = Topology.COUNT
    takes_back: bool = True
    unaligned: bool = False
    changes: bool = False
    local: LocalTrouble = field(default_factory=LocalTrouble)
    trouble: Callable[[pytest.MonkeyPatch], None] = no_trouble
    first_seed: int = 0

    def scenario(self, checked: bool) -> Callable[[int], JobScenario]:
        """A busy job of several subtasks under these faults; otherwise as the seed draws it.

        With `changes` one whose code changes while it is down, under faults that the seed draws as well.
        """
        if self.changes:
            return partial(ChangedJobScenario, checked=checked)

        def make(seed: int) -> JobScenario:
            drawn = draw_shape(Random(f"{seed}:ablation"))
            settings = replace(
                drawn.settings,
                parallelism=2,
                workers=2,
                batch_size=16,
                checkpoint=replace(
                    drawn.settings.checkpoint,
                    interval=0.05,
                    timeout=0.5,
                    max_concurrent=1,
                    mode="exactly_once",
                    unaligned=self.unaligned,
                    aligned_timeout=0.0,
                    tolerable_failures=3,
                    min_pause=0.0,
                    retained=3,
                ),
            )
            shape = JobShape(self.topology, 600, 5, 400, settings, takes_back=self.takes_back)
            if self.unaligned:
                # A slow sink, so that there is something to be overtaken.
                shape = replace(shape, rate=None, sink_delay=0.002)
            mix = FaultMix(self.faults, 0.2, self.gap, 8, 0.3, 0.5)
            return JobScenario(seed, checked=checked, shape=shape, mix=mix, local=self.local)

        return make


# ---------------------------------------------------------------------- acknowledged before fsync


class _Unsynced:
    """A file, or a disk whose files of a kind, say that they are synced, and are not."""

    def __init__(self, inner: Any, marker: str = "") -> None:
        self._inner = inner
        self._marker = marker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, path: str, *, private: bool = True) -> Any:
        file = await self._inner.create(path, private=private)
        return _Unsynced(file) if self._marker in path else file

    async def sync(self) -> None:
        """Nothing is synced."""


def ack_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """Neither files of state nor hidden parts are synced before they are acknowledged."""
    storage_init, writer_init = FolderStorage.__init__, PartWriter.__init__

    def init_storage(self: FolderStorage, disk: Any, new_id: Any, root: str) -> None:
        storage_init(self, _Unsynced(disk, "/shared/"), new_id, root)

    def init_writer(self: PartWriter, folder: str, line_format: Any, ctx: Any) -> None:
        writer_init(self, folder, line_format, replace(ctx, disk=_Unsynced(ctx.disk, ".part-")))

    patch.setattr(FolderStorage, "__init__", init_storage)
    patch.setattr(PartWriter, "__init__", init_writer)


# ---------------------------------------------------------------------- no alignment


def no_alignment(patch: pytest.MonkeyPatch) -> None:
    """Channels whose barrier has come are read on."""
    init = BarrierAligner.__init__
    patch.setattr(BarrierAligner, "__init__", lambda self, channels, exactly_once=True: init(self, channels, False))


# ---------------------------------------------------------------------- one acknowledgement missing


def ack_missing(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint counts as complete when one subtask has not acknowledged.

    Two guards: the pending checkpoint, and `collect_operators`, which refuses a manifest with a gap.
    """
    patch.setattr(
        PendingCheckpoint, "is_complete", property(lambda self: self.failure is None and len(self.acks_missing) <= 1)
    )

    def collect(plan: JobPlan, acks: dict[SubtaskId, Any]) -> Any:
        return collect_operators(plan, {subtask: acks.get(subtask, {}) for subtask in plan.subtasks()})

    patch.setattr(publishing_module, "collect_operators", collect)


# ---------------------------------------------------------------------- late acknowledgements


def late_acks(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements of an attempt that has failed still complete its checkpoint.

    Five guards: messages of other attempts are dropped; pending checkpoints end with their attempt (two places); the
    next attempt waits until every worker has let go of the last one; and the commit log fences older attempts.
    """
    on_message, begin, release = Coordinator._on_message, Checkpoints.begin, Orders._release

    released: dict[int, int] = {}  # duties of a coordinator -> the attempt that ended last

    def hear_all(self: Coordinator, worker: int, message: messages.Message) -> None:
        if isinstance(message, messages.Ack):
            self.checkpoints.on_ack(worker, message)
        elif getattr(message, "attempt", 0) > released.get(id(self._duties), 0):
            on_message(self, worker, message)

    def end(self: Checkpoints, failure: Any, now: float) -> None:
        self._scheduler.suspend()

    def begin_beside(self: Checkpoints, *args: Any) -> None:
        pending, self._triggered = self._triggered, {}
        begin(self, *args)
        self._triggered = pending

    def release_unheard(self: Orders) -> None:
        released[id(self._duties)] = self._duties.deployment.number
        release(self)
        for worker in self._duties.crew._members.workers(WorkerState.RELEASING):
            self._duties.crew.released(worker)

    async def tail(self: CommitLog, attempt: int) -> Any:
        if not self._known:
            await self.entries()
        return self._known[max(self._known)]

    patch.setattr(Coordinator, "_on_message", hear_all)
    patch.setattr(Checkpoints, "end", end)
    patch.setattr(Checkpoints, "begin", begin_beside)
    patch.setattr(Orders, "_release", release_unheard)
    patch.setattr(CommitLog, "_tail", tail)


# ---------------------------------------------------------------------- sinks commit before the entry


def early_commit(patch: pytest.MonkeyPatch) -> None:
    """Sinks are told to commit when the manifest is there, before the commit entry."""
    append, on_ack = Publishing._append, Checkpoints.on_ack
    tellers: dict[int, Checkpoints] = {}  # publishing -> who tells the workers

    def note(self: Checkpoints, *args: Any) -> Any:
        tellers[id(self._publishing)] = self
        return on_ack(self, *args)

    async def tell_first(self: Publishing, manifest: Any, *more: Any) -> Any:
        tellers[id(self)]._send(messages.Complete(manifest.attempt, manifest.id))
        # Time for the sinks, as they are to be first.
        await asyncio.sleep(0.03)
        return await append(self, manifest, *more)

    patch.setattr(Checkpoints, "on_ack", note)
    patch.setattr(Publishing, "_append", tell_first)


# ---------------------------------------------------------------------- aborted before the fence


def abort_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    """What an attempt had prepared is aborted as soon as that is over, whatever of it is being published."""
    end, init = Checkpoints.end, Housekeeping.__init__
    preparations: dict[PreparedOutput, Preparation] = {}

    def note(self: Housekeeping, preparation: Preparation, output: PreparedOutput, *more: Any) -> None:
        preparations[output] = preparation
        init(self, preparation, output, *more)

    async def abort(checkpoints: Checkpoints, attempt: int) -> None:
        output = checkpoints._output
        output.settle(0)
        preparation = preparations[output]
        sinks = dict(preparation.sinks())
        for one in output.void():
            ctx = preparation._sink_context(one.uid, checkpoints._lineage, attempt, 0)
            await sinks[one.uid].abort(one.committable, ctx)
            output.aborted(one)

    def end_and_abort(self: Checkpoints, failure: Any, now: float) -> None:
        end(self, failure, now)
        self._spawn(abort(self, self._attempt), "abort")

    patch.setattr(Housekeeping, "__init__", note)
    patch.setattr(Checkpoints, "end", end_and_abort)


# ---------------------------------------------------------------------- old attempts' files


def adopted_files(patch: pytest.MonkeyPatch) -> None:
    """Names of files do not carry the attempt, and a file that is there already is taken as it is.

    Two guards: the name, and the writer, which refuses a name that is taken.
    """
    state_file = names.state_file

    def without_attempt(uid: str, subtask: int, attempt: int, sequence: int, kind: str) -> str:
        return state_file(uid, subtask, 1, sequence, kind)

    async def adopt(storage: Any, frozen: Any, name: str, groups: tuple[int, int]) -> StateFile:
        await storage.put_if_absent(name, frozen.chunks())
        data = await storage.get(name)
        kind = writer.BASE if frozen.full else writer.DELTA
        return StateFile(name, kind, len(data), xxh3_64_hexdigest(data), frozen.entries, groups)

    patch.setattr(names, "state_file", without_attempt)
    patch.setattr(writer, "_write_slices", adopt)


# ---------------------------------------------------------------------- files of failed checkpoints


def parts_fail_in_turn(patch: pytest.MonkeyPatch) -> None:
    """Of four checkpoints in a row three fail: the other subtask's state cannot be written, then twice the first one's."""
    write = writer._write_slices
    fails = {1: "1", 2: "0", 3: "0"}  # number of a file in its attempt, modulo 4 -> subtask

    async def write_or_fail(storage: Any, frozen: Any, name: str, groups: tuple[int, int]) -> StateFile:
        _, subtask, _, number = name.partition(".")[0].rsplit("-", 3)
        if fails.get(int(number) % 4) == subtask:
            raise StorageError(f"cannot write {name}: it is this subtask's turn to fail")
        return await write(storage, frozen, name, groups)

    patch.setattr(writer, "_write_slices", write_or_fail)


def partial_parts_are_whole(patch: pytest.MonkeyPatch) -> None:
    """What could be written of a part is taken for all that its subtask builds on."""
    heard = AbandonedFiles.heard
    patch.setattr(AbandonedFiles, "heard", lambda self, ack: heard(self, replace(ack, partial=False)))


KILLS = (FaultKind.KILL_WORKER, FaultKind.KILL_WORKERS, FaultKind.KILL_COORDINATOR)

# ---------------------------------------------------------------------- event time


def watermark_first(patch: pytest.MonkeyPatch) -> None:
    """A watermark goes on before what the timers emit that it makes fire."""
    advance = Subtask.advance

    async def tell_then_fire(self: Subtask, watermark: int) -> None:
        self._pipeline.watermark = max(self._pipeline.watermark, watermark)
        self._send_watermark()
        await advance(self, watermark)

    patch.setattr(Subtask, "advance", tell_then_fire)


def greatest_watermark(patch: pytest.MonkeyPatch) -> None:
    """The newest of all channels' watermarks counts, not the oldest."""

    def risen(self: InputWatermarks) -> int | None:
        reached = max(self._channels.values())
        if reached <= self.watermark:
            return None
        self.watermark = reached
        return reached

    patch.setattr(InputWatermarks, "_risen", risen)


# ---------------------------------------------------------------------- broadcast state


def broadcast_state_not_saved(patch: pytest.MonkeyPatch) -> None:
    """Broadcast state is in no snapshot."""
    freeze = KeyedPart.freeze

    def freeze_keyed(self: KeyedPart) -> Any:
        async def nothing() -> SubtaskState:
            return SubtaskState()

        return Captured(nothing) if self.is_broadcast else freeze(self)

    patch.setattr(KeyedPart, "freeze", freeze_keyed)


# ---------------------------------------------------------------------- records under way


def channel_state_not_saved(patch: pytest.MonkeyPatch) -> None:
    """What a barrier overtakes is not recorded."""
    patch.setattr(Recording, "add", lambda *_: None)


def recording_ends_early(patch: pytest.MonkeyPatch) -> None:
    """Only what is queued at the snapshot is recorded, and not what comes before the barrier later."""
    record = Inbox.record

    def record_queued(self: Inbox, checkpoint: int, recorder: Callable[[Any], None]) -> None:
        record(self, checkpoint, recorder)
        self.stop_recording()

    patch.setattr(Inbox, "record", record_queued)


def no_decline_while_restoring(patch: pytest.MonkeyPatch) -> None:
    """Snapshots are taken while restored records are still to be taken in."""
    patch.setattr(Subtask, "is_restoring", property(lambda _: False))


# ---------------------------------------------------------------------- state of older versions


def older_versions_stay_below(patch: pytest.MonkeyPatch) -> None:
    """After a conversion the next files are put on top of those that hold values of the older version.

    Two guards: the chain of files begins anew, and each file names the versions in it, which the manifest must confirm.
    """
    patch.setattr(Evolution, "has_changed", property(lambda _: False))
    patch.setattr(state_assembly_module, "check_versions", lambda *_: None)


# ---------------------------------------------------------------------- local files


def local_files_not_proved(patch: pytest.MonkeyPatch) -> None:
    """State is opened from whatever lies under the name of a local file.

    Two guards: the proof when it is opened, and the reader of state files, which knows size and seal as well.
    """

    def read_anything(name: str, data: bytes | ReadRange, size: int, seal: str = "") -> FileReader:
        return FileReader(name, data, len(data(0, 1 << 30) if callable(data) else data))

    patch.setattr(local_files_module, "_problem_of", lambda *_: "")
    patch.setattr(layers_module, "FileReader", read_anything)


def local_damage_is_the_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is passed over for what is wrong with a local file."""

    def pass_over(self: Choosing, directory: str, local: LocalUse, how: str) -> None:
        self._damaged[directory] = how

    patch.setattr(Choosing, "found_damage", pass_over)


ABLATIONS = (
    Ablation("ack before fsync", ack_before_fsync, (FaultKind.POWER_FAILURE,)),
    Ablation("no alignment", no_alignment, KILLS),
    Ablation("one ack missing", ack_missing, KILLS),
    Ablation("late acks accepted", late_acks, (FaultKind.LATE_WORDS,), gap=0.3, takes_back=False),
    Ablation(
        "commit before the entry",
        early_commit,
        (FaultKind.KILL_COORDINATOR,),
        takes_back=False,
    ),
    Ablation("aborted before the fence", abort_before_the_fence, (FaultKind.KILL_WORKER, FaultKind.DISK_SLOW)),
    Ablation("old files adopted", adopted_files, KILLS),
    Ablation(
        "partial parts are whole",
        partial_parts_are_whole,
        (FaultKind.KILL_WORKER, FaultKind.KILL_COORDINATOR),
        takes_back=False,
        trouble=parts_fail_in_turn,
    ),
    Ablation("a watermark goes first", watermark_first, KILLS, topology=Topology.EVENT_TIME),
    Ablation("the greatest watermark", greatest_watermark, KILLS, topology=Topology.EVENT_TIME),
    Ablation("no broadcast state", broadcast_state_not_saved, KILLS, topology=Topology.BROADCAST),
    Ablation("no channel state", channel_state_not_saved, KILLS, topology=Topology.REBALANCED, unaligned=True),
    Ablation("recording ends early", recording_ends_early, KILLS, topology=Topology.REBALANCED, unaligned=True),
    Ablation(
        "snapshot while restoring", no_decline_while_restoring, KILLS, topology=Topology.REBALANCED, unaligned=True
    ),
    Ablation("older versions stay below", older_versions_stay_below, (), changes=True, first_seed=47),
    Ablation("local files are not proved", local_files_not_proved, KILLS, local=LocalTrouble(hurt=True)),
    Ablation(
        "local damage is the checkpoint's",
        local_damage_is_the_checkpoints,
        (FaultKind.KILL_WORKER,),
        takes_back=False,
        local=LocalTrouble(hurt=True),
    ),
)
