"""What users' functions in simulated job files call: code that raises now and then, as users' code does.

When `stumble` raises is a fault like any other (`faults`): a burst, then no more. Every error has another text, since a
job that meets the same one three times without a checkpoint between is rightly given up (rule 18).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class UserTrouble:
    """How often users' functions raise now: a chance per record. One per world."""

    random: Random
    error_rate: float = 0.0
    raised: int = 0

    def heal(self) -> None:
        """They never raise any more."""
        self.error_rate = 0.0


USER_TROUBLE: ContextVar[UserTrouble | None] = ContextVar("flowpoint_sim_user_trouble", default=None)
"""That of the world to which the running process belongs."""


def stumble(value: T) -> T:
    """Give the value back, or raise. For `map` in a job file; outside of a simulation it never raises."""
    trouble = USER_TROUBLE.get()
    if trouble is not None and trouble.error_rate and trouble.random.random() < trouble.error_rate:
        trouble.raised += 1
        raise ValueError(f"the user's function stumbled, for the {trouble.raised}. time")
    return value
