"""`flowpoint run --detach`: the same command again, in a session of its own, and the wait until records flow.

How it works: the child gets the writing end of a pipe (`--ready-fd`). It keeps the terminal until the job runs, so
errors of the start appear as ever; then it writes its name and pid and turns its output to the log. A pipe that ends
without a word means that the child has ended, and its exit code is ours.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

import click

from flowpoint.host.module_path import command_of


def start_detached(arguments: Sequence[str], *, as_json: bool) -> int:
    """Run `flowpoint <arguments>` in the background; returns the exit code of the start."""
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [*command_of("flowpoint.__main__"), *_without(arguments, "--detach"), "--ready-fd", str(writing)],
        stdin=subprocess.DEVNULL,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    try:
        with open(reading) as pipe:
            line = pipe.readline()
        if not line:
            return child.wait()
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    ready = json.loads(line)
    if as_json:
        click.echo(line.rstrip("\n"))
    else:
        click.echo(
            f"job {ready['name']!r} runs in the background, pid {ready['pid']} "
            f"(`flowpoint status {ready['name']}`, `flowpoint stop {ready['name']}`, log in {ready['log']})"
        )
    return 0


def _without(arguments: Sequence[str], flag: str) -> list[str]:
    """The arguments without the first place where the flag stands."""
    kept = list(arguments)
    kept.remove(flag)
    return kept
