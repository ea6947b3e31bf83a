"""What a run came to, and how it is told to a person."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

STORY_LINES_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed. `failure` is empty when the run was clean. `story` is its log in virtual time."""

    seed: int
    scenario: str
    failure: str
    digest: str
    steps: int
    seconds: float
    story: tuple[str, ...] = ()
    marks: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.failure

    def tell(self) -> str:
        """The failure with the end of its story, and how to see it again."""
        if self.ok:
            return f"seed {self.seed}: ok, {self.steps} steps, {self.seconds:.1f} virtual seconds, {self.digest[:16]}"
        cut = len(self.story) - STORY_LINES_SHOWN
        head = [f"  ... {cut} lines before"] if cut > 0 else []
        first = f"seed {self.seed} of {self.scenario} FAILED: {self.failure}"
        last = f"replay: scripts/sim --seed {self.seed} -v"
        return "\n".join([first, *head, *self.story[-STORY_LINES_SHOWN:], last])


@dataclass(slots=True)
class Campaign:
    """The results of many seeds, added up."""

    runs: int = 0
    steps: int = 0
    failures: list[Outcome] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one more run."""
        self.runs += 1
        self.steps += outcome.steps
        self.marks.update(outcome.marks)
        if not outcome.ok:
            self.failures.append(outcome)

    def tell(self, seconds: float) -> str:
        """A summary: how much was run, what failed, and where processes died."""
        failed = ", ".join(str(outcome.seed) for outcome in self.failures[:20]) or "none"
        lines = [
            f"{self.runs} seeds, {self.steps} steps in {seconds:.1f} s ({self.runs / max(seconds, 1e-9):.1f} seeds/s)",
            f"failed: {len(self.failures)} (seeds: {failed})",
        ]
        return "\n".join(lines + [f"  {count:7d}  {name}" for name, count in sorted(self.marks.items())])
