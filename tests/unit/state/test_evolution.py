"""State of an older version of a job: taken over where nothing is lost, migrated by functions, or refused."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pytest

from flowpoint.errors import IncompatibleStateError
from flowpoint.model.manifest import StateFile
from flowpoint.state.annotations import schema_of
from flowpoint.state.spec import StateSpec
from tests.unit.state.evolving import GROUPS, Version, named_tuple, record

ACCOUNT = record("Account", ("owner", str), ("total", int))


def spec(tp: Any, **more: Any) -> StateSpec:
    """The state "account", whose values are of a type."""
    return StateSpec("account", more.pop("kind", "value"), type=schema_of(tp), **more)


def version(tp: Any, **more: Any) -> Version:
    """A version of the job with that state alone."""
    classes = more.pop("types", [tp] if isinstance(tp, type) else [])
    return Version(spec(tp, **more), types=classes)


def stored(tp: Any = ACCOUNT, value: Any = None) -> Version:
    """A checkpoint of the first version, with one value under the key "k"."""
    before = version(tp)
    before.put("account", {"k": value if value is not None else tp("ann", 3)})
    before.checkpoint()
    return before


def taken(before: Version, after: Version) -> tuple[Any, list[str]]:
    """The value under the key "k" in the later version, and what the person is told."""
    evolution = before.taken_by(after)
    return after.values("account")["k"], [*evolution.notes(), *evolution.found()]


# ---------------------------------------------------------------------- what is done by itself


def test_a_field_that_was_added_gets_its_default() -> None:
    after = record("Account", ("owner", str), ("total", int), ("note", str, "none"))

    value, told = taken(stored(), version(after))

    assert value == after("ann", 3, "none")
    assert told[0].startswith("state 'account' of operator 'accounts' is taken over as it is declared now: ")
    assert told[0].endswith("the field 'note' was added and has its default")
    assert len(told) == 1


def test_a_field_that_was_removed_is_left_behind_and_named() -> None:
    after = record("Account", ("owner", str))

    value, told = taken(stored(), version(after))

    assert value == after("ann")
    assert "the field 'total' was removed, and what it held (int) is left behind" in told[0]


def test_fields_in_another_order_keep_their_values() -> None:
    after = record("Account", ("total", int), ("owner", str))

    value, told = taken(stored(), version(after))

    assert value == after(3, "ann")
    assert "in another order" in told[0]


def test_an_int_becomes_a_float() -> None:
    after = record("Account", ("owner", str), ("total", float))

    value, told = taken(stored(), version(after))

    assert (value, type(value.total)) == (after("ann", 3.0), float)
    assert "the field 'total' was widened from int to float" in told[0]


def test_a_union_may_get_more_members() -> None:
    after = record("Account", ("owner", str | None), ("total", int | str))

    assert taken(stored(), version(after))[0] == after("ann", 3)


def test_named_tuples_change_like_dataclasses() -> None:
    before = named_tuple("Account", ("owner", str), ("total", int))
    after = named_tuple("Account", ("total", float), ("owner", str), ("note", str, "none"))

    assert taken(stored(before), version(after))[0] == after(3.0, "ann", "none")


def test_a_dict_with_a_schema_changes_like_a_dataclass() -> None:
    before = stored({"owner": str, "total": int}, {"owner": "ann", "total": 3})

    value, told = taken(before, version({"total": float, "owner": str, "notes": (list, [])}))

    assert value == {"total": 3.0, "owner": "ann", "notes": []}
    assert len(told) == 1


def test_a_key_of_a_typed_dict_that_may_be_missing_stays_missing() -> None:
    class Before(TypedDict):
        owner: str

    class After(TypedDict):
        owner: str
        total: NotRequired[int]

    Before.__qualname__ = After.__qualname__ = "Account"

    assert taken(stored(Before, {"owner": "ann"}), version(After))[0] == {"owner": "ann"}


def test_records_inside_of_records_and_containers_change_too() -> None:
    item, newer_item = record("Item", ("price", int)), record("Item", ("price", float), ("count", int, 1))
    before = record("Basket", ("items", list[item]), ("by_name", dict[str, item]), ("first", item | None))
    after = record(
        "Basket", ("items", list[newer_item]), ("by_name", dict[str, newer_item]), ("first", newer_item | None)
    )
    full = before([item(1)], {"x": item(2)}, item(3))
    empty = before([], {}, None)
    old = version(before)
    old.put("account", {"k": full, "e": empty})
    old.checkpoint()
    new = version(after)

    evolution = old.taken_by(new)

    assert new.values("account") == {
        "k": after([newer_item(1.0)], {"x": newer_item(2.0)}, newer_item(3.0)),
        "e": after([], {}, None),
    }
    assert "items[].price" in evolution.notes()[0]


def test_a_record_that_holds_itself_changes_at_every_depth() -> None:
    class Tree:
        pass

    before = record("Tree", ("value", int), ("inner", "list[Tree]"))
    after = record("Tree", ("value", float), ("inner", "list[Tree]"))
    before.__annotations__["inner"] = list[before]
    after.__annotations__["inner"] = list[after]

    assert taken(stored(before, before(1, [before(2, [])])), version(after))[0] == after(1.0, [after(2.0, [])])


def test_elements_of_lists_and_values_of_maps_change_each() -> None:
    after = record("Account", ("owner", str))
    old = Version(spec(ACCOUNT, kind="list"), StateSpec("by_day", "map", type=schema_of(ACCOUNT)), types=[ACCOUNT])
    old.put("account", {"k": [ACCOUNT("a", 1), ACCOUNT("b", 2)]}).put("by_day", {("k", "mon"): ACCOUNT("c", 3)})
    old.checkpoint()
    new = Version(spec(after, kind="list"), StateSpec("by_day", "map", type=schema_of(after)), types=[after])

    evolution = old.taken_by(new)

    assert new.values("account") == {"k": [after("a"), after("b")]}
    assert new.values("by_day") == {("k", "mon"): after("c")}
    assert len(evolution.notes()) == 2


def test_what_did_not_change_is_taken_over_as_it_is_and_nothing_is_told() -> None:
    before = stored()

    assert taken(before, version(ACCOUNT)) == (ACCOUNT("ann", 3), [])


def test_none_stays_none_whatever_becomes_of_the_type() -> None:
    before = version(ACCOUNT)
    before.put("account", {"k": None})
    before.checkpoint()

    assert taken(before, version(record("Account", ("owner", str))))[0] is None


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (
            record("Account", ("owner", str), ("total", str)),
            "the field 'total' is stored as int, and the job wants str",
        ),
        (record("Account", ("owner", str), ("total", list[int])), "the field 'total' is stored as int"),
        (record("Customer", ("owner", str), ("total", int)), "it is stored as Account, and the job wants Customer"),
        (record("Account", ("owner", str), ("total", int), ("note", str)), "the field 'note' is not stored"),
        (record("Account", ("owner", str), ("sum", int, 0)), "may be one field with another name"),
        (record("Account", ("owner", str), ("sum", float, 0.0)), "may be one field with another name"),
        (int, "it is stored as Account, and the job wants int"),
    ],
)
def test_what_would_have_to_be_guessed_is_refused_with_what_to_do(after: Any, what: str) -> None:
    (refusal,) = stored().refusals(version(after))

    assert refusal.startswith("cannot restore state 'account' of operator 'accounts': ")
    assert what in refusal
    assert "give the state version=2 and say with migrate={1: function}" in refusal


def test_a_float_does_not_become_an_int() -> None:
    assert "stored as float, and the job wants int" in stored(float, 1.5).refusals(version(int))[0]


def test_another_kind_is_refused() -> None:
    assert "it is stored as a value, and the job declares a list" in stored().refusals(version(ACCOUNT, kind="list"))[0]


def test_a_newer_version_is_refused() -> None:
    newer = version(ACCOUNT, version=3)
    newer.put("account", {"k": ACCOUNT("ann", 3)})
    newer.checkpoint()

    (refusal,) = newer.refusals(version(ACCOUNT, version=2))

    assert "stored in version 3, and the job knows it up to version 2" in refusal


def test_other_keys_are_refused() -> None:
    (refusal,) = version(int, key=schema_of(str)).refusals(version(int, key=schema_of(int)))

    assert "its keys are stored as str, and the job's are int; keys cannot change" in refusal


def test_a_state_that_is_gone_is_refused_or_left_behind_by_name() -> None:
    before = Version(spec(int), StateSpec("extra", "value"))
    before.put("account", {"k": 1}).put("extra", {"k": 2})
    before.checkpoint()
    after = version(int)

    assert "holds state 'extra', which the job no longer declares" in before.refusals(after)[0]
    evolution = before.taken_by(after, allow_non_restored=True)

    assert evolution.notes() == [
        "state 'extra' of operator 'accounts' is left behind, as the job no longer declares it"
    ]
    assert list(after.backend.schemas()) == ["account"]
    assert after.checkpoint(), "what is left behind must not stay below the next checkpoints"
    assert not after.refusals(version(int))


# ---------------------------------------------------------------------- migrations


def test_a_renamed_field_is_migrated_by_a_function_on_a_dict_of_fields() -> None:
    after = record("Account", ("owner", str), ("sum", int))

    value, told = taken(
        stored(), version(after, version=2, migrate={1: lambda old: {"owner": old["owner"], "sum": old["total"]}})
    )

    assert value == after("ann", 3)
    assert "migrated from version 1 to version 2" in told[0]


def test_migrations_run_one_after_the_other_from_the_stored_version() -> None:
    steps = {1: lambda old: {**old, "total": str(old["total"])}, 2: lambda old: (old["owner"], old["total"])}
    after = version(tuple[str, str], version=3, migrate=steps)

    assert taken(stored(), after)[0] == ("ann", "3")
    assert after.checkpoint()
    third = version(tuple[str, str], version=3)
    assert taken(after, third) == (("ann", "3"), []), "what was migrated is stored in its new version"


def test_a_migration_may_return_an_instance() -> None:
    after = record("Account", ("sum", int))

    assert taken(stored(), version(after, version=2, migrate={1: lambda old: after(old["total"])}))[0] == after(3)


def test_fields_that_a_migration_leaves_out_get_their_defaults() -> None:
    after = record("Account", ("owner", str), ("sum", int, 7))

    value, _ = taken(stored(), version(after, version=2, migrate={1: lambda old: {"owner": old["owner"]}}))

    assert value == after("ann", 7)


def test_members_of_an_enum_come_as_their_names() -> None:
    class Color(Enum):
        RED = 1

    before = record("Car", ("color", Color))
    after = record("Car", ("paint", Color))
    migrate = {1: lambda old: {"paint": old["color"]}}

    assert taken(stored(before, before(Color.RED)), version(after, version=2, migrate=migrate))[0] == after(Color.RED)


@pytest.mark.parametrize(
    ("migrate", "reason"),
    [
        (lambda old: {"owner": old["owner"]}, "total is not there, and int is wanted"),
        (lambda old: {**old, "extra": 1}, "extra is a field"),
        (lambda old: {"owner": old["owner"], "total": "3"}, "total is str '3', and int is wanted"),
        (lambda old: 3, "the value is int 3, and Account is wanted"),
        (lambda old: old["nothing"], "the migration from version 1 raised KeyError"),
    ],
)
def test_a_migration_that_does_not_lead_to_the_type_is_refused_with_the_key(migrate: Any, reason: str) -> None:
    with pytest.raises(IncompatibleStateError) as refused:
        stored().taken_by(version(ACCOUNT, version=2, migrate={1: migrate}))

    assert "state 'account' of operator 'accounts' as Account: the value of key 'k'" in str(refused.value)
    assert reason in str(refused.value)


def test_a_missing_migration_is_refused_by_its_version() -> None:
    (refusal,) = stored().refusals(version(ACCOUNT, version=3, migrate={1: lambda old: old}))

    assert "has no migration from version 2" in refusal


# ---------------------------------------------------------------------- states without a type


def test_instances_in_a_state_of_no_type_take_over_by_the_names_of_fields() -> None:
    before = Version(StateSpec("account", "value"), types=[ACCOUNT])
    before.put("account", {"k": ACCOUNT("ann", 3)})
    before.checkpoint()
    after = record("Account", ("total", int), ("owner", str), ("note", str, "none"))

    value, told = taken(before, Version(StateSpec("account", "value"), types=[after]))

    assert value == after(3, "ann", "none")
    assert "the field 'note' of Account was added" in told[0]


def test_a_field_that_may_have_another_name_is_refused_also_without_a_type() -> None:
    before = Version(StateSpec("account", "value"), types=[ACCOUNT])
    before.put("account", {"k": ACCOUNT("ann", 3)})
    before.checkpoint()
    after = record("Account", ("owner", str), ("sum", int, 0))

    with pytest.raises(IncompatibleStateError, match="may be one field with another name"):
        before.taken_by(Version(StateSpec("account", "value"), types=[after]))


def test_every_value_is_held_against_a_type_that_was_not_declared_before() -> None:
    before = Version(StateSpec("account", "value"), types=[ACCOUNT])
    before.put("account", {"k": ACCOUNT("ann", 3), "wrong": 5})
    before.checkpoint()

    with pytest.raises(IncompatibleStateError, match="the value of key 'wrong' .* the value is int 5, and Account"):
        before.taken_by(version(ACCOUNT))


def test_a_key_class_with_other_fields_is_refused() -> None:
    before, after = named_tuple("Key", ("a", int)), named_tuple("Key", ("a", int), ("b", int, 0))
    old = Version(StateSpec("account", "value"), types=[before])
    old.put("account", {before(1): 1})
    old.checkpoint()

    with pytest.raises(IncompatibleStateError, match="the key type has changed"):
        old.taken_by(Version(StateSpec("account", "value"), types=[after]))


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_first_checkpoint_after_a_migration_is_a_base_so_that_no_old_value_stays_below(
    backend: str, tmp_path: Path
) -> None:
    old = stored()
    old.put("account", {"later": ACCOUNT("bob", 1)})
    assert not old.checkpoint()
    after = record("Account", ("owner", str), ("sum", int))
    steps = {1: lambda value: {"owner": value["owner"], "sum": value["total"]}}

    def newer(name: str) -> Version:
        settings = {"backend": backend, "work_dir": str(tmp_path / name)}
        return Version(spec(after, version=2, migrate=steps), types=[after], **settings)  # type: ignore[arg-type]

    first = newer("first")
    old.taken_by(first)
    first.put("account", {"k": after("ann", 4)})
    assert first.checkpoint()
    first.put("account", {"new": after("eve", 9)})
    assert not first.checkpoint()
    second = newer("second")
    evolution = first.taken_by(second)

    assert evolution.is_as_stored
    assert second.values("account") == {"k": after("ann", 4), "later": after("bob", 1), "new": after("eve", 9)}
    assert not second.checkpoint()


def test_a_savepoint_before_that_base_holds_all_of_the_state_in_its_new_version() -> None:
    after = record("Account", ("owner", str), ("sum", int))
    steps = {1: lambda value: {"owner": value["owner"], "sum": value["total"]}}
    newer = version(after, version=2, migrate=steps)
    stored().taken_by(newer)
    newer.put("account", {"new": after("eve", 9)})

    frozen = newer.backend.freeze_detached()
    data = b"".join(frozen.chunks())
    assert frozen.full, "the files of the chain hold values of the older version: no copies of them will do"
    frozen.durable()

    alone = version(after, version=2)
    savepoint = version(after, version=2)
    savepoint.files = [(StateFile("s.base", "base", len(data), "", frozen.entries, (0, GROUPS - 1)), data)]
    savepoint.taken_by(alone)
    assert alone.values("account") == {"k": after("ann", 3), "new": after("eve", 9)}
    assert newer.checkpoint(), "the checkpoint after it is a base all the same"
