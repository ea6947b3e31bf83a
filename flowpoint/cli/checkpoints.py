"""`flowpoint checkpoints`: the checkpoints of a job, running or not."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home


@click.command(name="checkpoints")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show the checkpoints of a job, oldest first."""
    checkpoints = _checkpoints(Home.from_environment(), job)
    if as_json:
        output.print_json(checkpoints)
        return
    output.print_table(
        ("ID", "ATTEMPT", "KIND", "STATE", "STARTED", "TOOK", "SIZE", "PATH OR REASON"),
        [
            (
                str(checkpoint["id"]),
                str(checkpoint["attempt"]),
                str(checkpoint["kind"]),
                str(checkpoint["state"]),
                output.moment(checkpoint["started"]),
                output.duration(checkpoint["duration_ms"]),
                output.size(checkpoint["bytes"]),
                str(checkpoint["reason"] or checkpoint["path"] or "-"),
            )
            for checkpoint in checkpoints
        ],
        right=frozenset({"ID", "ATTEMPT", "TOOK", "SIZE"}),
    )


def _checkpoints(home: Home, job: str) -> list[Data]:
    """From the job itself, which also knows of pending and failed ones, or else from its storage."""
    home.find(job)
    try:
        checkpoints: list[Data] = JobClient.of(home, job).get("/checkpoints")
    except NotFoundError:
        from flowpoint.launch.history import list_checkpoints

        return list_checkpoints(home, job)
    return checkpoints
