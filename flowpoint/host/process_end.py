"""The end of a process that has done its duty: in order, unless a thread keeps it from that.

A blocking call of a connector, or of the system on a disk that hangs, cannot be interrupted, and the interpreter waits for
its thread at its end, however long that takes. Nobody else waits for it.

Not here: the loop, which does not wait either (`host.main_loop`). This imports nothing heavy: every command ends with it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Final, NoReturn

THREADS_SECONDS: Final = 0.5
"""So long threads are waited for: those that have nothing to do need a moment to notice that it is over."""


def end_process(code: int) -> NoReturn:
    """End this process with an exit code."""
    until = time.monotonic() + THREADS_SECONDS
    others = [t for t in threading.enumerate() if not t.daemon and t is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    if not any(thread.is_alive() for thread in others):
        sys.exit(code)
    # Nor is anybody waited for who does not take what was printed.
    flushing = threading.Thread(target=_flush, name="flush", daemon=True)
    flushing.start()
    flushing.join(THREADS_SECONDS)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A full disk behind it, or a reader that has gone, changes nothing any more.
        with suppress(OSError, ValueError):
            stream.flush()
