"""Opening a file that is there, to read it, where something else may be in its place.

Not here: anything that does not stop at the file itself (`disk`).
"""

from __future__ import annotations

import errno
import os
import stat


def open_existing(path: str) -> int:
    """A descriptor to read a file by. What is none is refused: a pipe would keep whoever opens it waiting for ever.

    Raises:
        OSError: it is not there, cannot be opened, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)
