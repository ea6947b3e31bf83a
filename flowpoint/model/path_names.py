"""Which names of jobs, operators and states can be part of a path: one rule, on every system.

Not here: the words for a name that cannot (`plan.validate`, `launch.home`).
"""

from __future__ import annotations

import re
from typing import Final

NAME_BYTES_MAX: Final = 100
"""A uid or job name becomes part of file names, which may have 255 bytes on most file systems."""

PATH_NAME_RULE: Final = (
    f"use letters, digits, '_', '-', '+' and '.', begin with a letter, digit or '_', at most {NAME_BYTES_MAX} bytes"
)

_PATH_SAFE: Final = re.compile(r"\w[\w.+-]*")


def is_path_name(name: str) -> bool:
    """Whether a name keeps to `PATH_NAME_RULE`.

    Example:
        >>> is_path_name("word-count"), is_path_name(".hidden"), is_path_name("a/b")
        (True, False, False)
    """
    return _PATH_SAFE.fullmatch(name) is not None and len(name.encode()) <= NAME_BYTES_MAX
