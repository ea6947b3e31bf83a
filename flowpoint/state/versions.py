"""Every file of state says of which versions its values are, beside what the manifest says of the whole chain.

A converted state starts a new chain, so the two always agree; where they do not, nobody guesses which one is right.

Invariant: a version that is not named is the first one.
Not here: what becomes of older versions (`evolution.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from flowpoint.errors import SnapshotError
from flowpoint.model.manifest import StateFile
from flowpoint.state.spec import FIRST_VERSION

VERSIONS: Final = "versions"
"""In `StateFile.extra`: state name -> version."""


def stamped(files: Iterable[StateFile], states: Mapping[str, Any]) -> tuple[StateFile, ...]:
    """New files with the versions of the states in them, which a manifest has as `states`."""
    versions = _versions(states)
    if not versions:
        return tuple(files)
    return tuple(replace(file, extra={**file.extra, VERSIONS: versions}) for file in files)


def check_versions(uid: str, files: Iterable[StateFile], states: Mapping[str, Any]) -> None:
    """Compare what files say of themselves with what the manifest says.

    Raises:
        SnapshotError: they contradict each other.
    """
    wanted = _versions(states)
    for file in files:
        found = file.extra.get(VERSIONS, {})
        if found != wanted:
            raise SnapshotError(
                f"cannot read the state of operator '{uid}': {file.path} holds the versions {found} of it, and the manifest "
                f"says {wanted} (others are version {FIRST_VERSION}); use another snapshot"
            )


def _versions(states: Mapping[str, Any]) -> dict[str, int]:
    stated = {name: data.get("version") for name, data in states.items() if isinstance(data, dict)}
    return {name: version for name, version in sorted(stated.items()) if version not in (None, FIRST_VERSION)}
