"""`flowpoint status`: one job at this moment, or how it ended.

As with a service of the system, exit code 3 tells scripts that it does not run, whatever is printed.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from flowpoint.cli import output
from flowpoint.errors import NotFoundError
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home, RunRecord


@click.command(name="status", short_help="Show how a job is doing, or how it ended.")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show how a job is doing: its state, and while it runs its figures.

    Exit code 0: it runs. Exit code 3: it does not, because it has ended (how is shown all the same), or there is no such
    job.
    """
    home = Home.from_environment()
    try:
        status: Data = JobClient.of(home, job).get("/status")
    except NotFoundError:
        record = home.find(job).read_run()
        if record is not None and record.state != "RUNNING":
            _show(_of_ended(record), _ended_lines(record), as_json=as_json)
        raise
    _show(status, _lines(status), as_json=as_json)


def _show(status: Data, lines: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        output.print_json(status)
        return
    for label, text in lines:
        click.echo(f"{label:<15} {text}")


def _of_ended(record: RunRecord) -> Data:
    """The keys of a running job's status; figures that ended with the job are None."""
    figures = ("attempt", "restarts", "parallelism", "records_in", "records_out", "rate", "lag", "backpressure")
    return {
        "name": record.name,
        "state": record.state,
        **dict.fromkeys(figures),
        "last_checkpoint": None,
        "reason": record.reason,
        "operators": [],
        "job_file": record.job_file,
        "pid": None,
        "started": record.started,
        "ended": record.ended or None,
        "refused": record.refused,
    }


def _ended_lines(record: RunRecord) -> list[tuple[str, str]]:
    lines = [
        ("job", record.name),
        ("state", record.state),
        ("job file", record.job_file),
        ("started", output.moment(record.started)),
        ("ended", output.moment(record.ended)),
    ]
    if record.reason:
        lines.append(("reason", record.reason))
    if record.refused:
        lines.append(("last start", f"refused: {record.refused}"))
    return lines


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
