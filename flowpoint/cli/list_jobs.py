"""`flowpoint list`: every job of this machine, running or not."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.errors import FlowPointError, NotFoundError, NotListening, TransientError
from flowpoint.launch.claim import owner_of
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home, RunRecord
from flowpoint.launch.starting import is_starting

_PATIENCE_SECONDS = 1.0
"""For each running job: one that hangs must not keep the others from being shown."""


@click.command(name="list", short_help="Show all jobs, running or not.")
@output.json_option
def command(as_json: bool) -> None:
    """Show the jobs that run here, ran here, or have checkpoints here."""
    home = Home.from_environment()
    jobs = [_describe(home, name) for name in home.known_jobs()]
    if as_json:
        output.print_json(jobs)
    elif not jobs:
        click.echo(f"no job was ever run in {home.root}")
    else:
        output.print_table(
            ("JOB", "STATE", "PID", "STARTED", "JOB FILE"),
            [
                (
                    str(job["name"]),
                    str(job["state"]),
                    str(job["pid"] or "-"),
                    output.moment(job["started"]),
                    str(job["job_file"] or "-"),
                )
                for job in jobs
            ],
            right=frozenset({"PID"}),
        )


def _describe(home: Home, name: str) -> Data:
    """One job. `pid` only while it runs; `state` as the job itself tells it, else how its last run ended."""
    record = home.job(name).read_run()
    data: Data = {"name": name, "state": "STORED", "pid": None, "started": None, "job_file": None, "reason": ""}
    data["checkpoints"] = str(home.checkpoints(name)) if record is None or not record.storage else record.storage
    if record is None or record.outcome:
        is_announced = is_starting(home.job(name), record)  # until it holds the job
        owner = owner_of(home.job(name))
        if owner is not None or is_announced:
            return data | {"state": "STARTING", "pid": owner.pid if owner is not None else None}
    if record is None:
        return data
    data |= {"state": record.state, "started": record.started, "job_file": record.job_file, "reason": record.reason}
    if record.state == "RUNNING":
        data["pid"] = record.process.pid
        try:
            status: Data = JobClient(home.job(name), record).get("/status", seconds=_PATIENCE_SECONDS)
            data["state"] = status["state"]
        except (TransientError, NotFoundError) as error:
            data |= _unreached(home.job(name).read_run() or record, error)
    return data


def _unreached(record: RunRecord, error: FlowPointError) -> Data:
    """What to say of a job that did not answer: it may have ended meanwhile."""
    if record.state != "RUNNING":
        return {"state": record.state, "pid": None, "reason": record.reason}
    return {"state": "STARTING" if isinstance(error, NotListening) else "UNRESPONSIVE"}
