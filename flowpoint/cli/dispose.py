"""`flowpoint dispose`: delete a savepoint."""

from __future__ import annotations

from dataclasses import asdict

import click

from flowpoint.cli import output
from flowpoint.snapshot.disposed import dispose


@click.command(name="dispose")
@output.snapshot_argument
@output.json_option
def command(snapshot: str, as_json: bool) -> None:
    """Delete a savepoint. Anything else is refused: a job deletes its checkpoints itself."""
    disposed = dispose(snapshot)
    if as_json:
        output.print_json(asdict(disposed))
        return
    click.echo(f"savepoint {disposed.id} is deleted, {output.size(disposed.bytes)}: {disposed.path}")
    if disposed.left:
        click.echo(f"left where they are, because they are not of the savepoint: {', '.join(disposed.left)}")
