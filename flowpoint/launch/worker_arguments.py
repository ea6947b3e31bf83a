"""The command line of a worker process; the other side is `launch.worker_main`.

In a file of its own, so that a coordinator does not import everything that a worker needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

from flowpoint.launch.home import JobFolder


def worker_arguments(folder: JobFolder, heartbeat_interval: float) -> Callable[[int, str, str], Sequence[str]]:
    """The command line of a worker, for `coordinator.workers.Workers`."""

    def arguments(index: int, incarnation: str, address: str) -> Sequence[str]:
        data = {
            "index": index,
            "incarnation": incarnation,
            "address": address,
            "heartbeat_interval": heartbeat_interval,
            "run_dir": str(folder.path),
            "log": str(folder.log),
            "parent": os.getpid(),
        }
        return [json.dumps(data)]

    return arguments
