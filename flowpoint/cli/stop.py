"""`flowpoint stop`: a last checkpoint, then the end; with --to also a savepoint that hands the output on."""

from __future__ import annotations

import click

from flowpoint.cli import output, patience
from flowpoint.launch.client import JobClient
from flowpoint.launch.home import Home


@click.command(name="stop", short_help="Take a last checkpoint, then end a job.")
@output.job_argument
@output.to_option
@click.option("--drain", is_flag=True, help="End time first: windows close, all timers fire.")
@output.json_option
def command(job: str, to: str | None, drain: bool, as_json: bool) -> None:
    """Take a last checkpoint of a running job, then end it. The next `run` continues there.

    When that checkpoint fails the job runs on. With --to a savepoint is made as well, and the job's output is handed on
    to it: `flowpoint run JOB.py --from SAVEPOINT` continues in the same output folder, and nothing else does.

    With --drain no more input is read and time ends before the checkpoint, as at the end of input: all timers fire, and
    what they emit is committed. Such a job is done; only `run --resume-drained` goes on from it.
    """
    wishes: dict[str, object] = {**({"to": to} if to else {}), **({"drain": True} if drain else {})}
    waits = f"waiting for the last checkpoint of job {job!r} and its sinks; `flowpoint cancel {job}` ends it at once"
    checkpoint = patience.post(JobClient.of(Home.from_environment(), job), "/stop", wishes or None, waits)
    if as_json:
        output.print_json(checkpoint)
    elif to:
        click.echo(f"job {job!r} stopped with savepoint {output.checkpoint_line(checkpoint)}: {checkpoint['path']}")
    else:
        click.echo(f"job {job!r} stopped after checkpoint {output.checkpoint_line(checkpoint)}")
