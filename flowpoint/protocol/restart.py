"""Whether a failed job starts again, and after what delay (rule 18).

    strategy        starts again ...                                           gives up ...
    exponential     at once, then after delay, delay x factor, ... delay_max   never
    fixed           at once, then after delay                                  after `attempts` restarts
    failure_rate    at once, then after delay                                  at the next of `attempts` in `window` s
    none            never                                                      at the first failure

A completed checkpoint proves that the job got somewhere: the next restart is immediate again and `fixed` counts anew
(the rate of `failure_rate` is about time alone and goes on). Whatever the strategy, restarting is pointless, and given
up, when the failure says so (`Failure.retry` is False: bad data that the engine itself found); when the same error of
the job's, or the same bug of the engine's, has come three times without a checkpoint between; or when workers have
ended by themselves at their start three times in a row, with nothing deployed between. Who was killed by a signal
counts for none of these. What cannot be read before any attempt was deployed refuses the start: whoever starts the job
is told at once. Later nobody may be there, so that is tried again as the strategy says.

Pure: the caller passes the time, and a random number in [-1, 1] for the jitter.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from flowpoint import errors
from flowpoint.errors import InternalError
from flowpoint.model.messages import Failure
from flowpoint.model.settings import RestartSettings

SAME_ERROR_MAX = 3
DEATHS_AT_START_MAX = 3
# Messages may carry values, so an endless job could collect ever new ones; beyond this many the oldest are forgotten.
ERRORS_REMEMBERED_MAX = 100


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the next attempt after `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


Verdict = Restart | GiveUp


class RestartPolicy:
    """Judges the failures of one job. One call of `failure` per failed attempt.

    Example:
        >>> policy = RestartPolicy(RestartSettings(delay=1.0, factor=2.0, delay_max=3.0))
        >>> lost = Failure(1, 0, [], "", "WorkerLost", "worker 0 was killed", "", retry=True)
        >>> [policy.failure(now, lost).delay for now in (0.0, 1.0, 2.0, 3.0)]
        [0.0, 1.0, 2.0, 3.0]
    """

    def __init__(self, settings: RestartSettings) -> None:
        self._settings = settings
        self._restarts = 0  # since the last completed checkpoint
        self._times: deque[float] = deque()
        self._user_errors: Counter[tuple[str, str, str]] = Counter()
        self._deaths_at_start = 0  # in a row
        self._has_started = False  # an attempt was deployed

    @property
    def restarts(self) -> int:
        """Restarts since the last completed checkpoint."""
        return self._restarts

    def checkpoint_completed(self) -> None:
        """The job got somewhere."""
        self._restarts = 0
        self._user_errors.clear()

    def deployed(self) -> None:
        """Every worker has built its part of an attempt: the workers can start."""
        self._deaths_at_start = 0
        self._has_started = True

    def failure(self, now: float, failure: Failure, jitter: float = 0.0) -> Verdict:
        """An attempt failed. `jitter` is a random number in [-1, 1]."""
        assert -1.0 <= jitter <= 1.0, f"{jitter=}"
        reason = self._pointless(failure) or self._refused(now, failure)
        if reason:
            return GiveUp(reason)
        delay = self._delay(jitter)
        self._restarts += 1
        return Restart(delay)

    def _pointless(self, failure: Failure) -> str:
        """Why no restart can help, or ""."""
        is_start_refused = not self._has_started and _is_a(failure.kind, errors.UnreadableError)
        if not failure.retry or is_start_refused:
            return failure.message
        if _is_a(failure.kind, errors.DiedAtStart):
            return self._cannot_start(failure)
        self._deaths_at_start = 0
        if not _is_a(failure.kind, errors.JobError, errors.UsageError, InternalError):
            return ""
        key = (failure.operator, failure.kind, _gist(failure))
        self._user_errors[key] += 1
        times = self._user_errors[key]
        if len(self._user_errors) > ERRORS_REMEMBERED_MAX:
            del self._user_errors[next(iter(self._user_errors))]
        if times < SAME_ERROR_MAX:
            return ""
        who = f"operator {failure.operator!r}" if failure.operator else "the job"
        return (
            f"{failure.message} ({who} failed with this error {times} times without a "
            "completed checkpoint between; fix the job and run it again)"
        )

    def _cannot_start(self, failure: Failure) -> str:
        self._deaths_at_start += 1
        if self._deaths_at_start < DEATHS_AT_START_MAX:
            return ""
        return (
            f"{failure.message} (workers ended by themselves before they had begun to work, {self._deaths_at_start} "
            "times in a row)"
        )

    def _refused(self, now: float, failure: Failure) -> str:
        """Why the strategy allows no restart, or ""."""
        attempts = self._settings.attempts
        match self._settings.strategy:
            case "exponential":
                return ""
            case "fixed" if self._restarts >= attempts:
                return (
                    f"{failure.message} (given up after {attempts} restarts without a completed checkpoint; "
                    "see restart.attempts)"
                )
            case "fixed":
                return ""
            case "failure_rate":
                return self._too_often(now, failure)
            case "none":
                return f"{failure.message} (restart.strategy is none)"
        raise InternalError(f"unknown restart strategy {self._settings.strategy!r}")

    def _too_often(self, now: float, failure: Failure) -> str:
        attempts, window = self._settings.attempts, self._settings.window
        self._times.append(now)
        while self._times[0] <= now - window:
            self._times.popleft()
        if len(self._times) <= attempts:
            return ""
        return f"{failure.message} (failed {len(self._times)} times within {window:g} s; see restart.attempts)"

    def _delay(self, jitter: float) -> float:
        if self._restarts == 0:
            return 0.0
        settings = self._settings
        delay = settings.delay
        if settings.strategy == "exponential":
            delay = _grown(settings, self._restarts - 1)
        return max(0.0, delay * (1.0 + settings.jitter * jitter))


def _grown(settings: RestartSettings, times: int) -> float:
    """`delay` x `factor` ** `times`, at most `delay_max`; by steps, since the power itself may overflow."""
    delay = settings.delay
    for _ in range(times):
        if delay >= settings.delay_max or settings.factor <= 1.0:
            break
        delay *= settings.factor
    return min(delay, settings.delay_max)


def _gist(failure: Failure) -> str:
    """What was raised, without the record it was raised for: the first to fail may be another one each time."""
    lines = failure.trace.strip().splitlines()
    return lines[-1] if lines else failure.message


def _is_a(kind: str, *classes: type[Exception]) -> bool:
    """Whether `Failure.kind` names one of these errors of ours, or one below it."""
    error = getattr(errors, kind, None)
    return isinstance(error, type) and issubclass(error, classes)
