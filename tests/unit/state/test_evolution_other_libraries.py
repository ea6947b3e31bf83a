"""pydantic models and msgspec Structs in state change like dataclasses, with what these libraries have besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowpoint.errors import IncompatibleStateError
from flowpoint.state.annotations import schema_of
from flowpoint.state.spec import StateSpec
from tests.unit.state.evolving import Version

MODULE = "tests.unit.state.test_evolution_other_libraries"
Make = Callable[..., Any]


def a_model(**fields: Any) -> Any:
    """The pydantic model "Account". A field is a type, or (type, default)."""
    pydantic = pytest.importorskip("pydantic")
    asked = {name: field if isinstance(field, tuple) else (field, ...) for name, field in fields.items()}
    return pydantic.create_model("Account", __module__=MODULE, **asked)


def a_struct(**fields: Any) -> Any:
    """The msgspec Struct "Account"; the same."""
    msgspec = pytest.importorskip("msgspec")
    asked = [(name, *field) if isinstance(field, tuple) else (name, field) for name, field in fields.items()]
    return msgspec.defstruct("Account", asked, module=MODULE, kw_only=True)


@pytest.fixture(params=[a_model, a_struct], ids=["pydantic", "msgspec"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes classes of one of the libraries."""
    found: Make = request.param
    return found


def spec(tp: Any, **more: Any) -> StateSpec:
    return StateSpec("account", more.pop("kind", "value"), type=schema_of(more.pop("type", tp)), **more)


def version(tp: Any, **more: Any) -> Version:
    return Version(spec(tp, **more), types=[tp])


def stored(value: Any, **more: Any) -> Version:
    before = version(type(value), **more)
    before.put("account", {"k": value})
    before.checkpoint()
    return before


def taken(before: Version, after: Version) -> tuple[Any, list[str]]:
    evolution = before.taken_by(after)
    return after.values("account")["k"], [*evolution.notes(), *evolution.found()]


def stored_account(make: Make) -> Version:
    return stored(make(owner=str, total=int)(owner="ann", total=3))


def test_a_field_that_was_added_gets_its_default(make: Make) -> None:
    after = make(owner=str, note=(str, "none"), total=int)

    value, told = taken(stored_account(make), version(after))

    assert value == after(owner="ann", total=3)
    assert value.note == "none"
    assert "the field 'note' was added and has its default" in told[0]


def test_a_mutable_default_is_each_values_own(make: Make) -> None:
    after = make(owner=str, total=int, tags=(list[str], []))
    before = version(make(owner=str, total=int))
    cls = before.registry.resolve("Account")
    before.put("account", {key: cls(owner=key, total=1) for key in ("k", "l")})
    before.checkpoint()
    now = version(after)

    before.taken_by(now)
    values = now.values("account")
    values["k"].tags.append("changed")

    assert values["l"].tags == []


def test_a_field_that_was_removed_is_left_behind_and_named(make: Make) -> None:
    after = make(owner=str)

    value, told = taken(stored_account(make), version(after))

    assert value == after(owner="ann")
    assert "the field 'total' was removed, and what it held (int) is left behind" in told[0]


def test_a_field_in_another_place_and_of_a_wider_type_keeps_its_value(make: Make) -> None:
    after = make(total=float, owner=str | None)

    value, _ = taken(stored_account(make), version(after))

    assert (value, type(value.total)) == (after(total=3.0, owner="ann"), float)


def test_a_field_with_another_name_is_refused_and_migrated_when_it_is_said_so(make: Make) -> None:
    before, after = stored_account(make), make(owner=str, sum=int)

    (refusal,) = before.refusals(version(after))
    migrate = {1: lambda old: {"owner": old["owner"], "sum": old["total"]}}
    value, _ = taken(before, version(after, version=2, migrate=migrate))

    assert "'total' (stored as int) is gone and the field 'sum' (wanted as int) is new" in refusal
    assert value == after(owner="ann", sum=3)


def test_a_migration_may_return_an_instance_and_one_that_returns_too_much_is_refused(make: Make) -> None:
    before, after = stored_account(make), make(owner=str, sum=int)

    value, _ = taken(before, version(after, version=2, migrate={1: lambda old: after(owner="bob", sum=old["total"])}))
    with pytest.raises(IncompatibleStateError, match="'k'"):
        taken(before, version(after, version=2, migrate={1: lambda old: {**old, "sum": 1}}))

    assert value == after(owner="bob", sum=3)


def test_in_a_state_of_no_type_fields_come_and_go_by_their_names(make: Make) -> None:
    before = stored(make(owner=str, total=int)(owner="ann", total=3), type=None)
    more, fewer, renamed = (
        make(owner=str, total=int, note=(str, "none")),
        make(owner=str),
        make(owner=str, sum=(int, 0)),
    )

    with_note, told = taken(before, version(more, type=None))
    without, _ = taken(before, version(fewer, type=None))
    with pytest.raises(Exception, match="may be one field with another name"):
        taken(before, version(renamed, type=None))

    assert with_note == more(owner="ann", total=3)
    assert without == fewer(owner="ann")
    assert "the field 'note' of Account was added and has its default" in told[0]


def test_a_value_that_was_taken_over_is_written_and_restored_like_any_other(make: Make) -> None:
    after = make(owner=str, note=(str, "none"), total=int)
    middle, last = version(after), version(after)
    stored_account(make).taken_by(middle)

    is_base = middle.checkpoint()
    middle.taken_by(last)

    assert is_base
    assert last.values("account")["k"] == after(owner="ann", total=3)


def test_a_model_keeps_its_extra_and_private_values_and_which_fields_were_set() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Base(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        _cached: int = pydantic.PrivateAttr(default=0)

    def account(**fields: Any) -> Any:
        return pydantic.create_model("Account", __base__=Base, __module__=MODULE, **fields)

    before = account(owner=(str, "nobody"), total=(int, 0))
    value = before(total=3, nick="annie")
    value._cached = 7
    after = account(total=(float, 0.0), owner=(str, "nobody"), note=(str, "none"))

    now, _ = taken(stored(value), version(after))

    assert (now.total, now.owner, now.note, now.nick, now._cached) == (3.0, "nobody", "none", "annie", 7)
    assert now.model_fields_set == {"total", "nick"}


def test_a_private_value_that_a_model_got_since_has_its_default() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Private(pydantic.BaseModel):
        _cached: dict[str, int] = pydantic.PrivateAttr(default_factory=dict)
        _count: int = pydantic.PrivateAttr(default=1)

    after = pydantic.create_model("Account", __base__=Private, __module__=MODULE, owner=(str, ...), total=(float, ...))

    now, _ = taken(stored_account(a_model), version(after))

    assert (now._cached, now._count) == ({}, 1)


def test_extra_values_are_left_behind_by_name_when_a_model_no_longer_takes_them() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    before = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...))
    after = a_model(owner=str, note=(str, "none"))

    now, told = taken(stored(before(owner="ann", nick="annie")), version(after))

    assert now == after(owner="ann")
    assert now.model_extra is None
    assert any("'nick'" in text and "left behind" in text for text in told)


def test_an_extra_value_becomes_the_field_that_a_model_now_has_for_it() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    before = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...))
    after = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...), nick=(str, "none"))

    now, _ = taken(stored(before(owner="ann", nick="annie")), version(after))

    assert now.nick == "annie"
    assert "nick" not in now.model_extra


def test_what_is_no_field_of_a_model_changes_also_where_no_field_does_and_in_a_state_of_no_type() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        _old: int = pydantic.PrivateAttr(default=1)

    class Closed(pydantic.BaseModel):
        _new: int = pydantic.PrivateAttr(default=2)

    before, after = (
        pydantic.create_model("Account", __base__=base, __module__=MODULE, owner=(str, ...)) for base in (Open, Closed)
    )

    for declared in (None, "typed"):
        more = {} if declared else {"type": None}
        now, told = taken(stored(before(owner="ann", nick="annie"), **more), version(after, **more))

        assert (now.owner, now.model_extra, now._new) == ("ann", None, 2)
        assert sum("'nick'" in text or "'_old'" in text for text in told) == 2


def test_an_instance_among_the_extra_values_of_a_model_is_one_again() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    address = pydantic.create_model("Address", __module__=MODULE, street=(str, ...))
    before = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...))
    after = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...), total=(int, 0))
    first = Version(spec(before), types=[before, address])
    first.put("account", {"k": before(owner="ann", home=address(street="s"))})
    first.checkpoint()
    second = Version(spec(after), types=[after, address])

    first.taken_by(second)

    assert second.values("account")["k"].home == address(street="s")


def test_an_extra_value_that_does_not_fit_the_field_it_has_become_is_refused_with_its_key() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")

    before = pydantic.create_model("Account", __base__=Open, __module__=MODULE, owner=(str, ...))
    after = a_model(owner=str, nick=(int, 0))

    with pytest.raises(IncompatibleStateError, match="key 'k' cannot be taken over: nick is str 'annie', and int"):
        taken(stored(before(owner="ann", nick="annie")), version(after))
