"""What happened in a run: a digest of every step, and the story of what matters in sentences.

The digest is sha256 over (virtual time, process, callable) of every step and over every line of the story. Two runs of
one seed have the same digest, or something in the code is not deterministic. Callables enter by qualified name, tasks by
serial number and, when first seen, by the name of their coroutine: never by address, `repr` or hash.

Not here: judging. `report` prints what this collects.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

from flowpoint.sim.tasks import Owner, SimTask

_FLUSH_STEPS = 4096
_NAME_BITS = 32


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
        self._names: dict[str, int] = {}
        self._tasks_seen: set[int] = set()

    def on_step(self, now: float, owner: Owner | None, callback: Any) -> None:
        """Take one step into the digest."""
        subject = getattr(callback, "__self__", None)
        if type(subject) is SimTask:
            number = subject.serial
            if number not in self._tasks_seen:
                self._tasks_seen.add(number)
                self._note(f"task {number} {getattr(subject.get_coro(), '__qualname__', '')}")
        else:
            number = self._number(getattr(callback, "__qualname__", type(callback).__qualname__))
        self._times.append(now)
        self._doers.append(((owner.serial if owner is not None else 0) << _NAME_BITS) | number)
        if len(self._times) >= _FLUSH_STEPS:
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

    def _number(self, name: str) -> int:
        number = self._names.get(name)
        if number is None:
            # Above every task's serial, so that a task and a name never look alike.
            number = self._names[name] = (1 << (_NAME_BITS - 1)) + len(self._names)
            self._note(name)
        return number

    def _note(self, text: str) -> None:
        self._flush()
        self._sha.update(text.encode())

    def _flush(self) -> None:
        self._sha.update(self._times.tobytes())
        self._sha.update(self._doers.tobytes())
        del self._times[:], self._doers[:]
