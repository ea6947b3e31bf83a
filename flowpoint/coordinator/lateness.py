"""Notices that the job waits too long for others to deploy, to commit or to record, and says for whom.

Not here: which states must end, and after how long (`protocol.stage_deadline`); what becomes of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable

from flowpoint.coordinator import announcements as say
from flowpoint.coordinator.duties import Duties
from flowpoint.coordinator.job import JobToRun
from flowpoint.errors import TransientError
from flowpoint.model.events import Event
from flowpoint.protocol.job import JobLife
from flowpoint.protocol.job_table import JobState
from flowpoint.protocol.stage_deadline import REPORTED, StageDeadline


class Lateness:
    """Watches one job. `life` and `duties` are only looked at."""

    def __init__(self, job: JobToRun, life: JobLife, duties: Duties, emit: Callable[[Event], None]) -> None:
        self._timeout = job.settings.checkpoint.timeout
        self._place = job.place.name
        self._life = life
        self._duties = duties
        self._emit = emit
        self._stage = StageDeadline(self._timeout)
        self.told = ""
        """What a person was told of the state that the job is in; "" when it is not late."""

    @property
    def deadline(self) -> float | None:
        """When to `look` at the latest, in time of the loop; None: nothing has to end."""
        return self._stage.deadline

    def seen(self, now: float) -> None:
        """Call it after every event."""
        self._stage.seen(self._life.state, now)
        if self._life.state not in REPORTED:
            self.told = ""

    def postpone(self, lag: float) -> None:
        """The coordinator stood still for so long."""
        self._stage.postpone(lag)

    def look(self, now: float) -> TransientError | None:
        """Why the attempt counts as failed, if it does. Where that would mend nothing, a person is told instead."""
        if not self._stage.is_over(now):
            return None
        if self._life.state not in REPORTED:
            return self._hung()
        event = say.recording_hangs(self._place, self._stage.wait_on(now))
        self.told = event.text
        self._emit(event)
        return None

    def _hung(self) -> TransientError:
        """Who keeps the job waiting in a state that must end."""
        live, seconds = self._duties.deployment.live, f"checkpoint.timeout ({self._timeout:g} s)"
        if self._life.state is JobState.COMMITTING and live is not None:
            who = ", ".join(live.not_committed(self._life.last_checkpoint))
            return TransientError(f"the last checkpoint was not committed within {seconds}: nothing heard from {who}")
        missing = self._duties.crew.deploying()
        who = f"nothing heard from worker {', '.join(map(str, missing))}" if missing else "storage or a sink hangs"
        return TransientError(f"the attempt was not deployed within {seconds}: {who}")
