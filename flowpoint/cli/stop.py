"""`flowpoint stop`: a last checkpoint, then the end."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="stop")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Take a last checkpoint of a running job, then end it. The next `run` continues there.

    When that checkpoint fails the job runs on.
    """
    checkpoint = JobClient.of(Home.from_environment(), job).post("/stop")
    if as_json:
        output.print_json(checkpoint)
    else:
        click.echo(f"job {job!r} stopped after checkpoint {output.checkpoint_line(checkpoint)}")
