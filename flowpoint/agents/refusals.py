"""What is refused is a line of the log, with thread and checkpoint: an error alone may end in code that swallows it.

Not here: conflicts, which are events (`core.tell`).
"""

from __future__ import annotations

import logging
from typing import Final

from flowpoint.agents.entry_names import Place
from flowpoint.errors import DamagedStoreError, JobError, SealError

logger = logging.getLogger("flowpoint.agents")

REFUSALS: Final = (JobError, SealError, DamagedStoreError)
"""What says that a checkpoint cannot be read or saved: its types, its schema, its seals, its bytes."""


def log_refusal(place: Place, id: str, error: Exception) -> None:
    """Say in the log what was refused, and why."""
    logger.warning("thread %r, namespace %r, checkpoint %s: refused: %s", place.thread, place.ns, id, error)
