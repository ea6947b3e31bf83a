"""Every control message survives the wire, and nothing else gets through."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

import msgpack  # type: ignore[import-untyped]
import pytest

from flowpoint.errors import InternalError
from flowpoint.model.messages import Ack, Failure, Hello, Message, Start, Trigger
from flowpoint.transport.control import decode_message, encode_message

SAMPLES: dict[type, Any] = {
    int: 2**63 - 1,
    float: 1.5,
    str: "ü",
    bool: True,
    list: [1, 2],
    dict: {"uid": {"files": [b"x", None], "n": -1}},
}


def sample_of(message_type: type[Message]) -> Message:
    hints = get_type_hints(message_type)
    values = {
        field.name: SAMPLES[get_origin(hints[field.name]) or hints[field.name]]
        for field in dataclasses.fields(message_type)
    }
    return message_type(**values)


def frame_of(name: str, **fields: object) -> bytes:
    data: bytes = msgpack.packb([name, fields])
    return data


@pytest.mark.parametrize("message_type", get_args(Message), ids=lambda tp: tp.__name__)
def test_every_message_comes_back_as_it_was(message_type: type[Message]) -> None:
    message = sample_of(message_type)

    assert decode_message(encode_message(message)) == message


def test_tuples_come_back_as_lists() -> None:
    ack = Ack(attempt=1, checkpoint=2, subtask=[0, 1], operators={"uid": {"splits": ({"id": "a"},)}})

    decoded = decode_message(encode_message(ack))

    assert isinstance(decoded, Ack)
    assert decoded.operators == {"uid": {"splits": [{"id": "a"}]}}


def test_a_whole_number_may_stand_for_a_float() -> None:
    hello = Hello(worker=0, pid=1, start_time=17, incarnation="i", data_address="a")

    assert decode_message(encode_message(hello)) == hello


def test_what_msgpack_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(InternalError, match=r"cannot encode Ack\("):
        encode_message(Ack(attempt=1, checkpoint=2, subtask=[0, 1], operators={"uid": object()}))


def test_a_class_that_is_no_message_is_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Start:
        attempt: int

    with pytest.raises(InternalError, match="not among"):
        encode_message(Start(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (frame_of("Surprise", attempt=1), "'Surprise'.*not among"),
        (frame_of("Start"), r"a Start: its fields are \['attempt'\], but \[\] came"),
        (frame_of("Start", attempt=1, extra=2), "extra"),
        (frame_of("Start", attempt="1"), "attempt is '1', not of type int"),
        (frame_of("Start", attempt=True), "attempt is True, not of type int"),
        (
            frame_of(
                "Trigger",
                attempt=1,
                checkpoint=1,
                kind="k",
                halt=0,
                final=False,
                savepoint="",
                drain=False,
                triggered=0,
            ),
            "halt is 0",
        ),
        (msgpack.packb(["Start", [1]]), "a Start"),
        (msgpack.packb("Start"), "cannot decode"),
        (msgpack.packb([["x"], {}]), "cannot decode"),
        (b"", "cannot decode 0 bytes"),
        (b"\xc1", "cannot decode 1 bytes"),
        (encode_message(Start(1)) + b"\x00", "cannot decode"),
        (encode_message(Trigger(1, 2, "checkpoint", False, False, "d"))[:-1], "cannot decode"),
    ],
)
def test_bytes_that_are_no_message_are_refused_with_a_reason(frame: bytes, complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint):
        decode_message(frame)


@pytest.mark.parametrize("text", ["/data/\udcff.txt", "half of a pair: \ud83d"])
def test_any_text_of_python_comes_back_as_it_was(text: str) -> None:
    failure = Failure(1, 0, [], "map-2", "UserCodeError", text, text, retry=True)

    assert decode_message(encode_message(failure)) == failure
