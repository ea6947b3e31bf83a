"""When a checkpoint may be triggered.

    kind         who asks                  waits for
    PERIODIC     the clock                 interval since the last checkpoint's trigger, min_pause since the end of
                                           the last one of any kind, a free slot
    CHECKPOINT   a person                  a free slot, and ASKED_PAUSE_SECONDS after one that came too early
    SAVEPOINT    a person                  the same
    STOP, FINAL, stop; the end of input;   everything that is running to end (complete, fail or expire)
    RESCALE      a rescale

Slots: `max_concurrent`, but one when there is a `min_pause` (as in Flink: a pause *between* checkpoints leaves no room
for two). STOP, FINAL and RESCALE wait rather than abort what is running: a completed checkpoint is worth having if the
last one fails, and a hung one is ended by its timeout. One of them that failed is not triggered again at once
(`LAST_PAUSE_SECONDS`): what made it fail, a full disk or restored records that are still taken in, may need a moment.
From `suspend()` (stop, end or rescale asked for) to `resume()` nothing periodic is triggered, so nothing can get in
before them. Ticks that were missed do not pile up.

Not here: ids, the queue of requests (the coordinator's), the checkpoint itself.
"""

from __future__ import annotations

from enum import StrEnum

from flowpoint.model.settings import CheckpointSettings


class TriggerKind(StrEnum):
    """Who wants a checkpoint."""

    PERIODIC = "periodic"
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    STOP = "stop"
    FINAL = "final"
    RESCALE = "rescale"


LAST_KINDS = frozenset({TriggerKind.STOP, TriggerKind.FINAL, TriggerKind.RESCALE})
"""Checkpoints that end an attempt."""

LAST_PAUSE_SECONDS = 0.2
"""Between the failure of a last checkpoint and the next try."""

ASKED_PAUSE_SECONDS = 0.5
"""Between a checkpoint that a person asked for too early, while restored records are taken in, and the next try."""


class Permission(StrEnum):
    """The scheduler's answer."""

    RUN = "run"
    WAIT = "wait"


class CheckpointScheduler:
    """Plans the checkpoints of one attempt after another; `start` begins each.

    Example:
        >>> scheduler = CheckpointScheduler(CheckpointSettings(interval=10.0))
        >>> scheduler.start(now=100.0)
        >>> scheduler.next_due(now=103.0)
        110.0
        >>> str(scheduler.may_trigger(103.0, pending=0, kind=TriggerKind.SAVEPOINT))
        'run'
    """

    def __init__(self, settings: CheckpointSettings) -> None:
        self._settings = settings
        self._slots = 1 if settings.min_pause > 0 else settings.max_concurrent
        self._is_periodic = False
        self._interval_from = 0.0
        self._pause_from: float | None = None
        self._last_from = float("-inf")  # no last checkpoint before
        self._asked_from = float("-inf")

    def start(self, now: float) -> None:
        """Records flow: the first periodic checkpoint is due after an interval."""
        self._is_periodic = True
        self._interval_from = now
        self._pause_from = None
        self._last_from = self._asked_from = float("-inf")

    def suspend(self) -> None:
        """No periodic checkpoints from here on."""
        self._is_periodic = False

    def resume(self) -> None:
        """Periodic checkpoints again, where they were."""
        self._is_periodic = True

    def next_due(self, now: float) -> float | None:
        """When the next periodic checkpoint is due (`now` if it is overdue); None while there are none.

        When it is due and does not get its slot, ask again at the next `completed` or `failed`.
        """
        if not self._is_periodic or self._settings.interval <= 0:
            return None
        due = self._interval_from + self._settings.interval
        if self._pause_from is not None:
            due = max(due, self._pause_from + self._settings.min_pause)
        return max(due, now)

    def may_trigger(self, now: float, pending: int, kind: TriggerKind) -> Permission:
        """Whether a checkpoint of this kind may be triggered while `pending` are running."""
        assert pending >= 0, f"{pending=}"
        match kind:
            case TriggerKind.PERIODIC:
                due = self.next_due(now)
                is_allowed = due is not None and due <= now and pending < self._slots
            case TriggerKind.CHECKPOINT | TriggerKind.SAVEPOINT:
                is_allowed = pending < self._slots and now >= self._asked_from
            case TriggerKind.STOP | TriggerKind.FINAL | TriggerKind.RESCALE:
                is_allowed = pending == 0 and now >= self._last_from
        return Permission.RUN if is_allowed else Permission.WAIT

    def not_before(self, kind: TriggerKind) -> float:
        """When one that is asked for may be triggered at the earliest, as far as that is a matter of time."""
        return self._last_from if kind in LAST_KINDS else self._asked_from

    def triggered(self, now: float, kind: TriggerKind = TriggerKind.PERIODIC) -> None:
        """A checkpoint was triggered. A savepoint commits no sinks, so it does not put off the next checkpoint."""
        if kind is not TriggerKind.SAVEPOINT:
            self._interval_from = now

    def completed(self, now: float) -> None:
        """A checkpoint of any kind came about."""
        self._pause_from = now

    def failed(self, now: float, kind: TriggerKind = TriggerKind.PERIODIC, *, too_early: bool = False) -> None:
        """A checkpoint of any kind failed. `too_early`: only because restored records are still taken in."""
        self._pause_from = now
        if kind in LAST_KINDS:
            self._last_from = now + LAST_PAUSE_SECONDS
        elif too_early and kind is not TriggerKind.PERIODIC:
            self._asked_from = now + ASKED_PAUSE_SECONDS
