"""Runs whole commands and measures them: wall time from start to exit, CPU and the greatest memory of their processes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """`cpu` is user and system seconds of all processes, `rss_mb` that of the biggest one."""

    wall: float
    cpu: float
    rss_mb: float


class CommandFailed(Exception):
    """A command did not exit with 0."""


def run_commands(commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path) -> Measured:
    """Starts all commands together in `folder` and waits for all. Their output goes to `folder/log`."""
    log = folder / "log"
    with log.open("wb") as output:
        started = time.perf_counter()
        processes = [
            subprocess.Popen(command, env={**os.environ, **environment}, cwd=folder, stdout=output, stderr=output)
            for command in commands
        ]
        results = [os.wait4(process.pid, 0) for process in processes]
        wall = time.perf_counter() - started
    for (_, status, _), process, command in zip(results, processes, commands, strict=True):
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise CommandFailed(f"{' '.join(command)} exited with {process.returncode}:\n{tail}")
    usages = [usage for _, _, usage in results]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Measured(wall, cpu, max(usage.ru_maxrss for usage in usages) / 1024)
