"""`flowpoint checkpoints`: the checkpoints of a job, running or not, as the tree that they are.

How it works: a checkpoint's parent is the one that was restored or completed last before it. The line to the newest
one runs straight down; what branches off it (after a fall-back, an older one has a second child) stands indented
below the checkpoint that it branches off from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home

_BRANCH: Final = "├─ "
_CONTINUED: Final = "│  "


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
                output.duration(checkpoint["duration_ms"]),
                output.size(checkpoint["bytes"]),
                str(checkpoint["reason"] or checkpoint["path"] or "-"),
            )
            for indent, checkpoint in as_tree(checkpoints)
        ],
        right=frozenset({"PARENT", "ATTEMPT", "TOOK", "SIZE"}),
    )


def as_tree(checkpoints: Sequence[Data]) -> list[tuple[str, Data]]:
    """(indentation, checkpoint): each below its parent, in the order given; the newest child of each comes last."""
    children: dict[int, list[int]] = {}
    newest: dict[int, int] = {}
    roots: list[int] = []
    for at, checkpoint in enumerate(checkpoints):
        # The parent is the last one before it of that number: a number is used again after a fall-back.
        parent = newest.get(checkpoint["parent"])
        (roots if parent is None else children.setdefault(parent, [])).append(at)
        newest[checkpoint["id"]] = at
    rows: list[tuple[str, Data]] = []
    waiting = [("", "", at) for at in reversed(roots)]
    while waiting:
        indent, marker, at = waiting.pop()
        rows.append((f"{indent}{marker}", checkpoints[at]))
        inner = indent + _CONTINUED if marker else indent
        *branches, line = children.get(at, [None])
        if line is not None:
            waiting.append((inner, "", line))
        waiting += [(inner, _BRANCH, branch) for branch in reversed(branches) if branch is not None]
    return rows


def _checkpoints(home: Home, job: str) -> list[Data]:
    """From the job itself, which also knows of pending and failed ones, or else from its storage."""
    home.find(job)
    try:
        checkpoints: list[Data] = JobClient.of(home, job).get("/checkpoints")
    except NotFoundError:
        from flowpoint.launch.history import list_checkpoints

        return list_checkpoints(home, job)
    return checkpoints
