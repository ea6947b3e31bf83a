"""The `flowpoint` command: finds the subcommand, and turns every exception into one sentence and an exit code.

How it works: subcommands are imported when they are used, so that none pays for another's imports. click parses, but
does not end the process: its errors go through the same door as ours (`cli.failure`).

Invariants: only this file ends the process. Exit codes: 0 done, 1 the job failed, 2 wrong usage, configuration or job
file, 3 no such job or snapshot or the job does not run, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TypeGuard

import click

from flowpoint import __version__
from flowpoint.cli import failure
from flowpoint.errors import UsageError
from flowpoint.host.process_end import end_process
from flowpoint.launch.assertions import require_assertions
from flowpoint.model.texts import alike

COMMANDS = {
    "run": "run",
    "list": "list_jobs",
    "status": "status",
    "workers": "workers",
    "checkpoints": "checkpoints",
    "checkpoint": "checkpoint",
    "savepoint": "savepoint",
    "stop": "stop",
    "rescale": "rescale",
    "cancel": "cancel",
    "logs": "logs",
    "inspect": "inspect",
    "verify": "verify",
    "edit": "edit",
    "migrate": "migrate",
    "dispose": "dispose",
    "forget": "forget",
    "threads": "threads",
    "doctor": "doctor",
}
"""Command -> its module in this room, which has it as `command`. In the order that a newcomer needs them."""


_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Commands(click.Group):
    """The subcommands, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            nearest = alike(args[0], COMMANDS)
            advice = f"did you mean `flowpoint {nearest[0]}`?" if nearest else "`flowpoint --help` lists the commands"
            raise UsageError(f"there is no command {args[0]!r}: {advice}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # click's own parser does not say of which command an option lacks its value.
            name = ctx.invoked_subcommand
            if error.ctx is None and name and (command := self.get_command(ctx, name)) is not None:
                error.ctx = click.Context(command, parent=ctx, info_name=name)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(f"flowpoint.cli.{module}").command
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flowpoint", message="%(prog)s %(version)s")
def flowpoint() -> None:
    """Run stateful streaming jobs whose committed output is exact, also under kill -9.

    `flowpoint run JOB.py` runs a job; `flowpoint COMMAND --help` tells more about each command.

    Exit codes: 0 finished or done, 1 the job failed, 2 wrong usage, configuration or job file, 3 no such job or snapshot,
    or the job does not run, 130 interrupted.
    """


def execute(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        require_assertions()
        result = flowpoint.main(
            args=list(arguments), prog_name="flowpoint", standalone_mode=False, obj=tuple(arguments)
        )
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has had enough (`flowpoint logs x | head`).
        failure.show_no_more(sys.stdout)
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the main: every error ends here
        if _is_of_output(error):
            failure.show_no_more(sys.stdout)
            return failure.nothing_shown(error)
        return failure.report(error, debug="--debug" in arguments)
    return result if isinstance(result, int) else 0


def _is_of_output(error: BaseException) -> TypeGuard[OSError]:
    """Whether an error came from writing what is shown: those of files name them, or have become errors of ours."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _CANNOT_WRITE


def main() -> None:
    """The entry point of the `flowpoint` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A path need not be text in the terminal's encoding, and is shown all the same.
            stream.reconfigure(errors="backslashreplace")
    end_process(execute(sys.argv[1:]))
