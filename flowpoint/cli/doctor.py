"""`flowpoint doctor`: look whether this machine is fit to run jobs."""

from __future__ import annotations

from dataclasses import asdict

import click

from flowpoint.cli import output
from flowpoint.launch.doctor import Level, examine
from flowpoint.launch.home import Home


@click.command(name="doctor", short_help="See whether this machine is fit to run jobs.")
@output.json_option
def command(as_json: bool) -> int:
    """Check Python, its packages, the disk, limits and leftovers, and say what to do about what is wrong.

    Exit code 1: something keeps jobs from running.
    """
    findings = examine(Home.from_environment())
    if as_json:
        output.print_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.level:<7}  {finding.check:<{width}}  {finding.seen}")
            if finding.advice:
                click.echo(f"{'':<7}  {'':<{width}}  -> {finding.advice}")
    return int(any(finding.level is Level.ERROR for finding in findings))
