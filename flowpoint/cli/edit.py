"""`flowpoint edit`: a child of a snapshot, with some of its state changed."""

from __future__ import annotations

from dataclasses import asdict

import click

from flowpoint import snapshot as snapshots
from flowpoint.cli import completion, output
from flowpoint.launch.home import Home
from flowpoint.launch.own_folders import refuse_own_folder
from flowpoint.snapshot import addresses


@click.command(name="edit", short_help="Write a changed copy of a snapshot.")
@output.snapshot_argument
@click.option(
    "--out", metavar="DIR", required=True, shell_complete=completion.folders, help="Where the child goes: a new folder."
)
@click.option(
    "--set", "sets", metavar="UID/STATE/KEY=JSON", multiple=True, help="Change a value. In a map: KEY/MAPKEY."
)
@click.option(
    "--delete", "deletes", metavar="UID/STATE/KEY", multiple=True, help="Forget a key. In a map also KEY/MAPKEY."
)
@click.option(
    "--drop",
    "drops",
    metavar="UID",
    multiple=True,
    shell_complete=completion.operators,
    help="Leave out all state of an operator.",
)
@click.option("--position", "moves", metavar="UID/SPLIT=JSON", multiple=True, help="Read a split on from elsewhere.")
@output.json_option
def command(
    snapshot: str,
    out: str,
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    drops: tuple[str, ...],
    moves: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a child of a checkpoint or savepoint with changed state; the snapshot itself is not touched.

    The child is a savepoint: `flowpoint run JOB.py --from DIR` goes on from it.
    """
    refuse_own_folder(out, Home.from_environment())
    child = snapshots.open(snapshot).edit()
    for text in sets:
        addresses.set_by_text(child, text)
    for text in deletes:
        addresses.delete_by_text(child, text)
    for uid in drops:
        child.drop(uid)
    for text in moves:
        addresses.move_by_text(child, text)
    written = child.write(out)
    if as_json:
        output.print_json(asdict(written))
        return
    parent = child.parent
    click.echo(
        f"savepoint {written.id}, made of {parent.kind} {parent.id}, {output.size(written.bytes)}: {written.path}"
    )
    for change in written.changes:
        click.echo(f"  {change}")
