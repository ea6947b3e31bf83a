"""`flowpoint workers`: the worker processes of a job, with the pids that one may `kill -9`."""

from __future__ import annotations

import click

from flowpoint.cli import output
from flowpoint.launch.client import JobClient
from flowpoint.launch.control import Data
from flowpoint.launch.home import Home


@click.command(name="workers")
@output.job_argument
@output.json_option
def command(job: str, as_json: bool) -> None:
    """Show the worker processes of a running job."""
    workers: list[Data] = JobClient.of(Home.from_environment(), job).get("/workers")
    if as_json:
        output.print_json(workers)
        return
    output.print_table(
        ("WORKER", "PID", "CPU", "MEMORY", "SUBTASKS"),
        [
            (
                str(worker["index"]),
                str(worker["pid"] or "-"),
                f"{worker['cpu_percent']:.0f}%" if worker["cpu_percent"] is not None else "-",
                output.size(worker["rss_bytes"]),
                " ".join(worker["subtasks"]) or "-",
            )
            for worker in workers
        ],
        right=frozenset({"WORKER", "PID", "CPU", "MEMORY"}),
    )
