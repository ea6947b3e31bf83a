"""What is written comes back equal, or is refused with a reason; what is read is one record per line, or an error."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowpoint.connectors.line_formats import JsonLines, Lines, UnwritableError, line_format
from flowpoint.errors import PlanError


class Point(NamedTuple):
    x: int
    y: float


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Plain(Enum):
    ONE = 1


@dataclass
class Order:
    id: int


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON_VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner), max_leaves=8
)


def as_json(value: Any) -> Any:
    """The value as `json.loads` can give it: tuples are lists."""
    match value:
        case list() | tuple():
            return [as_json(item) for item in value]
        case dict():
            return {key: as_json(item) for key, item in value.items()}
    return value


@given(st.lists(JSON_VALUES, min_size=1, max_size=6))
def test_jsonl_gives_every_json_value_back(values: list[Any]) -> None:
    raw = JsonLines().encode(values)

    lines = raw.decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == [as_json(value) for value in values]
    assert JsonLines().decode(raw) == [as_json(value) for value in values] or b"\\ud" in raw


@given(st.lists(JSON_VALUES, min_size=1, max_size=6))
def test_jsonl_reads_what_the_standard_library_writes(values: list[Any]) -> None:
    lines = [json.dumps(value) for value in values]

    try:
        read = JsonLines().decode("".join(line + "\n" for line in lines).encode())
    except ValueError:  # lone surrogates take the slower way
        read = [JsonLines().decode_line(line.encode())[0] for line in lines]

    assert read == [as_json(value) for value in values]


@pytest.mark.parametrize(
    "value",
    [
        2**70,
        -(2**70),
        'zwölf 🙂 \u2028 \x00 "\\/',
        "\ud800",
        -0.0,
        5e-324,
        1.7976931348623157e308,
        Point(1, 2.5),
        Colour.RED,
        Level.LOW,
        OrderedDict(a=1),
        Counter("aab"),
        defaultdict(list, a=[1]),
        {"deep": [{"deeper": ({"deepest": (1, [2, {"x": None}])},)}]},
        [[[[[[[[[[[[[1]]]]]]]]]]]]],
    ],
)
def test_jsonl_writes_values_equal_to_what_comes_back(value: Any) -> None:
    line = JsonLines().encode([("before", 1), value])

    assert json.loads(line.splitlines()[1]) == as_json(value)


def test_jsonl_writes_text_as_utf_8_and_not_as_escapes() -> None:
    assert JsonLines().encode([("zwölf", 12)]) == '["zwölf",12]\n'.encode()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "no nan"),
        ({"a": [1.0, float("inf")]}, "no inf"),
        ({1: "a"}, "dict key 1 is of type int"),
        ({"a": {None: 1}}, "NoneType"),
        (datetime(2026, 1, 1), "isoformat"),
        (date(2026, 1, 1), "isoformat"),
        (timedelta(1), "total_seconds"),
        (Decimal("1.5"), "str(value)"),
        (UUID(int=1), "str(value)"),
        (b"bytes", "base64"),
        ({1, 2}, "sorted(value)"),
        (Order(1), "asdict"),
        (Plain.ONE, "no Plain"),
        (object, "no type"),
        pytest.param(itself(), "", id="a list in itself"),
        pytest.param(10**5000, "", id="an int too long to print"),
    ],
)
def test_jsonl_refuses_what_json_cannot_give_back(value: Any, says: str) -> None:
    with pytest.raises(UnwritableError) as error:
        JsonLines().encode([("fine", 1), ("nested", value)])

    assert says in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        b"1 2\n[3\n,4]\n",
        b"1,2\n",
        b"[1\n,2]\n",
        b"{\n",
        b"01\n",
        b"'a'\n",
        b'"\xff"\n',
        b'"a\x01"\n',
        b"[1,]\n",
        b"\n",
        b"1\n\n2\n",
        b"nul\n",
        b'"tab\t"\n',
    ],
)
def test_jsonl_lines_that_are_not_each_one_value_are_an_error_of_the_block(text: bytes) -> None:
    with pytest.raises(ValueError):
        JsonLines().decode(text)


@pytest.mark.parametrize(
    ("line", "found"), [(b"", []), (b" \r", []), (b"1\r", [1]), (b" [1] ", [[1]]), (b"1e400", [float("inf")])]
)
def test_jsonl_single_lines_are_read_as_json_reads_them(line: bytes, found: list[Any]) -> None:
    assert JsonLines().decode_line(line) == found


@pytest.mark.parametrize("line", [b"NaN", b'{"a":-Infinity}', b"1 2", b"[", b'"\xff"', b"[" * 100_000])
def test_jsonl_bad_single_lines_are_an_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        JsonLines().decode_line(line)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\r\ufeffa")), min_size=1))
def test_lines_come_back_as_they_were_or_are_refused(values: list[str]) -> None:
    is_lost = any("\n" in value or value.endswith("\r") or value.startswith("\ufeff") for value in values)
    if is_lost:
        with pytest.raises(UnwritableError):
            Lines().encode(values)
        return

    raw = Lines().encode(values)

    assert Lines().decode(raw) == values
    assert [Lines().decode_line(line)[0] for line in raw.split(b"\n")[:-1]] == Lines().decode(raw)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("a\nb", "line break"),
        ("a\r", "carriage return"),
        ("\r", "carriage return"),
        ("\ufeffa", "byte order mark"),
        (7, "takes str"),
        (None, "takes str"),
        (b"x", "takes str"),
        ("\ud800", "surrogate"),
    ],
)
def test_lines_refuse_what_would_not_be_one_line(value: Any, says: str) -> None:
    with pytest.raises(UnwritableError) as error:
        Lines().encode(["fine", value])

    assert says in str(error.value)


@pytest.mark.parametrize("read", [Lines().decode, Lines().decode_line])
def test_lines_that_are_not_utf_8_are_an_error(read: Callable[[bytes], Any]) -> None:
    with pytest.raises(ValueError):
        read(b"caf\xe9\n")


@pytest.mark.parametrize(
    ("name", "says"), [("csv", "not supported yet"), ("parquet", "yet"), ("jsonlines", "use 'lines'")]
)
def test_a_format_that_there_is_not_is_a_plan_error(name: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        line_format(name, "FileSink")


def test_a_value_that_is_nested_too_deeply_says_what_to_do() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]

    with pytest.raises(UnwritableError, match=r"\(list\): it is nested too deeply or contains itself; flatten it"):
        JsonLines().encode([value])
