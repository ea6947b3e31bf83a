"""Which faults happen: the budget of what the design must survive, and what a run draws from it.

THE FAULT BUDGET. Injected, in any number, order and combination, also while an earlier one is being recovered from:

- kill -9 of any process, of all, of the coordinator, at any time and at any named point: before or after an operation
  takes effect. What it was writing is cut off somewhere; of what it was sending a prefix arrives.
- Power failure: all processes end; names and bytes that were not synced vanish, stay, or are torn or zeroed.
- SIGSTOP of any process for any time, longer than every timeout too; it then goes on where it was (a zombie).
- A worker whose words come late, and another one that dies meanwhile.
- A link that breaks, stalls, or (as TCP can) silently swallows what one side sends, until somebody notices.
- Bursts of disk errors, each on any operation: not done and said so; done, but the answer is an error; a sync that
  failed, after which the bytes are lost for good. A full disk for a while, with partial writes. A slow disk.
- A wall clock that jumps by seconds to hours, both ways.
- Bit rot in one file of the newest checkpoint, once in a run, where the scenario's sinks can take back (rule 1). A kill
  follows at once, before a newer checkpoint makes it harmless.
- Users' functions that raise, in bursts, each time with another error.
- Local state files of workers that are damaged, removed, or replaced by others', where the storage's are well; a work folder
  on a file system of its own, which may be full. A kill follows, so that they are asked for.
- What is no fault but comes at bad moments: a person who asks for a checkpoint, a stop, or cancels, and starts again.

Not injected, as no design here can or need survive it: loss of what was synced; damage to the commit log, to input, to
committed output or to a second checkpoint; frames changed, doubled or out of order; a monotonic clock that runs back;
errors without end (bursts are over after `BURST_SECONDS`, and the liveness phase has none).

A run draws its `FaultMix` first (swarm testing): a random part of the kinds, so that each run is bad in its own way.

Not here: making them happen (`fault_injector`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

BURST_SECONDS = (0.05, 1.0)


class FaultKind(StrEnum):
    """Everything that the injector can do."""

    KILL_WORKER = "kill_worker"
    KILL_COORDINATOR = "kill_coordinator"
    KILL_WORKERS = "kill_workers"
    KILL_AT_POINT = "kill_at_point"
    POWER_FAILURE = "power_failure"
    PAUSE_WORKER = "pause_worker"
    PAUSE_COORDINATOR = "pause_coordinator"
    BREAK_LINK = "break_link"
    CUT_LINK = "cut_link"
    STALL_LINKS = "stall_links"
    LATE_WORDS = "late_words"
    DISK_ERRORS = "disk_errors"
    LOST_ANSWERS = "lost_answers"
    DISK_FULL = "disk_full"
    DISK_SLOW = "disk_slow"
    CLOCK_JUMP = "clock_jump"
    BIT_ROT = "bit_rot"
    USER_ERRORS = "user_errors"
    LOCAL_FILES = "local_files"
    ASK_CHECKPOINT = "ask_checkpoint"
    ASK_SAVEPOINT = "ask_savepoint"
    ASK_RESCALE = "ask_rescale"
    ASK_STOP = "ask_stop"
    ASK_STOP_TO = "ask_stop_to"
    ASK_DRAIN = "ask_drain"
    ASK_DRAIN_TO = "ask_drain_to"
    ASK_CANCEL = "ask_cancel"


KILLS = frozenset(
    {
        FaultKind.KILL_WORKER,
        FaultKind.KILL_COORDINATOR,
        FaultKind.KILL_WORKERS,
        FaultKind.KILL_AT_POINT,
        FaultKind.POWER_FAILURE,
    }
)
REQUESTS = frozenset(
    {
        FaultKind.ASK_CHECKPOINT,
        FaultKind.ASK_SAVEPOINT,
        FaultKind.ASK_RESCALE,
        FaultKind.ASK_STOP,
        FaultKind.ASK_STOP_TO,
        FaultKind.ASK_DRAIN,
        FaultKind.ASK_DRAIN_TO,
        FaultKind.ASK_CANCEL,
    }
)
DRAINS = frozenset({FaultKind.ASK_DRAIN, FaultKind.ASK_DRAIN_TO})
"""Stops that end time: they change what comes out of a job that knows what time it is, so they suit only others."""
ALL_FAULTS = frozenset(FaultKind) - DRAINS - {FaultKind.LOCAL_FILES}
"""What is drawn from. Trouble with local files is drawn apart (`local_trouble`), so that it changes no other draw."""
MACHINE_FAULTS = ALL_FAULTS - REQUESTS - {FaultKind.BIT_ROT, FaultKind.USER_ERRORS}
"""What any program may be made to live through, whatever it is."""


@dataclass(frozen=True, slots=True)
class FaultMix:
    """What happens in one run.

    kinds: what is drawn from, each equally likely.
    quiet: virtual seconds before the first fault.
    gap: mean virtual seconds between two faults.
    count_max: no more faults than this.
    second_failure_rate: how often a kill is followed by another one while the first is being recovered from.
    pause_seconds: how long SIGSTOP lasts, at most.
    spares_coordinator: also what comes while a failure is being recovered from kills workers only.
    """

    kinds: tuple[FaultKind, ...]
    quiet: float
    gap: float
    count_max: int
    second_failure_rate: float
    pause_seconds: float
    spares_coordinator: bool = False

    def __str__(self) -> str:
        names = ", ".join(self.kinds) or "none"
        return f"faults: {names}; after {self.quiet} s, every {self.gap} s, at most {self.count_max}"


def draw_mix(random: Random, allowed: frozenset[FaultKind] = MACHINE_FAULTS) -> FaultMix:
    """Draw a run's faults: about half of the allowed kinds, and always one that kills."""
    kinds = [kind for kind in FaultKind if kind in allowed and random.random() < 0.5]
    kills = [kind for kind in FaultKind if kind in allowed & KILLS]
    if kills and not KILLS.intersection(kinds):
        kinds.append(random.choice(kills))
    return FaultMix(
        kinds=tuple(kinds),
        quiet=random.choice((0.0, 0.25, 0.5)),
        gap=random.choice((0.02, 0.1, 0.3, 0.8)),
        count_max=random.randint(2, 14),
        second_failure_rate=random.choice((0.3, 0.7)),
        pause_seconds=random.choice((0.5, 3.0, 30.0)),
    )
