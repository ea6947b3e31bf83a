"""The worker processes that a job has: who is there, who is missing, who is silent; and the orders given to them.

`Workers` runs the processes, `Membership` says what stage each is in; here the two are kept in step. Whatever takes
time is a step whose outcome comes through the mailbox.

Invariants:
- A slot gets a process only when its last one has been reaped (rule 8).
- A process is noted by `record` before it is given anything, or it goes.

Not here: what a loss means for the job (`incidents`), who runs which subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from flowpoint.coordinator.mail import Mail, Reaped
from flowpoint.coordinator.steps import Steps
from flowpoint.coordinator.workers import Arguments, Beat, Joined, Lost, NotStarted, Started, Workers
from flowpoint.errors import StorageError
from flowpoint.host.base import ORPHANED_EXIT_CODE, Host
from flowpoint.model import messages
from flowpoint.model.settings import HeartbeatSettings
from flowpoint.protocol.membership import Membership, WorkerState

SHUT_DOWN_SECONDS = 5.0

_GONE = (WorkerState.ABSENT, WorkerState.LOST)


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker is lost.

    has_failed: its process ended by itself, with an error. is_at_start: and before it had deployed anything.
    """

    worker: int
    reason: str
    has_failed: bool = False
    is_at_start: bool = False


Record = Callable[[dict[int, tuple[int, float]]], None]


class Crew:
    """All workers of one job."""

    def __init__(
        self,
        host: Host,
        size: int,
        arguments: Arguments,
        log_path: str | None,
        heartbeat: HeartbeatSettings,
        *,
        steps: Steps,
        post: Callable[[Mail], None],
        record: Record,
    ) -> None:
        """`record` gets (pid, start time) by index whenever a process was started; StorageError: it could not note it."""
        self._members = Membership(size, heartbeat.timeout)
        self._workers = Workers(host, arguments, log_path, post, steps.start)
        self._timeout = heartbeat.timeout
        self._steps = steps
        self._post = post
        self._record = record
        self._starting: set[int] = set()
        self._proven: set[int] = set()  # processes that have deployed something
        self._is_spawn_wanted = False
        self._are_reserves_unwanted = False
        self._release_deadline: float | None = None

    async def listen(self) -> None:
        """Open the address that workers connect to."""
        await self._workers.listen()

    # ------------------------------------------------------------------ what is heard of them

    def heard(self, mail: Beat | Started | Joined | Reaped, now: float) -> None:
        """A process came, beats, or is gone for certain."""
        match mail:
            case Beat(worker, incarnation):
                self._members.beat(worker, incarnation, now)
            case Started(worker, pid):
                self._starting.discard(worker)
                self._proven.discard(worker)
                self._members.spawned(worker, pid, now)
                self._record_or_lose(worker)
                self._end_unwanted()
            case Joined(worker, pid, incarnation):
                self._members.joined(worker, pid, incarnation, now)
            case Reaped(worker):
                self._members.reaped(worker)
                if self._is_spawn_wanted and not self._members.is_superfluous(worker):
                    self._start(worker)

    def _record_or_lose(self, started: int) -> None:
        """One that is noted nowhere might outlive this coordinator: it must go."""
        try:
            self._record(self._workers.pids())
        except StorageError as error:
            self._workers.lose(started, f"worker {started} was started and is given up: {error}")

    def lost(self, mail: Lost) -> Loss | None:
        """A process is lost. None: that was known, or nobody misses it."""
        is_reserve = self._members.is_reserve(mail.worker)
        if not self._members.lost(mail.worker, mail.pid):
            return None
        if is_reserve:
            # Whoever is superfluous otherwise is being reaped already.
            self._steps.start(self._reap(mail.worker), f"reap worker {mail.worker}")
        if self._members.is_superfluous(mail.worker):
            return None
        has_failed = mail.exit_code not in (0, ORPHANED_EXIT_CODE)
        return Loss(mail.worker, mail.reason, has_failed, has_failed and mail.worker not in self._proven)

    def not_started(self, mail: NotStarted) -> Loss | None:
        """No process could be started for a slot. None: nobody misses it."""
        self._starting.discard(mail.worker)
        self._end_unwanted()
        return None if self._members.is_superfluous(mail.worker) else Loss(mail.worker, mail.reason)

    def released(self, worker: int) -> None:
        """A worker says that it has let go of its attempt."""
        if self._members.state(worker) is WorkerState.RELEASING:
            self._members.released(worker)

    def deployed(self, worker: int) -> bool:
        """A worker has built its part. True: it was the last one."""
        self._members.deployed(worker)
        self._proven.add(worker)
        return self._members.is_deployed

    # ------------------------------------------------------------------ orders

    def start_missing(self) -> None:
        """Start a process in every slot without one; in a lost one's as soon as that is reaped."""
        self._is_spawn_wanted = True
        for worker in self._members.workers(WorkerState.ABSENT):
            if not self._members.is_superfluous(worker):
                self._start(worker)

    def _start(self, worker: int) -> None:
        if worker in self._starting:
            return
        self._starting.add(worker)
        self._steps.start(self._workers.start(worker), f"start worker {worker}")

    def kill(self, workers: Iterable[int]) -> None:
        """SIGKILL these and reap them. None is started before `start_missing`."""
        self._is_spawn_wanted = False
        for worker in workers:
            if self._members.state(worker) is WorkerState.LOST:
                self._steps.start(self._reap(worker), f"reap worker {worker}")

    async def _reap(self, worker: int) -> None:
        await self._workers.kill(worker)
        self._post(Reaped(worker))

    def reserve(self, size: int) -> None:
        """The job may soon have this many: start what it would lack, so that it need not wait then.

        Either `resize` or `end_reserves` follows.
        """
        self._are_reserves_unwanted = False
        for worker in self._members.reserve(size):
            self._start(worker)

    def end_reserves(self) -> None:
        """The job stays as it is."""
        self._are_reserves_unwanted = True
        self._end_unwanted()

    def _end_unwanted(self) -> None:
        """End reserves that nobody wants, once none of them is on its way: who starts must be there to be ended."""
        if self._are_reserves_unwanted and not any(map(self._members.is_superfluous, self._starting)):
            self.resize(self._members.size)

    def resize(self, size: int) -> None:
        """The job has this many from now on: superfluous ones are ended and reaped. Ends reserves, too."""
        self._are_reserves_unwanted = False
        for worker in self._members.resize(size):
            self._steps.start(self._retire(worker), f"end worker {worker}")

    async def _retire(self, worker: int) -> None:
        await self._workers.retire(worker, "the job needs fewer workers", SHUT_DOWN_SECONDS)
        self._post(Reaped(worker))

    def deploy(self, message: messages.Deploy) -> None:
        """Give every worker its part of an attempt."""
        assert self._members.is_ready, f"attempt {message.attempt} is deployed while somebody is missing"
        for worker in self._members.workers(WorkerState.JOINED):
            if not self._members.is_superfluous(worker):
                self._members.deploy(worker)
                self._workers.send(worker, message)

    def release(self, attempt: int, now: float) -> None:
        """Let whoever has a part of this attempt let go of it. Who does not do so in time is lost."""
        for worker in self._members.release_all():
            self._workers.send(worker, messages.Release(attempt))
        self._release_deadline = now + self._timeout

    def tell_all(self, message: messages.Message) -> None:
        """Send to every worker that lives."""
        self._workers.broadcast(message)

    def abandon(self) -> None:
        """The coordinator ends, whatever its workers do: nothing is heard of them any more."""
        self._workers.stop_listening("the coordinator has ended")

    async def end(self, seconds: float) -> None:
        """End all processes and reap them; what has not ended after `seconds`, by SIGKILL."""
        self._is_spawn_wanted = False
        await self._workers.shut_down("the job is over", seconds)

    # ------------------------------------------------------------------ time

    def tick(self, now: float) -> None:
        """Count as lost who has been silent, or has held on to its attempt, for too long."""
        for worker in self._members.expired(now):
            self._lose(worker, f"was silent for {self._timeout:g} s")
        if self._release_deadline is not None and now >= self._release_deadline:
            self._release_deadline = None
            for worker in self._members.workers(WorkerState.RELEASING):
                self._lose(worker, "did not let go of its attempt")

    def _lose(self, worker: int, how: str) -> None:
        pid, _ = self._workers.pids().get(worker, (0, 0.0))
        self._workers.lose(worker, f"worker {worker} (pid {pid}) {how}")

    def excuse(self, now: float, lag: float) -> None:
        """The coordinator stood still for `lag` seconds: that is nobody's silence (rule 17)."""
        self._members.excuse(now, lag)
        if self._release_deadline is not None:
            self._release_deadline += lag

    # ------------------------------------------------------------------ facts

    @property
    def is_ready(self) -> bool:
        """Whether an attempt may be deployed."""
        return self._members.is_ready

    def present(self) -> set[int]:
        """The workers of the job whose process is there or is being started."""
        there = {w for w in self._members.workers(*WorkerState) if self._members.state(w) not in _GONE} | self._starting
        return {worker for worker in there if not self._members.is_superfluous(worker)}

    def deploying(self) -> list[int]:
        """The workers that have been given their part of an attempt and are still building it."""
        return self._members.workers(WorkerState.DEPLOYING)

    def addresses(self) -> dict[int, str]:
        """Where workers reach each other."""
        joined = self._members.workers(WorkerState.JOINED)
        return {worker: self._workers.address(worker) for worker in joined if not self._members.is_superfluous(worker)}

    def pids(self) -> dict[int, tuple[int, float]]:
        """(pid, start time) of every worker process."""
        return self._workers.pids()
