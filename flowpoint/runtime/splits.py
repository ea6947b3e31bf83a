"""The splits of a source, as its author lists them: looked at before anything is deployed.

Not here: dealing them out (`protocol.assignment`), reading them (`source_subtask`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from flowpoint.errors import UserCodeError
from flowpoint.runtime.failures import shorten
from flowpoint.runtime.json_data import checked_json


def checked_splits(uid: str, listed: Any) -> list[tuple[str, dict[str, Any]]]:
    """The id and the data of each split that `splits()` has returned.

    Raises:
        UserCodeError: it is no list of splits.
        BadRecordError: the data of a split is nothing that a snapshot can keep.
    """
    if inspect.iscoroutine(listed):
        listed.close()  # or Python would warn that nobody has awaited it
        raise _odd(uid, "is async: make it a plain function that returns a list of Splits")
    if not isinstance(listed, Iterable):
        raise _odd(uid, f"returned {shorten(listed)}, {_kind(listed)}, where a list of Splits belongs")
    return [_checked(uid, split) for split in listed]


def _checked(uid: str, split: Any) -> tuple[str, dict[str, Any]]:
    if not (hasattr(split, "id") and hasattr(split, "data")):
        raise _odd(uid, f'listed {shorten(split)}, {_kind(split)}, where a Split belongs: Split("name", {{...}})')
    if not isinstance(split.id, str):
        raise _odd(uid, f"listed a Split with the id {shorten(split.id)}, {_kind(split.id)}: make it a str")
    if not isinstance(split.data, dict):
        said = f"the data {shorten(split.data)}, {_kind(split.data)}: make it a dict, or leave it out"
        raise _odd(uid, f"listed the Split {split.id!r} with {said}")
    return split.id, checked_json(split.data, f"the data of split {split.id!r} of source '{uid}'")


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"


def _odd(uid: str, what: str) -> UserCodeError:
    error = UserCodeError(f"source '{uid}': splits() {what}")
    error.operator = uid
    return error
