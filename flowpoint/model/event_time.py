"""How a stream gets event time: what an author said in `assign_timestamps`.

Like all user functions this one never leaves its process; it is here because both the job's author and the runtime
must know it, and describing a job must not load what runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TimestampAssignment:
    """What `assign_timestamps` was given: the function of an ASSIGN_TIMESTAMPS operator.

    function: record -> its timestamp, epoch ms. max_out_of_orderness_ms: how far behind the newest a record may be.
    idle_timeout: seconds without a record after which the stream counts as idle; None: never.
    """

    function: Callable[[Any], int]
    max_out_of_orderness_ms: int
    idle_timeout: float | None = None
