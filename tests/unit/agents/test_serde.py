"""What goes into a thread comes back, and what could not is refused by channel and type."""

from __future__ import annotations

import ipaddress
import operator
import re
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("langgraph")

import numpy as np
import pydantic
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot
from langgraph.graph import StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send, TimeoutPolicy

from flowpoint.agents.serde import StrictSerde
from flowpoint.agents.stored import StoredObject
from flowpoint.agents.types import types_of
from flowpoint.errors import BadRecordError, SealError, UnknownTypeError

T = TypeVar("T")


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    A = "a"


@dataclass
class Part:
    name: str
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = len(self.name)


class Pair(NamedTuple):
    left: Any
    right: int = 0


class Order(pydantic.BaseModel):
    id: int
    color: Color = Color.RED
    token: pydantic.SecretStr = pydantic.SecretStr("s")


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Pieces(TypedDict):
    parts: list[Part]


class State(TypedDict):
    color: Color
    levels: dict[Level, list[Kind] | None]
    pieces: Annotated[list[Pieces], operator.add]
    pair: Pair
    order: Order
    box: Box[int]
    numbers: Numbers


def serde(*types: Any) -> StrictSerde:
    return StrictSerde([State, *types])


def back(value: Any, use: StrictSerde | None = None) -> Any:
    use = use or serde()
    return use.decode(use.encode(value, thread="t", channel="c"), thread="t", channel="c")


PLAIN = [
    None, True, 7, 1 << 70, -1.5, "text", "\udc80", b"bytes",
    (1, (2,)), {1, 2}, frozenset({3}), [1, [2]], {1: "a", (2, 3): "b"},
    deque([1, 2], maxlen=2), deque([1]), defaultdict(list, a=[1]), defaultdict(None, a=1), Counter("aab"),
    OrderedDict([("b", 1), ("a", 2)]), datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), date(2024, 2, 29), time(1, 2, 3, 4), timedelta(-1, 5),
    Decimal("1.10"), UUID(int=5), Color.RED, Level.LOW, Kind.A, Pair([1], 2), Order(id=1), Box[int](content=3),
    Numbers([1, 2]),
    Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:/x"), re.compile("a+", re.IGNORECASE), re.compile(b"x"),
    ipaddress.ip_address("127.0.0.1"), ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_interface("::1/64"),
    ZoneInfo("Europe/Rome"), timezone(timedelta(hours=2), "here"), UTC, pydantic.SecretStr("x"),
    pydantic.SecretBytes(b"x"),
    Send("node", {"x": (1,)}), Send("node", 1, timeout=TimeoutPolicy(run_timeout=3)), Interrupt({"ask": 1}, "id"),
    Command(goto=("a",), update={"x": {1}}), Overwrite([1]), _DeltaSnapshot([1]), Document("text", metadata={"k": 1}),
    [HumanMessage("hi", id="1"), AIMessage("yo", tool_calls=[{"name": "t", "args": {"a": 1}, "id": "2"}])],
    ToolMessage("done", tool_call_id="2", artifact={"k": (1,)}),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: f"{type(value).__name__} {value!r}"[:40])
def test_a_value_comes_back_equal_and_of_its_type_wherever_it_stands(value: Any) -> None:
    for hidden in (value, [value], {"k": (value,)}, Send("n", value), Overwrite(value), deque([value], 1)):
        found = back(hidden)
        assert found == hidden and type(found) is type(hidden)
    found = back([value])[0]
    assert found == value and type(found) is type(value) and repr(found) == repr(value)


def test_what_equality_does_not_show_comes_back_too() -> None:
    assert back(deque([1, 2], maxlen=2)).maxlen == 2
    assert back(defaultdict(list)).default_factory is list
    assert back(defaultdict(Color)).default_factory is Color
    moment = back(datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert moment.fold == 1 and moment.tzinfo.key == "Europe/Berlin" and moment.utcoffset() == timedelta(hours=1)
    order = back(Order(id=1))
    assert order.model_fields_set == {"id"} and order.token.get_secret_value() == "s"


def test_a_dataclass_comes_back_as_it_was_without_running_its_init() -> None:
    part = Part("abc")
    part.total = 99
    assert back(part) == part and back(part).total == 99


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5), np.int64(3), np.bool_(True), np.datetime64("2024-01-01"),
        np.array([1.0, 2.0]), np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"), np.zeros((2, 0), np.int8),
        np.ndarray((3,), "<U0"),
    ],
    ids=repr,
)  # fmt: skip
def test_numpy_values_come_back(value: Any) -> None:
    found = back({"k": value})["k"]
    assert type(found) is type(value) and found.dtype == value.dtype and found.shape == value.shape
    assert np.array_equal(found, value, equal_nan=value.dtype.kind in "fM")


def test_an_array_in_fortran_order_comes_back_equal_in_c_order() -> None:
    found = back(np.asfortranarray([[1, 2, 3], [4, 5, 6]]))
    assert found.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.flags.c_contiguous and found.flags.writeable


class DataFrame:
    """As pandas has it: a class that is none of the kinds that can be saved."""


@pytest.mark.parametrize(
    "value", [DataFrame(), 1j, object(), lambda: 1, bytearray(b"x"), Part.__new__(Part)], ids=lambda v: type(v).__name__
)
def test_what_cannot_be_saved_is_refused_by_channel_thread_and_type(value: Any) -> None:
    for hidden in (value, [value], {"k": (value,)}, Send("n", [value]), deque([value])):
        with pytest.raises(BadRecordError, match=r"cannot save channel 'notes' of thread 'th'.*") as caught:
            serde().encode(hidden, thread="th", channel="notes")
        assert type(value).__name__ in str(caught.value)


def test_an_undeclared_class_is_refused_when_it_is_saved_and_when_it_is_read() -> None:
    class Secret(NamedTuple):
        x: int

    with pytest.raises(UnknownTypeError, match=r"channel 'c' of thread 't': .*Secret.*or list it in `types`"):
        serde().encode([Secret(1)], thread="t", channel="c")
    data = serde(Secret).encode([Secret(1)], thread="t", channel="c")
    with pytest.raises(UnknownTypeError, match=r"cannot read channel 'c' of thread 't': .*Secret.*stays as it is"):
        serde().decode(data, thread="t", channel="c")
    assert serde(Secret).decode(data, thread="t", channel="c") == [Secret(1)]


def test_with_types_leaves_the_serde_it_came_from_alone() -> None:
    class Late(NamedTuple):
        x: int

    first = serde()
    assert back(Late(1), first.with_types([Late])) == Late(1)
    assert first.with_types([State]) is first
    with pytest.raises(UnknownTypeError):
        first.encode(Late(1), thread="t", channel="c")


def test_the_allow_list_of_langgraph_is_understood_without_importing_anything() -> None:
    bare = StrictSerde()
    known = bare.with_types([(__name__, "Pair"), ("antigravity", "Fly"), (__name__, "gone"), ("a", "b", "c")])
    assert back(Pair(1), known) == Pair(1)
    import sys

    assert "antigravity" not in sys.modules


def test_two_classes_of_one_name_are_told_apart_even_when_the_second_comes_later() -> None:
    first = type("Item", (), {"__annotations__": {"x": int}, "__module__": "shop"})
    second = type("Item", (), {"__annotations__": {"x": int}, "__module__": "depot"})
    first, second = dataclass(first), dataclass(second)
    early = StrictSerde([first])
    data = early.encode(first(1), thread="t", channel="c")
    assert type(early.with_types([second]).decode(data, thread="t", channel="c")) is first


def test_a_class_may_move_to_another_module() -> None:
    old = dataclass(type("Item", (), {"__annotations__": {"x": int}, "__module__": "shop"}))
    new = dataclass(type("Item", (), {"__annotations__": {"x": int}, "__module__": "shop.items"}))
    data = StrictSerde([old]).encode(old(1), thread="t", channel="c")
    assert StrictSerde([new]).decode(data, thread="t", channel="c") == new(1)


def versions_of_order(**fields: Any) -> type[pydantic.BaseModel]:
    return pydantic.create_model("Order", __module__="shop", **fields)


def test_a_class_that_gained_a_required_field_is_an_error_and_not_half_an_object() -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, ...))
    data = StrictSerde([old]).encode(old(id=1), thread="t", channel="order")
    with pytest.raises(BadRecordError, match=r"channel 'order' of thread 't'.*no field 'price'.*stays as it is"):
        StrictSerde([new]).decode(data, thread="t", channel="order")
    found = StrictSerde([new]).decode_old(data, thread="t", channel="order")
    assert isinstance(found, StoredObject) and found.id == 1 and not hasattr(found, "price")


def test_a_class_that_gained_a_field_with_a_default_is_read() -> None:
    old, new = versions_of_order(id=(int, ...)), versions_of_order(id=(int, ...), price=(int, 5))
    data = StrictSerde([old]).encode(old(id=1), thread="t", channel="order")
    assert StrictSerde([new]).decode(data, thread="t", channel="order").price == 5


def test_decode_old_shows_what_is_left_of_classes_that_are_gone() -> None:
    data = serde().encode({"o": [Pair(1, 2)], "c": Color.RED}, thread="t", channel="c")
    found = StrictSerde().decode_old(data, thread="t", channel="c")
    assert found["o"][0].fields == {"left": 1, "right": 2} and found["c"].name == "RED"
    assert "Pair" in repr(found["o"][0]) and "does not declare" in found["o"][0].reason


def test_a_field_that_a_message_no_longer_has_is_kept_as_an_extra() -> None:
    old = pydantic.create_model("Note", __module__="m", __config__={"extra": "allow"}, a=(int, ...), b=(int, ...))
    new = pydantic.create_model("Note", __module__="m", __config__={"extra": "allow"}, a=(int, ...))
    data = StrictSerde([old]).encode(old(a=1, b=2), thread="t", channel="c")
    assert StrictSerde([new]).decode(data, thread="t", channel="c").model_extra == {"b": 2}


def test_the_error_of_a_failed_task_is_kept_as_text_and_no_other_exception_is() -> None:
    data = serde().encode(ValueError("x"), thread="t", channel=ERROR)
    assert serde().decode(data, thread="t", channel=ERROR) == "ValueError('x')"
    with pytest.raises(BadRecordError, match="ValueError"):
        serde().encode(ValueError("x"), thread="t", channel="c")


def test_encrypted_bytes_are_recognised() -> None:
    with pytest.raises(SealError, match="channel 'c' of thread 't': it is encrypted"):
        serde().decode(b"\xc1anything", thread="t", channel="c")


def test_one_serde_serves_many_threads() -> None:
    use, failures = serde(), []

    def work(number: int) -> None:
        value = {"n": number, "deep": [Pair(number), {number}] * 50}
        failures.extend(number for _ in range(50) if back(value, use) != value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_types_of_finds_the_classes_of_state_inputs_and_sub_graphs() -> None:
    class Private(TypedDict):
        part: Part

    class Inner(TypedDict):
        pair: Pair

    def inner(state: Inner) -> dict[str, Any]:
        return {}

    def outer(state: Private) -> dict[str, Any]:
        return {}

    below = StateGraph(Inner).add_node("inner", inner).set_entry_point("inner")
    above = StateGraph(State).add_node("outer", outer, input_schema=Private).add_node("sub", below.compile())
    assert {Color, Level, Kind, Part, Pair, Order, Box[int]} <= set(types_of(above))
    assert Pair in types_of(below) and Order not in types_of(below)
    assert set(types_of(below)) == set(types_of(below.compile()))
