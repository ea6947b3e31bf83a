"""Reads a small file that a person named at the shell: a job file, a configuration.

Whatever is named by mistake ends in a sentence: a folder, a pipe that nobody writes to, a device without an end, a file
of data.

Not here: input of jobs (`connectors`), files of snapshots (`snapshot`).
"""

from __future__ import annotations

import os
import stat

from flowpoint.errors import UsageError

GIVEN_BYTES_MAX = 16 * 1024 * 1024


def read_given(path: str, what: str, *, error: type[UsageError] = UsageError) -> bytes:
    """The content of a regular file of at most `GIVEN_BYTES_MAX` bytes.

    Args:
        what: such as "job file", for messages.
        error: The class of what is raised.

    Raises:
        UsageError: It is not there, no regular file, too big, or cannot be read.
    """
    shown = f"{what} {path}"
    try:
        content = _read_regular(path)
    except FileNotFoundError:
        raise error(f"{shown} does not exist: looked for {os.path.abspath(path)}") from None
    except OSError as problem:
        raise error(f"{shown} cannot be read: {problem.strerror}") from problem
    if content is None:
        raise error(f"{shown} is not a regular file but a pipe, device or folder: give a file")
    if len(content) > GIVEN_BYTES_MAX:
        raise error(f"{shown} has more than {GIVEN_BYTES_MAX // 1024**2} MiB: that is not what such a file is for")
    return content


def _read_regular(path: str) -> bytes | None:
    """A little more than may be read of a regular file, at most; None when it is none."""
    # Without waiting: opening a pipe would wait for somebody to write.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(GIVEN_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
