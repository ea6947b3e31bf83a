"""Puts a job together and looks after it from outside: job folders, the HTTP interface, events, the start of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from flowpoint.launch.in_process import RunFlags
    from flowpoint.launch.jobfile import JobObject


def run_job(job: JobObject, **flags: Unpack[RunFlags]) -> None:
    """Run a job in this process until it has ended. See `launch.in_process`.

    Raises:
        FlowPointError: the job is wrong, or it has failed.
    """
    from flowpoint.launch.in_process import run_in_process

    run_in_process(job, **flags)
