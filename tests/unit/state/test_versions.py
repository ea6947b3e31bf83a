"""Files of state name the versions of what is in them, and one that contradicts its manifest is damage."""

from __future__ import annotations

import pytest

from flowpoint.errors import SnapshotError
from flowpoint.model.manifest import StateFile
from flowpoint.state.versions import check_versions, stamped

FILE = StateFile("a.base", "base", 1, "00", extra={"seal": "x"})
STATES = {"old": {"kind": "value", "version": 1}, "new": {"kind": "value", "version": 3}}


def test_a_file_names_the_versions_that_are_not_the_first() -> None:
    (file,) = stamped([FILE], STATES)

    assert file.extra == {"seal": "x", "versions": {"new": 3}}
    check_versions("counts", [file], STATES)


def test_a_file_of_first_versions_says_nothing() -> None:
    assert stamped([FILE], {"old": STATES["old"]}) == (FILE,)
    check_versions("counts", [FILE], {"old": STATES["old"]})


def test_a_file_that_contradicts_the_manifest_is_damage() -> None:
    with pytest.raises(SnapshotError, match="a.base holds the versions {} of it, and the manifest says {'new': 3}"):
        check_versions("counts", [FILE], STATES)
