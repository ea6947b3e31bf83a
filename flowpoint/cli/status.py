"""`flowpoint status`: one job at this moment."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home


@click.command(name="status")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show how a running job is doing."""
    status: Data = JobClient.of(Home.from_environment(), job).get("/status")
    if as_json:
        output.print_json(status)
        return
    for label, text in _lines(status):
        click.echo(f"{label:<15} {text}")


def _lines(status: Data) -> list[tuple[str, str]]:
    lag = status.get("lag")
    lines = [
        ("job", str(status["name"])),
        ("state", str(status["state"])),
        ("job file", str(status.get("job_file", "-"))),
        ("pid", str(status.get("pid", "-"))),
        ("started", output.moment(status.get("started"))),
        ("attempt", f"{status['attempt']} ({status['restarts']} restarts)"),
        ("parallelism", str(status["parallelism"])),
        ("records", f"{output.count(status['records_in'])} in, {output.count(status['records_out'])} out"),
        ("rate", f"{output.count(status['rate'])} records/s"),
        ("lag", "-" if lag is None else output.duration(lag * 1000)),
        ("back-pressure", output.share(status["backpressure"])),
        ("last checkpoint", output.checkpoint_line(status["last_checkpoint"])),
    ]
    for operator in status.get("operators", []):
        if metrics := operator.get("metrics"):
            figures = ", ".join(f"{name} {output.count(value)}" for name, value in sorted(metrics.items()))
            lines.append((operator["uid"], figures))
    if status.get("reason"):
        lines.append(("reason", str(status["reason"])))
    return lines
