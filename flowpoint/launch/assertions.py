"""FlowPoint is not run without its assertions: what they look at is nowhere else looked at, and a bug that they would have
stopped goes into somebody's output.

This imports nothing heavy: every command begins with it.
"""

from __future__ import annotations

from flowpoint.errors import UsageError


def require_assertions() -> None:
    """Refuse to run under `python -O`.

    Raises:
        UsageError: Python leaves assertions out.
    """
    if not __debug__:
        raise UsageError("cannot run under `python -O`: FlowPoint needs its assertions; leave -O out")
