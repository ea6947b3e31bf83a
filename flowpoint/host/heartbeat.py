"""A worker's sign of life, and its death with the coordinator: a thread with a blocking socket of its own.

The thread does not know the event loop. A user function that computes for minutes cannot stop the beats (rule 17), and
nothing can stop the thread from seeing that the coordinator is gone: then it ends the whole process at once, without
clean-up, since whatever this process still wrote would belong to a dead attempt (rule 8).

Only code that holds the interpreter lock without a pause can delay it.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from flowpoint.errors import LinkLost
from flowpoint.host.base import ORPHANED_EXIT_CODE
from flowpoint.host.framing import pack_length

READ_BYTES = 4096


class Heartbeat:
    """Beats on one connection until `stop`. Ends this process when the other end is gone."""

    def __init__(self, address: str, frame: bytes, interval: float, end_process: Callable[[int], object]) -> None:
        self._interval = interval
        self._data = pack_length(len(frame)) + frame
        self._end_process = end_process
        self._stopping = False
        self._socket = _connect(address)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; the first beat goes out at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the beats in an orderly way. The other end sees its link close."""
        self._stopping = True
        # Wakes the thread wherever it waits, reading or writing. It may have seen the end by itself just now.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        with self._socket:
            try:
                reason = self._beat()
            except OSError as error:
                reason = str(error)
        if not self._stopping:
            os.write(2, f"the coordinator is gone ({reason}); this worker ends\n".encode())
            self._end_process(ORPHANED_EXIT_CODE)

    def _beat(self) -> str:
        """Send and listen in turn, until the other end closes; says how it ended."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        due = time.monotonic()
        while True:
            left = due - time.monotonic()
            if left <= 0:
                self._socket.sendall(self._data)
                # Beats missed while the whole process was stopped are not made up for.
                due = time.monotonic() + self._interval
            elif readable.poll(left * 1000) and not self._socket.recv(READ_BYTES):
                return "it closed the link"


def _connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except OSError as error:
        connection.close()
        raise LinkLost(f"cannot send heartbeats to {address}: {error.strerror}; the coordinator has ended") from error
    return connection


def start_heartbeat(address: str, frame: bytes, interval: float) -> Callable[[], None]:
    """See `host.base.Host.start_heartbeat`.

    Raises:
        LinkLost: nobody listens at `address`.
    """
    heartbeat = Heartbeat(address, frame, interval, os._exit)
    heartbeat.start()
    return heartbeat.stop
