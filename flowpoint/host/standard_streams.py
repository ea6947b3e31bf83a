"""A process without standard input, output or error gets /dev/null for each of them.

A shell may close them (`>&-`), and so do some supervisors. Then the next files that the process opens take their numbers:
sockets and logs become somebody's standard output, and what is started as a child dies of it. Python has None for such a
stream, which nobody who prints expects.

Invariants: called first thing in a process, before anything is open that stays open; nothing is imported here but what
Python has loaded before it looks anywhere. Streams that are there are left alone.
"""

import os
import sys


def open_missing_streams() -> None:
    """Open /dev/null in place of standard streams that are closed; children inherit it as they would inherit those."""
    # A new descriptor is always the lowest that is free: from the first one above 2 on, none of them is missing.
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    # Who prints what nobody reads must not fail at what it prints.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  open as long as the process is
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
