"""`flowpoint rescale`: another parallelism for a running job."""

from __future__ import annotations

import click

from flowpoint.cli import output, patience
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="rescale", short_help="Change the parallelism of a running job.")
@output.job_argument
@click.option(
    "-p", "--parallelism", metavar="N", type=click.IntRange(min=1), required=True, help="Subtasks per operator."
)
@output.json_option
def command(job: str, parallelism: int, as_json: bool) -> None:
    """Change the parallelism of a running job: a checkpoint, then on with more or fewer subtasks and workers.

    Later runs without -p keep it. When the checkpoint fails the job goes on as before.
    """
    waits = f"waiting for the checkpoint at which job {job!r} halts, and for its subtasks to start again"
    client = JobClient.of(Home.from_environment(), job)
    status = patience.post(client, "/rescale", {"parallelism": parallelism}, waits)
    if as_json:
        output.print_json(status)
    elif not status["rescaled"]:
        click.echo(f"job {job!r} runs with parallelism {status['parallelism']} already: nothing was changed")
    else:
        click.echo(f"job {job!r} runs with parallelism {status['parallelism']}")
