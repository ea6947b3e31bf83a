"""`flowpoint run`: starts a job in this process and shows it, or starts it in the background.

How it works: reads the options, picks a view (a live table in a terminal, one line per event elsewhere, JSON on
request), and hands both to `launch.run.run_job_file`, whose return value is the exit code.

Not here: what the options mean. `launch` is imported when the options have been understood, to keep `--help` quick.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from flowpoint.cli import completion, failure, output
from flowpoint.cli.params import params_option
from flowpoint.cli.views import Announcer, JsonLines, Lines, View
from flowpoint.launch.control import RunOptions
from flowpoint.launch.home import Home
from flowpoint.launch.starting import announced


@click.command(name="run")
@output.job_file_argument
@click.option("--name", metavar="NAME", help="Run under this name instead of the job's own.")
@click.option(
    "-p", "--parallelism", metavar="N", type=click.IntRange(min=1), help="Subtasks per operator (default: cores)."
)
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), help="Worker processes (default: as many as parallelism)."
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=completion.settings,
    help="Set a configuration key, such as checkpoint.interval=1s.",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    shell_complete=completion.files,
    help="Read configuration from a TOML file.",
)
@params_option
@click.option(
    "--from",
    "source",
    metavar="SNAPSHOT",
    shell_complete=completion.folders,
    help="Start from a savepoint or retained checkpoint.",
)
@click.option("--claim", is_flag=True, help="With --from: the snapshot becomes the job's, which removes it in time.")
@click.option("--fresh", is_flag=True, help="Start over; retained checkpoints are kept but not used.")
@click.option(
    "--take-output",
    is_flag=True,
    help="Write into a folder that has output of another job, or of an earlier start of this one; its files stay.",
)
@click.option("--allow-non-restored", is_flag=True, help="Drop state of operators that the job no longer has.")
@click.option(
    "--accept-duplicates",
    is_flag=True,
    help="If the newest checkpoint is damaged: use an older one, and write again what came after it.",
)
@click.option("--skip-lost-input", is_flag=True, help="Go on without input files that are gone since the checkpoint.")
@click.option("--resume-drained", is_flag=True, help="Go on from a snapshot of `stop --drain`; event time begins anew.")
@click.option("--detach", is_flag=True, help="Run in the background; returns when records flow.")
@click.option("--plain", is_flag=True, help="Print one line per event instead of the live table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
@click.option("--debug", is_flag=True, help="Print tracebacks with errors.")
@click.option("--ready-fd", type=int, hidden=True)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    detach: bool,
    plain: bool,
    as_json: bool,
    ready_fd: int | None,
    **options: Any,
) -> int:
    """Run a job file on this machine.

    A job that has checkpoints continues from the newest good one. Ctrl-C takes a last checkpoint and ends the job;
    a second Ctrl-C ends it at once, and so does the first while a failed job waits to be restarted.

    What functions and sinks print goes to the job's log (`flowpoint logs`); its last lines are shown at the end.

    Exit codes: 0 finished, 1 the job failed, 2 wrong usage, configuration or job file, 3 no such snapshot, 130 interrupted.
    """
    if options["claim"] and not options["source"]:
        raise click.UsageError("--claim needs --from", ctx)
    if options["fresh"] and options["source"]:
        raise click.UsageError("--fresh and --from exclude each other", ctx)
    if plain and as_json:
        raise click.UsageError("--plain and --json exclude each other", ctx)
    if detach:
        from flowpoint.cli.detach import start_detached

        return start_detached(ctx.obj, as_json=as_json)
    job = RunOptions(**options)
    # A view of JSON has the real stdout by now, on which nothing else may come.
    view = _choose_view(plain=plain, as_json=as_json, ready_fd=ready_fd)
    home = Home.from_environment()
    with announced(home, job.job_file, job.name) as on_claimed, view, output.prints_aside(as_json):
        from flowpoint.launch.run import run_job_file

        code: int = run_job_file(job, view, on_claimed)
    if view.failure is not None:
        failure.report_failed_job(view.failure, debug=job.debug)
    return code


def _choose_view(*, plain: bool, as_json: bool, ready_fd: int | None) -> View:
    if ready_fd is not None:
        return Announcer(ready_fd)
    if as_json:
        return JsonLines(sys.stdout)
    if plain or not sys.stdout.isatty():
        return Lines(sys.stdout)
    from flowpoint.cli.live import LiveTable

    return LiveTable()
