"""Which worker process fills which slot, and whether it is alive.

A slot is a worker's index; processes come and go in it. A process is known by its pid until it says hello, then by its
incarnation. Hellos and heartbeats of any other process (a zombie of an older one) do not count.

    ABSENT -spawned-> SPAWNED -joined-> JOINED -deploy-> DEPLOYING -deployed-> DEPLOYED
                                          ^                  | release            | release
                                          +----released-- RELEASING <-------------+
    any of them -lost-> LOST -reaped-> ABSENT

Silence: a process that says nothing for `timeout` is expired. While the coordinator itself stood still (a suspended
laptop, Ctrl-Z, a slow disk) it could not have heard anybody, so its own lag is taken off everybody's silence first
(rule 17). Death that the operating system reports is not for here to find: the caller says `lost`.

Invariants:
- A slot is ABSENT only when its process is reaped: nobody is spawned beside a zombie (rule 8).
- `is_ready` and `is_deployed` speak of every slot: a job never runs on fewer workers than it has. After a rescale to
  fewer, `is_ready` also waits until the superfluous ones are reaped: nothing of an older attempt is left beside them.
- Reserves are slots beyond those, filled for a rescale that may come about: nothing is deployed to them, nobody waits
  for them, and the loss of one is no failure.

Not here: killing, spawning and links; who runs what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from flowpoint.errors import InternalError


class WorkerState(StrEnum):
    """Stage of the process in a slot."""

    ABSENT = "absent"
    SPAWNED = "spawned"
    JOINED = "joined"
    DEPLOYING = "deploying"
    DEPLOYED = "deployed"
    RELEASING = "releasing"
    LOST = "lost"


class WorkerEvent(StrEnum):
    """What can happen to the process in a slot."""

    SPAWNED = "spawned"
    JOINED = "joined"
    DEPLOY = "deploy"
    DEPLOYED = "deployed"
    RELEASE = "release"
    RELEASED = "released"
    LOST = "lost"
    REAPED = "reaped"


WORKER_TRANSITIONS: Mapping[tuple[WorkerState, WorkerEvent], WorkerState] = {
    (WorkerState.ABSENT, WorkerEvent.SPAWNED): WorkerState.SPAWNED,
    (WorkerState.SPAWNED, WorkerEvent.JOINED): WorkerState.JOINED,
    (WorkerState.SPAWNED, WorkerEvent.LOST): WorkerState.LOST,
    (WorkerState.JOINED, WorkerEvent.DEPLOY): WorkerState.DEPLOYING,
    (WorkerState.JOINED, WorkerEvent.LOST): WorkerState.LOST,
    (WorkerState.DEPLOYING, WorkerEvent.DEPLOYED): WorkerState.DEPLOYED,
    (WorkerState.DEPLOYING, WorkerEvent.RELEASE): WorkerState.RELEASING,
    (WorkerState.DEPLOYING, WorkerEvent.LOST): WorkerState.LOST,
    (WorkerState.DEPLOYED, WorkerEvent.RELEASE): WorkerState.RELEASING,
    (WorkerState.DEPLOYED, WorkerEvent.LOST): WorkerState.LOST,
    (WorkerState.RELEASING, WorkerEvent.RELEASED): WorkerState.JOINED,
    (WorkerState.RELEASING, WorkerEvent.LOST): WorkerState.LOST,
    # Process handle and socket both report the same death.
    (WorkerState.LOST, WorkerEvent.LOST): WorkerState.LOST,
    (WorkerState.LOST, WorkerEvent.REAPED): WorkerState.ABSENT,
}
# A fresh interpreter on a loaded machine imports the job before it says hello: much slower than a heartbeat.
JOIN_TIMEOUT = 60.0


@dataclass(slots=True)
class _Slot:
    state: WorkerState = WorkerState.ABSENT
    pid: int = 0
    incarnation: str = ""
    heard_at: float = 0.0


class Membership:
    """The workers of one job.

    Example:
        >>> members = Membership(workers=1, timeout=10.0)
        >>> members.spawned(0, pid=4711, now=0.0)
        >>> members.joined(0, pid=4711, incarnation="ab12", now=0.2)
        True
        >>> members.is_ready
        True
        >>> members.expired(now=11.0)
        [0]
    """

    def __init__(self, workers: int, timeout: float, join_timeout: float = JOIN_TIMEOUT) -> None:
        assert workers >= 1, f"{workers=}"
        self._slots = [_Slot() for _ in range(workers)]
        self._size = workers
        self._reserves_end = 0
        self._timeout = timeout
        self._join_timeout = max(join_timeout, timeout)

    @property
    def is_ready(self) -> bool:
        """Whether every slot has a joined worker with nothing deployed: the next attempt may be deployed."""
        kept, superfluous = self._slots[: self._size], self._slots[max(self._size, self._reserves_end) :]
        return all(slot.state is WorkerState.JOINED for slot in kept) and not superfluous

    @property
    def is_deployed(self) -> bool:
        """Whether every worker has deployed its part."""
        return all(slot.state is WorkerState.DEPLOYED for slot in self._slots[: self._size])

    @property
    def size(self) -> int:
        """How many workers the job has."""
        return self._size

    def state(self, worker: int) -> WorkerState:
        """The stage of a slot's process; ABSENT for a slot that is gone."""
        return self._slots[worker].state if worker < len(self._slots) else WorkerState.ABSENT

    def is_superfluous(self, worker: int) -> bool:
        """Whether the job gets on without this slot: since a rescale, or because it is a reserve."""
        return worker >= self._size

    def is_reserve(self, worker: int) -> bool:
        """Whether this slot is filled for a rescale that may come about."""
        return self._size <= worker < self._reserves_end

    def reserve(self, workers: int) -> list[int]:
        """The job may soon have this many workers. Returns the slots to spawn processes in; `resize` ends it."""
        self._reserves_end = workers
        self._slots += [_Slot() for _ in range(workers - len(self._slots))]
        return [worker for worker in range(self._size, workers) if self._slots[worker].state is WorkerState.ABSENT]

    def resize(self, workers: int) -> list[int]:
        """The job has this many workers from now on. Returns the superfluous ones that live: end and reap them.

        They count as lost at once. Call it only while nothing is being deployed.
        """
        assert workers >= 1, f"{workers=}"
        self._size = workers
        self._reserves_end = 0
        self._slots += [_Slot() for _ in range(workers - len(self._slots))]
        gone = (WorkerState.ABSENT, WorkerState.LOST)
        ended = [worker for worker in range(workers, len(self._slots)) if self._slots[worker].state not in gone]
        for worker in ended:
            self.lost(worker, self._slots[worker].pid)
        self._drop_superfluous()
        return ended

    def _drop_superfluous(self) -> None:
        while len(self._slots) > max(self._size, self._reserves_end) and self._slots[-1].state is WorkerState.ABSENT:
            self._slots.pop()

    def pid(self, worker: int) -> int:
        """Of the process in a slot; 0 when it is ABSENT."""
        return self._slots[worker].pid

    def incarnation(self, worker: int) -> str:
        """Of the process that has joined in this slot; "" when none has."""
        return self._slots[worker].incarnation

    def workers(self, *states: WorkerState) -> list[int]:
        """The slots whose process is in one of these stages."""
        return [worker for worker, slot in enumerate(self._slots) if slot.state in states]

    def spawned(self, worker: int, pid: int, now: float) -> None:
        """A process was started for an ABSENT slot."""
        self._move(worker, WorkerEvent.SPAWNED)
        self._slots[worker].pid = pid
        self._slots[worker].heard_at = now

    def joined(self, worker: int, pid: int, incarnation: str, now: float) -> bool:
        """A process said hello. False: it is not the one that was started for this slot; close its link."""
        slot = self._slots[worker] if 0 <= worker < len(self._slots) else None
        if slot is None or slot.state is not WorkerState.SPAWNED or slot.pid != pid:
            return False
        self._move(worker, WorkerEvent.JOINED)
        slot.incarnation = incarnation
        slot.heard_at = now
        return True

    def beat(self, worker: int, incarnation: str, now: float) -> bool:
        """A heartbeat came. False: it does not count."""
        slot = self._slots[worker] if 0 <= worker < len(self._slots) else None
        if slot is None or not slot.incarnation or slot.incarnation != incarnation:
            return False
        slot.heard_at = max(slot.heard_at, now)
        return True

    def deploy(self, worker: int) -> None:
        """It is sent its part of an attempt."""
        self._move(worker, WorkerEvent.DEPLOY)

    def deployed(self, worker: int) -> None:
        """It has built its part."""
        self._move(worker, WorkerEvent.DEPLOYED)

    def release_all(self) -> list[int]:
        """The attempt is over. Returns the workers to be sent `Release`."""
        workers = self.workers(WorkerState.DEPLOYING, WorkerState.DEPLOYED)
        for worker in workers:
            self._move(worker, WorkerEvent.RELEASE)
        return workers

    def released(self, worker: int) -> None:
        """It has torn everything down."""
        self._move(worker, WorkerEvent.RELEASED)

    def lost(self, worker: int, pid: int) -> bool:
        """A process died, fell silent or lost its link. True: this is news; kill and reap it.

        False: it was known, or is about an older process of the slot, which was reaped before.
        """
        slot = self._slots[worker] if worker < len(self._slots) else None
        if slot is None or slot.pid != pid:
            return False
        is_news = slot.state is not WorkerState.LOST
        self._move(worker, WorkerEvent.LOST)
        slot.incarnation = ""
        return is_news

    def reaped(self, worker: int) -> None:
        """Its process is gone for certain."""
        self._move(worker, WorkerEvent.REAPED)
        self._slots[worker].pid = 0
        self._drop_superfluous()

    def excuse(self, now: float, lag: float) -> None:
        """The caller stood still for `lag` seconds: it is later than it had planned to look again."""
        assert lag >= 0.0, f"{lag=}"
        for slot in self._slots:
            slot.heard_at = min(now, slot.heard_at + lag)

    def expired(self, now: float) -> list[int]:
        """The workers that have been silent for too long; ask regularly. They stay so until the caller says `lost`."""
        return [worker for worker, slot in enumerate(self._slots) if now - slot.heard_at >= self._patience(slot)]

    def _patience(self, slot: _Slot) -> float:
        match slot.state:
            case WorkerState.ABSENT | WorkerState.LOST:
                return float("inf")
            case WorkerState.SPAWNED:
                return self._join_timeout
            case _:
                return self._timeout

    def _move(self, worker: int, event: WorkerEvent) -> None:
        slot = self._slots[worker]
        state = WORKER_TRANSITIONS.get((slot.state, event))
        if state is None:
            raise InternalError(f"worker {worker} is {slot.state}, which has no event {event}; {self._slots}")
        slot.state = state
