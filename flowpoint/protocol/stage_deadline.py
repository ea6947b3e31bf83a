"""How long a job may stay in a state in which it only waits for others.

    DEPLOYING    storage, sinks and workers: the attempt is prepared, its state opened, its restored output committed
    COMMITTING   sinks: they commit the last checkpoint
    RECORDING    storage: the end is written into the commit log

Whoever hangs there (a sink whose target does not answer, a worker that opens its state for ever) would keep the job
waiting for ever. After the deadline the attempt counts as failed: workers that do not let go of it are killed, and the
next attempt tries again. Both read or write what a checkpoint holds, so `checkpoint.timeout` is the measure.

RECORDING has no attempt to fail: all output is committed, and the next attempt would need the very storage that hangs, to
write the same entry. So a person is told instead, each time that it has lasted so long again, and may cancel.

Pure: the caller passes the time, and ticks. Every other state moves on by itself: checkpoints expire, silent workers are
lost, delays end.
"""

from __future__ import annotations

from flowpoint.protocol.job_table import JobState

LIMITED = frozenset({JobState.DEPLOYING, JobState.COMMITTING})
"""After the deadline the attempt counts as failed."""

REPORTED = frozenset({JobState.RECORDING})
"""After the deadline a person is told, and the job waits on."""


class StageDeadline:
    """The clock of one job's life. `timeout` is in seconds.

    Example:
        >>> stage = StageDeadline(timeout=600.0)
        >>> stage.seen(JobState.DEPLOYING, now=100.0)
        >>> stage.is_over(699.0), stage.is_over(700.0)
        (False, True)
        >>> stage.seen(JobState.RUNNING, now=200.0)
        >>> stage.deadline is None
        True
    """

    def __init__(self, timeout: float) -> None:
        assert timeout > 0, f"{timeout=}"
        self._timeout = timeout
        self._state: JobState | None = None
        self._since = 0.0
        self.deadline: float | None = None
        """When the state that was seen last is to have ended; None: it may last."""

    def seen(self, state: JobState, now: float) -> None:
        """The job is in this state. Call it after every event."""
        if state is self._state:
            return
        self._state = state
        self._since = now
        self.deadline = now + self._timeout if state in LIMITED | REPORTED else None

    def wait_on(self, now: float) -> float:
        """The state may last for as long again; for how many seconds it has lasted."""
        self.deadline = now + self._timeout
        return now - self._since

    def postpone(self, lag: float) -> None:
        """The caller stood still for so long."""
        if self.deadline is not None:
            self.deadline += lag
            self._since += lag

    def is_over(self, now: float) -> bool:
        """Whether the state has lasted too long."""
        return self.deadline is not None and now >= self.deadline
