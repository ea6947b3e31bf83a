"""`flowpoint savepoint`: make one now; the job runs on."""

from __future__ import annotations

import click

from flowpoint.cli import output, patience
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="savepoint", short_help="Write a copy of a job's state to keep.")
@output.job_argument
@output.to_option
@output.json_option
def command(job: str, to: str | None, as_json: bool) -> None:
    """Make a savepoint of a running job: a folder of its own that can be moved, kept, and continued from.

    `flowpoint run JOB.py --from SAVEPOINT` continues from it, with another parallelism or state backend too. FlowPoint
    itself never removes it. Without --to it is made in the folder `savepoints` of FlowPoint's home ($FLOWPOINT_HOME, by
    default ~/.flowpoint).
    """
    waits = f"waiting for every operator of job {job!r} to pass the barrier and write all of its state"
    wishes: dict[str, object] | None = {"to": to} if to else None
    savepoint = patience.post(JobClient.of(Home.from_environment(), job), "/savepoint", wishes, waits)
    if as_json:
        output.print_json(savepoint)
    else:
        click.echo(f"savepoint {output.checkpoint_line(savepoint)}: {savepoint['path']}")
