"""The worker processes of a job: start them, hear of their end, talk to them, kill them for certain.

One slot per worker index. Each start of a slot is an incarnation with a random id; whatever comes from an older
incarnation is dropped here. A worker is lost when its process ends or its control link breaks; `post` gets exactly one
`Lost` per incarnation; how its process ended by itself is told in any case, in `Lost` or, where that was posted before,
in `Ended`. A link breaks by the end of the process, most often, and is seen to before it: so the end of the
process is waited for a moment, as that says what has happened.

Not here: what its loss means (`protocol.job`), heartbeats' deadlines (`protocol.membership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from flowpoint.coordinator.last_words import LastWords
from flowpoint.errors import InternalError, LinkLost, WorkerLost
from flowpoint.host.base import ORPHANED_EXIT_CODE, Host, Link, Listener, Process
from flowpoint.model import messages
from flowpoint.transport.control import decode_message, encode_message


@dataclass(frozen=True, slots=True)
class Started:
    """A process was started for a slot. Comes before its `Joined`."""

    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No process could be started for a slot."""

    worker: int
    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker has greeted: its process runs and its link stands."""

    worker: int
    pid: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Received:
    """A control message of a current incarnation."""

    worker: int
    message: messages.Message


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat of a current incarnation."""

    worker: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker's process has ended or its link broke. `exit_code` is that of a process that ended by itself, else 0."""

    worker: int
    pid: int
    reason: str
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of a worker that counted as lost has ended by itself, or that a kill has not ended it yet. Only to be
    told: nothing follows from it.
    """

    worker: int
    how: str


WorkerEvent = Started | NotStarted | Joined | Received | Beat | Lost | Ended
Post = Callable[[WorkerEvent], None]
Arguments = Callable[[int, str, str], Sequence[str]]
CAUSE_SECONDS = 0.05
"""So long after a link the process at its end may be seen to end: then that is the cause, and not the link."""
STUCK_SECONDS = 10.0
"""A process that is still there so long after SIGKILL hangs in the kernel, and a person must know what is waited for."""
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


@dataclass(slots=True)
class _Slot:
    """One worker index: the incarnation that counts now.

    `lost` says why it does not count any more, "" while it does. Its process may be there until `is_reaped`;
    `is_killed`: by this coordinator. What it prints stands in the log behind `log_size`.
    """

    incarnation: str
    process: Process | None = None
    link: Link | None = None
    hello: messages.Hello | None = None
    lost: str = ""
    is_reaped: bool = False
    is_killed: bool = False
    log_size: int = 0
    watching: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        return bool(self.lost)

    def kill(self) -> None:
        """SIGKILL, if there is a process."""
        if self.process is not None:
            self.is_killed = True
            self.process.kill()


class Workers:
    """All workers of one coordinator."""

    def __init__(self, host: Host, arguments: Arguments, log_path: str | None, post: Post, spawn: Spawn) -> None:
        """`arguments(index, incarnation, coordinator address)` makes the command line of a worker.

        `spawn` starts a task beside, under a name.
        """
        self._host = host
        self._arguments = arguments
        self._log_path = log_path
        self._last_words = LastWords(host.disk, log_path)
        self._post = post
        self._spawn = spawn
        self._slots: dict[int, _Slot] = {}
        self._links: dict[Link, tuple[int, _Slot] | None] = {}  # with the slot whose control link it is, if any
        self._listener: Listener | None = None

    async def listen(self) -> None:
        """Open the address that workers connect to."""
        address = self._host.socket_address(f"c-{self._host.new_id()[:8]}")
        self._listener = await self._host.listen(address, self._on_link)

    async def start(self, index: int) -> None:
        """Start a new incarnation in a slot whose previous one is gone."""
        assert self._listener is not None
        old = self._slots.get(index)
        assert old is None or old.is_lost, f"worker {index} is started while incarnation={old} lives"
        slot = _Slot(self._host.new_id())
        self._slots[index] = slot
        slot.log_size = await self._last_words.size()
        arguments = self._arguments(index, slot.incarnation, self._listener.address)
        try:
            slot.process = await self._host.start_process("worker", arguments, self._log_path)
        except (WorkerLost, OSError) as error:
            slot.lost = f"cannot start worker {index}: {error}"
            self._post(NotStarted(index, slot.lost))
            return
        self._post(Started(index, slot.process.pid))
        if slot.is_lost:
            # Its link broke, or all was over, before there was a handle on its process.
            slot.kill()
            self._post(Lost(index, slot.process.pid, slot.lost))
        elif slot.hello is not None:
            self._post(Joined(index, slot.hello.pid, slot.incarnation))
        slot.watching = self._spawn(self._watch(index, slot, slot.process), f"watch worker {index}")

    async def _watch(self, index: int, slot: _Slot, process: Process) -> None:
        code = await process.wait()
        slot.is_reaped = True
        who = f"worker {index} (pid {process.pid})"
        if code < 0:
            how = f"{who} was killed by signal {-code}"
        else:
            said = await self._last_words.since(slot.log_size) if code and not slot.is_lost else ""
            how = f"{who} ended with exit code {code}" + (f": {said}" if said else "")
        if not slot.is_lost:
            self._lose(index, slot, how, max(code, 0))
        elif code not in (0, ORPHANED_EXIT_CODE) and not (code < 0 and slot.is_killed):
            self._post(Ended(index, how))

    def lose(self, index: int, reason: str) -> None:
        """Count a worker as lost although nothing broke: it has been silent for too long."""
        self._lose(index, self._slots[index], reason)

    def _lose(self, index: int, slot: _Slot, reason: str, exit_code: int = 0) -> None:
        if slot.is_lost:
            return
        slot.lost = reason
        if slot.link is not None:
            self._drop(slot.link)
        if slot.process is not None:
            # Else `start`, which waits for the process, tells it: by its pid, and after its `Started`.
            self._post(Lost(index, slot.process.pid, reason, exit_code))

    async def _lose_unless_ended(self, index: int, slot: _Slot, process: Process, reason: str) -> None:
        """Its link is gone: so is the worker. If its process ends, too, whoever watches that says how."""
        try:
            async with asyncio.timeout(CAUSE_SECONDS):
                await process.wait()
        except TimeoutError:
            self._lose(index, slot, reason)

    # ------------------------------------------------------------------ links

    def _on_link(self, link: Link) -> None:
        """A new link says in its first frame what it is: a worker's control link, or its heartbeat."""

        def on_frame(frame: bytes) -> None:
            message = decode_message(frame) if self._links.get(link) is not None else _first_words(frame)
            if isinstance(message, messages.Hello):
                self._on_hello(link, message)
            elif isinstance(message, messages.Heartbeat):
                if (slot := self._current(message.worker, message.incarnation)) is not None and not slot.is_lost:
                    self._post(Beat(message.worker, message.incarnation))
            else:
                self._on_message(link, message)

        def on_lost(reason: str) -> None:
            owner = self._links.pop(link)
            if owner is not None:
                self._on_control_lost(*owner, reason)

        self._links[link] = None
        link.start(on_frame, on_lost)

    def _on_control_lost(self, index: int, slot: _Slot, reason: str) -> None:
        pid = slot.hello.pid if slot.hello is not None else 0
        why = f"worker {index} (pid {pid}): control link lost: {reason}"
        if slot.process is None:
            self._lose(index, slot, why)
        else:
            step = self._lose_unless_ended(index, slot, slot.process, why)
            self._spawn(step, f"look what became of worker {index}")

    def _current(self, index: int, incarnation: str) -> _Slot | None:
        slot = self._slots.get(index)
        return slot if slot is not None and slot.incarnation == incarnation else None

    def _on_hello(self, link: Link, hello: messages.Hello) -> None:
        slot = self._current(hello.worker, hello.incarnation)
        if slot is None or slot.is_lost or slot.link is not None:
            self._drop(link)
            return
        slot.link, slot.hello = link, hello
        self._links[link] = (hello.worker, slot)
        if slot.process is not None:
            self._post(Joined(hello.worker, hello.pid, hello.incarnation))

    def _drop(self, link: Link) -> None:
        """Close a link from this side, after which nothing is heard of it."""
        self._links.pop(link, None)
        link.close()

    def _on_message(self, link: Link, message: messages.Message) -> None:
        owner = self._links.get(link)
        if owner is not None and not owner[1].is_lost:
            self._post(Received(owner[0], message))

    def send(self, index: int, message: messages.Message) -> None:
        """Send to one worker; nothing happens when it is lost (its `Lost` is on the way)."""
        slot = self._slots[index]
        if slot.link is not None and not slot.is_lost:
            slot.link.send_nowait(encode_message(message))

    def broadcast(self, message: messages.Message) -> None:
        """Send to every worker that lives."""
        frame = encode_message(message)
        for slot in self._slots.values():
            if slot.link is not None and not slot.is_lost:
                slot.link.send_nowait(frame)

    # ------------------------------------------------------------------ facts

    def address(self, index: int) -> str:
        """Where other workers reach this one."""
        hello = self._slots[index].hello
        if hello is None:
            raise LinkLost(f"worker {index} has not joined")
        return hello.data_address

    def pids(self) -> dict[int, tuple[int, float]]:
        """(pid, start time) by index, of every process that was started and has not been reaped (rule 8)."""
        return {
            index: (slot.process.pid, slot.process.start_time)
            for index, slot in sorted(self._slots.items())
            if slot.process is not None and not slot.is_reaped
        }

    # ------------------------------------------------------------------ the end

    async def kill(self, index: int) -> None:
        """SIGKILL, and wait until the process is gone (rule 8)."""
        slot = self._slots.get(index)
        if slot is None or slot.process is None:
            return
        slot.kill()
        await self._until_gone(index, slot.process)
        slot.is_reaped = True
        self._lose(index, slot, f"worker {index} was killed by its coordinator")

    async def _until_gone(self, index: int, process: Process) -> None:
        """Wait for the end of a process that was killed: nothing may go on before it (rule 8)."""
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await process.wait()
        except TimeoutError:
            how = (
                f"worker {index} (pid {process.pid}) is still there {STUCK_SECONDS:g} s after SIGKILL, so it hangs in an"
                " operation of its disk; it is waited for, since it may still write: see to that disk or mount"
            )
            self._post(Ended(index, how))
            await process.wait()

    async def retire(self, index: int, reason: str, seconds: float) -> None:
        """Ask one worker to end, kill it if it has not after `seconds`, and wait until it is gone (rule 8)."""
        slot = self._slots[index]
        if slot.process is None:
            return
        self.send(index, messages.Exit(reason))
        try:
            async with asyncio.timeout(seconds):
                await slot.process.wait()
        except TimeoutError:
            slot.kill()
            await self._until_gone(index, slot.process)
        slot.is_reaped = True
        self._lose(index, slot, f"worker {index} was ended: {reason}")

    async def shut_down(self, reason: str, seconds: float) -> None:
        """Ask every worker to end, kill what has not after `seconds`, and wait for all of them."""
        self.broadcast(messages.Exit(reason))
        slots = [(index, slot, slot.process) for index, slot in self._slots.items() if slot.process is not None]
        watching = [slot.watching for _, slot, _ in slots if slot.watching is not None]
        try:
            async with asyncio.timeout(seconds):
                for _, _, process in slots:
                    await process.wait()
        except TimeoutError:
            for _, slot, _ in slots:
                slot.kill()
            await asyncio.gather(*(self._until_gone(index, process) for index, _, process in slots))
        if watching:
            # Until each has been reaped, and its end was told.
            await asyncio.wait(watching)
        self.stop_listening(reason)

    def stop_listening(self, reason: str) -> None:
        """Hear nothing of any worker any more: whoever would act upon it is gone."""
        for slot in self._slots.values():
            slot.lost = slot.lost or reason
        for link in list(self._links):
            self._drop(link)
        if self._listener is not None:
            self._listener.close()


def _first_words(frame: bytes) -> messages.Message:
    """What somebody says of whom nothing is known yet.

    Raises:
        LinkLost: it is not FlowPoint that speaks.
    """
    try:
        return decode_message(frame)
    except InternalError as error:
        raise LinkLost(f"no worker of this job is at its other end ({error})") from None
