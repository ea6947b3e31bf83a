"""Names in storage: safe for any uid, different for different things, and read back as they were made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowpoint.snapshot import names

uids = st.text(min_size=1, max_size=300) | st.sampled_from(["counts", "Counts", "a-0-a1-1", "..", "/", "-x", "ä" * 300])
small = st.integers(0, 10**6)


@given(uids, small, small, small, st.sampled_from(["base", "delta"]))
def test_a_state_file_name_is_read_back(uid: str, subtask: int, attempt: int, sequence: int, kind: str) -> None:
    name = names.state_file(uid, subtask, attempt, sequence, kind)
    assert names.is_object(name)
    assert len(name.rpartition("/")[2].encode()) < 120
    assert name == name.lower() and name.isascii()
    expected = names.StateFileName(names.uid_slug(uid), subtask, attempt, sequence, kind, None)
    assert names.parse_state_file(name) == expected
    assert names.parse_state_file(names.native_file(name, 3)) == expected._replace(native=3)
    assert names.attempt_of(name) == attempt


@given(uids, uids)
def test_two_uids_never_share_a_name(one: str, other: str) -> None:
    assert (names.uid_slug(one) == names.uid_slug(other)) == (one == other)


@given(small, small)
def test_a_checkpoint_directory_is_read_back(checkpoint: int, attempt: int) -> None:
    name = names.checkpoint_directory(checkpoint + 1, attempt)
    assert names.parse_checkpoint_directory(name) == (checkpoint + 1, attempt)
    assert names.attempt_of(f"{name}/manifest.json") == attempt
    assert names.attempt_of(f"{name}/") == attempt


@pytest.mark.parametrize("number", [1, 17, 99_999_999, 100_000_000, 123_456_789_012])
def test_a_commit_number_is_read_back(number: int) -> None:
    assert names.parse_commit_entry(names.commit_entry(number)) == number


@pytest.mark.parametrize(
    "name",
    ["commits/17.json", "commits/000000017.json", "commits/00000017.json.bak", "00000017.json", "commits/x.json"],
)
def test_what_is_not_a_commit_entry_is_not_taken_for_one(name: str) -> None:
    assert names.parse_commit_entry(name) is None


@pytest.mark.parametrize("name", ["notes.txt", "shared/notes.txt", "chk-x/manifest.json", "chk-0-a1/a.b", "shared/"])
def test_foreign_names_tell_no_attempt(name: str) -> None:
    assert names.attempt_of(name) is None


def test_an_unfinished_object_tells_what_it_was_to_become() -> None:
    unfinished = names.unfinished("shared/", "counts-0-a7-3.delta", "00ff")
    assert names.finished(unfinished) == "shared/counts-0-a7-3.delta"
    assert names.attempt_of(unfinished) == 7
    assert names.finished("shared/counts-0-a7-3.delta") is None
