"""Where the sockets of a job are: in its own folder, or in one with a short path where its own is too long for them.

The name of a short folder follows from the job's and the user, so all processes of a job, and its next run, mean the
same one: what a kill left behind is found again and removed.

Invariants: a short folder is 0700 and belongs to this user, or it is not used.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from typing import Final

from flowpoint.errors import InternalError, UsageError

ADDRESS_BYTES_MAX: Final = 99
"""Of a socket's path. The system's limit is 104 on macOS and 108 on Linux, with a byte for the end."""

_SUFFIX: Final = ".sock"

_USUAL_BYTES_MAX: Final = 60
"""Some systems' temporary folder is itself rather long."""


def address_for(folder: str, name: str) -> str:
    """A path for a socket of a job, of which all that are left are removed by `clear_for`. Makes the folder that it is in.

    Raises:
        InternalError: the name itself is too long.
        UsageError: somebody else has put something where the short folder belongs.
    """
    path = os.path.join(folder, name + _SUFFIX)
    if is_address(path):
        os.makedirs(folder, 0o700, exist_ok=True)
        return path
    path = os.path.join(make_for(folder), name + _SUFFIX)
    if not is_address(path):
        raise InternalError(f"the name {name!r} is too long for a socket")
    return path


def is_address(path: str) -> bool:
    """Whether a socket can be at a path, by its length."""
    return len(os.fsencode(path)) <= ADDRESS_BYTES_MAX


def path_for(folder: str) -> str:
    """Where the short folder for a job's folder is; nothing need be there."""
    usual = tempfile.gettempdir()
    where = usual if len(os.fsencode(usual)) < _USUAL_BYTES_MAX else "/tmp"
    digest = sha256(os.fsencode(os.path.abspath(folder))).hexdigest()[:12]
    return os.path.join(where, f"flowpoint-{os.geteuid()}-{digest}")


def make_for(folder: str) -> str:
    """The short folder for a job's folder, made when it is not there.

    Raises:
        UsageError: somebody else has put something there.
    """
    path = path_for(folder)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        _check_is_ours(path)
    return path


def clear_for(folder: str) -> None:
    """Remove what sockets are left of a job, and its short folder. Only who owns the job may do so.

    Raises:
        UsageError: somebody else has put something there.
    """
    for left in glob.iglob(os.path.join(glob.escape(folder), f"*{_SUFFIX}")):
        with suppress(FileNotFoundError):
            os.unlink(left)
    path = path_for(folder)
    if os.path.lexists(path):
        _check_is_ours(path)
        shutil.rmtree(path)


def _check_is_ours(path: str) -> None:
    seen = os.lstat(path)
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
        raise UsageError(
            f"cannot use {path} for sockets: it is not a folder that only this user can enter; remove it, "
            "set TMPDIR to a folder of your own, or give FLOWPOINT_HOME a shorter path"
        )
