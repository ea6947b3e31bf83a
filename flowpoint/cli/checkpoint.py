"""`flowpoint checkpoint`: take one now."""

from __future__ import annotations

import click

from flowpoint.cli import output, patience
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="checkpoint", short_help="Take a checkpoint now.")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Take a checkpoint of a running job now and wait until it is complete."""
    waits = f"waiting for every operator of job {job!r} to pass the barrier and write its state"
    checkpoint = patience.post(JobClient.of(Home.from_environment(), job), "/checkpoint", None, waits)
    if as_json:
        output.print_json(checkpoint)
    else:
        click.echo(f"checkpoint {output.checkpoint_line(checkpoint)}: {checkpoint.get('path', '')}".rstrip(": "))
