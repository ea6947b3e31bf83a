"""`flowpoint checkpoints`: the checkpoints of a job, running or not, as the tree that they are.

How it works: a checkpoint's parent is the one that was restored or completed last before it. After a fall-back, an older
one has a second child: a branch (`output.as_tree`).
"""

from __future__ import annotations

import time
from operator import itemgetter

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError, NotListening
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home


@click.command(name="checkpoints", short_help="Show the checkpoints of a job.")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show the checkpoints of a job, oldest first; branches stand indented below their parents."""
    checkpoints = _checkpoints(Home.from_environment(), job)
    if as_json:
        output.print_json(checkpoints)
        return
    output.print_table(
        ("ID", "PARENT", "ATTEMPT", "KIND", "STATE", "STARTED", "TOOK", "SIZE", "PATH OR REASON"),
        [
            (
                f"{indent}{checkpoint['id']}",
                str(checkpoint["parent"] or "-"),
                str(checkpoint["attempt"]),
                str(checkpoint["kind"]),
                str(checkpoint["state"]),
                output.moment(checkpoint["started"]),
                _took(checkpoint),
                output.size(checkpoint["bytes"]),
                str(checkpoint["reason"] or checkpoint["path"] or "-"),
            )
            for indent, checkpoint in output.as_tree(checkpoints, itemgetter("id"), itemgetter("parent"))
        ],
        right=frozenset({"PARENT", "ATTEMPT", "TOOK", "SIZE"}),
    )


def _took(checkpoint: Data) -> str:
    if checkpoint["state"] != "pending":
        return output.duration(checkpoint["duration_ms"])
    return f"{output.duration(max(0, time.time() * 1000 - checkpoint['started']))} so far"


def _checkpoints(home: Home, job: str) -> list[Data]:
    """From the job itself, which also knows of pending and failed ones, or else from its storage."""
    home.find(job)
    try:
        checkpoints: list[Data] = JobClient.of(home, job).get("/checkpoints")
    except (NotFoundError, NotListening):
        from flowpoint.launch.history import list_checkpoints

        return list_checkpoints(home, job)
    return checkpoints
