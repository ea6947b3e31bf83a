"""`flowpoint forget`: remove what FlowPoint keeps of a job that does not run."""

from __future__ import annotations

import click

from flowpoint.cli import completion, output
from flowpoint.launch.forget import forget
from flowpoint.launch.home import Home


@click.command(name="forget", short_help="Remove what is kept of jobs that do not run.")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=completion.job_names)
@click.option("--keep-checkpoints", is_flag=True, help="Remove only its log and the record of its runs.")
@output.json_option
def command(jobs: tuple[str, ...], keep_checkpoints: bool, as_json: bool) -> None:
    """Remove the checkpoints, the log and the working files of jobs that do not run.

    Its output stays, and so do its savepoints and its job file. The next `run` starts it from the beginning; with
    --keep-checkpoints it continues. When one of several jobs is not known, none is removed. The JSON of several is a list.
    """
    home = Home.from_environment()
    for job in jobs:
        home.find(job)
    forgotten = []
    for job in dict.fromkeys(jobs):
        gone = forget(home, job, keep_checkpoints=keep_checkpoints)
        forgotten.append({"name": job, "removed": gone.removed, "left": gone.left})
        if not as_json:
            click.echo(f"job {job!r} is forgotten; removed: {', '.join(gone.removed)}")
            if gone.left:
                click.echo(f"left where they are: the checkpoints in {gone.left}")
    if as_json:
        output.print_json(forgotten if len(forgotten) > 1 else forgotten[0])
