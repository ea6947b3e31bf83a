"""Values that certainly do not fit an annotation are found, and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, NotRequired, Protocol, TypedDict, TypeVar

import pydantic
import pytest

from flowpoint.agents.fits import checker, mismatch

T = TypeVar("T")
UserId = NewType("UserId", int)


class Movie(TypedDict):
    title: NotRequired[str]


class Speaks(Protocol):
    def speak(self) -> None: ...


@dataclass
class Item:
    x: int


class Model(pydantic.BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int), (True, int), (1, float), (None, int), (1, Any), (1, object), (1, T), (1, "a forward reference"),
        ("a", str | int), (1, Literal[1, "x"]), (2, Literal[1]), ({"title": 1}, Movie), ([], list), ([1, 2], list[int]),
        ([1, "a"], list[int | str]), ({"a": [1]}, dict[str, list[int]]), ((1, "a"), tuple[int, str]),
        ((1, 2), tuple[int, ...]),
        ([1], Sequence[int]), ({}, Mapping[str, int]), ({1}, set[int]), (deque([1]), deque[int]), (1, UserId),
        (1, Annotated[int, "x"]), (Item(1), Item), (Model(x=1), Model), (1, Speaks), (1, NotRequired[int]),
    ],
    ids=str,
)  # fmt: skip
def test_what_fits(value: Any, annotation: Any) -> None:
    assert mismatch(value, annotation) is None


@pytest.mark.parametrize(
    ("value", "annotation", "found"),
    [
        ("1", int, "it is a str ('1'), not int"),
        (1.5, int, "it is a float (1.5), not int"),
        ({"x": 1}, Item, "it is a dict ({'x': 1}), not Item"),
        ([1, "a"], list[int], "an element is a str ('a'), not int"),
        ({"a": ["b"]}, dict[str, list[int]], "an element is a str ('b'), not int"),
        ({1: 2}, dict[str, int], "an element is an int (1), not str"),
        ((1,), tuple[int, int], "it has 1 elements, not 2"),
        ([1], tuple, "it is a list ([1]), not tuple"),
        (1.5, int | str, "it is a float (1.5), not int | str"),
        ([], Movie, "it is a list ([]), not Movie"),
        ("x", UserId, "it is a str ('x'), not int"),
        (1, Literal["a"], "it is an int (1), not typing.Literal['a']"),
    ],
    ids=str,
)
def test_what_does_not_fit(value: Any, annotation: Any, found: str) -> None:
    assert mismatch(value, annotation) == found


def test_numpy_scalars_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert mismatch(numpy.float32(1), float) is None and mismatch(numpy.int64(1), int) is None


def test_long_containers_are_looked_at_in_part() -> None:
    assert mismatch([1] * 32 + ["late"], list[int]) is None


def test_pydantic_may_convert() -> None:
    check = checker(Model, is_lax=True)
    assert check({"x": "3"}) is None and check(Model(x=1)) is None and check(None) is None
    found = check({"x": "three"})
    assert found is not None and "valid integer" in found and "at x" in found
    assert checker(list[Item], is_lax=True)([Item(1), {"x": 2}]) is None
