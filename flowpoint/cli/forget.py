"""`flowpoint forget`: remove what FlowPoint keeps of a job that does not run."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.launch.forget import forget
from flowpoint.launch.home import Home


@click.command(name="forget", short_help="Remove what is kept of a job that does not run.")
@output.job_argument
@click.option("--keep-checkpoints", is_flag=True, help="Remove only its log and the record of its runs.")
@output.json_option
def command(job: str, keep_checkpoints: bool, as_json: bool) -> None:
    """Remove the checkpoints, the log and the working files of a job that does not run.

    Its output stays, and so do its savepoints and its job file. The next `run` starts it from the beginning; with
    --keep-checkpoints it continues.
    """
    forgotten = forget(Home.from_environment(), job, keep_checkpoints=keep_checkpoints)
    if as_json:
        output.print_json({"name": job, "removed": forgotten.removed, "left": forgotten.left})
        return
    click.echo(f"job {job!r} is forgotten; removed: {', '.join(forgotten.removed)}")
    if forgotten.left:
        click.echo(f"left where they are: the checkpoints in {forgotten.left}")
