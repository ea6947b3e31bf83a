"""Bytes from whoever can write to the store: nothing is imported, nothing hangs, nothing grows, nothing crashes."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import msgpack
import pytest

pytest.importorskip("langgraph")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowpoint.agents.serde import AgentCodec, StrictSerde
from flowpoint.errors import BadRecordError, SealError
from tests.unit.agents.test_serde import PLAIN, State, np

SERDE = StrictSerde([State])
VALID = [
    SERDE.encode([value, {"k": value}], thread="t", channel="c") for value in (*PLAIN, np.arange(3), np.float32(1))
]
CODES = [*range(20), *range(64, 72), 127]


@pytest.fixture(autouse=True)
def nothing_is_imported(tmp_path: Path) -> Iterator[None]:
    before = set(sys.modules)
    yield
    added = {name for name in sys.modules if name not in before and not name.startswith(("hypothesis", "numpy", "_"))}
    assert not added


def read(data: bytes) -> None:
    for decode in (SERDE.decode, SERDE.decode_old):
        try:
            decode(data, thread="t", channel="c")
        except (BadRecordError, SealError) as error:
            assert "thread 't'" in str(error)  # noqa: PT017


def mutated(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(changed))
        match draw.randrange(5):
            case 0:
                changed[at] = draw.randrange(256)
            case 1:
                changed[at] ^= 1 << draw.randrange(8)
            case 2:
                del changed[at : at + draw.randrange(1, 4)]
            case 3:
                changed[at:at] = draw.randbytes(draw.randrange(1, 6))
            case _:
                other = draw.choice(VALID)
                changed[at:at] = other[draw.randrange(len(other)) :]
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_valid_bytes_are_read_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    started = process_time()
    for _ in range(2000):
        read(mutated(draw.choice(VALID), draw))
    assert process_time() - started < 20


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
        | st.builds(lambda code, value: msgpack.ExtType(code, msgpack.packb(value)), st.sampled_from(CODES), inner)
        | st.builds(msgpack.ExtType, st.sampled_from(CODES), st.binary(max_size=12))
    ),
    max_leaves=8,
)


@settings(
    max_examples=400, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(plain)
def test_well_formed_bytes_of_any_content_are_read_or_refused(value: Any) -> None:
    read(msgpack.packb(value, strict_types=False))


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)


@pytest.mark.parametrize(
    "name", ["os:system", "builtins:eval", "antigravity:Fly", "subprocess:Popen", ":", "a:b:c", 7, None]
)
def test_a_name_in_the_bytes_calls_and_imports_nothing(name: Any) -> None:
    for code in (11, 12):
        data = msgpack.packb(msgpack.ExtType(code, msgpack.packb([name, ["x"], ["echo hacked"]])))
        with pytest.raises(BadRecordError):
            SERDE.decode(data, thread="t", channel="c")
    factory = msgpack.packb(msgpack.ExtType(15, msgpack.packb([[name], {}])))
    with pytest.raises(BadRecordError):
        SERDE.decode(factory, thread="t", channel="c")
    assert "antigravity" not in sys.modules


def nested(levels: int, code: int) -> bytes:
    data = b"\x90"
    for _ in range(levels):
        data = msgpack.packb(msgpack.ExtType(code, data))
    return data


@pytest.mark.parametrize("levels", [99, 101, 300, 3000])
def test_bytes_nested_without_end_do_not_end_the_process(levels: int) -> None:
    for code in (1, 12, 14, AgentCodec._SEND):
        read(nested(levels, code))
    read(b"\x91" * levels + b"\xc0")


def test_lengths_that_are_lies_take_no_memory() -> None:
    lies = [
        b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
        (b"\xdd" + (5000).to_bytes(4, "big")) * 1000 + b"\xc0" * 5000,
        msgpack.packb(msgpack.ExtType(13, msgpack.packb([f"<U{1 << 28}", False, [1], b"abcd"]))),
        msgpack.packb(msgpack.ExtType(13, msgpack.packb(["<i4", False, [1 << 40, 1 << 40], b"abcd"]))),
        msgpack.packb(msgpack.ExtType(13, msgpack.packb(["<i4", False, [1 << 62, 0], b""]))),
        msgpack.packb(msgpack.ExtType(13, msgpack.packb(["<U0", False, [1 << 34], b""]))),
        msgpack.packb(msgpack.ExtType(13, msgpack.packb(["|S0", False, [1 << 34], b""]))),
        msgpack.packb(msgpack.ExtType(9, b"1e999999999999999999")),
        msgpack.packb(msgpack.ExtType(8, msgpack.packb([10**12, 0, 0]))),
        msgpack.packb(msgpack.ExtType(14, msgpack.packb([1 << 60, []]))),
        msgpack.packb(msgpack.ExtType(14, msgpack.packb([-1, []]))),
        msgpack.packb(msgpack.ExtType(67, msgpack.packb(["../../../etc"]))),
        msgpack.packb(msgpack.ExtType(67, msgpack.packb(["Europe"]))),
        msgpack.packb(msgpack.ExtType(67, msgpack.packb(["\0"]))),
    ]  # fmt: skip
    tracemalloc.start()
    try:
        for data in lies:
            read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000
