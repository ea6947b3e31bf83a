"""`flowpoint threads`: the memory of agents, looked at and changed from the shell.

Not here: the commands (`threads_look`, `threads_change`).
"""

from __future__ import annotations

import click

from flowpoint.cli import threads_change as change
from flowpoint.cli import threads_look as look

_LOOK = (look.list_, look.history, look.show, look.diff, look.migrate, look.export)
_CHANGE = (change.fork, change.prune, change.copy, change.delete, change.import_)


@click.group(name="threads", commands=[*_LOOK, *_CHANGE], context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Look at and change the threads that agents remember."""
