"""Which kind of store a folder holds: that of a `RocksSaver` or that of a `FolderSaver`.

Told by the first name that each kind makes, without opening anything. A folder of one kind is never made into one of the
other: its threads would be there and be seen by nobody.
Not here: opening a store (`rocks_kv`, `folder_kv`).
"""

from __future__ import annotations

import os

from flowpoint.errors import UsageError


def is_rocks(path: str) -> bool:
    """Whether a folder is the store of a `RocksSaver` or `RocksStore`."""
    return os.path.exists(os.path.join(path, "CURRENT"))


def is_folder(path: str) -> bool:
    """Whether a folder is the store of a `FolderSaver`."""
    return os.path.isdir(os.path.join(path, "t"))


def require_rocks_or_none(path: str) -> None:
    """Refuse a folder in which a `FolderSaver` keeps its threads, and no RocksDB is.

    Raises:
        UsageError: it is one.
    """
    if is_folder(path) and not is_rocks(path):
        raise _other_kind(path, "a RocksDB", "FolderSaver")


def require_folder_or_none(path: str) -> None:
    """Refuse a folder which is a RocksDB, and in which no `FolderSaver` keeps threads: one may have been opened there by
    mistake.

    Raises:
        UsageError: it is one.
    """
    if is_rocks(path) and not (is_folder(path) and os.listdir(os.path.join(path, "t"))):
        raise _other_kind(path, "a FolderSaver", "RocksSaver")


def _other_kind(path: str, wanted: str, owner: str) -> UsageError:
    return UsageError(
        f"cannot open {path} as the store of {wanted}: it is that of a {owner}, and what that remembers would not be "
        f"seen; open it with a {owner}, or give another folder (`flowpoint threads export` and `import` move threads "
        "from one store to another)"
    )
