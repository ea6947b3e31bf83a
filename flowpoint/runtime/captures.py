"""Makes durable what one subtask froze at a barrier, beside the stream, and acknowledges it.

Captures are written in the order in which they were taken, one at a time: a delta file builds on the one before it. A
spill (changed state that outgrew its memory) goes the same way and is acknowledged by nobody. Records that a barrier has
overtaken arrive when others let them: a capture that waits for those waits aside, and keeps no later one.

A savepoint that is given up is written no further. The parts of a *checkpoint* are written all the same: the next one
builds on them. Of one that has failed, too, the coordinator learns the files, after the word that it has: it removes
those that no later checkpoint names.

Invariants: an acknowledgement is sent only after everything it names is durable; every `Captured` is written or
dropped, whatever else fails.

Not here: freezing (`subtask`, `parts`), and the files themselves (`state_files`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flowpoint.errors import CheckpointFailed, FlowPointError, TransientError
from flowpoint.model.elements import Barrier
from flowpoint.model.manifest import SubtaskState
from flowpoint.runtime.answers import Answers
from flowpoint.runtime.channel_state import Recording
from flowpoint.runtime.parts import Captured, SinkPart, merged

WriteChannels: TypeAlias = Callable[[Recording], Awaitable[tuple[str, SubtaskState]]]
"""Makes channel state durable: the uid it stands with in a manifest, and what stands there."""


@dataclass(slots=True)
class Capture:
    """What was frozen at a barrier and is to be written.

    saved: what goes into a savepoint, as far as it has not been begun.
    stats: what else the coordinator is told (`messages.Ack`).
    saving: the write of one such part that is under way.
    recording: the records that this barrier has overtaken; it is acknowledged when they are written, too.
    """

    barrier: Barrier
    parts: list[tuple[str, Captured]]
    saved: deque[tuple[str, Captured]] = field(default_factory=deque)
    stats: dict[str, Any] = field(default_factory=dict)
    recording: Recording | None = None
    saving: asyncio.Task[SubtaskState] | None = None
    is_given_up: bool = False

    def give_up(self) -> None:
        """Save nothing more, nor records. The other parts are written nevertheless: the next checkpoint builds on them."""
        self.is_given_up = True
        while self.saved:
            self.saved.popleft()[1].drop()
        if self.saving is not None:
            self.saving.cancel()
        if self.recording is not None:
            self.recording.discard()


@dataclass(frozen=True, slots=True)
class _Spill:
    """State of one operator that goes out early."""

    uid: str
    captured: Captured


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A written capture whose channel state is still arriving."""

    capture: Capture
    recording: Recording
    operators: dict[str, Any]


class Captures:
    """What one subtask has frozen and not yet made durable. `run` and `run_recordings` are duties without end."""

    def __init__(
        self,
        answers: Answers,
        sink: SinkPart | None,
        write_channels: WriteChannels | None,
        wake: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        """`wake`: called when a spill is durable."""
        self.spills = 0
        self._answers = answers
        self._sink = sink
        self._write_channels = write_channels
        self._wake = wake
        self._log = log
        self._queue: asyncio.Queue[Capture | _Spill] = asyncio.Queue()
        self._unwritten: list[Capture] = []
        self._unfinished: asyncio.Queue[_Unfinished] = asyncio.Queue()

    def put(self, capture: Capture) -> None:
        """Have a capture written and acknowledged."""
        self._unwritten.append(capture)
        self._queue.put_nowait(capture)

    def put_spill(self, uid: str, captured: Captured) -> None:
        """Have state written early. `spills` says how many of these are under way."""
        self.spills += 1
        self._queue.put_nowait(_Spill(uid, captured))

    def give_up(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` was given up: nothing of a savepoint is written any more.

        What was captured for a checkpoint stays in the state of the next one, and its files are told all the same.
        """
        for capture in self._unwritten:
            if capture.barrier.checkpoint == checkpoint:
                capture.give_up()

    # ------------------------------------------------------------------ the duties

    async def run(self) -> None:
        """Make what is captured durable, in order, and acknowledge it.

        Raises:
            FlowPointError: something that no later try can mend, or a spill that failed.
        """
        while True:
            taken = await self._queue.get()
            if isinstance(taken, _Spill):
                await self._write_spill(taken)
            else:
                await self._write_capture(taken)

    async def run_recordings(self) -> None:
        """Write channel state when it is whole, and acknowledge what waited for it."""
        assert self._write_channels is not None, self._answers.subtask
        while True:
            unfinished = await self._unfinished.get()
            await unfinished.recording.done.wait()
            if unfinished.recording.is_discarded:
                self._tell_files(unfinished.capture, unfinished.operators, partial=False)
            else:
                await self._write_recording(unfinished, self._write_channels)
            self._unwritten.remove(unfinished.capture)

    # ------------------------------------------------------------------ writing

    async def _write_spill(self, spill: _Spill) -> None:
        failure = await _write_one(spill.uid, spill.captured.write(), {})
        if failure is not None:
            # No checkpoint is there that could be declined, and memory has run out.
            raise failure
        self.spills -= 1
        self._wake()

    async def _write_recording(self, unfinished: _Unfinished, write: WriteChannels) -> None:
        checkpoint, operators = unfinished.capture.barrier.checkpoint, unfinished.operators
        try:
            uid, state = await write(unfinished.recording)
        except (TransientError, OSError) as error:
            if not unfinished.capture.is_given_up:
                self._log(f"subtask {self._answers.called}: records under way were not written: {error}")
                self._answers.decline_failed(checkpoint, "records under way", error)
            # Nothing is built on records under way.
            self._tell_files(unfinished.capture, operators, partial=False)
            return
        if state.channels:
            operators = {**operators, uid: merged(operators.get(uid, {}), state.to_data())}
        # Also when it was given up meanwhile: the coordinator learns which files nobody needs.
        self._answers.acknowledge(checkpoint, operators, {}, unfinished.capture.stats)

    async def _write_capture(self, capture: Capture) -> None:
        checkpoint = capture.barrier.checkpoint
        if self._sink is not None:
            await self._sink.finish_preparing(checkpoint)
        operators, failure = await self._write(capture.parts)
        saved, failure_saved = await self._save(capture)
        failure = failure or failure_saved
        if capture.recording is not None and failure is None and not capture.is_given_up:
            # What comes later must not wait for this: channel state arrives when others let it.
            self._unfinished.put_nowait(_Unfinished(capture, capture.recording, operators))
            return
        self._unwritten.remove(capture)
        if capture.is_given_up:
            self._tell_files(capture, operators, partial=failure is not None)
            return
        if failure is not None:
            # The state is kept in memory and goes into the next snapshot; this one has failed.
            self._log(f"subtask {self._answers.called}: its part of checkpoint {checkpoint} was not written: {failure}")
            self._answers.decline_failed(checkpoint, "", failure)
            self._tell_files(capture, operators, partial=True)
        else:
            self._answers.acknowledge(checkpoint, operators, saved, capture.stats)

    def _tell_files(self, capture: Capture, operators: dict[str, Any], *, partial: bool) -> None:
        """Say what was written for a checkpoint that has failed.

        Never before the coordinator knows that, by its own abort or by our decline: it would take this for our part.
        """
        if operators:
            self._answers.tell_files(capture.barrier.checkpoint, operators, capture.stats, partial=partial)

    async def _write(self, parts: list[tuple[str, Captured]]) -> tuple[dict[str, Any], Exception | None]:
        """Write every part, also after one has failed: each has to learn how its own writing ended.

        Raises:
            FlowPointError: something that no later try can mend.
        """
        operators: dict[str, Any] = {}
        failure: Exception | None = None
        for uid, captured in parts:
            failure = await _write_one(uid, captured.write(), operators) or failure
        return operators, failure

    async def _save(self, capture: Capture) -> tuple[dict[str, Any], Exception | None]:
        """Write every part of a savepoint, or as much as there was time for until it was given up."""
        operators: dict[str, Any] = {}
        failure: Exception | None = None
        while capture.saved:
            uid, captured = capture.saved.popleft()
            failure = await _write_one(uid, _until_given_up(capture, captured), operators) or failure
        return operators, failure


async def _until_given_up(capture: Capture, captured: Captured) -> SubtaskState:
    """Write one part of a savepoint. Raises CheckpointFailed when the savepoint is given up meanwhile."""
    is_begun = False

    async def write() -> SubtaskState:
        nonlocal is_begun
        is_begun = True
        return await captured.write()

    capture.saving = asyncio.get_running_loop().create_task(write())
    try:
        return await capture.saving
    except asyncio.CancelledError:
        if not is_begun:
            captured.drop()
        task = asyncio.current_task()
        if not capture.is_given_up or task is None or task.cancelling():
            raise
        raise CheckpointFailed("the savepoint was given up") from None
    finally:
        capture.saving = None


async def _write_one(
    uid: str, writing: Coroutine[Any, Any, SubtaskState], operators: dict[str, Any]
) -> Exception | None:
    """Write one part and add it to `operators`; gives what a later try may mend."""
    try:
        operators[uid] = merged(operators.get(uid, {}), (await writing).to_data())
    except (TransientError, OSError) as error:
        return error
    except FlowPointError as error:
        error.operator = error.operator or uid
        raise
    return None
