"""What happened in a run: a digest of every step, and the story of what matters in sentences.

The digest is sha256 over (virtual time, process, task) of every step and over every line of the story. Two runs of one
seed have the same digest, or something in the code is not deterministic. Processes and tasks enter by serial number:
never by address, `repr` or hash.

Not here: judging. `report` prints what this collects.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

from flowpoint.sim.tasks import Owner, SimTask

FLUSH_STEPS = 4096
OWNER_SHIFT = 32


class Trace:
    """Collects one run. `now` tells virtual seconds."""

    def __init__(self, now: Callable[[], float], echo: Callable[[str], None] | None = None) -> None:
        self.lines: list[str] = []
        self.marks: Counter[str] = Counter()
        self._now = now
        self._echo = echo
        self._sha = hashlib.sha256()
        self._times = array("d")
        self._doers = array("Q")

    def on_step(self, now: float, owner: Owner | None, callback: Any) -> None:
        """Take one step into the digest. Called for every step, so it does no more than it must."""
        subject = getattr(callback, "__self__", None)
        task = subject.serial if type(subject) is SimTask else 0
        self._times.append(now)
        self._doers.append(task if owner is None else owner.serial << OWNER_SHIFT | task)
        if len(self._times) >= FLUSH_STEPS:
            self._flush()

    def tell(self, source: str, text: str) -> None:
        """Add a line to the story."""
        line = f"{self._now():10.6f}  {source:<14} {text}"
        self.lines.append(line)
        self._note(line)
        if self._echo is not None:
            self._echo(line)

    def mark(self, name: str) -> None:
        """Count that something worth counting over a campaign has happened."""
        self.marks[name] += 1

    def digest(self) -> str:
        """The digest of everything so far."""
        self._flush()
        return self._sha.hexdigest()

    def _note(self, text: str) -> None:
        self._flush()
        self._sha.update(text.encode())

    def _flush(self) -> None:
        self._sha.update(self._times.tobytes())
        self._sha.update(self._doers.tobytes())
        del self._times[:], self._doers[:]
