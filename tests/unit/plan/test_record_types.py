"""Which record classes are found in annotations, and that nothing an author writes there can break it."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import msgspec
import pytest

from flowpoint.api.functions import KeyedProcessFunction
from flowpoint.plan.record_types import record_types_of

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1


@dataclass
class Inner:
    color: Color


@dataclass
class Point:
    x: int
    inner: Inner | None = None
    next: Point | None = None


class Pair(NamedTuple):
    left: Point
    right: Point


class Row(msgspec.Struct):
    n: int


class Loose(TypedDict):
    color: Color


@dataclass
class Box(Generic[T]):
    content: T


PointId = NewType("PointId", Point)
Bounded = TypeVar("Bounded", bound=Row)


def names(*functions: object) -> list[str]:
    return [tp.__name__ for tp in record_types_of(functions)]


def returning(annotation: object) -> Callable[[Any], Any]:
    def function(value):
        raise NotImplementedError

    function.__annotations__ = {"return": annotation}
    return function


@pytest.mark.parametrize(
    ("annotation", "found"),
    [
        (Color, ["Color"]),
        (Inner, ["Inner", "Color"]),
        (Point, ["Point", "Inner", "Color"]),
        (Pair, ["Pair", "Point", "Inner", "Color"]),
        (Row, ["Row"]),
        (list[Row], ["Row"]),
        (dict[str, tuple[Row, ...]], ["Row"]),
        (Optional[Row], ["Row"]),  # noqa: UP045  the old spelling is another object
        (Row | None, ["Row"]),
        (Union[Row, Color], ["Row", "Color"]),  # noqa: UP007  the old spelling is another object
        (Iterator[Row], ["Row"]),
        (Callable[[Row], Color], ["Row", "Color"]),
        (Annotated[Row, "note"], ["Row"]),
        (Literal[Color.RED], ["Color"]),
        (PointId, ["Point", "Inner", "Color"]),
        (Bounded, ["Row"]),
        (Box[Row], ["Box", "Row"]),
        (Loose, ["Color"]),
        ("Row", ["Row"]),
        (int, []),
        (Any, []),
        (None, []),
    ],
)
def test_record_classes_are_found_inside_annotations(annotation, found):
    assert sorted(names(returning(annotation))) == sorted(found)


def test_parameters_count_as_well_as_results():
    def swap(pair: Row, color: Color) -> int:
        return 0

    assert names(swap) == ["Row", "Color"]


def test_each_class_is_found_once_in_the_order_met():
    assert names(returning(Row), returning(Color), returning(Row)) == ["Row", "Color"]


def test_an_annotation_that_cannot_be_resolved_does_not_hide_the_others():
    def broken(a: Row, b: Missing) -> Color:  # noqa: F821
        raise NotImplementedError

    assert names(broken) == ["Row", "Color"]


def test_an_annotation_that_raises_is_passed_over():
    assert names(returning("1 / 0")) == []


def test_partials_lambdas_builtins_and_callable_objects_are_looked_through():
    class Convert:
        def __call__(self, value: Row) -> Color:
            raise NotImplementedError

        def method(self, value: Row) -> int:
            return 0

    assert names(functools.partial(returning(Row), 1)) == ["Row"]
    assert names(Convert()) == ["Row", "Color"]
    assert names(Convert().method) == ["Row"]
    assert names(lambda value: value, str.split, len, None) == []


def test_a_record_class_used_as_the_function_is_found():
    assert names(Row) == ["Row"]


def test_a_process_function_tells_by_its_methods_attributes_and_state_defaults():
    class Spec:
        name = "pair"
        default = Pair(Point(1), Point(2))

    class State:
        spec = Spec()

    class Process(KeyedProcessFunction):
        row: Row
        pair = State()

        def process(self, value: Color, ctx):
            yield value

    assert set(names(Process())) == {"Row", "Color", "Pair", "Point", "Inner"}
