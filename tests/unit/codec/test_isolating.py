"""A copy shares nothing that can be changed with its original, and what never changes is not copied."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import numpy
import pytest

from flowpoint.codec.isolating import Isolator
from flowpoint.errors import BadRecordError


class Color(Enum):
    RED = 1


@dataclass
class Open:
    items: Any = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    items: list[int]


@dataclass(frozen=True)
class Frozen:
    items: Any


class Named(NamedTuple):
    items: Any


def change(value: Any) -> None:
    """Change the innermost list of a nest that has exactly one way down."""
    while not isinstance(value, list):
        if isinstance(value, dict):
            (value,) = value.values()
        elif isinstance(value, (tuple, deque)):
            value = value[0]
        else:
            value = value.items
    value.append(99)


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: inner,
        lambda inner: {"a": inner},
        lambda inner: (inner,),
        lambda inner: deque([inner], 3),
        lambda inner: OrderedDict(a=inner),
        lambda inner: defaultdict(list, a=inner),
        lambda inner: {"a": ({"b": inner},)},
        Open,
        Slotted,
        Frozen,
        Named,
        lambda inner: Frozen(Named((Open(inner),))),
    ],
)
def test_a_change_in_the_original_does_not_show_in_the_copy(make: Any) -> None:
    original, expected = make([1, 2]), make([1, 2])

    copy = Isolator()(original)
    change(original)

    assert copy == expected
    assert type(copy) is type(original)


@pytest.mark.parametrize("value", [set("ab"), Counter("aab"), numpy.array([1, 2])])
def test_what_has_only_immutable_elements_is_copied_as_well(value: Any) -> None:
    copy = Isolator()(value)

    assert copy is not value
    assert type(copy) is type(value)
    assert list(copy) == list(value)


@pytest.mark.parametrize(
    "value",
    [None, 1, "a", b"b", Decimal(1), datetime(2020, 1, 1, tzinfo=UTC), Color.RED, frozenset({1}), (1, ("a", None)),
     Frozen((1, 2)), Named("a")],
)  # fmt: skip
def test_what_never_changes_is_its_own_copy(value: Any) -> None:
    assert Isolator()(value) is value


def test_the_details_of_containers_are_kept() -> None:
    isolated = Isolator()

    assert isolated(deque([1], 3)).maxlen == 3
    assert isolated(defaultdict(list)).default_factory is list
    assert list(isolated(OrderedDict(b=[1], a=[2]))) == ["b", "a"]


def test_attributes_that_are_no_fields_stay_with_a_dataclass() -> None:
    value = Open([1])
    value.note = "kept"  # type: ignore[attr-defined]

    assert Isolator()(value).note == "kept"


def test_what_no_state_can_hold_is_passed_on_as_it_is() -> None:
    lock = threading.Lock()

    assert Isolator()([lock]) == [lock]


def _wrapped_in(make: Callable[[Any], Any], levels: int) -> Any:
    value: Any = [1]
    for _ in range(levels):
        value = make(value)
    return value


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda v: [v], "list"),
        (lambda v: (v,), "tuple"),
        (lambda v: {"a": v}, "dict"),
        (lambda v: deque([v]), "deque"),
        (Open, "Open"),
    ],
)
def test_a_value_that_is_nested_too_deeply_is_refused_by_its_type(make: Callable[[Any], Any], kind: str) -> None:
    with pytest.raises(BadRecordError, match=rf"^cannot copy a value of type {kind}: .*nested too deeply.*flatten it$"):
        Isolator()(_wrapped_in(make, 1200))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(BadRecordError, match="contains itself"):
        Isolator()(value)
