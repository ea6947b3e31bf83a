"""`flowpoint cancel`: the end, at once."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="cancel", short_help="End a job at once, without a checkpoint.")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """End a running job at once, without a checkpoint.

    The next `run` continues from its newest checkpoint; what came after that is read and worked on again.
    """
    status = JobClient.of(Home.from_environment(), job).post("/cancel")
    if as_json:
        output.print_json(status)
    else:
        click.echo(f"job {job!r} cancelled")
