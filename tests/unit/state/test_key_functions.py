"""A changed key function is held against the types of the keys that are stored, and only where all of that is known."""

from __future__ import annotations

from operator import itemgetter

import pytest

from flowpoint.codec.key_types import KEY_TYPES_MAX
from flowpoint.errors import IncompatibleStateError
from flowpoint.model.manifest import StateFile, SubtaskState
from flowpoint.state.key_functions import (
    is_changed,
    key_digest,
    keys_to_hold_to,
    note_on_keys,
    refuse_other_keys,
    told,
)
from flowpoint.state.spec import StateSpec
from tests.unit.state.evolving import Version

BEFORE = key_digest([lambda record: record["user"]])
NOW = key_digest([lambda record: record["id"]])


def stored(*types: list[str] | None, key_by: str = BEFORE) -> SubtaskState:
    """A subtask with a file for each of these."""
    files = [
        StateFile(f"{number}.delta", "delta", 1, "00", extra={} if found is None else {"key_types": found})
        for number, found in enumerate(types)
    ]
    return SubtaskState(
        tuple(files), (0, 9), {"n": StateSpec("n", "value", key_by=key_by).to_data(), "b": {"version": 1}}
    )


def test_a_changed_function_is_held_to_the_types_in_all_files_of_all_subtasks() -> None:
    assert keys_to_hold_to([stored(["str"], ["number"]), stored(["bytes"])], NOW) == {"str", "number", "bytes"}


def test_the_same_function_is_held_to_nothing() -> None:
    assert keys_to_hold_to([stored(["str"])], BEFORE) == frozenset()


def test_what_an_older_version_wrote_is_held_against_nothing() -> None:
    assert keys_to_hold_to([stored(["str"], None)], NOW) == frozenset()
    assert keys_to_hold_to([stored(["str"], key_by="")], NOW) == frozenset()
    assert keys_to_hold_to([], NOW) == frozenset()


def test_codes_of_two_versions_of_python_are_not_compared() -> None:
    other = "cpython-399 " + BEFORE.partition(" ")[2]

    assert is_changed(BEFORE, NOW) and not is_changed(other, NOW) and not is_changed("", NOW)
    assert keys_to_hold_to([stored(["str"], key_by=other)], NOW) == frozenset()


def test_nothing_is_noted_of_a_function_that_is_as_it_was_nor_where_no_key_is_stored() -> None:
    assert note_on_keys("counts", [stored(["str"])], BEFORE) == ""
    assert note_on_keys("counts", [stored()], NOW) == ""
    assert note_on_keys("counts", [stored(["str"])], "") == ""


def test_of_a_changed_function_is_noted_what_a_run_will_refuse_and_what_nobody_sees() -> None:
    note = note_on_keys("counts", [stored(["str"]), stored(["number"])], NOW)

    assert "the key_by of operator 'counts' has changed: keys are stored as number or str" in note
    assert "all of other types is refused" in note
    assert "no key is tried here" in note


def test_it_is_noted_why_a_change_of_the_function_or_of_its_keys_cannot_be_told() -> None:
    other = "cpython-399 " + BEFORE.partition(" ")[2]

    assert "has changed, and of which types the stored keys are is not known" in note_on_keys("n", [stored(None)], NOW)
    assert "does not tell by which function" in note_on_keys("n", [stored(["str"], key_by="")], NOW)
    assert "another version of Python" in note_on_keys("n", [stored(["str"], key_by=other)], NOW)
    assert "only some subtasks" in note_on_keys("n", [stored(["str"]), stored(["str"], key_by=NOW)], NOW)


def test_key_functions_of_both_inputs_and_those_not_written_in_python_count() -> None:
    assert key_digest([itemgetter(0), None]) == key_digest([itemgetter(0)]) != key_digest([itemgetter(1)])
    assert key_digest([itemgetter(0), itemgetter(1)]) != key_digest([itemgetter(0)])
    assert key_digest([None]) == ""


def test_a_run_is_refused_only_when_none_of_its_first_keys_is_of_a_stored_type() -> None:
    refuse_other_keys("counts", frozenset({"str", "number"}), {"number", "bytes"})

    with pytest.raises(IncompatibleStateError) as caught:
        refuse_other_keys("counts", frozenset({"tuple[str, str]"}), {"tuple[str]"})

    for part in ("operator 'counts'", "stored as tuple[str, str]", "gives tuple[str];", "--allow-non-restored"):
        assert part in str(caught.value)


def test_so_many_types_that_they_say_nothing_are_not_told() -> None:
    assert told({"str", "bytes"}, are_plain=False) == {"key_types": ["bytes", "str"]}
    assert told({str(number) for number in range(KEY_TYPES_MAX + 1)}, are_plain=False) == {}


def test_a_file_knows_the_types_of_its_keys_also_of_deleted_ones_and_of_maps() -> None:
    job = Version(StateSpec("n", "value"), StateSpec("m", "map"))
    job.put("n", {1: "x", "a": "x"}).put("m", {(b"k", "map key"): 1})
    base = job.backend.freeze(full=True)
    list(base.chunks())
    base.durable()
    job.backend.table(job.specs["n"]).delete("a")
    delta = job.backend.freeze_detached()
    list(delta.chunks())
    delta.durable()

    assert base.key_types == {"number", "str", "bytes"}
    assert delta.key_types == {"str"}
