"""Errors as a person sees them: one clear sentence on stderr, a traceback only of the user's own code.

Not here: the exit codes themselves (`flowpoint.errors`), except those of click and of an interrupt.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TextIO

import click

from flowpoint.errors import FlowPointError
from flowpoint.launch.control import Event
from flowpoint.model.texts import TRACE_CHARACTERS_MAX, cut

INTERRUPTED = 130
_AUTHORS = frozenset({"UserCodeError", "TransientError"})
"""Kinds of failures whose traceback is that of the job author's code."""

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


def show_no_more(stream: TextIO) -> None:
    """Nobody takes what is written to a stream: what is not shown yet must not be tried again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def nothing_shown(error: OSError) -> int:
    """Say that the answer could not be written; the exit code for it."""
    _say(
        f"cannot write to standard output: {error.strerror}; what the command was to do may have been done all the same"
    )
    return 1


def report(error: BaseException, *, debug: bool) -> int:
    """Tell an exception on stderr; returns the exit code for it."""
    match error:
        case KeyboardInterrupt() | click.Abort():
            _say("interrupted")
            return INTERRUPTED
        case click.exceptions.NoArgsIsHelpError():
            print(error.format_message(), file=sys.stderr)
            return error.exit_code
        case click.ClickException():
            _say(_usage(error))
            return error.exit_code
        case FlowPointError():
            _say(str(error))
            if debug:
                traceback.print_exception(error)
            elif error.__cause__ is not None and _is_users(error.__cause__):
                trace = "".join(traceback.format_exception(error.__cause__, chain=False))
                print(cut(trace, TRACE_CHARACTERS_MAX), end="", file=sys.stderr)
            return error.exit_code
        case _:
            _say(f"this is a bug in FlowPoint: {type(error).__name__}: {error}; please report it with these lines")
            traceback.print_exception(error)
            return 1


def note(sentence: str) -> None:
    """Say on stderr what belongs to an answer and is no part of its data."""
    _say(sentence)


def report_failed_job(event: Event, *, debug: bool) -> None:
    """Tell on stderr why a job failed. The error came from a worker as data, and so did its traceback."""
    _say(event.text)
    trace = str(event.data.get("trace") or "")
    if trace and (debug or event.data.get("kind") in _AUTHORS):
        print(trace.rstrip("\n"), file=sys.stderr)


def _is_users(cause: BaseException) -> bool:
    """Whether an exception came out of the user's code: whoever caught it there let its traceback begin there."""
    at = cause.__traceback__
    return at is not None and not at.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _say(sentence: str) -> None:
    print(f"flowpoint: {sentence}", file=sys.stderr, flush=True)


def _usage(error: click.ClickException) -> str:
    """click's message as a sentence of ours, and where to read on."""
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message}; see `{error.ctx.command_path} --help`"
    return message
