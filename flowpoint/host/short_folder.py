"""A folder with a short path for the sockets of a job whose own folder has a path that is too long for them.

Its name follows from that folder and the user, so all processes of a job, and its next run, mean the same one: what a
kill left behind is found again and removed.

Invariants: it is 0700 and belongs to this user, or it is not used.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from hashlib import sha256

from flowpoint.errors import UsageError

_USUAL_BYTES_MAX = 60
"""Some systems' temporary folder is itself rather long."""


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
    """Remove the short folder for a job's folder and what is left in it. Only who owns the job may do so.

    Raises:
        UsageError: somebody else has put something there.
    """
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
