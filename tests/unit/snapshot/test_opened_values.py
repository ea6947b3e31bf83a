"""Values are shown in a readable form, keys typed as text are found, and JSON becomes the type that is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flowpoint import snapshot
from flowpoint.codec.raw import RawArray, RawCodec, RawEnum, RawObject
from flowpoint.errors import NotFoundError, UsageError
from flowpoint.snapshot.key_text import find_by_text, meanings
from flowpoint.snapshot.keyed_state import Found, KeyedState
from flowpoint.snapshot.value_fit import fit, fit_any
from flowpoint.snapshot.value_text import json_of, printable, text_of, type_of, types_of
from flowpoint.state.backend import Backend
from tests.unit.snapshot.made import UID, VALUE, Maker
from tests.unit.snapshot.test_opened import Color, Item, Pair

ITEM = RawObject("Item", ("name", "count"), ("n", 1))
RED = RawEnum("Color", "RED")
ARRAY = RawArray("<i4", False, (2,), (5).to_bytes(4, "little") * 2, b"")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ID = UUID(int=5)


@pytest.mark.parametrize(
    ("value", "as_json", "named"),
    [
        (None, None, "None"),
        (True, True, "bool"),
        (1, 1, "int"),
        pytest.param(2**20000, hex(2**20000), "int", id="huge"),
        (1.5, 1.5, "float"),
        (float("nan"), "nan", "float"),
        ("a", "a", "str"),
        (b"\x01\xff", "01ff", "bytes"),
        ((1, "a"), [1, "a"], "tuple[int, str]"),
        ([1, 2, "a"], [1, 2, "a"], "list[int | str]"),
        ([], [], "list"),
        ({2, 1}, [1, 2], "set[int]"),
        ({"a": 1, 2: None}, {"a": 1, "2": None}, "dict[str | int, int | None]"),
        (NOON, "2026-01-02T12:00:00+00:00", "datetime"),
        (date(2026, 1, 2), "2026-01-02", "date"),
        (time(1, 2), "01:02:00", "time"),
        (timedelta(seconds=90), 90.0, "timedelta"),
        (Decimal("1.50"), "1.50", "Decimal"),
        (ID, str(ID), "UUID"),
        (ITEM, {"name": "n", "count": 1}, "Item"),
        (RED, "RED", "Color"),
        (ARRAY, [5, 5], "numpy <i4"),
        (RawArray("<f8", True, (), b"\0" * 8, b""), 0.0, "numpy <f8"),
        (RawArray("<U2", False, (1,), b"ab", b""), "6162", "numpy <U2"),
    ],
)
def test_every_value_has_a_text_a_form_in_json_and_a_type(value: Any, as_json: Any, named: str) -> None:
    assert json_of(value) == as_json
    assert json.loads(json.dumps(json_of(value), allow_nan=False)) == as_json
    assert type_of(value) == named
    assert text_of(value).isprintable()
    assert len(text_of(value, limit=5)) <= 5


def test_what_could_do_something_to_a_terminal_is_quoted() -> None:
    assert printable("counts") == "counts"
    assert printable("\x1b[2J") == r"'\x1b[2J'"
    assert "\x1b" not in text_of("\x1b[2J")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word", ["word"]),
        ("1", ["1", 1]),
        ("1.5", ["1.5", 1.5]),
        ("true", ["true", True]),
        ("null", ["null", None]),
        ('["a", [1]]', ['["a", [1]]', ("a", (1,))]),
        ("('a', 1)", ["('a', 1)", ("a", 1)]),
        ('"a"', ['"a"', "a"]),
        ("b'x'", ["b'x'", b"x"]),
        ("2026-01-02", ["2026-01-02", date(2026, 1, 2), datetime(2026, 1, 2)]),
        (str(ID), [str(ID), ID]),
        ("json:1", [1]),
        ('json:"1"', ["1"]),
        ("None", ["None", None]),
        ("True", ["True", True]),
        ("Truely", ["Truely"]),
        ("NaN", ["NaN"]),
        ("(" * 500, ["(" * 500]),
    ],
)
def test_a_text_may_mean_several_keys(text: str, expected: list[Any]) -> None:
    assert meanings(text) == expected


@pytest.mark.parametrize("text", ["json:", "json:{}", "json:x"])
def test_what_follows_json_must_be_a_key(text: str) -> None:
    with pytest.raises(UsageError, match="no JSON that can be a key"):
        meanings(text)


KEYS = ["1", 1, 2, "a/b", ("a", 1), NOON, b"x", ID, None, Color.RED, (Color.RED, 1), Pair("p", 2)]


@pytest.fixture
def state(tmp_path: Path) -> KeyedState:
    def put(backend: Backend) -> None:
        for at, key in enumerate(KEYS):
            backend.table(VALUE).put(key, at)

    maker = Maker(tmp_path, types=[Item, Color, Pair])
    return snapshot.open(maker.write({UID: maker.states(put)})).operator(UID).state("count")


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ('json:"1"', 0),
        ("json:1", 1),
        ("2", 2),
        ("a/b", 3),
        ('["a", 1]', 4),
        ("('a', 1)", 4),
        ("2026-01-02T12:00:00+00:00", 5),
        ("b'x'", 6),
        (str(ID), 7),
        ("null", 8),
        ("Color.RED", 9),
        ("RED", 9),
        ("(Color.RED, 1)", 10),
        ('["p", 2]', 11),
        ("Pair(left='p', right=2)", 11),
    ],
)
def test_a_key_is_found_by_what_a_person_types(state: KeyedState, text: str, at: int) -> None:
    assert find_by_text(state, text, "it").value == at


MANY_KINDS = [*range(2, 20), True, None, "None", b"ab", "b'cd'", b"cd", 2.5, Decimal("1.0"), NOON, date(2026, 1, 2), ID]
MANY_KINDS += [timedelta(seconds=5), ("a", None), Color.RED, (Color.RED, 1), Pair("p", 2), frozenset({1})]


@pytest.fixture
def mixed(tmp_path: Path) -> KeyedState:
    """Keys of many types, those with classes far from the beginning."""

    def put(backend: Backend) -> None:
        for key in MANY_KINDS:
            backend.table(VALUE).put(key, text_of(key))

    maker = Maker(tmp_path, types=[Color, Pair])
    return snapshot.open(maker.write({UID: maker.states(put)})).operator(UID).state("count")


def test_each_key_is_found_by_the_text_that_it_is_shown_as_however_mixed_the_keys_are(mixed: KeyedState) -> None:
    for key in list(mixed.keys()):
        text = text_of(key)
        if text not in ("None", "b'cd'"):  # also texts of this state
            assert find_by_text(mixed, text, "it").key == key


@pytest.mark.parametrize("text", ["None", "b'cd'"])
def test_each_way_to_be_exact_that_is_offered_finds_its_key(mixed: KeyedState, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_by_text(mixed, text, "it")

    ways = str(caught.value).partition("; write ")[2].split(" or ")
    assert len(ways) == 2
    for way in ways:
        typed, _, named = way.rpartition(" (")
        assert type_of(find_by_text(mixed, typed, "it").key) == named[:-1]


def test_a_suggestion_can_be_typed_in(mixed: KeyedState) -> None:
    with pytest.raises(NotFoundError, match=r"no key 'Color.REDD'; did you mean 'Color.RED'\?"):
        find_by_text(mixed, "Color.REDD", "it")


def test_the_types_of_mixed_keys_are_all_said() -> None:
    assert types_of([1, 2]) == "int"
    assert types_of([1, "a", None]) == "int | str | None"
    assert types_of([1, "a", None, b"", 1.5, ID]) == "int | str | None | bytes | float | UUID"
    assert types_of([]) == ""


def test_an_ambiguous_key_is_refused_and_says_how_to_be_exact(state: KeyedState) -> None:
    with pytest.raises(UsageError) as caught:
        find_by_text(state, "1", "state 'count'")
    assert 'write json:"1" (str) or json:1 (int)' in str(caught.value)


def test_an_unknown_key_is_answered_with_the_nearest_one(state: KeyedState) -> None:
    with pytest.raises(NotFoundError, match=r"it has no key 'a/bb'; did you mean 'a/b'\?"):
        find_by_text(state, "a/bb", "it")


@pytest.mark.parametrize(
    ("given", "stored", "expected"),
    [
        (5, 1, 5),
        (5, 1.5, 5.0),
        ("x", "y", "x"),
        (True, False, True),
        ("0aff", b"x", b"\x0a\xff"),
        ([2, "b"], (1, "a"), (2, "b")),
        ([3], {1, 2}, {3}),
        ([], ["a"], []),
        ([1, "b"], ["a", 7], [1, "b"]),
        ({"b": 2}, {"a": 1}, {"b": 2}),
        ({"1": 5}, {1: 4}, {1: 5}),
        ({"k": [1]}, {"k": (0,)}, {"k": (1,)}),
        ("2026-01-02T12:00:00+00:00", datetime(2020, 1, 1), NOON),
        (90, timedelta(0), timedelta(seconds=90)),
        ("2.5", Decimal(1), Decimal("2.5")),
        (str(ID), UUID(int=1), ID),
        ({"count": 2, "name": "m"}, ITEM, RawObject("Item", ("name", "count"), ("m", 2))),
        ("GREEN", RED, RawEnum("Color", "GREEN")),
        ("Color.GREEN", RED, RawEnum("Color", "GREEN")),
        ([1, {"a": 2}], None, [1, {"a": 2}]),
        ((2, "b"), (1, "a"), (2, "b")),
        (RawObject("Item", ("name", "count"), ("m", 2)), ITEM, RawObject("Item", ("name", "count"), ("m", 2))),
    ],
)
def test_json_becomes_a_value_of_the_stored_type(given: Any, stored: Any, expected: Any) -> None:
    fitted = fit(given, stored)

    assert fitted == expected
    assert type(fitted) is type(expected)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (1.5, 1),
        (True, 1),
        (1, True),
        ("1", 1),
        (None, 1),
        (1, "1"),
        ("zz", b"x"),
        ([1], (1, 2)),
        ([1, 2], (1, "a")),
        (["a"], [1]),
        ([["a"]], {1}),
        ({"a": "x"}, {"a": 1}),
        ({"9": 5}, {1: 4}),
        ("soon", NOON),
        ("x", Decimal(1)),
        ({"name": "m"}, ITEM),
        ({"name": "m", "count": 1, "more": 1}, ITEM),
        (1, RED),
        ([5, 5], ARRAY),
        ("RED", Color.RED),
    ],
)
def test_what_does_not_fit_the_stored_type_is_refused(given: Any, stored: Any) -> None:
    with pytest.raises(UsageError, match="cannot (put|make)"):
        fit(given, stored)


def test_an_element_fits_when_it_is_like_any_of_those_that_are_there() -> None:
    assert fit_any("x", [1, "a"]) == "x"
    assert fit_any({"x": 1}, []) == {"x": 1}
    with pytest.raises(UsageError, match="it is of type float, not int"):
        fit_any(1.5, [1, "a"])


@pytest.mark.parametrize("value", [ITEM, RED, (RED, [ITEM]), {"a": RED}])
def test_what_was_read_raw_is_written_back_as_it_was(value: Any) -> None:
    stored = RawCodec().encode(value)

    assert RawCodec().decode(stored) == value
    assert RawCodec().encode(RawCodec().decode(stored)) == stored


PLAIN = [
    "a",
    "'q'",
    'say "x"',
    "line\nbreak",
    b"ab",
    1,
    True,
    -7,
    2**70,
    2.5,
    float("inf"),
    -0.0,
    None,
    ID,
    Decimal("1.5"),
]
PLAIN += [Decimal("1E+3"), ("a", 1), ("a", None), (b"x", "y"), ("t", float("-inf")), ("u", -1.5), ()]


@pytest.fixture
def plain(tmp_path: Path) -> KeyedState:
    def put(backend: Backend) -> None:
        for key in PLAIN:
            backend.table(VALUE).put(key, text_of(key))

    return snapshot.open((maker := Maker(tmp_path)).write({UID: maker.states(put)})).operator(UID).state("count")


@pytest.mark.parametrize("key", PLAIN, ids=repr)
def test_a_plain_key_is_found_by_the_text_that_it_is_shown_as_without_a_walk(
    plain: KeyedState, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyedState, "walk", lambda state: pytest.fail("all of the state is walked through"))

    assert plain.has_plain_keys
    assert find_by_text(plain, text_of(key), "it").key == key


def test_a_plain_key_that_is_missing_costs_a_look_at_a_few_neighbours_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(backend: Backend) -> None:
        for at in range(5_000):
            backend.table(VALUE).put(f"user-{at}", at)

    state = snapshot.open((maker := Maker(tmp_path)).write({UID: maker.states(put)})).operator(UID).state("count")
    walked: list[Any] = []
    walk = KeyedState.walk

    def counted(self: KeyedState) -> Iterator[Found]:
        for entry in walk(self):
            walked.append(entry)
            yield entry

    monkeypatch.setattr(KeyedState, "walk", counted)

    with pytest.raises(NotFoundError, match="has no key 'someone'"):
        find_by_text(state, "someone", "it")
    assert 0 < len(walked) <= 2_000


@pytest.mark.parametrize("key", [Color.RED, Pair("p", 2), NOON, (Color.RED, 1), (("a",), 1), (ID, 1), frozenset({1})])
def test_a_key_of_another_class_makes_that_all_are_looked_at(tmp_path: Path, key: Any) -> None:
    def put(backend: Backend) -> None:
        backend.table(VALUE).put("a", 1)
        backend.table(VALUE).put(key, 2)

    maker = Maker(tmp_path, types=[Color, Pair])
    state = snapshot.open(maker.write({UID: maker.states(put)})).operator(UID).state("count")

    assert not state.has_plain_keys
    for stored in list(state.keys()):
        assert find_by_text(state, text_of(stored), "it").key == stored


def test_a_value_that_is_nested_too_deeply_for_python_is_still_shown() -> None:
    value: Any = 1
    for _ in range(5000):
        value = {"a": [value]}

    assert text_of(value) == "<dict that is nested too deeply to be shown>"
    assert json_of(value) == text_of(value)
    assert type_of(value) == "dict"
