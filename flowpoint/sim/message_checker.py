"""What must hold whenever a control message is sent, checked before it is on its way; and the story the messages tell.

Coordinator and workers act on each other's words, so a word that is said too early is the fault itself, also in the
many runs in which no damage follows. Together with `checkers`, which see only files:

- An acknowledgement names only what is durable (files of state, and the hidden parts of sinks).
- A manifest appears only when every subtask of its plan has acknowledged, in that attempt.
- `Complete` is said only of what is in the commit log, durably; so sinks commit only then.
- An attempt is deployed only after its entry fences all older ones, and while no worker of another one lives (rule 8).
- Records flow only after everything that the restored checkpoint holds is visible (rule 7).
- Checkpoints are triggered with rising numbers, above all committed ones (rule 4).
- After a worker has released an attempt, nothing of that attempt is heard from it.
- No failure is a bug of FlowPoint's own: it has one of the kinds of `errors`, or is the system's.

Not here: frames between workers, which are batches and barriers; the output judges those.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any, TypeAlias

from flowpoint import errors
from flowpoint.model import messages
from flowpoint.model.manifest import SubtaskState
from flowpoint.model.plan import JobPlan, SubtaskId
from flowpoint.sim.checkers import StorageChecker
from flowpoint.sim.files import Change
from flowpoint.sim.network import SimLink
from flowpoint.sim.stored_names import checkpoint_of
from flowpoint.sim.world import InvariantBroken, SimProcess, SimWorld
from flowpoint.transport.control import decode_message

_WATCHED: tuple[type, ...] = (
    messages.Ack,
    messages.Committed,
    messages.Complete,
    messages.Decline,
    messages.Deploy,
    messages.Deployed,
    messages.Ended,
    messages.Failure,
    messages.Released,
    messages.Start,
    messages.Trigger,
)
LIST_OF_TWO, SHORT_TEXT = 0x92, 0xA0  # in msgpack
_Said: TypeAlias = Callable[[SimProcess, Any], None]


class MessageChecker:
    """Listens to every control link of a world."""

    def __init__(self, world: SimWorld, storage: StorageChecker) -> None:
        self._world = world
        self._storage = storage
        self._watched = {tp.__name__.encode(): getattr(self, f"_on_{tp.__name__.lower()}") for tp in _WATCHED}
        self._acks: dict[tuple[int, int], set[SubtaskId]] = {}
        self._to_commit: dict[int, list[str]] = {}
        self._triggered: dict[int, int] = {}
        self._released: dict[int, int] = {}
        self.on_deployed: Callable[[SimProcess, messages.Deployed], None] = lambda *_: None
        """Called when a worker says that it has built its part of an attempt; may raise InvariantBroken."""
        world.network.watch(self._on_frame)
        world.files.watch(self._on_change)

    def _on_frame(self, link: SimLink, frame: bytes) -> None:
        # A message is a list of two, its name a short text: not every frame is worth decoding.
        is_named = frame[0] == LIST_OF_TWO and SHORT_TEXT <= frame[1] < SHORT_TEXT + 32
        said: _Said | None = self._watched.get(frame[2 : 2 + frame[1] - SHORT_TEXT]) if is_named else None
        if said is None:
            return
        message = decode_message(frame)
        if type(message) not in _WATCHED:
            # It begins like one that is watched, as `Stats` does like `Start`.
            return
        try:
            self._check_released(link.owner, message)
            said(link.owner, message)
        except InvariantBroken as error:
            self._fail(error)

    def _on_change(self, change: Change) -> None:
        if change.kind == "link" and change.path.endswith("/manifest.json"):
            try:
                self._on_manifest(change.path)
            except InvariantBroken as error:
                self._fail(error)

    def _fail(self, error: InvariantBroken) -> None:
        self._world.trace.tell("checker", f"BROKEN: {error}")
        self._world.fail(error)

    # ------------------------------------------------------------------ from workers

    def _on_ack(self, process: SimProcess, ack: messages.Ack) -> None:
        who = f"the acknowledgement of checkpoint {ack.checkpoint} by {_named(ack.subtask)}, attempt {ack.attempt},"
        for data in ack.savepoint.values():
            for committable in SubtaskState.from_data(data).committables:
                self._check_part(committable["data"], who)
        for data in ack.operators.values():
            state = SubtaskState.from_data(data)
            for file in state.every_file():
                self._storage.check_file(file, who)
            for committable in state.committables:
                self._check_part(committable["data"], who)
        self._acks.setdefault((ack.attempt, ack.checkpoint), set()).add(SubtaskId(*ack.subtask))
        process.tell(f"acknowledges checkpoint {ack.checkpoint} for {_named(ack.subtask)}")

    def _check_part(self, committable: Any, who: str) -> None:
        if not _is_part(committable):
            return
        hidden, final = (f"{committable['folder']}/{committable[name]}" for name in ("hidden", "final"))
        files = self._world.files
        _require(
            files.is_durable(hidden) or files.find(final) is not None,
            f"{who} holds the part {hidden}, which is not durable",
        )

    def _on_decline(self, process: SimProcess, message: messages.Decline) -> None:
        process.tell(f"declines checkpoint {message.checkpoint} for {_named(message.subtask)}: {message.reason}")
        if message.restoring:
            self._world.trace.mark("declined while restoring")

    def _on_deployed(self, process: SimProcess, message: messages.Deployed) -> None:
        self.on_deployed(process, message)

    def _on_ended(self, process: SimProcess, message: messages.Ended) -> None:
        process.tell(f"{_named(message.subtask)} has seen the end of its input")

    def _on_committed(self, process: SimProcess, message: messages.Committed) -> None:
        _require(
            self._storage.is_committed(message.checkpoint, message.attempt, ""),
            f"{process.name} confirms commits of checkpoint {message.checkpoint}, which is not in the commit log",
        )
        process.tell(f"the sink {_named(message.subtask)} confirms its commits up to checkpoint {message.checkpoint}")

    def _on_released(self, process: SimProcess, message: messages.Released) -> None:
        self._released[process.serial] = message.attempt
        process.tell(f"has let go of attempt {message.attempt}")

    def _check_released(self, process: SimProcess, message: Any) -> None:
        attempt = getattr(message, "attempt", None)
        if attempt is not None and not isinstance(message, messages.Released):
            _require(
                attempt > self._released.get(process.serial, 0),
                f"{process.name} says {type(message).__name__} of attempt {attempt}, which it has let go of",
            )

    def _on_failure(self, process: SimProcess, failure: messages.Failure) -> None:
        where = f" in {_named(failure.subtask)}" if failure.subtask else ""
        process.tell(f"fails{where}: {failure.kind}: {failure.message}")
        _require(_is_expected(failure.kind), f"{process.name} found a bug in itself: {failure.trace}")

    # ------------------------------------------------------------------ from the coordinator

    def _on_deploy(self, process: SimProcess, deploy: messages.Deploy) -> None:
        newest = self._storage.newest
        _require(
            newest is not None
            and (newest.kind in ("attempt", "restored") or bool(newest.taken_from))
            and newest.attempt == deploy.attempt,
            f"attempt {deploy.attempt} is deployed, and the commit log ends with {newest}",
        )
        self._check_nobody_else_lives(process, deploy.attempt)
        states = [SubtaskState.from_data(data) for index in deploy.restore.values() for one in index for data in one]
        # Once per worker: the same each time.
        self._to_commit[deploy.attempt] = [
            f"{committable['data']['folder']}/{committable['data']['final']}"
            for state in states
            for committable in state.committables
            if _is_part(committable["data"])
        ]
        origin = f"from checkpoint {deploy.restored_checkpoint}" if deploy.restored_checkpoint else "from the start"
        process.tell(f"deploys attempt {deploy.attempt}, {origin}")
        if under_way := sum(file.entries for state in states for file in state.channels):
            process.tell(f"restores {under_way} records that were under way")
            self._world.trace.mark("restored channel state")

    def _check_nobody_else_lives(self, coordinator: SimProcess, attempt: int) -> None:
        seen: dict[int, SimProcess] = {}
        for worker in self._world.living():
            if worker.parent is None or worker is coordinator:
                continue
            _require(
                worker.parent is coordinator,
                f"attempt {attempt} is deployed by {coordinator.name} while {worker.name} of another one lives",
            )
            index = json.loads(worker.args[0])[0]
            _require(
                index not in seen,
                f"attempt {attempt} is deployed while {worker.name} and {seen.get(index)} are both worker {index}",
            )
            seen[index] = worker

    def _on_start(self, process: SimProcess, message: messages.Start) -> None:
        for path in self._to_commit.get(message.attempt, ()):
            _require(
                self._world.files.find(path) is not None,
                f"records of attempt {message.attempt} flow, and {path} of the restored checkpoint is not visible",
            )
        process.tell(f"lets the records of attempt {message.attempt} flow")

    def _on_trigger(self, process: SimProcess, message: messages.Trigger) -> None:
        before = self._triggered.get(process.serial, 0)
        _require(
            message.checkpoint >= before,
            f"checkpoint {message.checkpoint} is triggered after checkpoint {before}",
        )
        _require(
            not self._storage.has_checkpoint(message.checkpoint),
            f"checkpoint {message.checkpoint} is triggered, which is committed already",
        )
        self._triggered[process.serial] = message.checkpoint
        if message.checkpoint > before:
            process.tell(f"triggers checkpoint {message.checkpoint}{', the last one' if message.final else ''}")

    def _on_complete(self, process: SimProcess, message: messages.Complete) -> None:
        _require(
            self._storage.is_committed(message.checkpoint, message.attempt, ""),
            f"{process.name} calls checkpoint {message.checkpoint} of attempt {message.attempt} complete, "
            "which is not durably in the commit log",
        )

    def _on_manifest(self, path: str) -> None:
        directory = checkpoint_of(path.rsplit("/", 2)[1])
        if directory is None:
            return
        checkpoint, attempt = directory
        if attempt not in self._to_commit:
            # Nothing is deployed yet: the checkpoint is made of the snapshot that the job starts from.
            return
        plan = JobPlan.from_data(json.loads(bytes(self._world.files.file(path).data))["plan"])
        missing = [one for one in plan.subtasks() if one not in self._acks.get((attempt, checkpoint), ())]
        _require(
            not missing,
            f"checkpoint {checkpoint} of attempt {attempt} gets its manifest without an acknowledgement of "
            f"{', '.join(_named(list(one)) for one in missing)}",
        )


def _is_expected(kind: str) -> bool:
    """Whether errors of this kind are the surroundings' or the job's, not a bug."""
    known = getattr(errors, kind, None) or getattr(builtins, kind, None)
    return isinstance(known, type) and issubclass(known, errors.FlowPointError | OSError)


def _named(subtask: list[int]) -> str:
    return f"subtask {subtask[0]}#{subtask[1]}"


def _is_part(committable: Any) -> bool:
    """Whether it is one of a FileSink: those of other sinks are on no disk that could be looked at."""
    return isinstance(committable, dict) and committable.keys() >= {"folder", "hidden", "final"}


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise InvariantBroken(complaint)
