"""Figures and tables as text, and data as JSON, on stdout.

Plain text without a library: these commands must come back at once. The live table is `cli.live`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from flowpoint.cli import completion

T = TypeVar("T")

_BRANCH: Final = "├─ "
_CONTINUED: Final = "│  "


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
job_argument = click.argument("job", shell_complete=completion.job_names)
job_file_argument = click.argument("job_file", metavar="JOB.py", shell_complete=completion.files)
to_option = click.option(
    "--to",
    metavar="DIR",
    shell_complete=completion.folders,
    help="Make a savepoint, in a folder DIR/savepoint-JOB-ID of its own; its path is printed.",
    callback=lambda _, __, value: _absolute(value),
)
snapshot_argument = click.argument("snapshot", shell_complete=completion.folders)


def _absolute(path: str | None) -> str | None:
    """The job has another working directory than this command."""
    return os.path.abspath(os.path.expanduser(path)) if path else None


def prints_aside(as_json: bool) -> AbstractContextManager[object]:
    """While it lasts, what a job file prints in this process goes to stderr if stdout is for a program."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def print_json(data: Any) -> None:
    """One JSON document."""
    click.echo(json.dumps(data, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: frozenset[str] = frozenset()) -> None:
    """Columns as wide as they need to be; those named in `right` are aligned right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(header, line, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def as_tree(
    items: Sequence[T], id_of: Callable[[T], Hashable], parent_of: Callable[[T], Hashable]
) -> list[tuple[str, T]]:
    """(indentation, item): each below its parent, in the order given.

    The line to the newest child runs straight down; older ones branch off, indented, before it.
    """
    children: dict[int, list[int]] = {}
    newest: dict[Hashable, int] = {}
    roots: list[int] = []
    for at, item in enumerate(items):
        # The parent is the last one before it of that id: the number of a checkpoint is used again after a fall-back.
        parent = newest.get(parent_of(item))
        (roots if parent is None else children.setdefault(parent, [])).append(at)
        newest[id_of(item)] = at
    rows: list[tuple[str, T]] = []
    waiting = [("", "", at) for at in reversed(roots)]
    while waiting:
        indent, marker, at = waiting.pop()
        rows.append((f"{indent}{marker}", items[at]))
        inner = indent + _CONTINUED if marker else indent
        *branches, line = children.get(at, [None])
        if line is not None:
            waiting.append((inner, "", line))
        waiting += [(inner, _BRANCH, branch) for branch in reversed(branches) if branch is not None]
    return rows


def count(value: float | None) -> str:
    """A number of things, with thousands separated."""
    return "-" if value is None else f"{value:,.0f}"


def counted(number: int, thing: str) -> str:
    """A number of things, with their name: `1 restart`, `2 restarts`."""
    return f"{count(number)} {thing}{'s' * (number != 1)}"


def size(value: float | None) -> str:
    """A number of bytes, in the unit that fits."""
    if value is None:
        return "-"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(milliseconds: float | None) -> str:
    """A length of time, in the unit that fits."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if hours else f"{minutes} m {rest:02d} s"


def share(value: float | None) -> str:
    """A share from 0 to 1 as a percentage."""
    return "-" if value is None else f"{value:.0%}"


def stalled_line(status: dict[str, Any]) -> str:
    """Which operators of a job work on the same records for long, and for how long; "" when none does."""
    stalled = [one for one in status.get("operators", ()) if one.get("stalled")]
    return ", ".join(f"{one['uid']} for {duration(one['stalled'] * 1000)}" for one in stalled)


def moment(epoch_ms: float | None) -> str:
    """A point in time, as a local date and time that says in which zone."""
    return (
        datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z") if epoch_ms else "-"
    )


def records_line(status: Mapping[str, Any]) -> str:
    """How many records a job has read, and how many have reached its sinks: what is committed of them is in checkpoints."""
    return f"{count(status['records_in'])} records read, {count(status['records_out'])} given to sinks"


def checkpoint_line(data: dict[str, Any] | None) -> str:
    """A checkpoint in one line."""
    if not data:
        return "none yet"
    return f"{data['id']} ({duration(data.get('duration_ms'))}, {size(data.get('bytes'))})"
