"""`flowpoint verify`: prove that a snapshot is whole."""

from __future__ import annotations

from dataclasses import asdict

import click

from flowpoint import snapshot as snapshots
from flowpoint.cli import output


@click.command(name="verify", short_help="Prove that a snapshot is whole.")
@output.snapshot_argument
@output.json_option
def command(snapshot: str, as_json: bool) -> int:
    """Read a whole checkpoint or savepoint and compare every checksum and every count.

    Counted is what stands in the files: also timers, records under way, and entries that newer files replace, which
    `inspect` leaves out.

    Exit code 1: something is damaged, or could not be read, which proves nothing.
    """
    opened = snapshots.open(snapshot)
    report = opened.verify()
    if as_json:
        output.print_json({"path": opened.path, "kind": opened.kind, "id": opened.id, **asdict(report)})
    elif not report.is_proof:
        seen = "is damaged" if report.damages else "cannot be read whole at the moment, and may well be whole"
        click.echo(f"{opened.kind} {opened.id} of job {opened.job} {seen}: {opened.path}")
        found = [*report.damages, *report.unreadable]
        output.print_table(("FILE", "WHAT WAS SEEN"), [(damage.path, damage.problem) for damage in found])
    else:
        click.echo(
            f"{opened.kind} {opened.id} of job {opened.job} is whole: {output.count(report.files)} files, "
            f"{output.count(report.entries)} entries in them (timers and replaced ones too), {output.size(report.bytes)}"
        )
    return 0 if report.is_proof else 1
