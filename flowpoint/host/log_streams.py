"""Standard output and error of a process that go to its log: what cannot be written there is lost, and nothing else.

A full disk under the log must not end a job that waits for room (rule 23), and whoever prints in a function neither
expects `print` to fail nor can mend it. So what the file refuses is dropped and counted; before the next line that it
takes stands one that tells how much is missing, and why.

Not here: which file the streams go to (`log_files`).
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _LossyFile(io.FileIO):
    """A stream that takes whatever is written to it, as long as it is open."""

    def __init__(self, descriptor: int, line_of: Callable[[str], str]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._line_of = line_of
        self._missing_bytes = 0
        self._reason = ""

    def write(self, data: ReadableBuffer, /) -> int:
        """As of any file, but what is refused counts as written."""
        try:
            if self._missing_bytes:
                self._tell()
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise  # somebody has closed it: that is no matter of the disk
            size = memoryview(data).nbytes
            self._missing_bytes += size
            self._reason = error.strerror or type(error).__name__
            return size

    def _tell(self) -> None:
        # On a line of its own: a disk that was nearly full may have taken the beginning of one.
        text = f"{self._missing_bytes} bytes that were printed here could not be written and are lost: {self._reason}"
        super().write(f"\n{self._line_of(text)}".encode())
        self._missing_bytes = 0


def lossy(stream: TextIO, line_of: Callable[[str], str]) -> TextIO:
    """A stream that goes where another one goes, line by line, and takes any text.

    Args:
        stream: what it takes the place of; nothing may be waiting in it.
        line_of: makes a line of the log, with its end, of a sentence.
    """
    return io.TextIOWrapper(
        # Each line is one write, so that those of several processes never mix, and a kill loses none.
        io.BufferedWriter(_LossyFile(stream.fileno(), line_of)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=True,
    )


def make_lossy(line_of: Callable[[str], str]) -> None:
    """Let this process's standard output and error be `lossy`."""
    sys.stdout, sys.stderr = lossy(sys.stdout, line_of), lossy(sys.stderr, line_of)
