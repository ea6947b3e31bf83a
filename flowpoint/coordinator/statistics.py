"""The numbers of a running job: what workers report, added up and turned into rates.

Workers send running totals about once a second, and at the end of each checkpoint (`messages.Stats`), per subtask. An
attempt starts again at zero, so what earlier attempts did is kept apart and added. A worker that has not reported for
`SILENT_SECONDS` runs a function that lets nobody else have a turn: what it did last fades from the rates, and all that it
runs counts as stalled.

Times are of the loop's clock, in seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

from flowpoint.model.messages import Stats
from flowpoint.model.plan import JobPlan, OperatorKind

WINDOW_SECONDS = 3.0
SILENT_SECONDS = 3.0
STALLED_SECONDS = 5.0
"""Who works on the same few records for longer is pointed out."""


class Statistics:
    """Figures of one job."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._earlier_in = 0
        self._earlier_out = 0
        self._samples: dict[int, deque[tuple[float, dict[str, dict[str, Any]]]]] = {}

    def replan(self, plan: JobPlan) -> None:
        """From the next attempt on the job has this plan."""
        self._plan = plan

    def attempt_over(self) -> None:
        """Keep what the attempt did, and forget its subtasks."""
        self._earlier_in, self._earlier_out = self.records_in, self.records_out
        self._samples.clear()

    def add(self, worker: int, stats: Stats, now: float) -> None:
        """A worker's report."""
        samples = self._samples.setdefault(worker, deque())
        samples.append((now, stats.subtasks))
        while len(samples) > 2 and now - samples[0][0] > WINDOW_SECONDS:
            samples.popleft()

    @property
    def records_in(self) -> int:
        """Records that sources have read, over all attempts."""
        return self._earlier_in + int(self._sum(OperatorKind.SOURCE, "records_in"))

    @property
    def records_out(self) -> int:
        """Records that sinks were given, over all attempts."""
        return self._earlier_out + int(self._sum(OperatorKind.SINK, "records_out"))

    def _latest(self) -> dict[str, dict[str, Any]]:
        return {name: numbers for samples in self._samples.values() for name, numbers in samples[-1][1].items()}

    def _uids(self, kind: OperatorKind) -> list[str]:
        return [spec.uid for spec in self._plan.operators if spec.kind is kind]

    def _sum(self, kind: OperatorKind, field: str) -> float:
        uids = set(self._uids(kind))
        return sum(float(numbers[field]) for name, numbers in self._latest().items() if _uid_of(name) in uids)

    def _rates(self, field: str, now: float) -> dict[str, float]:
        """Growth of a field per second over the window, by subtask."""
        return {
            name: (numbers[field] - old.get(name, {}).get(field, 0)) / (_end_of(after, now) - before)
            for samples in self._samples.values()
            for (before, old), (after, new) in [(samples[0], samples[-1])]
            if after > before
            for name, numbers in new.items()
        }

    def rate(self, now: float) -> float:
        """Records read per second."""
        sources = set(self._uids(OperatorKind.SOURCE))
        return sum(rate for name, rate in self._rates("records_in", now).items() if _uid_of(name) in sources)

    def backpressure(self, now: float) -> float:
        """The share of time that the most blocked subtask waits for its outputs, 0 to 1."""
        return max(self._rates("blocked", now).values(), default=0.0)

    def _at_work(self, now: float) -> dict[str, float]:
        """For how many seconds each subtask has worked on the records that it has in hand, as far as that is known."""
        known: dict[str, float] = {}
        for samples in self._samples.values():
            heard, numbers = samples[-1]
            silence = now - heard if now - heard > SILENT_SECONDS else 0.0
            known |= {name: one.get("at_work", 0.0) + silence for name, one in numbers.items()}
        return known

    def watermark(self) -> int | None:
        """How far event time has come in all of the output, epoch ms; None while some sink knows none."""
        sinks = set(self._uids(OperatorKind.SINK))
        stand = [numbers.get("watermark") for name, numbers in self._latest().items() if _uid_of(name) in sinks]
        known = [watermark for watermark in stand if watermark is not None]
        return min(known) if known and len(known) == len(stand) else None

    def worker_rate(self, worker: int, now: float) -> float:
        """Records per second taken by the subtasks of one worker."""
        samples = self._samples.get(worker)
        if not samples or samples[-1][0] <= samples[0][0]:
            return 0.0
        (before, old), (after, new) = samples[0], samples[-1]
        # Operators of one chain have the same numbers: those of one of them count.
        names = {(numbers["task"], name.rpartition("#")[2]): name for name, numbers in new.items()}.values()
        grown = sum(new[name]["records_in"] - old.get(name, {}).get("records_in", 0) for name in names)
        return float(grown) / (_end_of(after, now) - before)

    def operators(self, now: float) -> list[dict[str, Any]]:
        """Per operator: uid, name, parallelism, records_in, records_out, rate, backpressure, busy, stalled, metrics.

        `metrics` are what its connector counts itself, since the attempt began.
        """
        latest, at_work = self._latest(), self._at_work(now)
        rates, blocked, busy = (self._rates(field, now) for field in ("records_in", "blocked", "busy"))
        names_of: dict[str, list[str]] = {}
        for name in sorted(latest):
            names_of.setdefault(_uid_of(name), []).append(name)
        shown = []
        for spec in self._plan.operators:
            names = names_of.get(spec.uid, [])
            shown.append(
                {
                    "uid": spec.uid,
                    "name": spec.name,
                    "parallelism": spec.parallelism,
                    "records_in": int(sum(latest[name]["records_in"] for name in names)),
                    "records_out": int(sum(latest[name]["records_out"] for name in names)),
                    "rate": round(sum(rates.get(name, 0.0) for name in names), 1),
                    "backpressure": _greatest_share(blocked, names),
                    "busy": _greatest_share(busy, names),
                    "stalled": _stalled(at_work, names),
                    "metrics": _added_up(latest[name].get("metrics", {}) for name in names),
                }
            )
        return shown


def _uid_of(name: str) -> str:
    """The operator of a subtask that is called "uid#index"."""
    return name.rpartition("#")[0]


def _end_of(heard: float, now: float) -> float:
    """Until when the numbers are known that were heard last."""
    return now if now - heard > SILENT_SECONDS else heard


def _greatest_share(shares: Mapping[str, float], names: Iterable[str]) -> float:
    return round(min(1.0, max((shares.get(name, 0.0) for name in names), default=0.0)), 3)


def _stalled(at_work: Mapping[str, float], names: Iterable[str]) -> float | None:
    longest = max((at_work.get(name, 0.0) for name in names), default=0.0)
    return round(longest, 1) if longest >= STALLED_SECONDS else None


def _added_up(metrics: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in metrics:
        total.update(one)
    return dict(total)
