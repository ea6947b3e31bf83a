"""When a process started, as part of its name: pids come back, pairs of pid and start time do not.

How it works: the system counts a start in its ticks, of 10 ms, from the boot, whose time it corrects a little with the
clock. So two readings of one start differ a little.

Invariant: in doubt two readings are of one process. A worker of an earlier run that was not recognised would go on
writing; that a pid is used again within the tolerance takes a system that starts all its pids in that time.

Not here: reading start times (`host.processes`, `launch.home`). This imports nothing: commands begin with it.
"""

TOLERANCE_SECONDS = 1.0


def is_same_start(one: float, other: float) -> bool:
    """Whether two readings (epoch seconds), under one pid, are of one process."""
    return abs(one - other) <= TOLERANCE_SECONDS
