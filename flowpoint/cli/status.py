"""`flowpoint status`: one job at this moment, or how it ended.

Both are answers, so both have exit code 0; whether it runs stands in `state`. How a person goes on is said on stderr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from flowpoint.cli import failure, output
from flowpoint.errors import NotFoundError
from flowpoint.launch.client import JobClient, not_running
from flowpoint.launch.control import Data
from flowpoint.launch.home import TOTALS, Home, RunRecord


@click.command(name="status", short_help="Show how a job is doing, or how it ended.")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show how a job is doing: its state, and while it runs its figures.

    Exit code 0: this is it, whether the job runs or has ended; `state` says which. Exit code 3: there is no such job.
    """
    home = Home.from_environment()
    try:
        status: Data = JobClient.of(home, job).get("/status")
    except NotFoundError:
        folder = home.find(job)
        record = folder.read_run()
        if record is not None and record.state != "RUNNING":
            ended = _of_ended(record, folder.last_seen())
            _show(ended, _ended_lines(ended, record), as_json=as_json)
            # Why it failed stands above.
            failure.note(str(not_running(replace(record, reason=""))))
            return
        raise
    _show(status, _lines(status), as_json=as_json)


def _show(status: Data, lines: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        output.print_json(status)
        return
    for label, text in lines:
        click.echo(f"{label:<15} {text}")


def _of_ended(record: RunRecord, seen: int) -> Data:
    """The keys of a running job's status; figures that ended with the job are None. `seen`: the last sign of life."""
    figures = (*TOTALS, "rate", "lag", "backpressure")
    return {
        "name": record.name,
        "state": record.state,
        **dict.fromkeys(figures),
        "operators": [],
        **record.totals,
        "reason": record.reason or _presumed(record),
        "job_file": record.job_file,
        "pid": None,
        "started": record.started,
        "ended": record.ended or None,
        "seen": seen,
        "refused": record.refused,
    }


def _ended_lines(ended: Data, record: RunRecord) -> list[tuple[str, str]]:
    lines = [
        ("job", record.name),
        ("state", record.state),
        ("job file", record.job_file),
        ("started", output.moment(record.started)),
        ("ended", output.moment(record.ended)) if record.ended else ("last seen", output.moment(ended["seen"])),
    ]
    if record.totals:
        lines += _totals(record.totals)
    if ended["reason"]:
        lines.append(("reason", ended["reason"]))
    if record.refused:
        lines.append(("last start", f"refused: {record.refused}"))
    return lines


def _presumed(record: RunRecord) -> str:
    """What is known of the end of a job that could not tell it itself."""
    if record.state != "KILLED":
        return ""
    return "its coordinator is gone without a word: it was killed, or the machine went down"


def _totals(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Attempt, parallelism, records, last checkpoint, and what connectors count."""
    lines = [
        ("attempt", f"{status['attempt']} ({output.counted(status['restarts'], 'restart')})"),
        ("parallelism", str(status["parallelism"])),
        ("records", output.records_line(status)),
        ("last checkpoint", output.checkpoint_line(status["last_checkpoint"])),
    ]
    for operator in status["operators"]:
        if metrics := operator.get("metrics"):
            figures = ", ".join(f"{name} {output.count(value)}" for name, value in sorted(metrics.items()))
            lines.append((operator["uid"], figures))
    return lines


def _lines(status: Data) -> list[tuple[str, str]]:
    lag = status.get("lag")
    lines = [
        ("job", str(status["name"])),
        ("state", str(status["state"])),
        ("job file", str(status.get("job_file", "-"))),
        ("pid", str(status.get("pid", "-"))),
        ("started", output.moment(status.get("started"))),
        *_totals(status)[:3],
        ("rate", f"{output.count(status['rate'])} records/s"),
        ("lag", "-" if lag is None else output.duration(lag * 1000)),
        ("back-pressure", output.share(status["backpressure"])),
        *_totals(status)[3:],
    ]
    if stalled := output.stalled_line(status):
        lines.append(("stalled", f"at work on the same records: {stalled}"))
    if status.get("reason"):
        lines.append(("reason", str(status["reason"])))
    return lines
