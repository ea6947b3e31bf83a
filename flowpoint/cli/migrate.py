"""`flowpoint migrate --check`: whether a job can go on from a snapshot, and what would become of its state."""

from __future__ import annotations

from dataclasses import asdict

import click

from flowpoint.cli import output
from flowpoint.cli.params import params_option
from flowpoint.launch.dry_run import DryRun, check_migration
from flowpoint.snapshot.dry_run import StateReport


@click.command(name="migrate")
@output.snapshot_argument
@output.job_file_argument
@click.option("--check", is_flag=True, help="Try every stored value; write nothing.")
@params_option
@output.json_option
@click.pass_context
def command(
    ctx: click.Context, /, *, snapshot: str, job_file: str, check: bool, params: dict[str, str], as_json: bool
) -> int:
    """Try out what a changed job makes of stored state.

    Every value in a checkpoint or savepoint is converted as a restore would do it.

    Nothing is written: `flowpoint run JOB.py` converts the state when it continues from there, and its next checkpoint
    holds the new values. Exit code 1: the restore would be refused.
    """
    if not check:
        raise click.UsageError("state is converted by `flowpoint run`; pass --check to try it out before", ctx)
    with output.prints_aside(as_json):
        found = check_migration(snapshot, job_file, params)
    if as_json:
        output.print_json({**asdict(found), "is_fine": found.is_fine})
    else:
        _show(found)
    return 0 if found.is_fine else 1


def _show(found: DryRun) -> None:
    click.echo(f"{found.kind} {found.id} for job {found.job}: {found.path}")
    header = ("OPERATOR", "STATE", "STORED", "WANTED", "VALUES", "CHANGED", "FAILED")
    rows = [
        (
            state.operator,
            state.state,
            state.stored,
            state.wanted,
            output.count(state.values),
            output.count(state.changed),
            output.count(state.failed),
        )
        for state in found.states
    ]
    if rows:
        output.print_table(header, rows, right=frozenset({"VALUES", "CHANGED", "FAILED"}))
    for state in found.states:
        for line in _lines(state):
            click.echo(f"  {state.operator}/{state.state}: {line}")
    for note in found.notes:
        click.echo(f"  note: {note}")
    if found.refusal:
        click.echo(f"  {found.refusal}")
    click.echo("the job can go on from there" if found.is_fine else "the restore would be refused")


def _lines(state: StateReport) -> list[str]:
    """What there is to say of a state besides numbers."""
    more = state.failed - len(state.failures)
    return [
        *state.notes,
        *state.refusals,
        *(f"key {failure.key}: {failure.reason}" for failure in state.failures),
        *([f"and {more} more"] if more else []),
    ]
