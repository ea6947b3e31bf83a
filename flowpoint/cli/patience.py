"""What a person is told who waits for a job: for what, and which operators keep it from coming.

A barrier passes an operator only between two records, so one that is at work on the same record holds up every checkpoint.

Not here: the waiting itself (`launch.client`).
"""

from __future__ import annotations

from typing import Any

import click

from flowpoint.cli import output
from flowpoint.errors import FlowPointError
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data


def post(client: JobClient, path: str, body: Data | None, waits: str) -> dict[str, Any]:
    """The answer of a job; `waits` is said on stderr if it takes a while."""

    def say_why() -> None:
        stalled = _stalled(client)
        reason = f" (at work on the same records: {stalled})" if stalled else ""
        click.echo(f"{waits}{reason}", err=True)

    return client.post(path, body, on_wait=say_why)


def _stalled(client: JobClient) -> str:
    """Nobody must wait for this longer: a job that does not tell is not asked again."""
    try:
        return output.stalled_line(client.get("/status", seconds=1.0))
    except FlowPointError:
        return ""
