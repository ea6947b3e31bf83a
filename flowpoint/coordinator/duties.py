"""What one coordinator consists of, put together: each duty gets just what it needs of the others.

No duty knows the coordinator; what it has to say goes into the mailbox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flowpoint.coordinator.checkpoint_record import CheckpointEnd
from flowpoint.coordinator.checkpoints import Checkpoints
from flowpoint.coordinator.crew import Crew, Record
from flowpoint.coordinator.deployment import Deployment
from flowpoint.coordinator.ending import Ending
from flowpoint.coordinator.housekeeping import Housekeeping
from flowpoint.coordinator.incidents import Incidents
from flowpoint.coordinator.job import JobToRun
from flowpoint.coordinator.mail import Mail
from flowpoint.coordinator.prepare import Preparation
from flowpoint.coordinator.publishing import Publishing
from flowpoint.coordinator.requests import Requests
from flowpoint.coordinator.statistics import Statistics
from flowpoint.coordinator.steps import Steps
from flowpoint.host.base import Host
from flowpoint.protocol.job import JobLife
from flowpoint.snapshot.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class Duties:
    """The duties of one coordinator."""

    crew: Crew
    preparation: Preparation
    deployment: Deployment
    housekeeping: Housekeeping
    publishing: Publishing
    checkpoints: Checkpoints
    incidents: Incidents
    requests: Requests
    ending: Ending
    statistics: Statistics


def assemble(
    host: Host,
    job: JobToRun,
    life: JobLife,
    steps: Steps,
    post: Callable[[Mail], None],
    warn: Callable[[str], None],
    *,
    ended: Callable[[CheckpointEnd], None],
    record: Record,
) -> Duties:
    """Make the duties for a job.

    Args:
        post: puts something into the mailbox.
        warn: tells a person one line.
        ended: hears of the end of every checkpoint.
        record: notes the worker processes (see `Crew`).
    """
    name, storage = job.plan.job, job.place.storage
    log = CommitLog(storage, "", host)
    crew = Crew(
        host,
        job.workers,
        job.arguments,
        job.log_path,
        job.settings.heartbeat,
        steps=steps,
        post=post,
        record=record,
    )
    preparation = Preparation(host, job, storage, log, warn)
    deployment = Deployment(preparation, steps, post)
    housekeeping = Housekeeping(preparation, steps, post, warn)
    publishing = Publishing(host, name, storage, log, steps.start_on_storage, post)
    checkpoints = Checkpoints(
        host, name, job.settings.checkpoint, publishing, crew.tell_all, steps.start_on_storage, ended
    )
    log_of = name if job.log_path is not None else ""
    return Duties(
        crew=crew,
        preparation=preparation,
        deployment=deployment,
        housekeeping=housekeeping,
        publishing=publishing,
        checkpoints=checkpoints,
        incidents=Incidents(log_of, job.settings, partial(host.random.uniform, -1.0, 1.0)),
        requests=Requests(life, checkpoints, post, savepoints=job.savepoints, replan=job.replan, reserve=crew.reserve),
        ending=Ending(log, crew, deployment, publishing, housekeeping, steps, post, warn),
        statistics=Statistics(job.plan),
    )
