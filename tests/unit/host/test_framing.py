"""Frames survive any way of cutting the stream."""

from __future__ import annotations

import pytest

from flowpoint.errors import LinkLost
from flowpoint.host.framing import FRAME_BYTES_MAX, FrameDecoder, pack_length

FRAMES = [b"", b"a", b"bc" * 10, b"", b"d" * 70, b"e"]
STREAM = b"".join(pack_length(len(frame)) + frame for frame in FRAMES)


def decode(decoder: FrameDecoder, *chunks: bytes) -> list[bytes]:
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


def test_one_chunk_gives_all_frames() -> None:
    assert decode(FrameDecoder(), STREAM) == FRAMES


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_a_stream_cut_anywhere_gives_the_same_frames(at: int) -> None:
    assert decode(FrameDecoder(), STREAM[:at], STREAM[at:]) == FRAMES


@pytest.mark.parametrize("size", range(1, 12))
def test_a_stream_in_small_pieces_gives_the_same_frames(size: int) -> None:
    pieces = [STREAM[i : i + size] for i in range(0, len(STREAM), size)]

    assert decode(FrameDecoder(), *pieces) == FRAMES


def test_a_frame_is_there_as_soon_as_its_last_byte_is() -> None:
    decoder = FrameDecoder()

    assert decoder.feed(pack_length(2) + b"a") == []
    assert decoder.feed(b"b") == [b"ab"]


def test_the_end_of_a_stream_tears_a_frame_only_inside_one() -> None:
    decoder = FrameDecoder()
    assert decoder.is_between_frames

    decoder.feed(pack_length(2) + b"a")
    assert not decoder.is_between_frames

    decoder.feed(b"b")
    assert decoder.is_between_frames


def test_a_length_over_the_limit_is_refused_before_anything_is_kept() -> None:
    with pytest.raises(LinkLost, match="limit"):
        FrameDecoder().feed(pack_length(FRAME_BYTES_MAX + 1))
