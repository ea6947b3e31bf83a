"""Batches and the small frames of a data link survive the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowpoint.errors import BadRecordError, InternalError, LinkLost
from flowpoint.model.elements import END_OF_INPUT, WATERMARK_MAX, Barrier, Batch, Event, Watermark
from flowpoint.transport import wire
from flowpoint.transport.batches import decode_batch, encode_batch
from tests.unit.transport.stand_in import StandInCodec

CODEC = StandInCodec()
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.text(max_size=5), TIMESTAMPS), max_size=10), st.binary(max_size=20))
def test_values_and_timestamps_come_back_from_any_place_in_a_frame(rows: list[tuple[str, int]], before: bytes) -> None:
    values, timestamps = [value for value, _ in rows], [timestamp for _, timestamp in rows]

    data = before + encode_batch(CODEC, values, timestamps)

    assert decode_batch(CODEC, data, len(before)) == Batch(values, timestamps)


@given(st.lists(st.integers(0, 9)))
def test_a_batch_without_timestamps_stays_without(values: list[int]) -> None:
    assert decode_batch(CODEC, encode_batch(CODEC, values, None)) == Batch(values, None)


@pytest.mark.parametrize("timestamp", [2**63, -(2**63) - 1, 1.5, "now", None])
def test_a_timestamp_that_is_no_64_bit_integer_is_a_bad_record(timestamp: Any) -> None:
    with pytest.raises(BadRecordError, match="what assigns the timestamps"):
        encode_batch(CODEC, ["a"], [timestamp])


def test_a_batch_with_fewer_values_than_timestamps_is_refused() -> None:
    longer = encode_batch(CODEC, [1, 2], [1, 2])

    with pytest.raises(InternalError, match="1 values and 2 of 2 timestamps"):
        decode_batch(CODEC, longer[:21] + CODEC.encode_column([1]))


@pytest.mark.parametrize(
    "event",
    [
        Barrier(17),
        Barrier(checkpoint=2**40, kind="savepoint", halt=True, final=True),
        Watermark(-5),
        Watermark(WATERMARK_MAX),
        END_OF_INPUT,
    ],
)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    assert wire.decode_event(wire.encode_event(event)) == event


def test_a_greeting_and_a_grant_come_back_as_they_were() -> None:
    assert wire.decode_greeting(wire.encode_greeting(7, 3)) == (7, 3)
    head = wire.head(wire.GRANT, wire.channel_key(1, 2, 3))
    assert wire.decode_grant(head + wire.encode_grant(2, 300_000_000_000)) == (2, 300_000_000_000)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        wire.head(wire.BATCH, wire.channel_key(1, 2, 3)),
        bytes([wire.GREETING]),
        bytes([wire.GREETING]) + b"\x92\xa1a\1",
    ],
)
def test_a_first_frame_that_is_no_greeting_is_refused(frame: bytes) -> None:
    with pytest.raises(LinkLost, match="not with the greeting of a worker"):
        wire.decode_greeting(frame)


def test_messages_name_a_channel_by_its_ends() -> None:
    assert wire.channel_name(wire.channel_key(4, 0, 2)) == "edge 4 from subtask 0 to subtask 2"
